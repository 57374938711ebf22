"""`model_op`: one operation on a data model, in a unit that lands with the packet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from turnline.core.envelope import JsonObject
from turnline.errors import BadStepValue, TemplateFailed, UnknownName
from turnline.flow.definition.flow import ModelUse
from turnline.flow.steps import model_op
from turnline.flow.work import Services, StepResult
from turnline.log.joined import Write

from ..scenes import Notes, work_on


class Table:
    """Rows in memory."""

    def __init__(self, rows: list[JsonObject]) -> None:
        self.rows = rows
        self.asked: JsonObject = {}

    async def add(self, **values: Any) -> JsonObject:
        row = {"id": len(self.rows) + 1, **values}
        self.rows.append(row)
        return row

    async def get(self, id: object) -> JsonObject | None:
        return next((row for row in self.rows if row["id"] == id), None)

    async def list(self, *, where: JsonObject, order_by: str | tuple[()], limit: int) -> list[JsonObject]:
        self.asked = {"where": where, "order_by": order_by, "limit": limit}
        return [row for row in self.rows if where.items() <= row.items()][:limit]

    async def update(self, id: object, **values: Any) -> JsonObject:
        return {**next(row for row in self.rows if row["id"] == id), **values}

    async def remove(self, id: object) -> bool:
        return await self.get(id) is not None


class Unit:
    """A step's database work. A model that was not declared is not in `db`."""

    def __init__(self, db: Mapping[str, Table]) -> None:
        self.db: Any = db
        self.session: Any = None
        self.has_writes = True
        self.holds_database = False
        self.closed = 0

    async def commit_with(self, write: Write) -> None:
        raise AssertionError("the engine commits, not the step")

    async def rollback(self) -> None:
        raise AssertionError("a step closes its unit")

    async def commit_alone(self) -> None:
        raise AssertionError("the engine commits, not the step")

    async def close(self) -> None:
        self.closed += 1


class Models:
    """See `turnline.flow.work.Data`."""

    shares_log = False
    is_open = True

    def __init__(self, *rows: JsonObject) -> None:
        self.leads = Table(list(rows))
        self.units: list[Unit] = []
        self.begun: list[tuple[list[str], Mapping[str, str]]] = []

    def begin(self, declared: Sequence[ModelUse], versions: Mapping[str, str]) -> Unit:
        self.begun.append(([one.name for one in declared], versions))
        self.units.append(Unit({one.name: self.leads for one in declared}))
        return self.units[-1]


JANE: JsonObject = {"id": 1, "email": "jane@example.com", "score": 9}


async def done_by(
    data: Models, public: JsonObject | None = None, notes: Notes | None = None, **block: Any
) -> StepResult:
    work = work_on(
        {"id": "leads", "model_op": {"model": "Lead", **block}},
        public=public,
        private={"_context_model_versions": {"Lead": "v2"}},
        services=Services(data=data),
        context={"models": [{"name": "Lead", "version": "v2"}]},
        notes=notes,
    )
    return await model_op.perform(work)


async def test_f12_the_unit_knows_what_the_flow_declares_and_lands_with_the_packet() -> None:
    data = Models()

    done = await done_by(data, {"email": "a@b.ch"}, op="add", values={"email": "{{ email }}"})

    assert data.begun == [(["Lead"], {"Lead": "v2"})]
    assert done.commit is data.units[0]
    assert data.units[0].closed == 0


async def test_f12_add_merges_the_new_row_and_values_keep_their_types() -> None:
    values = {"email": "{{ email }}", "score": "{{ n }}", "tags": ["{{ n }}"], "note": "n={{ n }}"}

    done = await done_by(Models(), {"email": "a@b.ch", "n": 5}, op="add", values=values)

    assert done.updates == {"id": 1, "email": "a@b.ch", "score": 5, "tags": [5], "note": "n=5"}
    assert done.signal == "default"


async def test_f12_a_row_goes_under_into() -> None:
    done = await done_by(Models(JANE), {"lead": 1}, op="get", id="{{ lead }}", into="found")

    assert done.updates == {"found": JANE}


async def test_f12_get_merges_the_row() -> None:
    assert (await done_by(Models(JANE), op="get", id=1)).updates == JANE


async def test_f12_update_merges_the_row_as_it_is_now() -> None:
    done = await done_by(Models(JANE), {"s": 10}, op="update", id=1, values={"score": "{{ s }}"})

    assert done.updates == {**JANE, "score": 10}


async def test_f12_remove_writes_nothing() -> None:
    done = await done_by(Models(JANE), op="remove", id=1)

    assert (done.signal, done.updates) == ("default", {})


@pytest.mark.parametrize("op", ["get", "update", "remove"])
async def test_f12_nothing_there_is_a_signal(op: str) -> None:
    data = Models(JANE)

    done = await done_by(data, op=op, id=2)

    assert (done.signal, done.updates) == ("not_found", {})
    assert done.commit is data.units[0]


async def test_f12_rows_go_under_the_steps_id_or_into() -> None:
    data = Models(JANE, {"id": 2, "score": 1})

    listed = await done_by(data, {"s": 9}, op="list", where={"score": "{{ s }}"}, order_by="-score", limit=5)
    into = await done_by(data, op="list", into="all")

    assert listed.updates == {"leads": [JANE]}
    assert into.updates == {"all": [JANE, {"id": 2, "score": 1}]}
    assert data.leads.asked == {"where": {}, "order_by": (), "limit": 100}


async def test_f12_where_and_order_reach_the_model() -> None:
    data = Models()

    await done_by(data, {"s": 9}, op="list", where={"score": "{{ s }}"}, order_by="-score", limit=5)

    assert data.leads.asked == {"where": {"score": 9}, "order_by": "-score", "limit": 5}


async def test_f1_a_rows_reserved_keys_are_dropped_and_noted() -> None:
    notes = Notes()

    done = await done_by(Models({"id": 1, "_user_id": "root"}), notes=notes, op="get", id=1)

    assert done.updates == {"id": 1}
    assert notes.dropped == [("model_op", ["_user_id"])]


@pytest.mark.parametrize(
    ("block", "error"),
    [
        ({"op": "add", "values": {"email": "{{ missing }}"}}, TemplateFailed),
        ({"op": "get", "id": "{{ missing }}"}, TemplateFailed),
        ({"op": "list", "where": {"a": "{{ missing }}"}}, TemplateFailed),
        ({"op": "get"}, BadStepValue),
        ({"op": "remove", "id": "{{ none }}"}, BadStepValue),
        ({"op": "update", "id": ""}, BadStepValue),
        ({"op": "add", "model": "Other"}, KeyError),
    ],
)
async def test_f7_what_goes_wrong_closes_the_unit(block: JsonObject, error: type[Exception]) -> None:
    data = Models(JANE)

    with pytest.raises(error):
        await done_by(data, {"none": None}, **block)
    assert [unit.closed for unit in data.units] == [1]


async def test_f12_a_project_without_data_models_is_an_error_that_says_so() -> None:
    with pytest.raises(UnknownName, match="no data model is known as 'Lead'"):
        await model_op.perform(work_on({"model_op": {"model": "Lead", "op": "list"}}))
