"""What the demo plays: three agents with scripted models, and one that is killed.

    python -m turnline.cli.demo_scenes LOG CHANNEL LEDGER [MODEL]

plays the refund on a SQLite file, as one channel of it. The first time, its process is killed in the
middle of the refund tool; the second time, the same program goes on from the
same line. The ledger is what the outside world saw: every request a model got,
every payment made. With a model's name a real one is asked instead.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.messages import Message, ToolCall, ToolMessage
from turnline.agent.scripted import ScriptedModel, call
from turnline.client.channel import RunResult
from turnline.client.run import run
from turnline.network import (
    AgentTarget,
    ChannelInject,
    ContextEquals,
    FromSpeaker,
    TerminateTarget,
    Transition,
    TransitionGraph,
    sequence,
)
from turnline.network.workflow_helpers import set_context

COMPLAINT: Final = "I was charged twice for order 1042."

REFUND_GRAPH: Final = TransitionGraph(
    initial_speaker="user",
    transitions=[
        Transition(when=FromSpeaker("billing"), then=TerminateTarget("resolved")),
        Transition(when=ContextEquals("route", "billing"), then=AgentTarget("billing")),
        Transition(when=FromSpeaker("user"), then=AgentTarget("triage")),
    ],
    default_target=TerminateTarget("nobody_to_ask"),
    max_turns=6,
)


async def pipeline(model: str | None = None) -> RunResult:
    """Three agents, one after the other."""
    facts = "TLS encrypts; certificates prove who answers; the handshake agrees on keys."
    text = "HTTPS wraps HTTP in TLS, and so on."
    researcher = Agent("researcher", "List three facts.", config=model or ScriptedModel(facts))
    writer = Agent("writer", "Write one paragraph.", config=model or ScriptedModel(text))
    editor = Agent(
        "editor", "Shorten it to one line.", config=model or ScriptedModel("HTTPS is HTTP inside TLS.")
    )
    graph = sequence(["researcher", "writer", "editor"])
    return await run(graph, agents=[researcher, writer, editor], message="How does HTTPS work?")


async def refund(log: str, channel_id: str, ledger: Ledger, model: str | None = None) -> RunResult:
    """A routed conversation whose refund tool leaves a mark in a file."""
    return await run(
        REFUND_GRAPH,
        agents=[_triage(ledger, model), _billing(ledger, model)],
        message=COMPLAINT,
        log=f"sqlite:///{log}",
        channel_id=channel_id,
    )


class Ledger:
    """A file with a line for everything that happened outside of the log."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, kind: str, what: str) -> bool:
        """Add a line; return whether it is the first of its kind."""
        is_first = not any(known == kind for known, _ in self.lines())
        with self.path.open("a") as file:
            file.write(f"{kind} {what}\n")
        return is_first

    def lines(self) -> list[tuple[str, str]]:
        written = self.path.read_text().splitlines() if self.path.exists() else []
        return [(line.partition(" ")[0], line.partition(" ")[2]) for line in written]


def _asked(ledger: Ledger, says: Callable[[tuple[Message, ...]], str | ToolCall]) -> ScriptedModel:
    """A scripted model whose every request is in the ledger."""

    def answer(messages: tuple[Message, ...]) -> str | ToolCall:
        ledger.write("asked", says.__name__)
        return says(messages)

    return ScriptedModel(answer)


def _triage(ledger: Ledger, model: str | None) -> Agent:
    prompt = "Call `route` with the desk 'billing', then say in one sentence whom it is for."
    agent = Agent("triage", prompt, config=model or _asked(ledger, _triage_says))

    @agent.tool
    async def route(desk: str, channel: ChannelInject) -> str:
        """Say which desk this is for."""
        assert channel is not None
        await set_context(channel, "route", desk)
        return f"routed to {desk}"

    return agent


def _billing(ledger: Ledger, model: str | None) -> Agent:
    prompt = (
        "Call `pay_back` once, for the order that was charged twice (19.90), then say so in one sentence."
    )
    agent = Agent("billing", prompt, config=model or _asked(ledger, _billing_says))

    @agent.tool
    async def pay_back(order: int, amount: float, context: Context) -> str:
        """Pay an amount back."""
        if ledger.write("paid", context.idempotency_key):
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{amount} paid back"

    return agent


def _triage_says(messages: tuple[Message, ...]) -> str | ToolCall:
    routed = isinstance(messages[-1], ToolMessage)
    return "This is one for billing." if routed else call("route", desk="billing")


def _billing_says(messages: tuple[Message, ...]) -> str | ToolCall:
    paid = isinstance(messages[-1], ToolMessage)
    return "19.90 is on its way back to you." if paid else call("pay_back", order=1042, amount=19.90)


if __name__ == "__main__":
    asyncio.run(refund(sys.argv[1], sys.argv[2], Ledger(Path(sys.argv[3])), *sys.argv[4:5]))
