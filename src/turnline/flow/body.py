"""The body of a request, as a flow's trigger has it (F1)."""

from __future__ import annotations

from typing import Final

from turnline.core.envelope import JsonObject
from turnline.flow.context import from_outside, private
from turnline.flow.definition.flow import Flow
from turnline.flow.fields import Problem, check

INVALID_INPUT: Final = "invalid_input"
"""The type of the error of a body that the trigger does not take."""


def checked_body(flow: Flow, body: JsonObject) -> tuple[JsonObject, list[Problem]]:
    """Return the body with its fields' defaults, and what is wrong with it.

    Reserved keys pass: whoever starts the run drops them, and notes it.
    """
    trigger = flow.spec.trigger
    if trigger is None or trigger.input is None:
        return body, []
    ours, _ = from_outside(body)
    clean, problems = check(trigger.input, ours, extra=trigger.extra)
    return {**clean, **private(body)}, problems
