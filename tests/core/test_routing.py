"""T4: what a round's tool calls mean for the floor."""

from __future__ import annotations

from turnline.core.envelope import JsonObject
from turnline.core.event_types import check_packet
from turnline.core.routing import Finish, Handoff, ToolOutcome, packet

WAITED_FOR = {"escalate", "resolve"}


def called(
    tool: str, returned: Handoff | Finish | None = None, *, failed: bool = False, reason: str = ""
) -> ToolOutcome:
    return ToolOutcome(tool=tool, succeeded=not failed, returned=returned, reason=reason)


def routed(*outcomes: ToolOutcome) -> JsonObject:
    """The routing of the round's packet, which is always one that a channel accepts."""
    data = packet("done", outcomes, routing_tools=WAITED_FOR)
    check_packet(data)
    routing: JsonObject = data["routing"]
    return routing


def test_t4_a_round_without_routing_calls_is_a_text() -> None:
    assert routed() == {"kind": "text"}
    assert routed(called("look_up")) == {"kind": "text"}


def test_t4_a_tool_some_transition_waits_for_is_recorded() -> None:
    assert routed(called("look_up"), called("escalate")) == {"kind": "text", "tool": "escalate"}


def test_t4_the_first_routing_call_in_call_order_wins() -> None:
    assert routed(called("resolve"), called("escalate", Handoff("bob")))["tool"] == "resolve"
    assert routed(called("hand", Handoff("bob")), called("stop", Finish("done")))["target"] == "bob"
    assert routed(called("stop", Finish("done")), called("hand", Handoff("bob")))["kind"] == "finish"


def test_t4_a_typed_return_goes_before_the_transition_of_the_same_tool() -> None:
    assert routed(called("escalate", Handoff("bob"))) == {
        "kind": "handoff",
        "target": "bob",
        "tool": "escalate",
    }


def test_t4_a_call_that_failed_routes_nothing() -> None:
    assert routed(called("escalate", failed=True), called("stop", Finish(), failed=True)) == {"kind": "text"}
    assert routed(called("escalate", failed=True), called("resolve"))["tool"] == "resolve"


def test_t4_the_reason_travels_with_the_routing() -> None:
    assert routed(called("escalate", reason="fraud"))["reason"] == "fraud"
    assert routed(called("escalate", Handoff("bob"), reason="fraud"))["reason"] == "fraud"
    assert routed(called("escalate", Handoff("bob", "his area"), reason="fraud"))["reason"] == "his area"


def test_t4_finish_carries_its_reason_and_summary() -> None:
    assert routed(called("stop", Finish("approved", "all good"))) == {
        "kind": "finish",
        "reason": "approved",
        "summary": "all good",
        "tool": "stop",
    }


def test_t4_an_empty_round_still_makes_a_packet() -> None:
    assert packet("") == {"body": "", "routing": {"kind": "text"}}


def test_c5_context_updates_travel_in_the_packet() -> None:
    assert packet("done", context_updates={"n": 1})["context_updates"] == {"n": 1}
