"""Changes of data models: rows survive, and what would lose them is refused before anything is touched."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from turnline.core.envelope import JsonObject
from turnline.errors import DataUnavailable, ModelsRefused, WriteRefused
from turnline.flow.data.database import find_data
from turnline.flow.data.definition import ModelDefinition
from turnline.flow.data.migration import Extent, Plan
from turnline.flow.data.row import Row
from turnline.log.memory import MemoryLog

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


async def migrated(
    place: Place, models: Sequence[ModelDefinition], *, extent: Extent = "additive"
) -> list[str]:
    """Open the project as it is now; what was done the second time."""
    async with opened(url=place.url, models=models, extent=extent) as data:
        return await data.migrate(extent=extent)


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
    async with opened(url=place.url, models=versions({"email": "integer"}), extent="lossy") as data:
        assert data.changes == [
            "column lead.email converted from string to integer",
            "index ix_lead_new dropped",
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

    assert await migrated(place, now, extent="lossy") == []
    (found,) = await rows(place, now)
    assert (found.id, found.email, found.score) == (row.id, "jane@example.com", "7")
    columns = place.columns("lead")
    assert "gone" not in columns


async def test_f12_a_relation_that_is_gone_can_be_dropped(place: Place) -> None:
    company = model("Company")
    before = [model("Lead", V1, relations={"company": {"model": "Company"}}), company]
    await land(place, before, email="jane@example.com")

    assert await migrated(place, [*versions(V1), company], extent="lossy") == []
    assert "company_id" not in place.columns("lead")


async def test_f12_even_then_a_required_field_needs_something_to_put_there(place: Place) -> None:
    await land(place, [model("Lead", V1)], email="jane@example.com")
    before = place.tables()
    with pytest.raises(ModelsRefused):
        await migrated(place, versions({**V1, "new": {"required": True}}), extent="lossy")

    assert place.tables() == before


# --- other names, other types ---


async def planned(place: Place, models: Sequence[ModelDefinition]) -> Plan:
    log = MemoryLog()
    data = find_data(models, log=log, url=place.url)
    try:
        return await data.plan()
    finally:
        await data.close()
        await log.close()


async def test_a_plan_says_what_would_be_done_and_what_could_be_lost_and_touches_nothing(
    place: Place,
) -> None:
    for email in ("7", "jane"):
        await land(place, [model("Lead", {**V1, "note": "text"})], email=email, score=7)
    before = place.tables()
    now = [
        *versions({"email": {"type": "integer"}, "points": {"type": "integer", "renamed_from": "score"}}),
        model("Company"),
    ]
    found = await planned(place, now)

    assert found.changes == (
        "new table company",
        "column lead.score renamed to points",
        "column lead.email converted from string to integer",
    )
    assert found.losses == (
        "lead.email: 1 of 2 rows hold what is not integer; each is cut to what fits, or null.",
    )
    assert (found.unused, found.obstacles) == (("lead.note",), ())
    assert place.tables() == before


async def test_a_renamed_field_keeps_its_values_its_index_and_its_rules(place: Place) -> None:
    unique = {"type": "string", "required": True, "unique": True}
    row = await land(place, [model("Lead", {"email": unique})], email="jane@example.com")
    now = versions({"mail": {**unique, "renamed_from": "email"}})
    with pytest.raises(ModelsRefused, match=r"found a column email, expected mail.*turnline db apply"):
        await migrated(place, now)

    assert await migrated(place, now, extent="lossless") == []
    assert [(one.id, one.mail, one.updated_at) for one in await rows(place, now)] == [
        (row.id, "jane@example.com", row.updated_at)
    ]
    assert "email" not in place.columns("lead")
    assert (place.has_index("uq_lead_email"), place.has_index("uq_lead_mail")) == (False, True)
    with pytest.raises(WriteRefused, match="UNIQUE"):
        await land(place, now, mail="jane@example.com")


async def test_a_renamed_relation_keeps_what_it_leads_to(place: Place) -> None:
    company = model("Company", {"name": "string"})
    relation = {"model": "Company", "on_delete": "cascade"}
    async with (
        opened(url=place.url, models=[model("Lead", relations={"company": relation}), company]) as data,
        unit(data) as work,
    ):
        acme = await work.db["Company"].add(name="Acme")
        await work.db["Lead"].add(company=acme)
        await work.commit_alone()
    renamed = {"employer": {**relation, "renamed_from": "company"}, "company": relation}
    with pytest.raises(ValidationError, match="renamed_from"):
        versions({}, relations=renamed)
    now = [*versions({}, relations={"employer": renamed["employer"]}), company]
    await migrated(place, now, extent="lossless")

    assert [one.employer_id for one in await rows(place, now)] == [acme.id]
    # The old name is free: a new relation that has it gets a column and a rule of its own.
    later = [model("Lead", version="v3", relations={"employer": relation, "company": relation}), company]
    assert await migrated(place, later) == []
    async with opened(url=place.url, models=later) as data:
        async with unit(data) as work:
            await work.db["Company"].remove(acme.id)
            await work.commit_alone()
        assert await stored(data) == []


@pytest.mark.parametrize(
    ("old", "value", "new", "expected"),
    [
        ("integer", 7, "string", "7"),
        ("integer", 7, "decimal", "7"),
        ("integer", 1, "boolean", True),
        ("string", "7", "integer", 7),
        ("string", "2030-01-01T12:00:00Z", "datetime", "2030-01-01T12:00:00+00:00"),
        ("text", '{"a": [1]}', "json", {"a": [1]}),
        ("json", {"a": [1]}, "text", '{"a": [1]}'),
        ("number", 1.5, "string", "1.5"),
        ("number", 2.0, "integer", 2),
        ("boolean", True, "integer", 1),
        ("date", "2030-01-31", "datetime", "2030-01-31T00:00:00+00:00"),
        ("datetime", "2030-01-31T00:00:00Z", "date", "2030-01-31"),
        ("decimal", "12.5", "number", 12.5),
    ],
)
async def test_a_field_of_another_type_keeps_its_values(
    place: Place, old: str, value: Any, new: str, expected: Any
) -> None:
    row = await land(
        place, [model("Lead", {"it": {"type": old, "index": old not in ("json", "text")}})], it=value
    )
    await land(place, [model("Lead", {"it": {"type": old, "index": old not in ("json", "text")}})], it=None)
    now = versions({"it": new})
    assert (await planned(place, now)).losses == ()

    assert await migrated(place, now, extent="lossless") == []
    assert {one.id: one.it for one in await rows(place, now)}[row.id] == expected
    assert sorted(place.columns("lead")) == ["created_at", "id", "it", "updated_at"]


@pytest.mark.parametrize(
    ("old", "value", "new", "left"),
    [
        ("string", "seven", "integer", None),
        ("string", "007", "integer", None),
        ("number", 1.5, "integer", None),
        ("datetime", "2030-01-31T12:00:00Z", "date", "2030-01-31"),
        ("integer", 2**60 + 1, "number", float(2**60)),
        ("integer", 7, "date", None),
    ],
)
async def test_a_type_that_loses_values_is_refused_until_it_is_allowed(
    place: Place, old: str, value: Any, new: str, left: Any
) -> None:
    await land(place, [model("Lead", {"it": old})], it=value)
    before = place.tables()
    now = versions({"it": new})
    with pytest.raises(ModelsRefused, match=r"lead\.it: 1 of 1 rows .* `turnline db apply --allow-loss`"):
        await migrated(place, now, extent="lossless")
    assert place.tables() == before

    assert await migrated(place, now, extent="lossy") == []
    assert [one.it for one in await rows(place, now)] == [left]


async def test_a_required_field_that_would_become_null_is_refused_also_if_loss_is_allowed(
    place: Place,
) -> None:
    await land(place, [model("Lead", {"it": {"type": "string", "required": True}})], it="seven")
    with pytest.raises(ModelsRefused, match=r"lead\.it is required, and 1 rows hold nothing that is integer"):
        await migrated(place, versions({"it": {"type": "integer", "required": True}}), extent="lossy")

    now = versions({"it": {"type": "integer", "required": True, "default": 3}})
    await migrated(place, now, extent="lossy")
    assert [one.it for one in await rows(place, now)] == [3]


async def test_values_that_become_the_same_are_refused_where_the_field_is_unique(place: Place) -> None:
    for it in ("1", "1.0"):
        await land(place, [model("Lead", {"it": {"type": "string", "unique": True}})], it=it)
    before = place.tables()
    with pytest.raises(ModelsRefused, match=r"(?i)unique"):
        await migrated(place, versions({"it": {"type": "integer", "unique": True}}), extent="lossy")

    assert place.tables() == before


async def test_the_type_of_an_id_does_not_change(place: Place) -> None:
    await land(place, [model("Lead", {"id": "integer"})], id=1)
    with pytest.raises(ModelsRefused, match=r"lead\.id is the key of its table"):
        await migrated(place, versions({"id": "string"}), extent="lossy")


async def test_two_that_migrate_at_once_do_it_one_after_the_other(place: Place) -> None:
    """Each as in a process of its own: they share nothing but the database."""
    row = await land(place, [model("Lead", V1)], email="jane@example.com", score=7)
    now = versions({"email": V1["email"], "points": {"type": "string", "renamed_from": "score"}})
    logs = [MemoryLog(), MemoryLog()]
    both = [find_data(now, log=log, url=place.url) for log in logs]
    try:
        done = await asyncio.gather(*(data.migrate(extent="lossless") for data in both))
    finally:
        await asyncio.gather(*(data.close() for data in both), *(log.close() for log in logs))

    assert sorted(map(len, done)) == [0, 2]
    assert [(one.id, one.points) for one in await rows(place, now)] == [(row.id, "7")]


# --- others in the same database ---


async def test_f12_tables_that_are_not_ours_are_never_touched(place: Place) -> None:
    place.sql("CREATE TABLE theirs (a INTEGER PRIMARY KEY, b TEXT)")
    place.sql("INSERT INTO theirs (a, b) VALUES (1, 'kept')")
    place.sql("CREATE VIEW seen AS SELECT b FROM theirs")
    await land(place, [model("Lead", V1)], email="jane@example.com")
    await migrated(place, versions({}), extent="lossy")

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
    assert await migrated(place, models, extent="lossy") == []
    assert place.tables() == before


async def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    place.path.write_text("not a database, though long enough to be one" * 100)
    with pytest.raises(DataUnavailable, match="not a database"):
        await migrated(place, [model("Lead")])
