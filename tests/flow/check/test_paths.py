"""F4, F15: steps nobody comes to, cycles, signals that nobody takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from turnline.flow.check.paths import (
    cycles,
    cycles_in,
    reachable,
    routes_never_taken,
    unreachable_steps,
    unrouted_signals,
)
from turnline.flow.definition.flow import Flow

from .flows import Step, Told, flow, node, router, told, wait

STEPS = ("spec", "steps")
LIMITS = {"max_steps": 50}


@pytest.mark.parametrize(
    ("steps", "lost"),
    [
        ([node("a"), node("b")], []),
        ([wait("a", default="c"), wait("b"), wait("c")], [1]),
        ([node("a", default="c"), node("b"), node("c")], [1]),
        ([node("a", ok="c"), node("b"), node("c")], []),
        ([wait("a", default="END"), wait("b"), wait("c")], [1, 2]),
        ([wait("a", default="END", error="b"), wait("b")], []),
        ([{"id": "a", "response": {}}, wait("b")], [1]),
        ([{"id": "a", "response": {}, "routes": {"error": "b"}}, wait("b")], []),
        ([router("a", "x", otherwise="y", x="c", y="c"), wait("b"), wait("c")], [1]),
        ([router("a", "x", x="c"), wait("b"), wait("c")], []),
        ([{**router("a", otherwise="y", y="c"), "when": "go"}, wait("b"), wait("c")], []),
        ([wait("a", default="a"), wait("b")], [1]),
        ([wait("a", default="c"), wait("b", default="b"), wait("c")], [1]),
    ],
)
def test_f15_a_step_that_no_path_leads_to_is_found(steps: list[Step], lost: list[int]) -> None:
    assert told(unreachable_steps(flow(*steps))) == [("TL101", (*STEPS, place)) for place in lost]


AGENT = {"id": "a", "agent": {"output": {"format": "signal"}}, "routes": {"yes": "c", "no": "END"}}
FORM = {"verdict": {"type": "string", "enum": ["yes", "no"], "required": True}}
ASKED = {"title": "?", "form": FORM, "signal_from": "verdict"}
CALL = {"url": "https://example.com"}


@pytest.mark.parametrize(
    ("step", "lost"),
    [
        (AGENT, [1]),
        (AGENT | {"routes": {"yes": "c", "default": "END"}}, [1]),
        (AGENT | {"routes": {}}, []),
        ({"id": "a", "human": ASKED, "routes": {"yes": "c", "no": "END"}}, [1]),
        ({"id": "a", "human": ASKED | {"expires": "1d"}, "routes": {"yes": "c", "expired": "b"}}, []),
        ({"id": "a", "human": {"title": "?", "expires": "1d"}, "routes": {"expired": "c"}}, []),
        ({"id": "a", "api_call": CALL, "routes": {"default": "END", "http_404": "b", "error": "c"}}, []),
        ({"id": "a", "api_call": CALL, "routes": {"default": "c", "http_no": "b"}}, [1]),
    ],
)
def test_f15_a_path_goes_only_where_the_signals_of_a_step_can_lead(step: Step, lost: list[int]) -> None:
    steps = [step, wait("b", default="c"), wait("c")]

    assert told(unreachable_steps(flow(*steps))) == [("TL101", (*STEPS, place)) for place in lost]


def test_f15_steps_inside_steps_are_checked_too() -> None:
    lost = [wait("a", default="END"), wait("b")]
    each = {"id": "each", "for_each": {"items": "xs", "steps": lost}}
    both = {"id": "both", "parallel": {"branches": {"left": lost, "right": [each]}}}

    branches = (*STEPS, 0, "parallel", "branches")
    assert told(unreachable_steps(flow(both))) == [
        ("TL101", (*branches, "left", 1)),
        ("TL101", (*branches, "right", 0, "for_each", "steps", 1)),
    ]


@pytest.mark.parametrize("target", ["b", "END", "FAIL", "nowhere"])
def test_f15_a_route_out_of_a_list_of_inner_steps_is_refused_when_the_flow_is_read(target: str) -> None:
    """`b` is a step, but of another list: the inner steps are a channel of their own."""
    inner = {"id": "each", "for_each": {"items": "xs", "steps": [wait("a", default=target)]}}
    if target in ("END", "FAIL"):
        assert flow(inner, wait("b")).name == "small"
        return
    with pytest.raises(ValueError, match=f"routes 'default' to '{target}', which is no step here"):
        flow(inner, wait("b"))


@pytest.mark.parametrize(
    ("steps", "spec", "expected"),
    [
        # A way out, and a limit.
        ([node("a"), node("b", again="a")], {"limits": LIMITS}, []),
        ([node("a"), node("b", again="a")], {"limits": {"timeout": "1h"}}, []),
        # A way out, no limit.
        ([node("a"), node("b", again="a")], {}, [("TL103", (*STEPS, 0))]),
        ([node("a"), node("b", again="a")], {"limits": {"concurrency": 3}}, [("TL103", (*STEPS, 0))]),
        ([wait("a"), wait("b", default="b", error="END")], {}, [("TL103", (*STEPS, 1))]),
        ([wait("a"), wait("b", default="b", error="FAIL")], {}, [("TL103", (*STEPS, 1))]),
        # No way out: the limit only says when it fails.
        ([wait("a"), wait("b", default="a")], {}, [("TL102", (*STEPS, 0))]),
        ([wait("a"), wait("b", default="a")], {"limits": LIMITS}, [("TL102", (*STEPS, 0))]),
        ([wait("a"), node("b", default="b", ok="b"), wait("c")], {}, [("TL102", (*STEPS, 1))]),
        # No cycle; nor one that nobody comes to.
        ([wait("a"), wait("b")], {}, []),
        ([wait("a", default="END"), wait("b", default="b")], {}, []),
    ],
)
def test_f15_a_cycle_that_nothing_ends_and_one_without_a_limit(
    steps: list[Step], spec: dict[str, Any], expected: Told
) -> None:
    assert told(cycles(flow(*steps, **spec))) == expected


def test_f15_a_cycle_that_can_be_left_is_a_warning_and_one_that_cannot_is_an_error() -> None:
    [warning] = cycles(flow(wait("a"), node("b", again="a")))
    [error] = cycles(flow(wait("a"), wait("b", default="a")))

    assert (warning.severity, error.severity) == ("warning", "error")
    assert error.message.startswith("nothing leads out of the cycle of steps 'a' and 'b'")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (
            [router("a", "x", "y", x="b"), wait("b")],
            [("TL104", (*STEPS, 0, "router", "conditions", 1, "signal"))],
        ),
        ([router("a", "x", otherwise="y", x="b", y="END"), wait("b")], []),
        ([router("a", "x", "y", default="b"), wait("b")], []),
        (
            [router("a", "x", "y")],
            [],
        ),  # At the end, any signal ends the run: the seed's router has no routes.
        ([router("a", "error"), wait("b")], [("TL104", (*STEPS, 0, "router", "conditions", 0, "signal"))]),
        ([router("a", otherwise="default"), wait("b")], []),
        ([{"id": "a", "human": ASKED, "routes": {"yes": "b"}}, wait("b")], [("TL104", (*STEPS, 0))]),
        ([{"id": "a", "human": ASKED, "routes": {"yes": "b", "no": "FAIL"}}, wait("b")], []),
        ([node("a"), wait("b")], []),
    ],
)
def test_f15_a_signal_that_nothing_takes_is_found(steps: list[Step], expected: Told) -> None:
    assert told(unrouted_signals(flow(*steps))) == expected


@pytest.mark.parametrize(
    ("step", "is_found"),
    [
        ({"id": "a", "human": ASKED | {"expires": "1d"}, "routes": {"yes": "b", "no": "b"}}, True),
        ({"id": "a", "human": {"title": "?", "expires": "1d"}}, True),
        ({"id": "a", "human": {"title": "?", "expires": "1d"}, "routes": {"expired": "END"}}, False),
        ({"id": "a", "human": {"title": "?", "expires": "1d"}, "routes": {"error": "END"}}, False),
        ({"id": "a", "human": {"title": "?"}}, False),
        ({"id": "a", "wait": {"event": "paid", "expires": "1d"}}, True),
        ({"id": "a", "wait": {"event": "paid", "expires": "1d"}, "routes": {"timeout": "b"}}, False),
        ({"id": "a", "wait": {"event": "paid"}}, False),
        ({"id": "a", "wait": {"for": "1d"}}, False),
    ],
)
def test_f15_a_wait_that_can_run_out_into_nothing_is_a_warning(step: Step, is_found: bool) -> None:
    found = list(unrouted_signals(flow(step, wait("b"))))

    assert [(one.code, one.severity) for one in found] == ([("TL104", "warning")] if is_found else [])


@pytest.mark.parametrize(
    ("op", "routes", "is_found"),
    [
        ("get", {}, True),
        ("update", {"error": "b"}, True),
        ("remove", {"not_found": "END"}, False),
        ("get", {"default": "b"}, False),
        ("add", {}, False),
        ("list", {}, False),
    ],
)
def test_f15_a_row_that_is_not_found_and_nothing_takes_it_is_a_warning(
    op: str, routes: dict[str, str], is_found: bool
) -> None:
    step = {"id": "a", "model_op": {"model": "Lead", "op": op}, "routes": routes}
    found = list(unrouted_signals(flow(step, wait("b"))))

    assert [(one.code, one.found, one.severity) for one in found] == (
        [("TL104", "not_found", "warning")] if is_found else []
    )


@pytest.mark.parametrize(
    ("step", "never"),
    [
        (router("a", "high", hihg="b", default="b"), ["hihg"]),
        (router("a", "high", high="b", error="b", default="b"), []),
        (router("a", otherwise="x", x="b"), []),
        (router("a", otherwise="x", x="b", default="b"), []),
        (
            {"id": "a", "human": {"title": "?"}, "routes": {"approved": "b", "expired": "b"}},
            ["approved", "expired"],
        ),
        ({"id": "a", "human": ASKED, "routes": {"yes": "b", "no": "b", "maybe": "b"}}, ["maybe"]),
        ({"id": "a", "agent": {"prompt": "x"}, "routes": {"good": "b"}}, ["good"]),
        ({"id": "a", "agent": {"output": {"signal_from": "x"}}, "routes": {"good": "b"}}, []),
        ({"id": "a", "mcp": {"server": "s", "tool": "t"}, "routes": {"good": "b"}}, ["good"]),
        ({"id": "a", "api_call": CALL, "routes": {"http_404": "b", "http_200": "b"}}, ["http_200"]),
        (wait("a", timeout="b", done="b"), ["done"]),
        (
            {"id": "a", "model_op": {"model": "Lead", "op": "add"}, "routes": {"not_found": "b"}},
            ["not_found"],
        ),
        ({"id": "a", "model_op": {"model": "Lead", "op": "get"}, "routes": {"not_found": "b"}}, []),
        (node("a", anything="b"), []),
    ],
)
def test_f15_a_route_for_a_signal_that_never_comes_is_a_warning(step: Step, never: list[str]) -> None:
    found = list(routes_never_taken(flow(step, wait("b"))))

    assert told(found) == [("TL105", (*STEPS, 0, "routes", signal)) for signal in never]
    assert all(one.severity == "warning" and one.of_key for one in found)


def test_a_misspelt_signal_gets_the_nearest_one_as_a_fix() -> None:
    given = flow(router("a", "high_value", high_valeu="b", default="b"), wait("b"))

    [never] = routes_never_taken(given)
    assert never.fix == "did you mean 'high_value'?"


def test_a_route_for_an_answer_is_told_where_signals_come_from() -> None:
    [asked] = routes_never_taken(flow({"id": "a", "human": {"title": "?"}, "routes": {"approved": "END"}}))

    assert asked.fix == "set human.signal_from to the field that says it, or take the route out"


# --- by brute force ---

IDS = ["a", "b", "c", "d", "e"]
SIGNALS = ["x", "y", "default", "error", "timeout"]


@st.composite
def small_flows(draw: st.DrawFn) -> Flow:
    ids = IDS[: draw(st.integers(1, len(IDS)))]
    routes = st.dictionaries(st.sampled_from(SIGNALS), st.sampled_from([*ids, "END", "FAIL"]), max_size=3)
    steps = []
    for one in ids:
        kind = draw(st.sampled_from(["wait", "node", "router", "response"]))
        step: Step = {"wait": wait(one), "node": node(one), "response": {"id": one, "response": {}}}.get(
            kind, router(one, *draw(st.lists(st.sampled_from("xy"), max_size=2)))
        )
        steps.append(step | {"routes": draw(routes)})
    return flow(*steps)


def said_by_hand(step: Any) -> set[str]:
    """Every signal a step may end with; `z` stands for all those that nobody speaks of."""
    errors = {"error", "timeout", "parse_error"}
    match step.kind:
        case "functional":
            return errors | {"x", "y", "z", "default"}
        case "router":
            return errors | {"default"} | {one.signal for one in step.router.conditions}
    return errors | {"default"}


def next_by_hand(given: Flow, place: int, signal: str) -> str | None:
    """F4, word by word. None: the run is over, one way or the other."""
    step, is_last = given.steps[place], place + 1 == len(given.steps)
    if signal in step.routes:
        return step.routes[signal]
    if signal in ("error", "timeout", "parse_error"):
        return step.routes.get("error")
    if step.kind == "response" and not step.routes:
        return None
    if signal == "default" and not is_last:
        return given.steps[place + 1].id
    return step.routes.get("default")


def visited_by_hand(given: Flow) -> set[str]:
    """The steps that some run of at most as many steps as there are comes to."""
    ids = [step.id for step in given.steps]
    runs = [[ids[0]]]
    visited = {ids[0]}
    for _ in ids:
        longer = []
        for run in runs:
            place = ids.index(run[-1])
            for signal in said_by_hand(given.steps[place]):
                target = next_by_hand(given, place, signal)
                if target in ids and target not in run:
                    longer.append([*run, target])
                    visited.add(target)
        runs = longer
    return visited


@settings(deadline=None, max_examples=200)
@given(small_flows())
def test_f4_what_can_be_reached_is_what_some_run_comes_to(given: Flow) -> None:
    assert reachable(given.steps) == visited_by_hand(given)


EDGES = st.dictionaries(st.sampled_from(IDS), st.sets(st.sampled_from(IDS)), max_size=5).map(
    lambda edges: {one: edges.get(one, set()) for one in IDS}
)


def closure(edges: dict[str, set[str]], start: str) -> set[str]:
    reached, pending = set[str](), list(edges[start])
    while pending:
        one = pending.pop()
        if one not in reached:
            reached.add(one)
            pending += edges[one]
    return reached


@settings(deadline=None, max_examples=200)
@given(EDGES)
def test_a_cycle_is_all_the_steps_that_lead_to_each_other(edges: dict[str, set[str]]) -> None:
    ahead = {one: closure(edges, one) for one in IDS}
    by_hand = {
        frozenset(other for other in IDS if other in ahead[one] and one in ahead[other])
        for one in IDS
        if one in ahead[one]
    }

    found = cycles_in(edges, set(IDS))
    assert {frozenset(cycle) for cycle in found} == by_hand
    assert len(found) == len(by_hand)
