"""`response`: shape what the caller gets."""

from __future__ import annotations

from turnline.flow.context import public
from turnline.flow.definition.steps import ResponseStep
from turnline.flow.values import mapped
from turnline.flow.work import StepResult, StepWork


async def perform(work: StepWork[ResponseStep]) -> StepResult:
    """Set `_response`; without a mapping it is the public context as it is now."""
    block = work.step.response
    payload = mapped(block.mapping, work.public) if block.mapping else work.public
    return StepResult(private={"_response": public(payload), "_response_status": block.status})
