"""Mapped classes: what a step does with the session and `db["Lead"].model`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import selectinload

from turnline.errors import BadField, WriteRefused

from .stage import COMPANY, LEAD, emails, model, opened, stored, unit

pytestmark = pytest.mark.usefixtures("everywhere")


async def test_f12_an_object_has_its_id_times_and_defaults_before_it_is_written() -> None:
    async with opened() as data, unit(data) as work:
        lead: Any = work.db["Lead"].model(email="jane@example.com")

        assert UUID(lead.id)
        assert lead.created_at is not None
        assert (lead.score, lead.status) == (1, "new")


async def test_f12_what_is_set_on_an_object_has_passed_its_field() -> None:
    async with opened() as data, unit(data) as work:
        lead: Any = work.db["Lead"].model(email="jane@example.com")
        lead.price = "12.5"
        with pytest.raises(BadField, match=r"Lead\.score is a str"):
            lead.score = "many"

        assert lead.score == 1
        assert str(lead.price) == "12.50"


@pytest.mark.parametrize("values", [{"mail": "x"}, {}, {"email": None}, {"email": 3}])
async def test_f12_an_object_that_does_not_fit_is_not_made(values: dict[str, Any]) -> None:
    async with opened() as data, unit(data) as work:
        with pytest.raises(BadField):
            work.db["Lead"].model(**values)


async def test_f12_objects_statements_and_repositories_are_one_unit() -> None:
    async with opened() as data:
        async with unit(data) as work:
            lead = work.db["Lead"].model
            work.session.add(lead(email="object@example.com"))
            await work.session.execute(insert(lead.mapped.table).values(email="statement@example.com"))
            await work.db["Lead"].add(email="repository@example.com")
            raised = update(lead).values(score=lead.score + 1)  # type: ignore[attr-defined]
            await work.session.execute(raised)
            counted = await work.session.scalar(select(func.count()).select_from(lead))
            assert counted == 3
            await work.commit_alone()

        assert await emails(data) == ["object@example.com", "repository@example.com", "statement@example.com"]
        assert {row.score for row in await stored(data)} == {2}


async def test_a_row_of_a_plain_statement_gets_what_was_left_out() -> None:
    async with opened() as data:
        async with unit(data) as work:
            table = work.db["Lead"].model.mapped.table
            await work.session.execute(insert(table).values(email="jane@example.com"))
            await work.commit_alone()
        (row,) = await stored(data)

        assert UUID(row.id)
        assert (row.status, row.created_at) == ("new", row.updated_at)


async def test_f12_relations_lead_both_ways() -> None:
    async with opened() as data:
        async with unit(data) as work:
            company = work.db["Company"].model(name="Acme")
            work.session.add(work.db["Lead"].model(email="jane@example.com", company=company))
            await work.commit_alone()
        async with unit(data) as work:
            company_class: Any = work.db["Company"].model
            asked = select(company_class).options(selectinload(company_class.leads))
            found: Any = (await work.session.scalars(asked)).one()
            lead = found.leads[0]

            assert lead.email == "jane@example.com"
            assert (await lead.awaitable_attrs.company) is found


@pytest.mark.parametrize(("on_delete", "left"), [("restrict", None), ("cascade", []), ("set_null", [None])])
async def test_the_database_does_what_on_delete_says(on_delete: str, left: list[None] | None) -> None:
    item = model("Item", relations={"order": {"model": "Order", "on_delete": on_delete}})
    async with opened(models=[item, model("Order", table="orders")]) as data:
        async with unit(data) as work:
            order = await work.db["Order"].add()
            await work.db["Item"].add(order=order)
            await work.commit_alone()
        async with unit(data) as work:
            await work.db["Order"].remove(order.id)
            if left is None:
                with pytest.raises(WriteRefused, match="FOREIGN KEY"):
                    await work.commit_alone()
            else:
                await work.commit_alone()

        rows = await stored(data, "Item")
        assert [row.order_id for row in rows] == ([order.id] if left is None else left)


async def test_models_may_lead_to_each_other_and_to_themselves() -> None:
    person = model("Person", relations={"boss": {"model": "Person"}, "team": {"model": "Team"}})
    team = model("Team", relations={"lead": {"model": "Person"}})
    async with opened(models=[person, team]) as data:
        async with unit(data) as work:
            boss = await work.db["Person"].add()
            await work.db["Person"].add(boss=boss.id)
            await work.db["Team"].add(lead=boss)
            await work.commit_alone()

        assert sorted(str(row.boss_id) for row in await stored(data, "Person")) == sorted([boss.id, "None"])


async def test_two_projects_share_nothing() -> None:
    """Two models of one name, with other fields, in one process."""
    other = model("Lead", {"phone": "string"})
    async with opened(models=[LEAD, COMPANY]) as first, opened(models=[other]) as second:
        async with unit(first) as one, unit(second) as two:
            await one.db["Lead"].add(email="jane@example.com")
            await two.db["Lead"].add(phone="1")
            await one.commit_alone()
            await two.commit_alone()

        assert [row.phone for row in await stored(second)] == ["1"]
        assert await emails(first) == ["jane@example.com"]
