"""A list of steps -> the graph of a run (F4).

    routes[signal]
    -> else, for an error, routes.error
    -> else, for `default`, the next step
    -> else routes.default
    -> else, at the last step, the run ends
    -> else it fails with `unrouted_signal`

An error never falls through to `default` or to the end: one that no route takes fails
the run (F5). A response without routes ends it. `route` says it for one signal;
`graph_of` writes the same down as transitions, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from turnline.core.channel import Participant
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.transitions import (
    AgentTarget,
    FromSpeaker,
    SignalIs,
    TerminateTarget,
    TransitionTarget,
    TurnFailed,
)
from turnline.flow.definition.flow import END, FAIL
from turnline.flow.definition.steps import ResponseStep, Step
from turnline.flow.verdict import COMPLETED, FAILED, STEP_FAILED, UNROUTED
from turnline.flow.work import DEFAULT

ERRORS: Final = ("error", "timeout", "parse_error")
"""The signals of a step that raised."""
UNHANDLED: Final = "UNHANDLED"
NOWHERE: Final = "NOWHERE"
"""Where a signal goes that no route takes: an error fails the run, and so does any other before the end."""

_ROUTED, _ERROR, _OTHERWISE = 0, 1, 2
"""Priorities: a step's own routes, then an error that none of them took, then the way on."""
_REASONS: Final = {END: COMPLETED, FAIL: FAILED, UNHANDLED: STEP_FAILED, NOWHERE: UNROUTED}


def route(steps: Sequence[Step], place: int, signal: str) -> str:
    """Return where `signal` leads from the step at `place`: a step's id, END, FAIL, UNHANDLED or NOWHERE."""
    step = steps[place]
    if signal in step.routes:
        return step.routes[signal]
    if signal in ERRORS:
        return step.routes.get("error", UNHANDLED)
    return step.routes.get(DEFAULT) or _onwards(steps, place, signal)


def graph_of(steps: Sequence[Step], *, max_steps: int, start: str | None = None) -> TransitionGraph:
    """Return the graph that takes a run through `steps`, from `start` on (the first, if it is not given)."""
    transitions = [one for place in range(len(steps)) for one in _routed(steps, place)]
    transitions += [Transition(SignalIs(error), TerminateTarget(STEP_FAILED), _ERROR) for error in ERRORS]
    transitions += [one for place in range(len(steps)) for one in _otherwise(steps, place)]
    return TransitionGraph(
        initial_speaker=start or steps[0].id,
        transitions=transitions,
        default_target=TerminateTarget(UNROUTED),
        max_turns=max_steps,
    )


def participants_of(steps: Sequence[Step]) -> list[Participant]:
    """The steps as participants of the run's channel."""
    return [_participant_of(step) for step in steps]


def _participant_of(step: Step) -> Participant:
    if step.asks is None:
        return Participant(step.id, step.id, "step")
    return Participant(step.id, step.id, "step", asks=step.asks.group, asks_seconds=step.asks.expires)


def _onwards(steps: Sequence[Step], place: int, signal: str) -> str:
    step, is_last = steps[place], place + 1 == len(steps)
    if is_last or (isinstance(step, ResponseStep) and not step.routes):
        return END
    return steps[place + 1].id if signal == DEFAULT else NOWHERE


def _routed(steps: Sequence[Step], place: int) -> Iterator[Transition]:
    """What a step's routes say, errors included."""
    step = steps[place]
    errors = [error for error in ERRORS if error not in step.routes] if "error" in step.routes else []
    for signal in (*step.routes, *errors):
        yield _transition(step, signal, route(steps, place, signal), _ROUTED)
    if "error" in step.routes:  # A step that ends its process again and again (N3).
        yield Transition(TurnFailed(step.id), _target(step.routes["error"]), _ROUTED)


def _otherwise(steps: Sequence[Step], place: int) -> Iterator[Transition]:
    """Where a step leads with `default`, and with whatever else it says, where its routes do not."""
    rest, default = route(steps, place, ""), route(steps, place, DEFAULT)
    if rest != default:
        yield _transition(steps[place], DEFAULT, default, _OTHERWISE)
    if rest != NOWHERE:
        yield Transition(FromSpeaker(steps[place].id), _target(rest), _OTHERWISE)


def _transition(step: Step, signal: str, leads_to: str, priority: int) -> Transition:
    return Transition(FromSpeaker(step.id) & SignalIs(signal), _target(leads_to), priority)


def _target(name: str) -> TransitionTarget:
    reason = _REASONS.get(name)
    return AgentTarget(name) if reason is None else TerminateTarget(reason)
