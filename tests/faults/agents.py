"""Three agents at work with tools until they are done, however often killed. Run by `test_agents.py`.

    python -m tests.faults.agents FOLDER honest|forgetful

Every request to the model and every run of a tool is a line in a file of the
folder, written by the operating system and by nobody else: what the log says
about them can be held against it. Standard output says what has landed on the log.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from turnline import Agent, Context, ToolResult
from turnline.agent.messages import Message, ModelReply, UserMessage
from turnline.core.views import Floor
from turnline.hub.seat import Claimed, Seat
from turnline.log.sqlite import SqliteLog
from turnline.network import (
    ChannelInject,
    Envelope,
    Hub,
    HubClient,
    LocalLink,
    Passport,
    Registration,
    round_robin,
)
from turnline.network.workflow_helpers import update_context
from turnline.testing import ScriptedModel, call

CHANNEL = "work"
TURNS = 6
NAMES = ("ada", "bob", "cyd")
LOG, TOOLS, MODELS = "log.db", "tools.txt", "models.txt"


class ForgetfulSeat(Seat):
    """The twin: what an earlier attempt of the turn has recorded is not looked at."""

    async def claim_turn(self, floor: Floor, channel_id: str, *, claim_id: str, alone: bool) -> Claimed:
        claimed = await super().claim_turn(floor, channel_id, claim_id=claim_id, alone=alone)
        return replace(claimed, lines=[], ages=[])


class ForgetfulLink(LocalLink):
    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self.hub = hub

    async def attach(self, registration: Registration, receiver: Any) -> Seat:
        self.hub.attach(registration.agent_id, receiver)
        return ForgetfulSeat(self.hub, registration)


class Work:
    """What the agents do: their model and their tools."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def model(self, messages: tuple[Message, ...]) -> Any:
        """Two calls at once, then one, then a word. Which it is follows from the messages alone."""
        said = max(number for number, one in enumerate(messages) if isinstance(one, UserMessage))
        turn = int(messages[said].text) + 1
        step = sum(isinstance(one, ModelReply) for one in messages[said:])
        self._write(MODELS, f"{turn}.{step}")
        return ([call("note", n=1), call("note", n=2)], call("total", turn=turn), str(turn))[step]

    async def note(self, n: int, context: Context) -> str:
        self._write(TOOLS, context.idempotency_key)
        return f"noted {n}"

    async def total(self, turn: int, context: Context, channel: ChannelInject) -> ToolResult:
        assert channel is not None
        await update_context(channel, increment={"totals": 1})
        self._write(TOOLS, context.idempotency_key)
        await update_context(channel, append={"turns": turn})
        return ToolResult("added up", context={"last": turn})

    def _write(self, name: str, line: str) -> None:
        file = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{line}\n".encode())
        os.close(file)


def acknowledged(envelope: Envelope) -> None:
    if envelope.channel_id == CHANNEL:
        sys.stdout.write(f"{envelope.event_type}\n")
        sys.stdout.flush()


async def main(folder: str, kind: str) -> None:
    hub = await Hub.open(SqliteLog(Path(folder) / LOG, durability="process"), listeners=[acknowledged])
    client = HubClient(LocalLink(hub) if kind == "honest" else ForgetfulLink(hub))
    work = Work(Path(folder))
    for name in NAMES:
        agent = Agent(name, config=ScriptedModel(work.model), tools=[work.note, work.total])
        await client.register(agent, attach_plugin=False)
    user = await client.register_human(Passport(name="user", kind="human"))
    graph = round_robin(NAMES, max_turns=TURNS)
    channel = await user.open("workflow", NAMES, {"graph": graph.to_dict()}, channel_id=CHANNEL, message="0")
    await channel.result()
    await client.close()
    await hub.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
