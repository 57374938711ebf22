"""Stubs at work: what a step gives instead of being performed.

Rule 1: nothing leaves the process. A step of a kind that asks a model, a person or
another system is either stubbed or a problem that says so; every other one is performed.

Rule 2: a step that misses its stub pauses. Nothing behind it happens, so that one mistake
is one problem.

Rule 3: people and events come in the real way. Their stubs are handed to whoever plays the
case (`waiting_for`), and the step is performed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final

from turnline.agent.agent import Agent
from turnline.agent.journal import Entry
from turnline.agent.scripted import ScriptedModel
from turnline.core.claims import Paused
from turnline.core.event_types import EV_TURN_PAUSED
from turnline.errors import FlowError, ParseFailed
from turnline.flow.context import is_private, private, public
from turnline.flow.definition import steps as define
from turnline.flow.testing.definition import (
    Answers,
    DoesNotParse,
    Expires,
    Gives,
    Happens,
    Raises,
    Stub,
    TakesTooLong,
)
from turnline.flow.testing.paths import Places
from turnline.flow.testing.problem import Problem
from turnline.flow.work import PerformStep, StepResult, StepWork

OUTSIDE: Final = (
    define.AgentStep,
    define.ApiCallStep,
    define.McpStep,
    define.ChannelStep,
    define.HumanStep,
)
"""The kinds of step that need somebody or something else; a `wait` for an event is another."""
UNSTUBBED: Final = "stub"
"""The key of the pause of a step that misses its stub."""

FromOutside = Answers | Expires | Happens
"""What a step waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What an agent's model and tools said when the run was recorded: the round goes through it again."""

    entries: Sequence[Entry]


AnyStub = Stub | Said


def stub_it(step: define.Step) -> str:
    """What to do about a step that a case has to stub."""
    match step:
        case define.HumanStep():
            fields = ", ".join(f"{name}: ..." for name in step.human.form)
            example = f"{{answer: {{{fields}}}}}"
        case define.WaitStep():
            example = "{event: {...}}"
        case _:
            example = "{updates: {...}}"
    return f"stub it: {step.id}: {example}"


class Stubs:
    """What the steps of one case give."""

    def __init__(
        self, stubs: Mapping[str, Sequence[AnyStub]], *, missing: Callable[[define.Step], str] = stub_it
    ) -> None:
        """`missing` says what to do about a step that has none."""
        self.problems: list[Problem] = []
        self.places = Places()
        self._stubs = stubs
        self._missing = missing
        self._given: Counter[tuple[str, str]] = Counter()
        """Run and step -> how many of its stubs it has had."""
        self._waiting: dict[str, FromOutside] = {}

    def waiting_for(self, run_id: str) -> FromOutside | None:
        """What the run's step, which waits, is to get now; nothing twice."""
        return self._waiting.pop(run_id, None)

    def around(self, perform: PerformStep) -> PerformStep:
        """`perform`, where there is no stub."""

        async def stubbed(work: StepWork[Any]) -> StepResult | Paused:
            return await self._performed(work, perform)

        return stubbed

    async def _performed(self, work: StepWork[Any], perform: PerformStep) -> StepResult | Paused:
        watched = replace(work, children=self.places.watched(work))
        if any(line.event_type == EV_TURN_PAUSED for line in work.history):
            return await perform(watched)  # It has had its stub when it began.
        stubs = self._stubs_of(work)
        if not stubs:
            return self._unstubbed(work) if is_outside(work.step) else await perform(watched)
        stub = self._next(work, stubs)
        match stub:
            case None:
                return self._used_up(work, len(stubs))
            case Answers() | Expires() | Happens():
                self._waiting[work.run_id] = stub
                return await perform(watched)
            case Said():
                return await perform(_said_again(watched, stub.entries))
        return ended(work.step.id, stub)

    def _stubs_of(self, work: StepWork[Any]) -> Sequence[AnyStub]:
        paths = self.places.paths(work.run_id, work.step.id)
        return next((self._stubs[path] for path in paths if path in self._stubs), ())

    def _next(self, work: StepWork[Any], stubs: Sequence[AnyStub]) -> AnyStub | None:
        """One stub is for every attempt; of several, each is for one."""
        place = (work.run_id, work.step.id)
        number = self._given[place]
        self._given[place] += 1
        if len(stubs) == 1:
            return stubs[0]
        return stubs[number] if number < len(stubs) else None

    def _unstubbed(self, work: StepWork[Any]) -> Paused:
        found = f"a step of kind {work.step.kind}, which a test does not perform"
        return self._stopped(work, found=found, fix=self._missing(work.step))

    def _used_up(self, work: StepWork[Any], count: int) -> Paused:
        found = f"attempt {count + 1}, and only {count} stubs"
        return self._stopped(work, found=found, fix="give a stub for each attempt, or a single one for all")

    def _stopped(self, work: StepWork[Any], *, found: str, fix: str) -> Paused:
        path = self.places.paths(work.run_id, work.step.id)[0]
        self.problems.append(Problem(what=f"step {path}", found=found, fix=fix))
        return Paused(reason="event", key=UNSTUBBED)


def is_outside(step: define.Step) -> bool:
    """Whether the step needs somebody or something that a test does not have."""
    if isinstance(step, define.WaitStep):
        return step.wait.event is not None
    return isinstance(step, OUTSIDE)


def ended(step: str, stub: Gives | Raises | DoesNotParse | TakesTooLong) -> StepResult:
    """What a stub makes of the step: its end, or what it raises."""
    match stub:
        case Gives():
            return StepResult(
                signal=stub.signal,
                updates=public(stub.updates),
                deletes=[key for key in stub.deletes if not is_private(key)],
                private=private(stub.updates),
                private_deletes=[key for key in stub.deletes if is_private(key)],
                body="stubbed",
            )
        case Raises():
            raise FlowError(stub.error)
        case DoesNotParse():
            raise ParseFailed(step, found=stub.parse_error, expected="what the step asks for")
    raise TimeoutError("the step took too long")


def _said_again(work: StepWork[Any], said: Sequence[Entry]) -> StepWork[Any]:
    """The work of an agent step whose round is answered from what was said; its models are never asked."""
    step = work.step.model_copy(update={"agent": work.step.agent.model_copy(update={"model": None})})
    agents = {name: _with_no_model(agent) for name, agent in work.services.agents.items()}
    services = replace(work.services, agents=agents, model=ScriptedModel())
    return replace(work, step=step, services=services, recorded=said)


def _with_no_model(agent: Agent) -> Agent:
    silent = copy(agent)
    silent.config = ScriptedModel()
    return silent
