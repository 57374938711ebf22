"""`router`: the first condition that holds says the signal (F10)."""

from __future__ import annotations

from turnline.errors import BadStepValue
from turnline.expressions import compile_expression
from turnline.expressions.functions import MAX_STEPS, OutOfSteps, Steps
from turnline.flow.definition.steps import RouterStep
from turnline.flow.work import DEFAULT, Done, Work


async def perform(work: Work[RouterStep]) -> Done:
    """Return the signal; `default` where nothing holds. All conditions share the steps of one evaluation."""
    steps = Steps()
    for place, condition in enumerate(work.step.router.conditions):
        try:
            if condition.if_ is None or compile_expression(condition.if_).holds_within(work.public, steps):
                return Done(signal=condition.signal, body=condition.if_ or "else")
        except OutOfSteps:
            found = f"more costly than {MAX_STEPS} steps, with those before it"
            at = f"router.conditions[{place}].if"
            raise BadStepValue(at, found=found, expected="conditions that read less data") from None
    return Done(signal=DEFAULT)
