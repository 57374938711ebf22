"""Rows in an export: every type comes back the same, and no row is ever overwritten (Y10)."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import pytest

from turnline.core.envelope import JsonObject
from turnline.errors import BadExport, ModelsRefused, RowsRefused
from turnline.flow.data.database import Database, find_data
from turnline.flow.data.definition import ModelDefinition
from turnline.flow.data.transfer import RowReader, check_heads, write_rows
from turnline.log.export_file import ModelHead
from turnline.log.memory import MemoryLog
from turnline.log.records import MemoryRecords
from turnline.log.transfer import Imported, RowTarget, export_log, import_log
from turnline.testing.lines import line

from .place import Place, SqlitePlace
from .stage import LEAD, MODELS, model, opened, stored, unit

EVERYTHING = model(
    "Thing",
    {
        "id": "integer",
        "string": "string",
        "integer": "integer",
        "number": "number",
        "boolean": "boolean",
        "date": "date",
        "datetime": "datetime",
        "uuid": "uuid",
        "json": "json",
        "decimal": {"type": "decimal", "scale": 2},
    },
    relations={"parent": {"model": "Thing"}},
)
VALUES: list[JsonObject] = [
    {
        "id": 1,
        "string": 'it\'s\n"ü" 🙂',
        "integer": 2**60 + 1,
        "number": 1e300,
        "boolean": False,
        "date": "2030-01-31",
        "datetime": "2030-01-31T12:00:00.123456+02:00",
        "uuid": "6f1c1d5e-9f3e-4c57-8d8e-7a1f0f3f2b11",
        "json": {"b": [1.0, 2**60, None, {"a": 1e20}], "a": ""},
        "decimal": "12.50",
        "parent_id": 2,
    },
    {"id": 2},
]


IDS = {
    "a@example.com": "00000000-0000-0000-0000-00000000000a",
    "b@example.com": "00000000-0000-0000-0000-00000000000b",
}


async def fill(place: Place) -> None:
    async with opened(url=place.url, models=[EVERYTHING]) as data, unit(data) as work:
        for values in VALUES:
            await work.db["Thing"].add(values)
        await work.commit_alone()


async def export(url: str, models: Sequence[ModelDefinition]) -> bytes:
    """A log with one line, and the rows."""
    log, written = MemoryLog(), BytesIO()
    await log.append("talk", [line("talk", 1)], after=0)
    data = find_data(models, log=log, url=url)
    try:
        rows = RowReader(data, await data.plan())
        await export_log(MemoryRecords(log), written.write, exported_at="", rows=rows)
    finally:
        await data.close()
    return written.getvalue()


async def import_(content: bytes, data: Database, log: MemoryLog | None = None) -> Imported:
    log = log or MemoryLog()
    async with write_rows(data) as target:

        async def open_rows(heads: Sequence[ModelHead]) -> RowTarget:
            check_heads(heads, data.schema.models.values())
            return target

        return await import_log(BytesIO(content), log, MemoryRecords(log), open_rows=open_rows)


async def test_rows_of_every_type_are_the_same_on_the_other_database_and_after_the_way_back(
    place: Place, tmp_path: Path
) -> None:
    """From SQLite to here and back: a second import finds everything there."""
    first = SqlitePlace(tmp_path / "first")
    await fill(first)
    content = await export(first.url, [EVERYTHING])
    async with opened(url=place.url, models=[EVERYTHING]) as data:
        done = await import_(content, data)
        again = await import_(content, data)
        found = await stored(data, "Thing")

    assert (done.rows_written, done.rows_known) == (2, 0)
    assert (again.rows_written, again.rows_known) == (0, 2)
    async with opened(url=first.url, models=[EVERYTHING]) as data:
        assert found == await stored(data, "Thing")
        back = await import_(await export(place.url, [EVERYTHING]), data)
    assert (back.rows_written, back.rows_known) == (0, 2)


async def test_a_row_that_differs_is_named_and_nothing_of_the_file_is_written(
    place: Place, tmp_path: Path
) -> None:
    source = SqlitePlace(tmp_path / "source")
    async with opened(url=source.url) as data, unit(data) as work:
        for email in ("a@example.com", "b@example.com"):
            await work.db["Lead"].add(id=IDS[email], email=email, details={"secret": "hidden"})
        await work.commit_alone()
    content = await export(source.url, MODELS)
    async with opened(url=place.url) as data:
        async with unit(data) as work:
            await work.db["Lead"].add(id=IDS["b@example.com"], email="b@example.com", score=9)
            await work.commit_alone()
        before, log = await stored(data), MemoryLog()
        with pytest.raises(RowsRefused) as error:
            await import_(content, data, log)

        assert await stored(data) == before
    [problem] = error.value.problems
    assert f"Lead {IDS['b@example.com']!r} is there already, and differs from the file in score" in problem
    assert "details" in problem
    assert "hidden" not in problem
    assert await log.head("talk") is None


async def test_a_row_that_breaks_a_rule_of_the_table_is_refused_and_nothing_is_written(place: Place) -> None:
    plain = model("Lead", {"email": "string"}, timestamps=False)
    unique = model("Lead", {"email": {"type": "string", "unique": True}}, timestamps=False)
    async with opened(url=place.url, models=[plain]) as data, unit(data) as work:
        await work.db["Lead"].add(email="a@example.com")
        await work.db["Lead"].add(email="a@example.com")
        await work.commit_alone()
    content = await export(place.url, [plain])
    async with opened(models=[unique]) as data:
        with pytest.raises(RowsRefused, match=r"UNIQUE constraint failed: lead\.email") as error:
            await import_(content, data)

        assert await stored(data) == []
    assert "a@example.com" not in str(error.value)


@pytest.mark.parametrize(
    ("models", "told"),
    [
        ([model("Other")], "Lead: found its rows, expected a model of the project"),
        ([model("Lead", {"score": "string"})], r"Lead\.score: found integer in the file, expected string"),
        ([model("Lead", {"score": "integer", "new": "date"})], r"Lead\.new: found nothing .* expected date"),
        ([model("Lead", {})], r"Lead\.score: found integer in the file, expected nothing"),
    ],
)
async def test_rows_of_another_schema_are_refused(
    tmp_path: Path, models: list[ModelDefinition], told: str
) -> None:
    source = SqlitePlace(tmp_path)
    before = [model("Lead", {"score": "integer"})]
    async with opened(url=source.url, models=before) as data, unit(data) as work:
        await work.db["Lead"].add(score=1)
        await work.commit_alone()
    content = await export(source.url, before)
    async with opened(models=models) as data:
        with pytest.raises(RowsRefused, match=told):
            await import_(content, data)


async def test_rows_without_a_database_are_refused(tmp_path: Path) -> None:
    source = SqlitePlace(tmp_path)
    await fill(source)
    log = MemoryLog()
    content = await export(source.url, [EVERYTHING])
    with pytest.raises(RowsRefused, match="there is no database for them"):
        await import_log(BytesIO(content), log, MemoryRecords(log))

    assert await log.head("talk") is None


async def test_tables_that_wait_for_a_migration_are_not_exported_and_those_not_there_have_no_rows(
    tmp_path: Path,
) -> None:
    place = SqlitePlace(tmp_path)
    await fill(place)
    renamed = model("Thing", {"id": "integer", "text": {"type": "string", "renamed_from": "string"}})
    with pytest.raises(ModelsRefused, match="turnline db apply"):
        await export(place.url, [renamed])

    content = await export(place.url, [EVERYTHING, LEAD, model("Company")])
    assert content.count(b'"line":"row"') == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"boolean":false', b'"boolean":true'),
        (b'{"line":"row","model":"Thing"', b'{"line":"row","model":"Other"'),
        (b'"rows":2', b'"rows":1'),
    ],
)
async def test_a_file_whose_rows_were_changed_is_damaged(tmp_path: Path, old: bytes, new: bytes) -> None:
    place = SqlitePlace(tmp_path)
    await fill(place)
    content = await export(place.url, [EVERYTHING])
    assert old in content
    async with opened(models=[EVERYTHING]) as data:
        with pytest.raises(BadExport):
            await import_(content.replace(old, new, 1), data)
