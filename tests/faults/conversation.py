"""A conversation that goes on until it is done, however often it is killed. Run by `test_conversation.py`.

    python -m tests.faults.conversation LOG honest|loose

The same script each time (L6): it opens what is there, registers by name, opens
the channel by its id, and waits for the end. Every line that is on the log is
said on standard output as it lands, so that whoever kills this knows what had
been acknowledged.
"""

from __future__ import annotations

import asyncio
import sys

from turnline.log.sqlite import SqliteLog
from turnline.network import (
    AgentClient,
    Channel,
    Envelope,
    Hub,
    HubClient,
    LocalLink,
    Passport,
    Turn,
    TurnHandler,
    round_robin,
)
from turnline.network.workflow_helpers import update_context

CHANNEL = "story"
TURNS = 30
NAMES = ("ada", "bob", "cyd")


async def honest(turn: Turn) -> str:
    """Two context writes and a packet; what is written twice must count once."""
    return await speak(turn.channel, turn.number)


def loose(client: AgentClient) -> TurnHandler:
    """The twin: it writes as an observer would, not as part of its turn."""

    async def handler(turn: Turn) -> str:
        return await speak(client.channel(turn.channel.channel_id), turn.number)

    return handler


async def speak(channel: Channel, number: int) -> str:
    await update_context(channel, increment={"turns": 1})
    await update_context(channel, append={"spoken": number})
    return f"turn {number}"


def acknowledged(envelope: Envelope) -> None:
    if envelope.channel_id == CHANNEL:
        sys.stdout.write(f"{envelope.seq} {envelope.envelope_id}\n")
        sys.stdout.flush()


async def main(path: str, kind: str) -> None:
    hub = await Hub.open(SqliteLog(path), listeners=[acknowledged])
    client = HubClient(LocalLink(hub))
    for name in NAMES:
        agent = await client.register(passport=Passport(name=name))
        agent.on_turn(honest if kind == "honest" else loose(agent))
    user = await client.register_human(Passport(name="user", kind="human"))
    graph = round_robin(NAMES, max_turns=TURNS)
    channel = await user.open("workflow", NAMES, {"graph": graph.to_dict()}, channel_id=CHANNEL, message="go")
    result = await channel.result()
    sys.stdout.write(f"closed {result.reason}\n")
    sys.stdout.flush()
    await client.close()
    await hub.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
