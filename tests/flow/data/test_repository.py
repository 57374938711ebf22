"""`ctx["_db"]["Lead"]`: add, get, list, update, remove."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from turnline.core.json import normalised
from turnline.errors import BadField, ModelNotDeclared, WriteRefused
from turnline.flow.data import repository
from turnline.flow.data.database import Database
from turnline.flow.data.row import Row
from turnline.testing.manual_clock import ManualClock

from .stage import emails, model, opened, stored, unit

pytestmark = pytest.mark.usefixtures("everywhere")

NOBODY = "00000000-0000-0000-0000-000000000000"


async def land(data: Database, *leads: dict[str, Any]) -> list[Row]:
    """Rows that are there before the step begins."""
    async with unit(data) as work:
        rows = [await work.db["Lead"].add(lead) for lead in leads]
        await work.commit_alone()
    return rows


# --- which models ---


async def test_f12_a_model_the_flow_did_not_declare_is_refused() -> None:
    async with opened() as data, unit(data, "Lead") as work:
        with pytest.raises(PermissionError) as error:
            work.db["Company"]

        assert isinstance(error.value, ModelNotDeclared)
        assert error.value.declared == ("Lead",)
        assert "Company" not in work.db
        assert list(work.db) == ["Lead"]


# --- add and get ---


async def test_f12_a_row_is_json_by_key_and_by_attribute() -> None:
    given = {
        "email": "jane@example.com",
        "price": "12.5",
        "seen_at": "2030-01-01T14:00:00+02:00",
        "details": {"tags": ["a"]},
    }
    async with opened() as data, unit(data) as work:
        row = await work.db["Lead"].add(**given)

        assert row.id == row["id"]
        assert (row.price, row.seen_at) == ("12.50", "2030-01-01T12:00:00+00:00")
        assert row.created_at == "2030-01-01T12:00:00+00:00"
        assert normalised({"row": row}) == {"row": dict(row)}
        with pytest.raises(AttributeError, match="no field 'mail'"):
            _ = row.mail


async def test_f12_what_was_added_reads_back_equal() -> None:
    lead = {
        "email": "jane@example.com",
        "price": 0.1,
        "seen_at": "2030-01-01T12:00:00.123456Z",
        "details": [],
    }
    async with opened() as data:
        (added,) = await land(data, lead)

        async with unit(data) as work:
            assert await work.db["Lead"].get(added.id) == added
            assert await work.db["Lead"].list() == [added]


async def test_f12_values_may_be_given_as_a_mapping_or_by_name() -> None:
    async with opened() as data, unit(data) as work:
        row = await work.db["Lead"].add({"email": "jane@example.com", "score": 5}, score=7)

        assert (row.email, row.score) == ("jane@example.com", 7)


async def test_f12_a_relation_takes_a_row_an_id_or_an_object() -> None:
    async with opened() as data, unit(data) as work:
        acme = await work.db["Company"].add(name="Acme")
        other = work.db["Company"].model(name="Other")
        leads = work.db["Lead"]

        assert (await leads.add(email="a", company=acme)).company_id == acme.id
        assert (await leads.add(email="b", company=acme.id)).company_id == acme.id
        assert (await leads.add(email="c", company_id=acme.id)).company_id == acme.id
        assert (await leads.add(email="d", company=other)).company_id == other.id  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "field", "told"),
    [
        ({"email": 3}, "email", "is a int; expected text"),
        ({"email": "x", "mail": "y"}, "mail", "Did you mean 'email'?"),
        ({}, "email", "is missing"),
        ({"email": None}, "email", "is null"),
        ({"email": "x", "status": "lost"}, "status", "one of 'new', 'won'"),
        ({"email": "x", "details": object()}, "details", "JSON"),
        ({"email": "x", "company": "no id"}, "company_id", "a UUID"),
    ],
)
async def test_f12_what_does_not_fit_is_told_by_its_field_and_nothing_is_written(
    values: dict[str, Any], field: str, told: str
) -> None:
    async with opened() as data:
        async with unit(data) as work:
            with pytest.raises(BadField) as error:
                await work.db["Lead"].add(values)
            assert not work.has_writes
            await work.commit_alone()

        assert error.value.field == field
        assert told in str(error.value)
        assert await stored(data) == []


async def test_a_value_never_stands_in_an_error() -> None:
    secret = "sk-canary-1234567890"
    async with opened() as data, unit(data) as work:
        told = []
        for values in ({"email": "x", "score": secret}, {"email": "x", "status": secret}):
            with pytest.raises(BadField) as bad:
                await work.db["Lead"].add(values)
            told.append(repr(bad.value))
        for _ in range(2):
            await work.db["Lead"].add(email=secret)
        with pytest.raises(WriteRefused) as refused:
            await work.flush()
        told += [str(refused.value), str(refused.value.__cause__)]

        assert not [text for text in told if secret in text]


@pytest.mark.parametrize("row_id", [NOBODY, "not an id", 5, None])
async def test_f12_what_is_not_there_is_none(row_id: Any) -> None:
    async with opened() as data, unit(data) as work:
        assert await work.db["Lead"].get(row_id) is None
        assert await work.db["Lead"].remove(row_id) is False


# --- list ---


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({}, "abc"),
        ({"email": "a"}, "a"),
        ({"score": {"gt": 10}}, "bc"),
        ({"score": {"gte": 10, "lt": 30}}, "ab"),
        ({"score": {"lte": 10}}, "a"),
        ({"score": {"ne": 10}}, "bc"),
        ({"email": {"in": ["a", "c", "x"]}}, "ac"),
        ({"email": {"not_in": ["a"]}}, "bc"),
        ({"price": None}, "bc"),
        ({"price": {"is_null": False}}, "a"),
        ({"price": "9.5"}, "a"),
        ({"price": {"gt": "10"}}, ""),
        ({"price": {"ne": "9.5"}}, "bc"),
        ({"details": {"is_null": True}}, "bc"),
        ({"seen_at": {"lt": "2030-01-01T13:00:00+01:00"}}, "b"),
        ({"status": "new", "score": 10}, "a"),
        ({"status": "lost"}, ""),
    ],
)
async def test_f12_list_finds_what_is_asked_for(where: dict[str, Any], found: str) -> None:
    leads = [
        {"email": "a", "score": 10, "price": "9.5", "details": {}},
        {"email": "b", "score": 20, "seen_at": "2030-01-01T11:00:00Z"},
        {"email": "c", "score": 30, "seen_at": "2030-01-01T12:00:00Z"},
    ]
    async with opened() as data:
        await land(data, *leads)

        async with unit(data) as work:
            assert "".join(sorted(row.email for row in await work.db["Lead"].list(where=where))) == found
            assert len(await work.db["Lead"].list(where)) == len(found)


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"contains": "%"}, ["50%"]),
        ({"starts_with": "a_"}, ["a_b"]),
        ({"ends_with": "b"}, ["a_b", "axb"]),
    ],
)
async def test_text_is_searched_for_as_it_stands(where: dict[str, str], found: list[str]) -> None:
    async with opened() as data:
        await land(data, {"email": "a_b"}, {"email": "axb"}, {"email": "50%"})
        async with unit(data) as work:
            rows = await work.db["Lead"].list(where={"email": where})

        assert sorted(row.email for row in rows) == found


@pytest.mark.parametrize(
    "asked",
    [
        {"where": {"mail": "x"}},
        {"where": {"score": "many"}},
        {"where": {"score": {"above": 3}}},
        {"where": {"score": {"contains": "3"}}},
        {"where": {"score": {"in": 3}}},
        {"where": {"score": {"in": [1] * 1001}}},
        {"where": {"price": {"is_null": "yes"}}},
        {"where": {"details": {"eq": {}}}},
        {"where": {"details": []}},
        {"order_by": "mail"},
        {"order_by": "score; DROP TABLE lead"},
        {"limit": -1},
        {"limit": 10_001},
        {"limit": "all"},
        {"offset": -1},
    ],
)
async def test_f12_what_cannot_be_asked_is_told(asked: dict[str, Any]) -> None:
    async with opened() as data, unit(data) as work:
        with pytest.raises(BadField):
            await work.db["Lead"].list(**asked)


async def test_f12_rows_come_in_the_order_asked_for_page_by_page() -> None:
    async with opened() as data:
        await land(data, *({"email": f"{n}", "score": n % 3} for n in range(9)))
        async with unit(data) as work:
            pages = [
                await work.db["Lead"].list(order_by=["-score", "email"], limit=4, offset=offset)
                for offset in (0, 4, 8)
            ]

        assert "".join(row.email for page in pages for row in page) == "258147036"


@pytest.mark.parametrize(
    ("order_by", "found"),
    [
        ("score", ["b", "_", "a", "B", "é"]),
        ("-score", ["é", "B", "a", "_", "b"]),
        ("email", ["B", "_", "a", "b", "é"]),
        ("-email", ["é", "b", "a", "_", "B"]),
    ],
)
async def test_f12_every_database_has_the_same_order(order_by: str, found: list[str]) -> None:
    """Null first, and texts by their code points."""
    leads = [("a", 2), ("b", None), ("B", 3), ("é", 4), ("_", 1)]
    async with opened() as data:
        await land(data, *({"email": email, "score": score} for email, score in leads))
        async with unit(data) as work:
            rows = await work.db["Lead"].list(order_by=order_by)

        assert [row.email for row in rows] == found


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"contains": "ANE"}, ["jane", "JANE"]),
        ({"starts_with": "J"}, ["jane", "JANE"]),
        ({"contains": "É"}, ["É"]),
        ({"eq": "jane"}, ["jane"]),
        ({"gt": "Z"}, ["jane", "é", "É"]),
    ],
)
async def test_f12_every_database_compares_texts_in_the_same_way(
    where: dict[str, str], found: list[str]
) -> None:
    async with opened() as data:
        await land(data, *({"email": email} for email in ("jane", "JANE", "é", "É")))
        async with unit(data) as work:
            rows = await work.db["Lead"].list(where={"email": where})

        assert {row.email for row in rows} == set(found)


@pytest.mark.parametrize(
    "value",
    [1.5e300, 1e22, 1.2345678901234567e18, 1e-7, 2**80, -0.5, {"b": 1, "a": [None, "\u2028", {}]}, "x", 0],
)
async def test_f12_json_reads_back_equal(value: Any) -> None:
    async with opened() as data:
        await land(data, {"email": "jane@example.com", "details": [value]})
        (row,) = await stored(data)

        assert row.details == [value]
        assert type(row.details[0]) is type(value)


async def test_f12_a_null_that_is_given_is_one_though_there_is_a_default() -> None:
    fields = {"a": {"type": "integer", "default": 1}, "b": {"type": "json", "default": {}}}
    async with opened(models=[model("Plain", fields)]) as data:
        async with unit(data) as work:
            row = await work.db["Plain"].add(a=None, b=None)
            await work.commit_alone()
        async with unit(data) as work:
            assert (row.a, row.b) == (None, None)
            assert await work.db["Plain"].list(where={"a": None, "b": {"is_null": True}}) == [row]


@pytest.mark.parametrize("seen_at", ["0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.999999+00:00"])
async def test_f12_any_time_there_is_reads_back_equal(seen_at: str) -> None:
    async with opened() as data:
        await land(data, {"email": "jane@example.com", "seen_at": seen_at})
        (row,) = await stored(data)

        assert row.seen_at == seen_at


async def test_without_an_order_the_oldest_comes_first() -> None:
    clock = ManualClock()
    async with opened(clock=clock) as data, unit(data) as work:
        for name in "cab":
            await work.db["Lead"].add(email=name)
            clock.advance(1)

        assert [row.email for row in await work.db["Lead"].list()] == ["c", "a", "b"]


async def test_whoever_asks_for_all_rows_gets_all_or_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "MAX_ROWS", 3)
    async with opened() as data:
        await land(data, *({"email": f"{n}"} for n in range(4)))
        async with unit(data) as work:
            assert len(await work.db["Lead"].list(limit=2)) == 2
            assert len(await work.db["Lead"].list(offset=1)) == 3
            with pytest.raises(BadField, match="limit"):
                await work.db["Lead"].list()


# --- update and remove ---


async def test_f12_an_update_changes_what_it_names_and_the_time() -> None:
    clock = ManualClock()
    async with opened(clock=clock) as data:
        (row,) = await land(data, {"email": "jane@example.com", "score": 3})
        clock.advance(60)
        async with unit(data) as work:
            changed = await work.db["Lead"].update(row.id, {"score": 4}, status="won")
            await work.commit_alone()

        expected = {"score": 4, "status": "won", "updated_at": "2030-01-01T12:01:00+00:00"}
        assert changed == {**row, **expected}
        assert await stored(data) == [changed]


async def test_f12_an_update_that_does_not_fit_changes_nothing() -> None:
    async with opened() as data:
        (row,) = await land(data, {"email": "jane@example.com", "score": 3})
        async with unit(data) as work:
            for values in ({"score": 4, "status": "lost"}, {"score": 4, "x": 1}, {"score": 4, "id": NOBODY}):
                with pytest.raises(BadField):
                    await work.db["Lead"].update(row.id, **values)
            await work.commit_alone()

        assert await stored(data) == [row]


@pytest.mark.parametrize("row_id", [NOBODY, "not an id"])
async def test_f12_an_update_of_what_is_not_there_is_told(row_id: str) -> None:
    async with opened() as data, unit(data) as work:
        with pytest.raises(BadField, match="the id of one"):
            await work.db["Lead"].update(row_id, score=1)


async def test_f12_a_removed_row_is_gone() -> None:
    async with opened() as data:
        row, kept = await land(data, {"email": "a"}, {"email": "b"})
        async with unit(data) as work:
            assert await work.db["Lead"].remove(row.id) is True
            assert await work.db["Lead"].get(row.id) is None
            assert await work.db["Lead"].remove(row.id) is False
            await work.commit_alone()

        assert await stored(data) == [kept]


async def test_f12_a_step_sees_what_it_has_staged_itself() -> None:
    async with opened() as data, unit(data) as work:
        leads = work.db["Lead"]
        row = await leads.add(email="jane@example.com")
        assert await leads.get(row.id) == row
        changed = await leads.update(row.id, score=9)
        assert await leads.get(row.id) == changed
        assert not work.holds_database
        assert await leads.list(where={"score": 9}) == [changed]
        assert await leads.get(row.id) == changed
        assert await leads.remove(row.id)
        assert await leads.list() == []


async def test_what_was_only_staged_and_removed_again_was_never_there() -> None:
    async with opened() as data, unit(data) as work:
        row = await work.db["Lead"].add(email="jane@example.com")

        assert await work.db["Lead"].remove(row.id) is True
        assert not work.has_writes


# --- sessions ---


async def test_f12_every_method_takes_the_session_first_or_by_name() -> None:
    async with opened() as data, unit(data) as work:
        leads, session = work.db["Lead"], work.session
        row = await leads.add(session, email="a")
        await leads.add({"email": "b"}, session=session)
        assert await leads.get(session, row.id) == row
        assert await leads.get(row.id, session=session) == row
        assert await leads.get(id=row.id) == row
        assert len(await leads.list(session, where={"email": "a"})) == 1
        assert (await leads.update(session, row.id, score=2)).score == 2
        assert (await leads.update(id=row.id, score=3, session=session)).score == 3
        assert await leads.remove(session, row.id)
        assert len(await leads.list(session=session)) == 1


async def test_another_session_is_used_if_it_is_given() -> None:
    async with opened() as data:
        async with unit(data) as work, AsyncSession(data.engine) as other:
            row = await work.db["Lead"].add(other, email="theirs")
            await other.commit()
            assert not work.has_writes
            assert await work.db["Lead"].get(row.id) == row

        assert await emails(data) == ["theirs"]


async def test_a_model_may_have_a_field_called_session() -> None:
    async with opened(models=[model("Visit", {"session": "string"})]) as data, unit(data) as work:
        row = await work.db["Visit"].add(session="abc")

        assert row.session == "abc"


async def test_a_step_may_ask_for_several_things_at_once() -> None:
    async with opened() as data:
        await land(data, {"email": "a"}, {"email": "b"})
        async with unit(data) as work:
            leads = work.db["Lead"]
            found = await asyncio.gather(*(leads.list(where={"email": name}) for name in "abab"))

        assert [len(rows) for rows in found] == [1, 1, 1, 1]
