"""The channels below a turn: opened under derived ids, looked at, closed.

    perform_target(work) -> Paused until a child has closed -> ... -> Done with what they answered

Rule 1: the id of a child follows from the channel, the turn and the place that the performer names. So a turn
that resumes opens nothing twice, and finds what its children have come to. What is open when the turn ends
is closed by the hub (`hub.tree`, rule 2).

Rule 2: a turn waits for its children without a claim (N1). When a child closes it is performed again.

Rule 3: a child of `FanOutTarget` that cannot be opened, fails or is too slow is an answer like any other,
marked as failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from turnline.core.adapters import CLOSE, CONSULTING_TYPE
from turnline.core.channel import Expectation, child_id
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_TURN_FAILED, EV_TURN_PAUSED, SUBSTANTIVE, body_of
from turnline.core.graph import TransitionGraph
from turnline.core.routing import packet
from turnline.core.state import State
from turnline.core.step_targets import FanOutTarget, NestedTarget, names_in, steps_of
from turnline.errors import ChannelClosed, StepFailed, TurnlineError, UnknownChannel
from turnline.hub.request import OpenRequest
from turnline.turns.views import read_after
from turnline.turns.work import Done, Paused, Port, Work, own_log

TOO_SLOW: Final = "too_slow"
"""Why a child is closed that has not answered within the step's time."""
ANSWERED: Final = "consulting_complete"
_NESTED: Final = "0"
"""The place of a nested graph's channel."""


@dataclass(frozen=True)
class Children:
    """The children of one turn, at places that its performer names."""

    port: Port
    channel_id: str
    turn: int
    prefix: str = ""
    """Of its places: a step that is tried again has other children than the attempt before."""

    def id_of(self, place: str) -> str:
        """Return the id of the child at a place."""
        return child_id(self.channel_id, self.turn, self.prefix + place)

    async def open(self, place: str, request: OpenRequest) -> str:
        """Open the child at a place and return its id; one that is there already stays as it is."""
        child = self.id_of(place)
        with own_log():
            await self.port.open(replace(request, channel_id=child, parent_id=self.channel_id))
        return child

    async def state(self, place: str) -> State | None:
        """Return the child's state; None if there is no child at this place."""
        with own_log(), suppress(UnknownChannel):
            return await self.port.state(self.id_of(place))
        return None

    async def find_or_open(self, place: str, request: Callable[[], Awaitable[OpenRequest]]) -> State:
        """Return the state of the child at a place. If there is none, open what is requested."""
        if (state := await self.state(place)) is None:
            await self.open(place, await request())
            state = await self.state(place)
        assert state is not None  # It was found, or has been opened.
        return state

    async def last_words(self, place: str) -> str:
        """Return what was said last in a turn of the child; empty if nothing was."""
        lines = await self._read(place)
        said = [one for one in lines if one.event_type in SUBSTANTIVE and one.decision is not None]
        return body_of(said[-1].event_type, said[-1].event_data) if said else ""

    async def last_error(self, place: str) -> str:
        """Return the type of the error with which a turn of the child failed last; empty if none did."""
        failed = [one for one in await self._read(place) if one.event_type == EV_TURN_FAILED]
        return str(failed[-1].event_data["error"].get("type", "")) if failed else ""

    async def _read(self, place: str) -> list[Envelope]:
        with own_log():
            return await read_after(self.port.read, self.id_of(place), 0)

    async def close(self, child: str, reason: str) -> None:
        """Close a child: the turn waits for it no longer."""
        with own_log(), suppress(ChannelClosed, UnknownChannel):
            await self.port.close_channel(child, reason)


def consultation(to: str, task: str, expectations: list[Expectation] | None = None) -> OpenRequest:
    """Return the channel on which one participant is asked. It closes with `ANSWERED`, or has failed."""
    knobs: JsonObject = {"on_failure": CLOSE}
    return OpenRequest(
        type=CONSULTING_TYPE, target=[to], message=task, knobs=knobs, expectations=expectations
    )


