"""Changes of data models: rows survive, and what would lose them is refused before anything is touched."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from turnline.core.envelope import JsonObject
from turnline.errors import DataUnavailable, ModelsRefused, WriteRefused
from turnline.flow.data.definition import ModelDefinition
from turnline.flow.data.row import Row

from .place import Place, SqlitePlace
from .stage import model, opened, stored, unit

V1: JsonObject = {"email": {"type": "string", "required": True}, "score": "integer"}


def versions(fields: JsonObject, **spec: Any) -> list[ModelDefinition]:
    return [model("Lead", fields, version="v2", **spec)]


async def land(place: Place, models: Sequence[ModelDefinition], **values: Any) -> Row:
    """A row of the first model, as an earlier version of the project left it."""
    async with opened(url=place.url, models=models) as data, unit(data) as work:
        row = await work.db[models[0].name].add(values)
        await work.commit_alone()
        return row


async def migrated(place: Place, models: Sequence[ModelDefinition], *, drop: bool = False) -> list[str]:
    """Open the project as it is now; what was done the second time."""
    async with opened(url=place.url, models=models, drop=drop) as data:
        return await data.migrate(drop=drop)


async def rows(place: Place, models: Sequence[ModelDefinition]) -> Sequence[Row]:
    async with opened(url=place.url, models=models) as data:
        return await stored(data, models[0].name)


# --- what happens by itself ---


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("string", None),
        ({"type": "integer", "default": -3}, -3),
        ({"type": "string", "default": "it's: 50%", "required": True}, "it's: 50%"),
        ({"type": "boolean", "default": True}, True),
        ({"type": "json", "default": {"a": [1]}}, {"a": [1]}),
        ({"type": "datetime", "default": "2030-01-01T12:00:00Z"}, "2030-01-01T12:00:00+00:00"),
        ({"type": "decimal", "default": "1.5", "scale": 2}, "1.50"),
        ({"type": "date", "unique": True}, None),
    ],
)
async def test_f12_a_new_field_comes_to_rows_that_are_there(place: Place, field: Any, value: Any) -> None:
    row = await land(place, [model("Lead", V1)], email="jane@example.com", score=7)
    now = versions({**V1, "extra": field})

    assert await migrated(place, now) == []
    assert await rows(place, now) == [{**row, "extra": value}]
    assert (await land(place, now, email="new@example.com"))["extra"] == value


async def test_f12_a_new_model_gets_its_table_and_its_relations(place: Place) -> None:
    row = await land(place, [model("Lead", V1)], email="jane@example.com")
    now = [*versions(V1, relations={"company": {"model": "Company"}}), model("Company", {"name": "string"})]
    async with opened(url=place.url, models=now) as data:
        assert await data.migrate() == []
        async with unit(data) as work:
            company = await work.db["Company"].add(name="Acme")
            await work.db["Lead"].update(row.id, company=company)
            await work.commit_alone()
        async with unit(data) as work:
            await work.db["Company"].remove(company.id)
            with pytest.raises(WriteRefused, match="FOREIGN KEY"):
                await work.commit_alone()

        assert [one.company_id for one in await stored(data)] == [company.id]


async def test_f12_a_field_that_is_gone_leaves_its_column_in_place(place: Place) -> None:
    row = await land(place, [model("Lead", V1)], email="jane@example.com", score=7)
    now = versions({"email": V1["email"]})

    assert await migrated(place, now) == []
    assert "score" not in (await rows(place, now))[0]
    assert await rows(place, [model("Lead", V1)]) == [row]


async def test_f12_a_required_field_that_is_gone_does_not_get_in_the_way_of_new_rows(place: Place) -> None:
    row = await land(place, [model("Lead", V1)], email="jane@example.com", score=7)
    now = versions({"score": "integer"})
    added = await land(place, now, score=8)

    assert {one.id: one.score for one in await rows(place, now)} == {row.id: 7, added.id: 8}
    assert sorted(place.sql("SELECT email FROM lead"), key=str) == [("jane@example.com",), (None,)]


async def test_f12_a_field_that_is_no_longer_required_may_be_null(place: Place) -> None:
    """SQLite copies the table for it: everything in it, and what refers to it, is still there."""
    before = [
        model("Lead", {**V1, "old": "string"}),
        model("Note", {"text": "string"}, relations={"lead": {"model": "Lead", "on_delete": "cascade"}}),
    ]
    async with opened(url=place.url, models=before) as data, unit(data) as work:
        row = await work.db["Lead"].add(email="jane@example.com", score=7, old="kept")
        await work.db["Note"].add(text="hello", lead=row)
        await work.commit_alone()
    place.sql("CREATE INDEX theirs ON lead (score)")
    now = [*versions({"email": "string", "score": "integer"}), before[1]]
    added = await land(place, now, score=1)

    assert added.email is None
    assert place.sql("SELECT email, old FROM lead WHERE score = 7") == [("jane@example.com", "kept")]
    assert place.sql("SELECT lead_id FROM note") == [(row.id,)]
    assert place.has_index("theirs")
    assert not isinstance(place, SqlitePlace) or place.sql("PRAGMA foreign_key_check") == []
    assert await migrated(place, now) == []


async def test_f12_a_field_that_has_become_required_is_so_for_rows_to_come(place: Place) -> None:
    row = await land(place, [model("Lead", V1)], email="jane@example.com")
    now = versions({**V1, "score": {"type": "integer", "required": True}})

    assert await migrated(place, now) == []
    assert await rows(place, now) == [row]


async def test_f12_uniqueness_comes_and_goes(place: Place) -> None:
    unique = {**V1, "email": {"type": "string", "required": True, "unique": True}}
    await land(place, [model("Lead", V1)], email="jane@example.com")
    with pytest.raises(WriteRefused, match="UNIQUE"):
        await land(place, versions(unique), email="jane@example.com")
    await land(place, [model("Lead", V1, version="v3")], email="jane@example.com")

    assert len(await rows(place, [model("Lead", V1)])) == 2


async def test_what_was_done_is_told(place: Place) -> None:
    await land(place, [model("Lead", V1)], email="jane@example.com")
    now = [*versions({"email": "string", "new": {"type": "string", "index": True}}), model("Company")]
    async with opened(url=place.url, models=now) as data:
        assert data.changes == [
            "new table company",
            "new column lead.new",
            "column lead.email may be null",
            "new index ix_lead_new",
        ]
    async with opened(url=place.url, models=versions({"email": "integer"}), drop=True) as data:
        assert data.changes == [
            "index ix_lead_new dropped",
            "column lead.email dropped and made anew",
            "column lead.new dropped",
            "column lead.score dropped",
        ]


# --- what is refused ---


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({**V1, "score": "string"}, "lead.score has another type"),
        ({**V1, "new": {"type": "string", "required": True}}, "lead.new is new and required"),
        ({**V1, "score": {"type": "integer", "unique": True}}, "lead.score is unique now"),
        ({**V1, "new": {"type": "integer", "unique": True, "default": 1}}, "lead.new is unique now"),
    ],
)
async def test_f12_what_would_lose_data_is_refused_before_anything_is_touched(
    place: Place, fields: JsonObject, told: str
) -> None:
    for name in ("jane", "john"):
        await land(place, [model("Lead", V1)], email=name, score=7)
    before = place.tables()
    with pytest.raises(ModelsRefused) as error:
        await migrated(place, [model("Company"), *versions({**fields, "harmless": "string"})])

    assert len(error.value.problems) == 1
    assert told in error.value.problems[0]
    assert place.tables() == before


async def test_f12_a_plain_field_does_not_become_a_relation(place: Place) -> None:
    await land(place, [model("Lead", {"company_id": "uuid"})])
    before = place.tables()
    now = [*versions({}, relations={"company": {"model": "Company"}}), model("Company")]
    with pytest.raises(ModelsRefused, match=r"lead\.company_id has another type, or another relation"):
        await migrated(place, now)

    assert place.tables() == before


async def test_f12_all_that_is_in_the_way_is_told_at_once(place: Place) -> None:
    await land(place, [model("Lead", V1)], email="jane@example.com")
    with pytest.raises(ModelsRefused) as error:
        await migrated(place, versions({"email": "json", "score": "date", "new": {"required": True}}))

    assert len(error.value.problems) == 3


async def test_a_table_without_rows_takes_a_new_required_field(place: Place) -> None:
    await migrated(place, [model("Lead", V1)])
    now = versions({**V1, "new": {"type": "string", "required": True}})
    await land(place, now, email="jane@example.com", new="x")

    assert [row.new for row in await rows(place, now)] == ["x"]


# --- what is asked for ---


async def test_f12_what_loses_data_is_done_when_it_is_asked_for(place: Place) -> None:
    before = {**V1, "gone": {"type": "string", "required": True, "unique": True}}
    row = await land(place, [model("Lead", before)], email="jane@example.com", score=7, gone="x")
    now = versions({"email": V1["email"], "score": "string"})

    assert await migrated(place, now, drop=True) == []
    (found,) = await rows(place, now)
    assert (found.id, found.email, found.score) == (row.id, "jane@example.com", None)
    columns = place.columns("lead")
    assert "gone" not in columns


async def test_f12_a_relation_that_is_gone_can_be_dropped(place: Place) -> None:
    company = model("Company")
    before = [model("Lead", V1, relations={"company": {"model": "Company"}}), company]
    await land(place, before, email="jane@example.com")

    assert await migrated(place, [*versions(V1), company], drop=True) == []
    assert "company_id" not in place.columns("lead")


async def test_f12_even_then_a_required_field_needs_something_to_put_there(place: Place) -> None:
    await land(place, [model("Lead", V1)], email="jane@example.com")
    before = place.tables()
    with pytest.raises(ModelsRefused):
        await migrated(place, versions({**V1, "new": {"required": True}}), drop=True)

    assert place.tables() == before


# --- others in the same database ---


async def test_f12_tables_that_are_not_ours_are_never_touched(place: Place) -> None:
    place.sql("CREATE TABLE theirs (a INTEGER PRIMARY KEY, b TEXT)")
    place.sql("INSERT INTO theirs (a, b) VALUES (1, 'kept')")
    place.sql("CREATE VIEW seen AS SELECT b FROM theirs")
    await land(place, [model("Lead", V1)], email="jane@example.com")
    await migrated(place, versions({}), drop=True)

    assert place.sql("SELECT b FROM seen") == [("kept",)]


async def test_f12_tables_that_are_not_ours_are_never_looked_at(tmp_path: Path) -> None:
    """This one cannot be: its module is not here."""
    place = SqlitePlace(tmp_path)
    place.sql("CREATE TABLE theirs (a INTEGER PRIMARY KEY, b TEXT)")
    with closing(sqlite3.connect(place.path)) as other, other:
        other.execute("PRAGMA writable_schema = ON")
        table = "'table', 'searched', 'searched', 0, 'CREATE VIRTUAL TABLE searched USING unheard_of(a)'"
        other.execute(f"INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ({table})")
    await land(place, [model("Lead", V1)], email="jane@example.com")
    now = versions({**V1, "new": "string"})

    assert await migrated(place, now) == []
    assert len(await rows(place, now)) == 1


async def test_f12_the_same_models_change_nothing(place: Place) -> None:
    everything = {
        kind: {"type": kind, "index": kind != "json"}
        for kind in ("string", "text", "integer", "number", "boolean", "date", "datetime", "uuid", "decimal")
    }
    models = [
        model(
            "Lead", {**everything, "json": "json"}, relations={"boss": {"model": "Lead", "required": False}}
        ),
        model("Plain", {"id": "integer"}, timestamps=False),
    ]
    await migrated(place, models)
    before = place.tables()

    assert await migrated(place, models) == []
    assert await migrated(place, models, drop=True) == []
    assert place.tables() == before


async def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    place.path.write_text("not a database, though long enough to be one" * 100)
    with pytest.raises(DataUnavailable, match="not a database"):
        await migrated(place, [model("Lead")])
