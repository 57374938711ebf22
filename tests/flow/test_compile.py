"""F4: where a signal leads, as a function and as a graph."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.core.scenes import claims, draft, invited, live
from turnline.core import event_types as ev
from turnline.core.adapters import WorkflowAdapter
from turnline.core.channel import Participant
from turnline.core.envelope import Close, Speak
from turnline.flow.compile import NOWHERE, UNHANDLED, graph_of, participants_of, route
from turnline.flow.definition.flow import END, FAIL, read
from turnline.flow.definition.steps import Step

SIGNALS = ("default", "error", "timeout", "parse_error", "high", "low", "")


def steps_of(*steps: dict[str, Any]) -> list[Step]:
    return list(read([{"runner": "work", **step} for step in steps], name="main").steps)


@pytest.mark.parametrize(
    ("routes", "signal", "leads_to"),
    [
        ({"high": "c"}, "high", "c"),
        ({}, "default", "b"),
        ({"default": "c"}, "default", "c"),
        ({"default": "c"}, "high", "c"),
        ({}, "high", NOWHERE),
        ({"error": "c"}, "error", "c"),
        ({"error": "c"}, "timeout", "c"),
        ({"error": "c", "timeout": END}, "timeout", END),
        ({}, "parse_error", UNHANDLED),
        ({"default": "c"}, "error", UNHANDLED),
        ({"high": FAIL}, "high", FAIL),
    ],
)
def test_f4_a_signal_leads_from_a_step_in_the_middle(
    routes: dict[str, str], signal: str, leads_to: str
) -> None:
    assert route(steps_of({"id": "a", "routes": routes}, {"id": "b"}, {"id": "c"}), 0, signal) == leads_to


@pytest.mark.parametrize(("signal", "leads_to"), [("default", END), ("high", END), ("error", UNHANDLED)])
def test_f4_at_the_last_step_the_run_ends_unless_it_failed(signal: str, leads_to: str) -> None:
    assert route(steps_of({"id": "a"}), 0, signal) == leads_to


def test_f4_a_response_without_routes_ends_the_run_and_with_routes_it_goes_on() -> None:
    ends, goes_on = (
        list(read([{"id": "a", "kind": "response", **more}, {"id": "b", "runner": "x"}], name="m").steps)
        for more in ({}, {"routes": {"default": "b"}})
    )

    assert (route(ends, 0, "default"), route(goes_on, 0, "default")) == (END, "b")


@st.composite
def flows(draw: st.DrawFn) -> list[Step]:
    ids = [f"s{n}" for n in range(draw(st.integers(1, 4)))]
    routes = st.dictionaries(st.sampled_from(SIGNALS[:-1]), st.sampled_from([*ids, END, FAIL]), max_size=4)
    kinds = st.sampled_from([{"kind": "functional", "runner": "x"}, {"kind": "response"}])
    return list(read([{"id": one, "routes": draw(routes), **draw(kinds)} for one in ids], name="m").steps)


@given(flows(), st.data())
def test_f4_the_graph_sends_every_signal_where_the_rule_says(steps: list[Step], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(steps) - 1))
    signal = data.draw(st.sampled_from((*SIGNALS[:-1], "unheard-of")))
    graph = graph_of(steps, max_steps=100, start=steps[place].id)
    scene = invited(
        WorkflowAdapter(),
        Participant("flows", "flows"),
        *participants_of(steps),
        knobs={"graph": graph.to_dict()},
    )
    scene.accept(claims(steps[place].id))
    routing = {"routing": {"kind": "signal", "signal": signal}}
    packet = scene.accept(draft(steps[place].id, ev.EV_PACKET, routing, claim=live(scene)))[0]

    expected = route(steps, place, signal)
    reasons = {END: "completed", FAIL: "failed", UNHANDLED: "step_failed", NOWHERE: "unrouted_signal"}
    match packet.decision:
        case Speak(agent_id=agent_id):
            assert agent_id == expected
        case Close(reason=reason):
            assert reason == reasons[expected]
        case _:
            pytest.fail("a packet of a step is a turn")


def test_f4_a_run_can_start_at_any_step() -> None:
    assert graph_of(steps_of({"id": "a"}, {"id": "b"}), max_steps=5, start="b").initial_speaker == "b"
