"""The flows: a few steps that the seed draws, and what a run of them comes to.

first    a node that records a result with `once`
rate     an agent with a tool
shaky    a node that fails twice, and is retried
rest     a wait
ask      a person
all      `for_each`: children, and sub: another flow
talk     a conversation of agents
bomb     a node that kills its process; its route for errors takes the run on

Some flows are recorded at their end: `sums` and the steps of children only compute, and are done again
after a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.faults.simulation.cast import Cast, Thinking, call_of, think
from tests.faults.simulation.told import Told
from turnline import Context, tool
from turnline.agent.messages import ToolCall
from turnline.core.envelope import JsonObject
from turnline.flow.definition.flow import Flow, read
from turnline.flow.node import node
from turnline.flow.work import Services

FAILURES: Final = 2
RATING: Final = "7"

STEPS: Final[Mapping[str, JsonObject]] = {
    "first": {"runner": "first"},
    "rate": {
        "kind": "agent",
        "agent": {
            "prompt": "Rate {{ run }}",
            "tools": ["stamp"],
            "output": {"format": "text", "key": "rated"},
        },
    },
    "shaky": {"runner": "shaky", "retry": {"attempts": FAILURES + 1, "backoff": 1}},
    "rest": {"kind": "wait", "wait": {"for": 3}},
    "ask": {"kind": "human", "human": {"title": "ok?", "form": {"ok": "boolean"}}},
    "all": {
        "kind": "for_each",
        "for_each": {
            "items": "[1, 2]",
            "as": "n",
            "into": "squares",
            "steps": [{"id": "it", "runner": "square"}, {"id": "nap", "kind": "wait", "wait": {"for": 1}}],
        },
    },
    "sub": {"kind": "workflow", "workflow": {"name": "other", "input": {"n": 4}, "into": "other"}},
    "sums": {"runner": "sum"},
    "talk": {
        "kind": "channel",
        "channel": {"agents": ["ada", "eve"], "message": "Well?", "into": "words"},
        "retry": {"attempts": 50, "backoff": 1, "max_backoff": 2},
    },
}
RESULTS: Final[Mapping[str, JsonObject]] = {
    "first": {"first": 1},
    "rate": {"rated": RATING},
    "shaky": {"shaky": True},
    "ask": {"ok": True},
    "all": {"squares": [{"square": 1}, {"square": 4}]},
    "sub": {"other": {"n": 4, "square": 16, "sum": 1}},
    "sums": {"sum": 1},
}
OTHER: Final = read(
    {
        "metadata": {"name": "other"},
        "durability": "end",
        "steps": [{"id": "it", "runner": "square"}, {"id": "sums", "runner": "sum"}],
    },
    name="main",
)


@dataclass(frozen=True)
class Story:
    """A flow, and what its run comes to."""

    flow: Flow
    result: JsonObject
    """Without the words of a conversation: they name processes."""


def draw(random: Random, name: str, *, is_suspect: bool) -> Story:
    """Draw a flow of a few steps; a suspect kills its process in one of them."""
    chosen = random.sample(sorted(STEPS), k=random.choice((2, 3, 4)))
    steps: list[JsonObject] = [{"id": one, **STEPS[one]} for one in chosen]
    if is_suspect:
        steps.insert(0, {"id": "bomb", "runner": "bomb", "routes": {"error": chosen[0]}})
    result: JsonObject = {}
    for one in chosen:
        result |= RESULTS.get(one, {})
    durability = random.choice(("step", "end"))
    document = {"metadata": {"name": name}, "durability": durability, "steps": steps}
    return Story(read(document, name="main"), result)


def services_for(cast: Cast, told: Told, stories: Sequence[Story]) -> Services:
    """Return the nodes, tools and model of one process."""

    async def first(ctx: dict[str, Any]) -> JsonObject:
        async def charge() -> int:
            cast.mark("once", "charge", ctx["run"])
            await think(cast.random)
            return 1

        return {"first": await ctx["_once"]("charge", charge)}

    async def shaky(ctx: dict[str, Any]) -> JsonObject:
        async def begin() -> int:
            cast.mark("once", "begin", ctx["run"])
            return 1

        await ctx["_once"]("begin", begin)
        await think(cast.random)
        if told.failures[ctx["run"]] < FAILURES:
            told.failures[ctx["run"]] += 1
            raise ValueError("not yet")
        return {"shaky": True}

    @node(pure=True)
    async def square(ctx: dict[str, Any]) -> JsonObject:
        await think(cast.random)
        return {"square": ctx["n"] ** 2}

    @node("sum", pure=True)
    async def add_up(ctx: dict[str, Any]) -> JsonObject:
        await think(cast.random)
        return {"sum": 1}

    async def bomb(ctx: dict[str, Any]) -> None:
        await think(cast.random)
        cast.kill()
        await asyncio.Event().wait()

    @tool
    async def stamp(context: Context) -> str:
        """Leave a mark."""
        cast.mark("tool", call_of(context), context.idempotency_key.split(":")[0])
        await think(cast.random)
        return "stamped"

    flows = {one.flow.name: one.flow for one in stories} | {OTHER.name: OTHER}
    return Services(
        flows=flows,
        nodes={"first": first, "shaky": shaky, "square": square, "sum": add_up, "bomb": bomb},
        tools={"stamp": stamp},
        model=Thinking(cast, [ToolCall(call_id="c1", tool="stamp", arguments={})], RATING),
    )
