"""A fixture: a run as it was, to be played again without a model, a person or a network (F14).

    fixture = await export_run(runs, run_id)        JSON, for a file `tests/NAME.fixture.json`
    replay(fixture, around)                         see `replay`

Rule: nothing private is in it. Keys with `_`, what an error said, and the provider's own
form of a reply stay where they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Final

import msgspec
from msgspec import Struct

from turnline.agent.messages import ModelReply
from turnline.agent.round import ToolAnswer
from turnline.core import event_types as ev
from turnline.core.channel import child_id
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.state import WorkflowState
from turnline.errors import RunConflict, UnknownRun
from turnline.flow.context import is_private, public
from turnline.flow.definition.flow import Flow, inner_steps
from turnline.flow.definition.steps import AgentStep, ForEachStep, ParallelStep, Step, WorkflowStep
from turnline.flow.events import event_of
from turnline.flow.pauses import object_of
from turnline.flow.run import run_knob, step_of, steps_at
from turnline.flow.runs import Runs
from turnline.flow.steps.workflow import PLACE
from turnline.flow.work import DEFAULT
from turnline.turns.journal import entries

VERSION: Final = 1
SUFFIX: Final = ".fixture.json"


class RecordedStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a step ended, and what came from outside until then."""

    path: str
    signal: str = DEFAULT
    updates: JsonObject = {}
    deletes: list[str] = []
    answer: JsonObject | None = None
    """A person's."""
    replies: list[ModelReply] = []
    """The model's, the last one included."""
    tools: list[ToolAnswer] = []


class Fixture(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A whole run."""

    version: int
    flow: JsonObject
    """The definition it had."""
    flows: dict[str, JsonObject] = {}
    """Those of the flows it started."""
    input: JsonObject
    has_user: bool = False
    """Whether somebody had to be known; who it was is private."""
    steps: list[RecordedStep]
    """In the order they ended, those inside another before it."""
    status: str
    data: JsonObject
    error_type: str = ""
    error_step: str = ""
    ignore: list[str] = []
    """Keys that may differ from run to run."""


async def export_run(runs: Runs, run_id: str) -> JsonObject:
    """Return the run as a fixture. Raises `RunConflict` if it is not over."""
    state = await runs.state(run_id)
    if not state.is_over:
        raise RunConflict(run_id, because="is not over; a fixture is a whole run")
    found, flow = await runs.verdict(run_id), await runs.definition(run_id)
    flows: dict[str, Flow] = {}
    steps = [one async for one in _steps(runs, state, "", flows)]
    error = found.error
    fixture = Fixture(
        version=VERSION,
        flow=flow.pinned(),
        flows={name: one.pinned() for name, one in flows.items()},
        input=public(object_of(state.spec.knobs, "context_vars")),
        has_user="_user_id" in state.private_vars,
        steps=steps,
        status=found.status,
        data=public(found.data),
        error_type="" if error is None else error.type,
        error_step="" if error is None else error.step or "",
    )
    exported: JsonObject = msgspec.to_builtins(fixture)
    return exported


async def _steps(
    runs: Runs, state: WorkflowState, before: str, flows: dict[str, Flow]
) -> AsyncIterator[RecordedStep]:
    """A run's steps; those of the runs below a step come before it."""
    flow, knob = await runs.definition(state.channel_id), run_knob(state)
    if knob is not None and state.spec.parent_id is not None and not knob.at:
        flows[flow.name] = flow
    steps = steps_at(flow, () if knob is None else knob.at)
    seen = list[Envelope]()
    for line in await runs.lines(state.channel_id):
        event = event_of(line)
        if event is None or event.type != "step_ended":
            seen = [] if event is not None and event.reason == "retry" else [*seen, line]
            continue
        step = step_of(steps, event.step)
        for place, name in _below(step):
            child = await _child(runs, state.channel_id, _turn(seen), place)
            if child is None:
                break
            async for inner in _steps(runs, child, f"{before}{step.id}/{name}/", flows):
                yield inner
        yield _recorded(before + step.id, step, line, seen)
        seen = []


def _recorded(path: str, step: Step, packet: Envelope, lines: list[Envelope]) -> RecordedStep:
    event, known = event_of(packet), entries(lines)
    assert event is not None
    replies = [msgspec.structs.replace(one, raw=None) for one in known if isinstance(one, ModelReply)]
    last = str(packet.event_data.get("body", ""))
    if isinstance(step, AgentStep) and last:  # The packet is where the last reply is written down.
        replies.append(ModelReply(text=last))
    tools = [one for one in known if isinstance(one, ToolAnswer)]
    return RecordedStep(
        path=path,
        signal=event.signal,
        updates=event.updates,
        deletes=[key for key in event.deletes if not is_private(key)],
        answer=_answer(lines),
        replies=replies,
        tools=[msgspec.structs.replace(one, context=public(one.context)) for one in tools],
    )


def _answer(lines: list[Envelope]) -> JsonObject | None:
    answered = [one for one in lines if one.event_type == ev.EV_HUMAN_ANSWERED and "pause" in one.event_data]
    return public(object_of(answered[-1].event_data, "answer")) if answered else None


def _turn(lines: list[Envelope]) -> int:
    """The turn in which a step waited; 0 if it never did."""
    turns = [int(one.event_data.get("turn", 0)) for one in lines if one.event_type == ev.EV_TURN_PAUSED]
    return turns[-1] if turns else 0


def _below(step: Step) -> Iterator[tuple[str, str]]:
    """The places of the runs below a step, and what a path calls them; for a `for_each`, without an end."""
    match step:
        case ForEachStep():
            yield from ((str(number), str(number)) for number in count())
        case ParallelStep():
            yield from ((name, name) for name in inner_steps(step))
        case WorkflowStep():
            yield PLACE, step.workflow.name


async def _child(runs: Runs, run_id: str, turn: int, place: str) -> WorkflowState | None:
    try:
        return await runs.state(child_id(run_id, turn, place))
    except UnknownRun:
        return None
