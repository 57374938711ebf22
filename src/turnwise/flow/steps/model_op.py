"""`model_op`: one operation on a data model, without Python (F12).

    add, update     the row's fields are merged into the context, or go under `into`
    get             the same; nothing there is the signal `not_found`
    list            the rows go under `into`, or under the step's id
    remove          nothing is written; nothing there is `not_found`, as it is for `update`

The work is done in a unit that lands with the packet, or not at all (F7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from turnwise.core.envelope import JsonObject
from turnwise.errors import BadStepValue, UnknownName
from turnwise.flow.context import from_outside
from turnwise.flow.definition.steps import ModelOpStep
from turnwise.flow.values import filled
from turnwise.flow.work import Done, UnitOfWork, Work

NOT_FOUND: Final = "not_found"
_BY_ID: Final = frozenset({"get", "update", "remove"})


async def perform(work: Work[ModelOpStep]) -> Done:
    block, data = work.step.model_op, work.services.data
    if data is None:
        raise UnknownName("data model", block.model, (), do="Declare it: kind: ModelDefinition.")
    given = _Given(work)
    versions: Mapping[str, str] = work.private.get("_context_model_versions") or {}
    unit = data.begin(work.flow.spec.context.models, versions)
    try:
        return _done(work, await _result(work, unit.db[block.model]), unit)
    except BaseException:
        await unit.close()
        raise
