"""`router`: the first condition that holds says the signal (F10)."""

from __future__ import annotations

from turnline.expressions import compile_expression
from turnline.flow.definition.steps import RouterStep
from turnline.flow.work import DEFAULT, Done, Work


async def perform(work: Work[RouterStep]) -> Done:
    """Return the signal; `default` where nothing holds."""
    for condition in work.step.router.conditions:
        if condition.if_ is None or compile_expression(condition.if_).holds(work.public):
            return Done(signal=condition.signal, body=condition.if_ or "else")
    return Done(signal=DEFAULT)