async def perform_target(work: Work) -> Done | Paused:
    """Perform the step of a graph whose turn it is."""
    graph = work.state.spec.knobs.get("graph")
    target = steps_of(TransitionGraph.loads(graph)).get(work.speaker) if isinstance(graph, dict) else None
    if isinstance(target, FanOutTarget):
        return await _fan_out(work, target)
    if isinstance(target, NestedTarget):
        return await _nest(work, target)
    raise StepFailed(work.speaker, agents=[])


async def _fan_out(work: Work, target: FanOutTarget) -> Done | Paused:
    spec = work.state.spec
    agents = [spec.resolve(name) for name in target.agents]
    asked = [await _ask(work, str(index), agent) for index, agent in enumerate(agents)]
    still_open = [one.channel_id for one in asked if isinstance(one, State) and not one.is_over]
    left = _seconds_left(work, target)
    if still_open and left != 0:
        # The first is enough: when it closes, the others are looked at too.
        return Paused(reason="children", children=still_open[:1], seconds=left)
    for child in still_open:
        await work.children.close(child, TOO_SLOW)
    results = list[JsonObject]()
    for index, (agent, found) in enumerate(zip(agents, asked, strict=True)):
        failure = _failure(found, target)
        text = failure or await work.children.last_words(str(index))
        results.append({"agent": spec.name_of(agent), "text": text, "failed": bool(failure)})
    failed = [one["agent"] for one in results if one["failed"]]
    if failed and target.on_failure == "fail":
        raise StepFailed(target.step, agents=failed)
    body = "\n\n".join(f"{one['agent']}: {one['text']}" for one in results)
    return Done(data=packet(body, context_updates={target.into: results} if target.into else None))


async def _ask(work: Work, place: str, agent: str) -> State | str:
    """Return the state of the child that asks an agent, or why it cannot be asked."""

    async def request() -> OpenRequest:
        return consultation(agent, await _question(work))

    try:
        return await work.children.find_or_open(place, request)
    except TurnlineError as error:  # Denied, rejected, not there.
        return str(error)


def _failure(found: State | str, target: FanOutTarget) -> str:
    """Say why there is no answer; empty if there is one."""
    if isinstance(found, str):
        return found
    if not found.is_over:
        return f"(no answer within {target.timeout_seconds:g} s)"
    return "" if found.pending_close_reason == ANSWERED else f"({found.pending_close_reason})"


def _seconds_left(work: Work, target: FanOutTarget) -> float | None:
    """Return how long the step may still wait; None if it has no limit."""
    if target.timeout_seconds is None:
        return None
    first = next((one for one in work.lines if one.event_type == EV_TURN_PAUSED), None)
    waited = 0.0 if first is None else work.age_of(first)
    return max(target.timeout_seconds - waited, 0.0)


async def _nest(work: Work, target: NestedTarget) -> Done | Paused:
    state = await work.children.find_or_open(_NESTED, partial(_request_nested, work, target))
    if not state.is_over:
        return Paused(reason="children", children=[state.channel_id])
    text = await work.children.last_words(_NESTED)
    result = {"text": text, "reason": state.pending_close_reason, "context": state.context_vars}
    return Done(data=packet(text, context_updates={target.into: result} if target.into else None))


async def _request_nested(work: Work, target: NestedTarget) -> OpenRequest:
    assert isinstance(target.graph, dict)
    spec = work.state.spec
    player = spec.player_of(work.speaker)
    names = names_in(TransitionGraph.loads(target.graph))
    others = [one for one in names if one not in (player, spec.name_of(player))]
    knobs: JsonObject = {"graph": target.graph}
    return OpenRequest(type="workflow", target=others, knobs=knobs, message=await _question(work))


async def _question(work: Work) -> str:
    """Return what the step was asked: the last thing said to it."""
    messages = await work.messages()
    return messages[-1].text if messages else ""
