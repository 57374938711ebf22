"""F3: functions that flows may run."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypedDict

import pytest

from turnline.errors import BadNode, NameTaken
from turnline.flow.node import MAX_NAME_CHARACTERS, Nodes, marked_in, names_of, node

SHARED: Final = Path(__file__).parents[3] / "shared"


class Lead(TypedDict, total=False):
    email: str


def module(**values: object) -> ModuleType:
    made = ModuleType("made")
    vars(made).update(values)
    return made


def test_a_function_has_the_name_it_is_given_and_stays_what_it_is() -> None:
    @node("save_lead")
    def save(ctx: dict[str, Any]) -> dict[str, Any]:
        return ctx | {"saved": True}

    assert names_of(save) == ("save_lead",)
    assert save({"a": 1}) == {"a": 1, "saved": True}


def test_without_a_name_it_has_its_own() -> None:
    @node
    def save(ctx: dict[str, Any]) -> None: ...

    assert names_of(save) == ("save",)


def test_an_async_function_stays_async() -> None:
    @node("wait")
    async def wait(ctx: dict[str, Any]) -> str:
        return "done"

    assert inspect.iscoroutinefunction(wait)
    assert asyncio.run(wait({})) == "done"


def test_the_argument_may_be_annotated_in_any_way_or_in_none() -> None:
    @node
    def typed(ctx: Lead) -> Lead:
        return ctx

    @node
    def untyped(context, /):  # type: ignore[no-untyped-def]
        return context

    assert names_of(typed) + names_of(untyped) == ("typed", "untyped")


def test_one_function_may_have_two_names() -> None:
    @node("new")
    @node("old")
    def save(ctx: Lead) -> None: ...

    nodes = Nodes()
    nodes.add_module(module(save=save))

    assert nodes.by_name == {"old": save, "new": save}


@pytest.mark.parametrize(
    "function",
    [
        lambda: None,
        lambda ctx, more: None,
        lambda ctx, more=1: None,
        lambda *ctx: None,
        lambda **ctx: None,
        lambda ctx, *, more=1: None,
        lambda ctx: (yield),
    ],
)
def test_a_function_that_cannot_be_a_node_is_refused_where_it_is_written(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(BadNode, match="'broken' cannot be a node") as refused:
        node("broken")(function)
    assert refused.value.node == "broken"
    assert names_of(function) == ()


def test_an_async_generator_is_refused() -> None:
    async def many(ctx: Lead) -> Any:
        yield ctx

    with pytest.raises(BadNode, match="yields"):
        node(many)


@pytest.mark.parametrize("thing", [Lead, len, functools.partial(print), 3])
def test_what_is_no_function_is_refused(thing: Any) -> None:
    with pytest.raises(BadNode, match="no function"):
        node("thing")(thing)


@pytest.mark.parametrize("name", ["", " ", "x" * (MAX_NAME_CHARACTERS + 1)])
def test_a_name_that_no_document_can_hold_is_refused(name: str) -> None:
    with pytest.raises(BadNode, match="characters"):
        node(name)(lambda ctx: None)


def test_the_marked_functions_of_a_module_are_found_each_once() -> None:
    @node("save")
    def save(ctx: Lead) -> None: ...

    def unmarked(ctx: Lead) -> None: ...

    assert list(marked_in(module(save=save, again=save, unmarked=unmarked, number=3, kind=Lead))) == [save]


def test_a_function_that_another_decorator_wraps_is_found() -> None:
    @functools.cache
    @node("save")
    def save(ctx: Lead) -> None: ...

    assert [names_of(one) for one in marked_in(module(save=save))] == [("save",)]


def test_a_thing_that_cannot_be_asked_is_no_node() -> None:
    class Proxy:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError("outside of a request")

    assert list(marked_in(module(request=Proxy()))) == []


def test_two_nodes_of_one_name_are_refused_naming_both_places() -> None:
    @node("save")
    def one(ctx: Lead) -> None: ...

    @node("save")
    def other(ctx: Lead) -> None: ...

    nodes = Nodes()
    nodes.add(one)
    with pytest.raises(NameTaken) as taken:
        nodes.add(other)
    assert taken.value.name == "save"
    assert [int(line) for line in re.findall(r"test_node\.py:(\d+)", str(taken.value))] == [
        one.__code__.co_firstlineno,
        other.__code__.co_firstlineno,
    ]
    assert nodes.by_name == {"save": one}


def test_the_same_node_in_two_modules_is_one() -> None:
    @node("save")
    def save(ctx: Lead) -> None: ...

    nodes = Nodes()
    nodes.add_module(module(save=save))
    nodes.add_module(module(imported=save))

    assert nodes.by_name == {"save": save}


def seed_nodes() -> dict[str, Callable[..., Any]]:
    """Every `@node` function of the seed, run as it is written, by its name."""
    (seed,) = (SHARED / "seeds").glob("003_*.txt")
    found = re.findall(r"^@node.*?\n(?=\S(?<!a)|\Z)", seed.read_text(), re.DOTALL | re.MULTILINE)
    surroundings: dict[str, Any] = {"node": node, "Any": Any, "LeadContext": Lead, "logger": functools}
    for text in found:
        exec(text, surroundings)
    return {name: one for one in surroundings.values() for name in names_of(one)}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the seeds are not beside the project")
def test_the_seeds_nodes_are_nodes_as_they_stand() -> None:
    nodes = seed_nodes()

    assert sorted(nodes) == ["debug_step", "enrich", "finalize", "process", "process_lead"]
    enriched = asyncio.run(nodes["enrich"]({"email": "jane@example.com"}))
    assert enriched == {"email": "jane@example.com", "domain": "example.com", "status": "enriched"}
