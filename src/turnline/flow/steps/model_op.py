"""`model_op`: one operation on a data model, without Python (F12).

    add, get, update    a row: its fields are merged into the context, or it goes under `into`
    list                rows: under `into`, or under the step's id
    remove              nothing is written

Where `get`, `update` or `remove` finds nothing, the signal is `not_found`. The work is
done in a unit that lands with the packet, or not at all (F7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from turnline.core.envelope import JsonObject
from turnline.errors import BadStepValue, UnknownName
from turnline.flow.context import from_outside
from turnline.flow.definition.steps import ModelOpStep
from turnline.flow.values import filled
from turnline.flow.work import StepResult, StepWork, UnitOfWork

NOT_FOUND: Final = "not_found"


async def perform(work: StepWork[ModelOpStep]) -> StepResult:
    block, data = work.step.model_op, work.services.data
    if data is None:
        raise UnknownName("data model", block.model, (), do="Declare it with kind: ModelDefinition.")
    versions: Mapping[str, str] = work.private.get("_context_model_versions") or {}
    unit = data.begin(work.flow.spec.context.models, versions)
    try:
        return _done(work, await _result(work, unit.db[block.model]), unit)
    except BaseException:
        await unit.close()
        raise


async def _result(work: StepWork[ModelOpStep], model: Any) -> Any:
    """What the operation returns. `model` is a data model's own, which only it knows the type of."""
    block = work.step.model_op
    values = filled(block.values, work.public, at="model_op.values")
    match block.op:
        case "add":
            return await model.add(**values)
        case "get":
            return await model.get(_id(work))
        case "update":
            is_there = await model.get(_id(work)) is not None
            return await model.update(_id(work), **values) if is_there else None
        case "remove":
            return await model.remove(_id(work))
        case "list":
            where = filled(block.where, work.public, at="model_op.where")
            return await model.list(where=where, order_by=block.order_by or (), limit=block.limit)


def _id(work: StepWork[ModelOpStep]) -> Any:
    found = filled(work.step.model_op.id, work.public, at="model_op.id")
    if found is None or found == "":
        raise BadStepValue("model_op.id", found="empty", expected="the id of a row")
    return found


def _done(work: StepWork[ModelOpStep], result: Any, unit: UnitOfWork) -> StepResult:
    block = work.step.model_op
    what = f"{block.op} {block.model}"
    if block.op == "list":
        rows = [dict(row) for row in result]
        return StepResult(
            updates={block.into or work.step.id: rows}, body=f"{what}: {len(rows)} rows", commit=unit
        )
    if result is None or result is False:
        return StepResult(signal=NOT_FOUND, body=f"{what}: not found", commit=unit)
    updates = {} if block.op == "remove" else _row(work, dict(result))
    return StepResult(updates=updates, body=what, commit=unit)


def _row(work: StepWork[ModelOpStep], row: JsonObject) -> JsonObject:
    into = work.step.model_op.into
    if into is not None:
        return {into: row}
    merged, dropped = from_outside(row)
    if dropped:
        work.dropped("model_op", dropped)
    return merged
