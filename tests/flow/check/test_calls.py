"""Flows that call themselves, and more calls than a run may have."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.channel import MAX_DEPTH, MAX_RUNS
from turnline.flow.check.calls import Calls, nested_calls
from turnline.flow.definition.flow import Flow, read

from .flows import Step, Told, router, told, wait

HERE = ("spec", "steps", 0, "workflow", "name")


def flow(name: str, *steps: Step, **spec: Any) -> Flow:
    return read({"metadata": {"name": name}, "spec": {"steps": list(steps), **spec}}, name=name)


def call(step: str, name: str, **more: Any) -> Step:
    return {"id": step, "workflow": {"name": name}, **more}


def both(step: str, *names: str) -> Step:
    return {
        "id": step,
        "parallel": {"branches": {f"b{n}": [call(f"c{n}", one)] for n, one in enumerate(names)}},
    }


def found(first: Flow, *others: Flow) -> Told:
    return told(nested_calls(first, Calls({one.name: one for one in (first, *others)})))


def test_a_flow_that_calls_itself_each_time_is_an_error() -> None:
    assert found(flow("a", call("s", "a"))) == [("TL601", HERE)]


def test_a_circle_of_certain_calls_is_an_error_in_each_of_its_flows() -> None:
    a, b = flow("a", call("s", "b")), flow("b", call("s", "a"))

    assert (found(a, b), found(b, a)) == ([("TL601", HERE)], [("TL601", HERE)])


def test_a_flow_that_calls_itself_on_two_branches_is_an_error_on_both() -> None:
    branches = ("spec", "steps", 0, "parallel", "branches")

    assert found(flow("a", both("s", "a", "a"))) == [
        ("TL601", (*branches, "b0", 0, "workflow", "name")),
        ("TL601", (*branches, "b1", 0, "workflow", "name")),
    ]


@pytest.mark.parametrize(
    "steps",
    [
        [call("s", "a", when="depth < 3")],
        [{"id": "s", "for_each": {"items": "children", "steps": [call("c", "a")]}}],
        [router("r", "deeper", otherwise="stop", deeper="s", stop="END"), call("s", "a")],
        [{**wait("w"), "routes": {"error": "END"}}, call("s", "a")],
    ],
)
def test_a_call_of_itself_that_a_condition_can_end_is_a_warning(steps: list[Step]) -> None:
    one = flow("a", *steps)
    problems = nested_calls(one, Calls({"a": one}))

    assert [(problem.code, problem.severity) for problem in problems] == [("TL602", "warning")]


def test_a_step_behind_a_detour_is_still_certain() -> None:
    steps = [
        router("r", "x", otherwise="y", x="one", y="two"),
        wait("one", default="s"),
        wait("two"),
        call("s", "a"),
    ]

    assert [code for code, _ in found(flow("a", *steps))] == ["TL601"]


def test_calls_without_a_circle_are_no_finding() -> None:
    a, b, c = flow("a", call("s", "b"), call("t", "c")), flow("b", call("s", "c")), flow("c", wait("w"))

    assert [found(one, a, b, c) for one in (a, b, c)] == [[], [], []]


def test_a_flow_above_a_circle_is_not_told_of_it_twice() -> None:
    assert found(flow("a", call("s", "b")), flow("b", call("s", "b"))) == []


def test_flows_that_are_nested_deeper_than_the_limit_are_an_error() -> None:
    chain = [flow(f"f{n}", call("s", f"f{n + 1}")) for n in range(MAX_DEPTH + 1)]
    last = flow(f"f{MAX_DEPTH + 1}", wait("w"))

    assert found(chain[0], *chain, last) == [("TL603", HERE)]
    assert found(chain[1], *chain, last) == []


def test_inner_steps_and_conversations_count_as_depth() -> None:
    deep = both("s", "b")
    talk = {"id": "t", "channel": {"agents": ["x"], "message": "hi"}}

    assert found(flow("a", deep, limits={"max_depth": 2}), flow("b", talk)) != []
    assert found(flow("a", deep, limits={"max_depth": 3}), flow("b", talk)) == []


def test_more_certain_runs_than_the_limit_are_an_error() -> None:
    doubling = [
        flow(f"f{n}", both("s", f"f{n + 1}", f"f{n + 1}"), limits={"max_depth": 64}) for n in range(9)
    ]
    last = flow("f9", wait("w"))
    path = ("spec", "steps", 0, "parallel", "branches", "b0", 0, "workflow", "name")

    assert MAX_RUNS < 2**10 - 2
    assert found(doubling[0], *doubling, last) == [("TL603", path)]
    assert found(doubling[1], *doubling, last) == []


def test_forty_flows_that_call_the_next_one_twice_are_checked_at_once() -> None:
    """The number of runs doubles with each flow; the work does not."""
    doubling = [flow(f"f{n}", both("s", f"f{n + 1}", f"f{n + 1}")) for n in range(40)]

    codes = [code for code, _ in found(doubling[0], *doubling, flow("f40", wait("w")))]

    assert codes == ["TL603", "TL603"]
