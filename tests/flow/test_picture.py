"""The picture of a flow: steps with their kinds, and the signals between them."""

from __future__ import annotations

from turnline.core.study.boxes import boxes
from turnline.core.study.picture import Picture
from turnline.flow.picture import flow_picture

from .check.flows import flow, node, router, wait


def arrows(picture: Picture) -> list[tuple[str, str, str]]:
    return [
        (picture.node(one.source).label, one.label, picture.node(one.target).label) for one in picture.edges
    ]


SMALL = flow(
    node("save", error="tell"),
    router("choose", "high", otherwise="low", high="tell", low="END"),
    wait("rest"),
    node("tell", again="save", default="END"),
)


def test_f4_signals_are_the_labels_and_those_with_one_target_are_one_edge() -> None:
    assert arrows(flow_picture(SMALL)) == [
        ("save", "error", "tell"),
        ("save", "", "choose"),
        ("choose", "high", "tell"),
        ("choose", "low", "completed"),
        ("rest", "", "tell"),
        ("tell", "again", "save"),
        ("tell", "otherwise", "completed"),
    ]


def test_the_way_on_has_words_only_where_a_step_can_say_where_else_to_go() -> None:
    chosen = flow(node("a", up="c"), router("b", "left", left="a"), node("c", ok="a", default="a"), wait("d"))

    assert arrows(flow_picture(chosen)) == [
        ("a", "up", "c"),
        ("a", "default", "b"),
        ("b", "left", "a"),
        ("b", "default", "c"),
        ("c", "", "a"),
        ("d", "", "completed"),
    ]


def test_a_default_that_somebody_wrote_takes_whatever_else_a_step_says() -> None:
    routed = flow(router("a", "left", left="a", default="b"), wait("b", default="a"))

    assert arrows(flow_picture(routed)) == [("a", "left", "a"), ("a", "otherwise", "b"), ("b", "", "a")]


def test_a_step_whose_signals_all_have_routes_leads_nowhere_else() -> None:
    last = flow(wait("a"), router("b", "left", otherwise="right", left="a", right="a"))

    assert arrows(flow_picture(last)) == [("a", "", "b"), ("b", "left, right", "a")]


def test_an_error_that_has_a_route_of_its_own_is_told_from_the_others() -> None:
    apart = flow(wait("a", error="a", timeout="b"), wait("b"))

    assert arrows(flow_picture(apart))[:2] == [("a", "error", "a"), ("a", "timeout, default", "b")]


def test_a_step_has_its_kind_and_the_first_is_marked() -> None:
    nodes = flow_picture(SMALL).nodes

    assert [(one.label, one.detail, one.is_first) for one in nodes if one.kind == "step"] == [
        ("save", "functional", True),
        ("choose", "router", False),
        ("rest", "wait", False),
        ("tell", "functional", False),
    ]


def test_a_limit_is_drawn_where_somebody_wrote_it_down() -> None:
    assert flow_picture(SMALL).max_turns is None
    assert flow_picture(flow(wait("a"), limits={"max_steps": 7})).max_turns == 7


def test_it_reads_at_a_glance() -> None:
    assert boxes(flow_picture(flow(wait("a", error="a"), wait("b")))) == (
        "+---+\n"
        "| a |  first, wait\n"
        "+---+\n"
        "  |-- error --> the same again\n"
        "  '--> b\n"
        "\n"
        "+---+\n"
        "| b |  wait\n"
        "+---+\n"
        "  '--> [closed: completed]\n"
    )
