"""`turnwise demo`: a support desk in one page.

Three parties take turns on one channel. The triage desk writes a context
variable, `route`; the graph reads it and gives the floor to the right desk.
No model, no key, no service: the desks are a few lines of Python.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from turnwise.core.envelope import Close, Envelope, Speak
from turnwise.core.event_types import EV_CHANNEL_CLOSED, EV_CONTEXT_SET, SUBSTANTIVE
from turnwise.core.packet import body_of
from turnwise.log.sqlite import SqliteLog
from turnwise.network import (
    AgentTarget,
    Channel,
    ContextEquals,
    FromSpeaker,
    Hub,
    HubClient,
    HumanClient,
    LocalLink,
    Passport,
    TerminateTarget,
    Transition,
    TransitionGraph,
    Turn,
)
from turnwise.network.workflow_helpers import set_context

COMPLAINT: Final = "I was charged twice for order 1042."

GRAPH: Final = TransitionGraph(
    initial_speaker="customer",
    transitions=[
        Transition(when=FromSpeaker("billing"), then=TerminateTarget("resolved")),
        Transition(when=ContextEquals("route", "billing"), then=AgentTarget("billing")),
        Transition(when=FromSpeaker("customer"), then=AgentTarget("triage")),
    ],
    default_target=TerminateTarget("nobody_to_ask"),
    max_turns=6,
)


async def triage(turn: Turn) -> str:
    last = (await turn.messages())[-1].text
    route = "billing" if "charged" in last else "general"
    await set_context(turn.channel, "route", route)
    return f"This is one for {route}."


async def billing(turn: Turn) -> str:
    await set_context(turn.channel, "refund", {"order": 1042, "amount": 19.90})
    return "You were. 19.90 is on its way back to you."


def run(log: Path) -> None:
    asyncio.run(_run(log, Console(highlight=False)))


async def _run(path: Path, console: Console) -> None:
    hub = await Hub.open(SqliteLog(path))
    client = HubClient(LocalLink(hub), hub=hub)
    try:
        customer = await client.register_human(Passport(name="customer", kind="human"))
        (await client.register(passport=Passport(name="triage"))).on_turn(triage)
        (await client.register(passport=Passport(name="billing"))).on_turn(billing)
        channel = await _talk(customer)
        await _tell(hub, channel, path, console)
    finally:
        await client.close()
        await hub.close()


async def _talk(customer: HumanClient) -> Channel:
    channel = await customer.open("workflow", ["triage", "billing"], {"graph": GRAPH.to_dict()})
    await channel.send(COMPLAINT)
    await channel.result(timeout=30)
    return channel


async def _tell(hub: Hub, channel: Channel, path: Path, console: Console) -> None:
    info, result = await channel.info(), await channel.result()
    names = {one.agent_id: one.name for one in info.participants}
    envelopes = await hub.read_wal(channel.channel_id)
    console.print("\nA customer, a triage desk and a billing desk share one channel.")
    console.print("Triage writes a context variable; the graph reads it and decides who is next.\n")
    console.print(*_transcript(envelopes, names), sep="\n", soft_wrap=True)
    variables = ", ".join(f"{key} = {value!r}" for key, value in result.context_vars.items())
    console.print(f"\nclosed: {result.reason} after {result.turns} turns", style="bold")
    console.print(f"context variables: {variables}")
    console.print(f"\nAll of it is on the log: {len(envelopes)} lines in {path}")
    console.print("Next: ./run test, the examples in README.md, the decisions in docs/decisions/\n")


def _transcript(envelopes: Iterable[Envelope], names: dict[str, str]) -> Iterable[Text]:
    for envelope in envelopes:
        who = names.get(envelope.sender_id, envelope.sender_id)
        if envelope.event_type in SUBSTANTIVE:
            said = body_of(envelope.event_type, envelope.event_data)
            yield Text.assemble(f"{envelope.seq:>4}  ", (f"{who}: ", "bold cyan"), said)
            yield Text(f"      {_why(envelope, names)}", style="dim")
        elif envelope.event_type == EV_CONTEXT_SET:
            sets = ", ".join(f"{key} = {value!r}" for key, value in envelope.event_data["set"].items())
            yield Text(f"{envelope.seq:>4}  {who} sets {sets}", style="green")
        elif envelope.event_type == EV_CHANNEL_CLOSED:
            yield Text(f"{envelope.seq:>4}  the channel closes", style="dim")


def _why(envelope: Envelope, names: dict[str, str]) -> str:
    match envelope.decision:
        case Speak(agent_id=agent_id, by=by):
            return f"-> {names.get(agent_id, agent_id)}, because {by.condition} (transition {by.index})"
        case Close(reason=reason, by=by):
            return f"-> close as {reason!r}, because {by.condition} (transition {by.index})"
        case _:
            return "the floor stays where it is"
