"""`for_each`: the same steps for every item of a list, each on a channel of its own."""

from __future__ import annotations

import asyncio
from typing import Final

from turnline.core.claims import Paused
from turnline.core.envelope import JsonObject
from turnline.errors import BadStepValue
from turnline.errors.base import short
from turnline.expressions import compile_expression
from turnline.expressions.functions import Json, Steps
from turnline.flow.definition.steps import ForEachBlock, ForEachStep
from turnline.flow.steps.below import Brood, brought_up, outcome
from turnline.flow.work import StepResult, StepWork

MAX_ITEMS: Final = 10_000
MAX_STEPS: Final = 1_000_000
"""What reading the items may cost: more than a condition, because a list is there to be long."""
INNER: Final = "each"


async def perform(work: StepWork[ForEachStep]) -> StepResult | Paused:
    """Run the inner steps for each item; return their results when the last has closed."""
    block = work.step.for_each
    items = await asyncio.to_thread(_items, block.items, work.public)

    async def open_one(index: int) -> None:
        context = _context(block, work.public, items[index], index)
        await work.children.run_inner(str(index), INNER, context)

    brood = Brood(
        places=[str(index) for index in range(len(items))],
        open_one=open_one,
        call=lambda index: f"item {index} of step {work.step.id!r}",
        at_once=block.concurrency,
        on_error=block.on_error,
    )
    paused = await brought_up(work, brood)
    if paused is not None:
        return paused
    results = [await _result(work, index, item) for index, item in enumerate(items)]
    return StepResult(updates={block.into: results})


async def _result(work: StepWork[ForEachStep], index: int, item: Json) -> JsonObject:
    block = work.step.for_each
    began = _context(block, work.public, item, index)
    return (await outcome(work, str(index), began, besides=(block.as_, block.index))).as_data()


def _context(block: ForEachBlock, public: JsonObject, item: Json, index: int) -> JsonObject:
    return public | {block.as_: item} | ({} if block.index is None else {block.index: index})


def _items(expression: str, public: JsonObject) -> list[Json]:
    steps = Steps(MAX_STEPS)
    items = compile_expression(expression).evaluate(public, steps=steps)
    if steps.left < 0:
        raise _not_items(expression, found="more than can be read at once")
    if not isinstance(items, list):
        raise _not_items(expression, found=short(items))
    if len(items) > MAX_ITEMS:
        raise _not_items(expression, found=f"a list of {len(items)}")
    return items


def _not_items(expression: str, *, found: str) -> BadStepValue:
    return BadStepValue(
        f"for_each.items, {expression!r},", found=found, expected=f"a list of at most {MAX_ITEMS} items"
    )
