"""F3: what a node may return, and what becomes of it."""

from __future__ import annotations

import threading
from typing import Any, TypedDict

import pytest

from tests.flow.stage import flows_of, stage
from turnline.flow.work import Services

Ctx = dict[str, Any]
ONE = "steps: [{id: only, runner: work, routes: {hot: END, cold: END}}]"


class Lead(TypedDict, total=False):
    """A context as an editor knows it."""

    email: str
    score: int


async def signal_and_data(node: Any) -> tuple[str, Ctx]:
    async with stage(ONE, work=node) as house:
        run_id = await house.runs.start("main", {"a": 1, "b": 2})
        done = await house.runs.wait(run_id)
        [packet] = [line for line in await house.wal(run_id) if line.event_type == "packet"]
        return packet.event_data["routing"]["signal"], done.data


def changed(ctx: Ctx) -> Ctx:
    ctx["a"] = 5
    ctx.pop("b")
    return ctx


def copied(ctx: Ctx) -> Ctx:
    return dict(ctx) | {"a": 5}


def changed_in_place(ctx: Ctx) -> str:
    ctx["a"] = 5
    return "hot"


@pytest.mark.parametrize(
    ("node", "signal", "data"),
    [
        (changed, "default", {"a": 5}),
        (lambda ctx: {"c": 3}, "default", {"a": 1, "b": 2, "c": 3}),
        (copied, "default", {"a": 5, "b": 2}),
        (lambda ctx: "hot", "hot", {"a": 1, "b": 2}),
        (changed_in_place, "hot", {"a": 5, "b": 2}),
        (lambda ctx: (changed(ctx), "cold"), "cold", {"a": 5}),
        (lambda ctx: ({"c": 3}, "cold"), "cold", {"a": 1, "b": 2, "c": 3}),
        (lambda ctx: None, "default", {"a": 1, "b": 2}),
        (lambda ctx: {}, "default", {"a": 1, "b": 2}),
    ],
)
async def test_f3_every_return_form_has_its_meaning(node: Any, signal: str, data: Ctx) -> None:
    assert await signal_and_data(node) == (signal, data)


async def test_f3_a_context_is_read_and_written_like_any_dict() -> None:
    def work(ctx: Ctx) -> Ctx:
        ctx["_temporary"] = 1
        ctx["kept"], ctx["a"] = ctx["a"], ctx["a"] + 1
        ctx["found"] = [ctx.get("priority", "normal"), "phone" in ctx, ctx.pop("_temporary", None)]
        ctx["public"] = sorted(key for key in ctx if not key.startswith("_"))
        return ctx

    public = ["a", "b", "found", "kept"]
    wrote = {"a": 2, "kept": 1, "found": ["normal", False, 1], "public": public}
    assert (await signal_and_data(work))[1] == {"b": 2, **wrote}


async def test_f3_a_node_may_be_async_and_annotate_its_context_as_it_likes() -> None:
    async def work(ctx: Lead) -> Lead:
        ctx["score"] = 7
        return ctx

    assert (await signal_and_data(work))[1] == {"a": 1, "b": 2, "score": 7}


async def test_f3_a_plain_function_does_not_hold_up_the_loop() -> None:
    names: list[str] = []

    await signal_and_data(lambda ctx: names.append(threading.current_thread().name))

    assert names != [threading.main_thread().name]


@pytest.mark.parametrize("returned", [3, ["a"], ({}, 3), ("a", "b"), object()])
async def test_f3_anything_else_is_an_error_that_says_what_is_expected(returned: Any) -> None:
    async with stage(ONE, work=lambda ctx: returned) as house:
        done = await house.run()

    assert done.error is not None
    assert "expected ctx, another dict, a signal" in done.error.message


async def test_f3_a_node_cannot_reach_the_context_after_it_has_returned() -> None:
    kept: list[Ctx] = []

    def work(ctx: Ctx) -> Ctx:
        kept.append(ctx)
        ctx["list"] = [1]
        return ctx

    async with stage(
        "steps: [{id: a, runner: work}, {id: b, runner: later}]",
        work=work,
        later=lambda ctx: (kept[0]["list"].append(2), {"seen": list(ctx["list"])})[1],
    ) as house:
        done = await house.run()

    assert done.data == {"list": [1], "seen": [1]}


