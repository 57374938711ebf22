"""An agent that looks a price up with a tool. What it asks and what it looks up leave a mark."""

from __future__ import annotations

import os
from pathlib import Path

from turnline import Agent, tool
from turnline.agent.messages import Message, ToolCall
from turnline.testing import ScriptedModel, call


def mark(name: str) -> None:
    with (Path(os.environ["ORDERS_FOLDER"]) / "ledger").open("a") as ledger:
        ledger.write(f"{name}\n")


def say(messages: tuple[Message, ...]) -> str | ToolCall:
    mark(f"model {len(messages)}")
    return call("look_up", things=3) if len(messages) == 1 else '{"price": 30}'


@tool
def look_up(things: int) -> int:
    """Say what so many things cost."""
    mark("tool look_up")
    return things * 10


clerk = Agent(
    "clerk", "You know what things cost.", config=ScriptedModel(say, say, say, say), tools=[look_up]
)
