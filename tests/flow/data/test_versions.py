"""Which version of a model the tables have, and whether a flow was written for it."""

from __future__ import annotations

import pytest

from turnline.errors import ModelsRefused, UnknownName, VersionMismatch
from turnline.flow.data.definition import ModelDefinition
from turnline.flow.data.versions import newest, problem_with, problems_of
from turnline.flow.definition.flow import ModelUse

from .stage import COMPANY, LEAD, model, opened, stored, unit


@pytest.mark.parametrize(
    ("versions", "last"),
    [(["v1", "v2"], "v2"), (["v10", "v9"], "v10"), (["1", "v2"], "v2"), (["1.9", "1.10"], "1.10")],
)
def test_f12_of_several_versions_the_newest_is_the_table_s(versions: list[str], last: str) -> None:
    models = [model("Lead", version=version) for version in versions]

    assert newest(models)["Lead"].version == last
    assert newest(reversed(models))["Lead"].version == last


def test_f12_a_version_the_project_does_not_have_is_a_problem_that_names_both() -> None:
    problem = problem_with(ModelUse(name="Lead", version="v2"), newest([LEAD]))

    assert isinstance(problem, VersionMismatch)
    assert (problem.model, problem.declared, problem.found) == ("Lead", "v2", "v1")


@pytest.mark.parametrize("version", [None, "v1", "1"])
def test_f12_no_version_or_the_same_one_is_no_problem(version: str | None) -> None:
    assert problem_with(ModelUse(name="Lead", version=version), newest([LEAD])) is None


def test_f12_an_older_version_is_a_mismatch_though_its_document_is_there() -> None:
    models = newest([model("Lead"), model("Lead", version="v2")])

    assert isinstance(problem_with(ModelUse(name="Lead", version="v1"), models), VersionMismatch)


def test_f12_a_model_the_project_does_not_have_is_a_problem_with_the_nearest_name() -> None:
    problem = problem_with(ModelUse(name="Laed"), newest([LEAD]))

    assert isinstance(problem, UnknownName)
    assert "Did you mean 'Lead'?" in str(problem)


async def test_f12_a_mismatch_is_an_error_before_data_is_touched() -> None:
    async with opened() as data:
        async with unit(data) as work:
            await work.db["Lead"].add(email="kept@example.com")
            await work.commit_alone()
        checked_out = data.engine.sync_engine.pool.checkedout()  # type: ignore[attr-defined]
        with pytest.raises(VersionMismatch):
            data.begin([ModelUse(name="Lead", version="v2")], {})

        assert data.engine.sync_engine.pool.checkedout() == checked_out  # type: ignore[attr-defined]
        assert [row.email for row in await stored(data)] == ["kept@example.com"]


async def test_f12_a_run_keeps_to_the_version_it_was_started_with() -> None:
    """`_context_model_versions` says so, whatever the flow's document says by now."""
    async with opened() as data:
        with pytest.raises(VersionMismatch):
            data.begin([ModelUse(name="Lead")], {"Lead": "v0"})


@pytest.mark.parametrize(
    ("models", "told"),
    [
        ([LEAD], "Lead.company leads to 'Company'"),
        ([COMPANY, model("Lead")], "Company.leads needs one many_to_one relation of Lead"),
        ([model("Lead"), model("Lead", version="1")], "defined twice"),
        ([model("Lead"), model("lead")], "have one table, 'lead'"),
        ([model("Records", table="records")], "'records' of Records is not free"),
        ([model("Heads")], "'heads' of Heads is not free"),
        ([model("X", table="sqlite_x")], "not free"),
    ],
)
def test_f12_models_that_do_not_fit_together_are_told(models: list[ModelDefinition], told: str) -> None:
    problems = problems_of(models, reserved={"records", "heads"})

    assert len(problems) == 1
    assert told in problems[0]


def test_which_relation_leads_back_can_be_said() -> None:
    two_ways = {"buyer": {"model": "Company"}, "seller": {"model": "Company"}}
    deal = model("Deal", relations=two_ways)
    unclear = model("Company", relations={"deals": {"model": "Deal", "kind": "one_to_many"}})
    clear = model("Company", relations={"sold": {"model": "Deal", "kind": "one_to_many", "via": "seller"}})

    assert len(problems_of([deal, unclear])) == 1
    assert problems_of([deal, clear]) == []


async def test_f12_all_problems_are_told_at_once_and_nothing_is_opened() -> None:
    with pytest.raises(ModelsRefused) as error:
        async with opened(models=[LEAD, model("Deal", relations={"to": {"model": "Nobody"}})]):
            pass

    assert len(error.value.problems) == 2
