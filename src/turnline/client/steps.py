"""Working on the steps of a channel one has opened: fan-out and nested graphs.

A step is a turn like any other: claimed, and committed with one packet. What it
asks of others it asks on child channels, whose ids follow from the channel and the
turn: a step that is taken up again after a crash opens nothing twice, and finds the
answers that came meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Protocol

from msgspec import Struct

from turnline.client.channel import Channel, RunResult
from turnline.client.turn import Turn, TurnHandler
from turnline.core.adapters.turn_taking import CLOSE
from turnline.core.channel import child_id
from turnline.core.envelope import JsonObject
from turnline.core.graph import TransitionGraph
from turnline.core.routing import packet
from turnline.core.state import State
from turnline.core.step_targets import (
    FanOutTarget,
    NestedTarget,
    StepTarget,
    names_in,
    step_participants,
    steps_of,
)
from turnline.errors import StepFailed, TurnlineError

_TOO_SLOW: Final = "too_slow"


class Opener(Protocol):
    """Who opened the channel, and opens others below it."""

    @property
    def agent_id(self) -> str: ...

    @property
    def name(self) -> str: ...

    async def open(
        self,
        type: str = ...,
        target: str | Iterable[str] | None = ...,
        knobs: JsonObject | None = ...,
        *,
        message: str | None = ...,
        channel_id: str | None = ...,
        parent: str | None = ...,
    ) -> Channel: ...


class Answer(Struct, frozen=True, kw_only=True):
    """What one of several has answered."""

    agent: str
    text: str
    failed: bool = False


def handler_of(opener: Opener, state: State, step: str) -> TurnHandler | None:
    """Return what works on a step of the channel; None if there is no such step."""
    graph = state.spec.knobs.get("graph")
    if not step_participants(graph) or graph is None:
        return None
    target = steps_of(TransitionGraph.loads(graph)).get(step)
    return None if target is None else _Step(opener, state, target)


class _Step:
    """One step of one channel."""

    def __init__(self, opener: Opener, state: State, target: StepTarget) -> None:
        self._opener = opener
        self._spec = state.spec
        self._target = target

    async def __call__(self, turn: Turn) -> JsonObject:
        said = await turn.messages()
        question = said[-1].text if said else ""
        match self._target:
            case FanOutTarget() as target:
                return await self._fan_out(target, turn, question)
            case NestedTarget() as target:
                return await self._nested(target, turn, question)

    async def _fan_out(self, target: FanOutTarget, turn: Turn, question: str) -> JsonObject:
        asking = (self._ask(target, name, turn, question, place) for place, name in enumerate(target.agents))
        answers = await asyncio.gather(*asking)
        failed = [answer.agent for answer in answers if answer.failed]
        if failed and target.on_failure == "fail":
            raise StepFailed(target.step, agents=failed)
        body = "\n\n".join(f"{answer.agent}: {answer.text}" for answer in answers)
        results = [{"agent": one.agent, "text": one.text, "failed": one.failed} for one in answers]
        return packet(body, context_updates={target.into: results} if target.into else None)

    async def _ask(self, target: FanOutTarget, name: str, turn: Turn, question: str, place: int) -> Answer:
        agent_id = self._spec.resolve(name)
        member = self._spec.participant(agent_id)
        shown = member.name if member else name
        try:
            knobs = {"on_failure": CLOSE}
            channel = await self._opener.open(
                "consulting", [agent_id], knobs, message=question, **self._below(turn, str(place))
            )
            result = await _within(channel, target.timeout_seconds)
        except TurnlineError as error:  # It cannot be asked: denied, rejected, not there.
            return Answer(agent=shown, text=str(error), failed=True)
        if result.reason == _TOO_SLOW:
            return Answer(agent=shown, text=f"(no answer within {target.timeout_seconds:g} s)", failed=True)
        failed = result.reason != "consulting_complete"
        return Answer(agent=shown, text=f"({result.reason})" if failed else result.text, failed=failed)

    async def _nested(self, target: NestedTarget, turn: Turn, question: str) -> JsonObject:
        assert isinstance(target.graph, dict)
        named = names_in(TransitionGraph.loads(target.graph))
        others = [name for name in named if name not in (self._opener.name, self._opener.agent_id)]
        knobs = {"graph": target.graph}
        channel = await self._opener.open(
            "workflow", others, knobs, message=question, **self._below(turn, "0")
        )
        result = await channel.result()
        handed_on = {"text": result.text, "reason": result.reason, "context": result.context_vars}
        return packet(result.text, context_updates={target.into: handed_on} if target.into else None)

    def _below(self, turn: Turn, place: str) -> dict[str, Any]:
        parent = turn.channel.channel_id
        return {"channel_id": child_id(parent, turn.number, place), "parent": parent}


async def _within(channel: Channel, seconds: float | None) -> RunResult:
    """The channel's result; one that takes too long is closed, and that is its result."""
    try:
        return await channel.result(seconds)
    except TimeoutError:
        await channel.close(_TOO_SLOW)
        return await channel.result()
