"""Steps that start another flow, and the input that the flow takes (F15)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turnline.core.study.finding import Path
from turnline.flow.body import checked_body
from turnline.flow.check.keys import steps_with_keys
from turnline.flow.check.names import Known
from turnline.flow.check.problem import Problem
from turnline.flow.check.writes import Keys
from turnline.flow.definition.base import Json
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import WorkflowStep
from turnline.flow.fields import Location
from turnline.flow.finding import listed
from turnline.flow.values import is_template

BAD_INPUT: Final = "TL206"


def inputs_of_flows(flow: Flow, known: Known) -> Iterator[Problem]:
    """Find input that a started flow will refuse: fields that are missing, unknown or of another type."""
    for path, step, there in steps_with_keys(flow, known):
        if isinstance(step, WorkflowStep) and step.workflow.name in known.definitions:
            child = known.definitions[step.workflow.name]
            if step.workflow.input is None:
                yield from _not_in_context((*path, "workflow"), child, there)
            else:
                yield from _wrong_input((*path, "workflow", "input"), child, step.workflow.input)


def _wrong_input(path: Path, child: Flow, given: dict[str, Json]) -> Iterator[Problem]:
    _, problems = checked_body(child, given)
    for problem in problems:
        if not _is_filled_in(given, problem.location):
            yield Problem(
                code=BAD_INPUT,
                path=(*path, *problem.location),
                message=f"the flow {child.name!r} does not take this input: {problem}",
                expected=listed(_fields(child)),
                fix='give it what the flow\'s trigger.input says; "{{ key }}" is the value of a context key',
            )


def _not_in_context(path: Path, child: Flow, there: Keys) -> Iterator[Problem]:
    """Without `input` the flow gets the context: what it needs has to be there."""
    _, problems = checked_body(child, {})
    for name in [str(problem.location[0]) for problem in problems if problem.location]:
        if name not in there:
            yield Problem(
                code=BAD_INPUT,
                path=path,
                message=f"the flow {child.name!r} needs {name!r}, and no path to this step produces it",
                expected=listed(_fields(child)),
                fix=f"write {name!r} in an earlier step, or give it with input:",
                severity="warning",
            )


def _is_filled_in(given: Json, location: Location) -> bool:
    """Return whether a template stands there: its value is not known before the run."""
    for part in location:
        if isinstance(given, str):
            break
        try:
            given = given[part]
        except (KeyError, IndexError, TypeError):
            return False
    return isinstance(given, str) and is_template(given)


def _fields(child: Flow) -> list[str]:
    trigger = child.spec.trigger
    return [] if trigger is None or trigger.input is None else list(trigger.input)
