"""The signals a step can end with, as far as its definition shows them.

The errors (`compile.ERRORS`) are among no step's signals: every step can end with one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from turnline.flow.compile import ERRORS, route
from turnline.flow.definition.fields import FieldSpec
from turnline.flow.definition.steps import (
    AgentStep,
    ApiCallStep,
    FunctionalStep,
    HumanStep,
    McpStep,
    ModelOpStep,
    Output,
    RouterStep,
    Step,
)
from turnline.flow.work import DEFAULT

EXPIRED: Final = "expired"
_STATUS: Final = re.compile(r"http_[4-9]\d\d")


@dataclass(frozen=True, slots=True)
class Signals:
    """What a step can say."""

    given: frozenset[str]
    is_open: bool = False
    """Whether it can say anything else, too."""


_ANYTHING: Final = Signals(frozenset({DEFAULT}), is_open=True)
_DEFAULT: Final = Signals(frozenset({DEFAULT}))
_FOUND_OR_NOT: Final = Signals(frozenset({DEFAULT, "not_found"}))
_ON_A_ROW: Final = frozenset({"get", "update", "remove"})


def signals_of(step: Step) -> Signals:
    """Return what `step` can say, other than that it failed."""
    say = _SAYS.get(type(step))
    said = _DEFAULT if say is None else say(step)
    if step.when is None:
        return said
    return Signals(said.given | {DEFAULT}, said.is_open)


def targets(steps: Sequence[Step], place: int) -> set[str]:
    """Return everything a step's signals can lead to: see `compile.route`."""
    step, said = steps[place], signals_of(steps[place])
    signals = {*said.given, *ERRORS, *(step.routes if said.is_open else ())}
    return {route(steps, place, signal) for signal in signals}


def _conditions(step: RouterStep) -> Signals:
    given = set[str]()
    for condition in step.router.conditions:
        given.add(condition.signal)
        if condition.else_:
            return Signals(frozenset(given))
    return Signals(frozenset({*given, DEFAULT}))


def _answers(step: HumanStep) -> Signals:
    block = step.human
    # Without a route for it, a question that nobody answered in time is an error.
    expired = {EXPIRED} & step.routes.keys() if block.expires is not None else set[str]()
    if block.signal_from is None or block.signal_from not in block.form:
        return Signals(frozenset({DEFAULT, *expired}))
    spec = block.form[block.signal_from]
    values = _values(spec)
    if values is None:
        return Signals(frozenset({DEFAULT, *expired}), is_open=True)
    return Signals(values | expired | (set() if spec.required else {DEFAULT}))


def _agent(step: AgentStep) -> Signals:
    output = step.agent.output
    return _chosen(step) if output.format == "signal" else _output(output)


def _chosen(step: AgentStep) -> Signals:
    """An agent that answers with a signal chooses among its routes; `default` takes all it says beside."""
    choices = step.routes.keys() - set(ERRORS)
    return Signals(frozenset(choices)) if choices else _ANYTHING


def _answered(step: ApiCallStep) -> Signals:
    """A status that says no is a signal where the step has a route for it; else it is an error."""
    statuses = {signal for signal in step.routes if _STATUS.fullmatch(signal)}
    said = _output(step.api_call.output)
    return Signals(said.given | statuses, said.is_open)


def _output(output: Output) -> Signals:
    if output.format == "signal":
        return _ANYTHING
    if output.signal_from is None:
        return _DEFAULT
    values = _values((output.schema_ or {}).get(output.signal_from))
    return _ANYTHING if values is None else Signals(values)


def _values(spec: FieldSpec | None) -> frozenset[str] | None:
    """The values of a field, as signals; None where the definition does not say which it has."""
    if spec is None:
        return None
    values = [True, False] if spec.type == "boolean" else spec.enum
    if values is None:
        return None
    return frozenset(one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in values)


_SAYS: Final[Mapping[type, Callable[[Any], Signals]]] = {
    FunctionalStep: lambda step: _ANYTHING,
    RouterStep: _conditions,
    HumanStep: _answers,
    AgentStep: _agent,
    ApiCallStep: _answered,
    McpStep: lambda step: _output(step.mcp.output),
    ModelOpStep: lambda step: _FOUND_OR_NOT if step.model_op.op in _ON_A_ROW else _DEFAULT,
}
"""The kinds of step that can say more than `default`."""
