"""F15: branches of one step that write one key."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.flow.check.branches import keys_written_twice
from turnline.flow.check.names import Known

from .flows import Step, flow, node, told, wait

BRANCHES = ("spec", "steps", 0, "parallel", "branches")


def writes(key: str) -> Step:
    return {"id": f"w-{key}", "agent": {"prompt": "x", "output": {"key": key}}}


def answers(*names: str) -> Step:
    return {"id": "answer", "response": {"mapping": {name: "x" for name in names}}}


def found(branches: dict[str, list[Step]], **parts: Any) -> object:
    both = {"id": "both", "parallel": {"branches": branches, **parts}}
    return told(keys_written_twice(flow(both), Known()))


@pytest.mark.parametrize(
    ("branches", "names"),
    [
        ({"left": [writes("a")], "right": [writes("b")]}, []),
        ({"left": [writes("a")], "right": [writes("a")]}, ["right"]),
        ({"left": [wait("w"), writes("a")], "mid": [writes("b")], "right": [writes("a")]}, ["right"]),
        ({"left": [writes("a")], "mid": [writes("a")], "right": [writes("a")]}, ["mid", "right"]),
        ({"left": [writes("a"), {**writes("a"), "id": "w2"}], "right": [wait("w")]}, []),
        ({"left": [node("n")], "right": [node("n")]}, []),
        ({"left": [answers("a")], "right": [answers("b")]}, []),
        ({"left": [answers("a")], "right": [answers("a")]}, ["right"]),
        (
            {"left": [{"id": "p", "parallel": {"branches": {"i": [writes("a")]}}}], "right": [writes("a")]},
            ["right"],
        ),
    ],
)
def test_f15_two_branches_that_write_one_key_are_found(
    branches: dict[str, list[Step]], names: list[str]
) -> None:
    assert found(branches) == [("TL501", (*BRANCHES, name)) for name in names]


def test_f15_with_into_each_branch_has_a_place_of_its_own() -> None:
    assert found({"left": [writes("a")], "right": [writes("a")]}, into="both") == []


def test_f15_branches_inside_a_branch_are_looked_at_too() -> None:
    inner = {"id": "p", "parallel": {"branches": {"x": [writes("a")], "y": [writes("a")]}}}

    assert found({"left": [inner]}) == [("TL501", (*BRANCHES, "left", 0, "parallel", "branches", "y"))]
