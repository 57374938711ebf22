"""The body of a request, as a flow's trigger has it: the same check that the server makes (F1)."""

from __future__ import annotations

from turnwise.core.envelope import JsonObject
from turnwise.flow.definition.flow import Flow
from turnwise.flow.fields import Problem, check

INVALID_INPUT = "invalid_input"
"""The type of the error of a body that the trigger does not take."""


def checked_body(flow: Flow, body: JsonObject) -> tuple[JsonObject, list[Problem]]:
    """Return the body, its fields' defaults included, and what is wrong with it."""
    trigger = flow.spec.trigger
    if trigger is None or trigger.input is None:
        return body, []
    return check(trigger.input, body, extra=trigger.extra)
