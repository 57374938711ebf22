"""`workflow`: a run of another flow, as one step."""

from __future__ import annotations

from typing import Final

from turnline.core.claims import Paused
from turnline.flow.definition.steps import WorkflowStep
from turnline.flow.steps.below import Brood, brought_up, let_in, run_at
from turnline.flow.values import filled
from turnline.flow.verdict import verdict
from turnline.flow.work import StepResult, StepWork

PLACE: Final = "flow"


async def perform(work: StepWork[WorkflowStep]) -> StepResult | Paused:
    """Run the flow; return its response when it has ended."""
    block = work.step.workflow

    async def open_one(_: int) -> None:
        given = None
        if block.input is not None:
            given = let_in(work, filled(block.input, work.public, at="workflow.input"))
        await work.children.run_flow(PLACE, block.name, given)

    brood = Brood(places=[PLACE], open_one=open_one, call=lambda _: f"flow {block.name!r}", at_once=1)
    paused = await brought_up(work, brood)
    if paused is not None:
        return paused
    data = let_in(work, verdict(await run_at(work.children, PLACE)).data)
    return StepResult(updates=data if block.into is None else {block.into: data})