async def test_f3_a_value_that_is_not_json_fails_the_step_and_is_named_by_its_key() -> None:
    services = Services(flows=flows_of(ONE), nodes={"work": lambda ctx: {"when": {"at": {1, 2}}}})
    async with stage(services=services) as house:
        done = await house.run()

    assert done.status == "failed"
    assert done.error is not None
    assert "ctx.when.at" in done.error.message


async def test_f2_what_is_private_and_not_json_is_not_kept_and_no_error() -> None:
    seen: list[Ctx] = []

    async with stage(
        "steps: [{id: a, runner: one}, {id: b, runner: two}]",
        one=lambda ctx: {"_handle": object(), "_n": 1},
        two=lambda ctx: seen.append(dict(ctx)),
    ) as house:
        done = await house.run()

    assert done.status == "succeeded"
    assert ("_handle" in seen[0], seen[0]["_n"]) == (False, 1)


class Unit:
    """A unit of work that remembers what became of it."""

    db = session = object()
    has_writes = holds_database = False

    def __init__(self) -> None:
        self.became: list[str] = []

    async def commit_alone(self) -> None:
        self.became.append("committed")

    async def commit_with(self, write: object) -> None:
        raise NotImplementedError

    async def rollback(self) -> None:
        self.became.append("rolled back")

    async def close(self) -> None:
        self.became.append("closed")


class OneUnit:
    shares_log = False

    def __init__(self, unit: Unit, *, is_open: bool = False) -> None:
        self._unit = unit
        self.is_open = is_open

    def begin(self, declared: object, versions: object) -> Unit:
        self._unit.became.append("begun")
        return self._unit


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(
    ("work", "became"),
    [
        (lambda ctx: {"has": ctx["_db"] is ctx["_session"]}, ["committed", "closed"]),
        (lambda ctx: dict(ctx) | {"n": 1}, ["committed", "closed"]),
        (lambda ctx: 1 / 0, ["closed"]),
        (lambda ctx: {"bad": object()}, ["closed"]),
        (lambda ctx: 7, ["closed"]),
    ],
)
async def test_f5_f7_a_steps_database_work_is_committed_with_it_and_undone_where_it_fails(
    work: Any, became: list[str], is_open: bool
) -> None:
    unit = Unit()
    nodes = {"work": lambda ctx: (ctx["_session"], work(ctx))[1]}
    services = Services(flows=flows_of(ONE), nodes=nodes, data=OneUnit(unit, is_open=is_open))
    async with stage(services=services) as house:
        done = await house.run()

    assert unit.became == ["begun", *became]
    assert (done.status == "succeeded") is ("committed" in became)
    assert "_db" not in done.data


@pytest.mark.parametrize("key", ["_session", "_db"])
async def test_f2_a_flow_without_data_models_has_a_session_and_it_is_made_when_a_node_asks_for_it(
    key: str,
) -> None:
    unit, seen = Unit(), list[bool]()

    def work(ctx: Ctx) -> None:
        seen.append(key in ctx and not unit.became)
        seen.append(ctx.get(key) is unit.session and ctx[key] is unit.session)

    services = Services(flows=flows_of(ONE), nodes={"work": work}, data=OneUnit(unit))
    async with stage(services=services) as house:
        await house.run()

    assert (seen, unit.became) == ([True, True], ["begun", "committed", "closed"])


async def test_f2_a_node_that_uses_no_database_begins_no_unit_of_work() -> None:
    unit = Unit()
    services = Services(flows=flows_of(ONE), nodes={"work": lambda ctx: {"n": 1}}, data=OneUnit(unit))
    async with stage(services=services) as house:
        await house.run()

    assert unit.became == []


@pytest.mark.parametrize("key", ["_session", "_db"])
async def test_f2_where_there_is_no_database_the_error_names_the_setting_and_no_field_of_the_body(
    key: str,
) -> None:
    async with stage(ONE, work=lambda ctx: ctx[key]) as house:
        done = await house.run()

    assert done.error is not None
    assert f"ctx['{key}'] cannot be used" in done.error.message
    assert "Set `database:` in turnline.yaml" in done.error.message
    assert "trigger.input" not in done.error.message
