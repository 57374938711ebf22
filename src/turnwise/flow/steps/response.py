"""`response`: shape what the caller gets."""

from __future__ import annotations

from turnwise.flow.context import public
from turnwise.flow.definition.steps import ResponseStep
from turnwise.flow.values import mapped
from turnwise.flow.work import Done, Work


async def perform(work: Work[ResponseStep]) -> Done:
    """Set `_response`; without a mapping it is the public context as it is now."""
    block = work.step.response
    payload = mapped(block.mapping, work.public) if block.mapping else work.public
    return Done(private={"_response": public(payload), "_response_status": block.status})
