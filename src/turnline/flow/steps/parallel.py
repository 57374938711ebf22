"""`parallel`: branches that go on at the same time, each on a channel of its own.

Without `into`, what they wrote is merged in the order of the document: of two that write
one key, the later one counts. A branch that failed, and is collected, stands under its name.
"""

from __future__ import annotations

from turnline.core.claims import Paused
from turnline.core.envelope import JsonObject
from turnline.flow.definition.steps import ParallelStep
from turnline.flow.steps.below import Brood, Outcome, brought_up, outcome
from turnline.flow.work import StepResult, StepWork


async def perform(work: StepWork[ParallelStep]) -> StepResult | Paused:
    """Run every branch; return what they wrote when the last has closed."""
    block = work.step.parallel
    names = list(block.branches)

    async def open_one(index: int) -> None:
        await work.children.run_inner(names[index], names[index], work.public)

    brood = Brood(
        places=names,
        open_one=open_one,
        call=lambda index: f"branch {names[index]!r} of step {work.step.id!r}",
        at_once=len(names),
        on_error=block.on_error,
    )
    paused = await brought_up(work, brood)
    if paused is not None:
        return paused
    outcomes = {name: await outcome(work, name, work.public) for name in names}
    if block.into is not None:
        return StepResult(updates={block.into: {name: one.as_data() for name, one in outcomes.items()}})
    return StepResult(updates=_merged(outcomes))


def _merged(outcomes: dict[str, Outcome]) -> JsonObject:
    merged: JsonObject = {}
    for name, one in outcomes.items():
        merged |= one.data if one.error is None else {name: one.as_data()}
    return merged
