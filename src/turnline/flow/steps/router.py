"""`router`: the first condition that holds says the signal (F10)."""

from __future__ import annotations

from turnline.core.json import size_of
from turnline.errors import BadStepValue
from turnline.expressions import compile_expression
from turnline.expressions.functions import MAX_STEPS, OutOfSteps, Steps
from turnline.flow.definition.steps import RouterStep
from turnline.flow.work import DEFAULT, StepResult, StepWork
from turnline.threads import off_the_loop


async def perform(work: StepWork[RouterStep]) -> StepResult:
    """Return the signal; `default` if no condition holds."""
    return await off_the_loop(_route, work, size=size_of(work.public))


def _route(work: StepWork[RouterStep]) -> StepResult:
    """Evaluate the conditions. All of them share the steps of one evaluation."""
    steps = Steps()
    for place, condition in enumerate(work.step.router.conditions):
        try:
            if condition.if_ is None or compile_expression(condition.if_).holds_within(work.public, steps):
                return StepResult(signal=condition.signal, body=condition.if_ or "else")
        except OutOfSteps:
            found = f"more costly than {MAX_STEPS} steps, with those before it"
            at = f"router.conditions[{place}].if"
            raise BadStepValue(at, found=found, expected="conditions that read less data") from None
    return StepResult(signal=DEFAULT)
