"""The picture of a graph: who, from where to where, and nothing that a name could break."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings

from turnline.core.channel import Participant
from turnline.core.graph import Transition, TransitionGraph, round_robin, sequence
from turnline.core.step_targets import FanOutTarget
from turnline.core.study.boxes import WIDTH, boxes
from turnline.core.study.dot import dot
from turnline.core.study.drawing import graph_picture
from turnline.core.study.mermaid import mermaid
from turnline.core.study.picture import Picture
from turnline.core.transitions import (
    AgentTarget,
    Always,
    AtTurn,
    ContextEquals,
    FromSpeaker,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    StayTarget,
    TerminateTarget,
    ToolCalled,
    TurnFailed,
)

from ..customs import HighestRankedReviewer
from .graphs import graphs

OVER = TerminateTarget("over")


def arrows(picture: Picture) -> list[tuple[str, str, str]]:
    """Who, when, to whom; by their labels."""
    return [
        (picture.node(one.source).label, one.label, picture.node(one.target).label) for one in picture.edges
    ]


def test_a_sequence_is_a_line() -> None:
    assert arrows(graph_picture(sequence(["ann", "ben"]))) == [
        ("ann", "", "ben"),
        ("ben", "otherwise", "sequence_complete"),
    ]


def test_a_speaker_that_comes_twice_has_an_edge_for_each_turn() -> None:
    assert arrows(graph_picture(sequence(["ann", "ben", "ann"]))) == [
        ("ann", "at turn 1", "ben"),
        ("ben", "at turn 2", "ann"),
        ("ann", "otherwise", "sequence_complete"),
    ]


def test_a_round_robin_is_a_ring() -> None:
    picture = graph_picture(round_robin(["ann", "ben", "cat"], 6))

    assert {(source, target) for source, _, target in arrows(picture)} == {
        ("ann", "ben"),
        ("ben", "cat"),
        ("cat", "ann"),
    }
    assert picture.max_turns == 6


def test_what_holds_for_everybody_is_drawn_once() -> None:
    rules = [Transition(ContextEquals("to", name), AgentTarget(name)) for name in ("ben", "cat")]
    picture = graph_picture(TransitionGraph("ann", rules, StayTarget(), 9))

    assert arrows(picture) == [
        ("anyone", "to = ben", "ben"),
        ("anyone", "to = cat", "cat"),
        ("anyone", "otherwise", "anyone"),
    ]


def test_targets_that_the_graph_leaves_open_are_nodes_of_their_own() -> None:
    rules = [
        Transition(ToolCalled("back"), RevertToInitiatorTarget()),
        Transition(ToolCalled("next"), RoundRobinTarget()),
        Transition(ToolCalled("best"), HighestRankedReviewer(["ann"])),
    ]
    picture = graph_picture(TransitionGraph("ann", rules, OVER, 9))
    told = graph_picture(TransitionGraph("ann", rules[:1], OVER, 9), participants=["ann", "bo"], opener="bo")

    assert {one.label for one in picture.nodes if one.kind == "someone"} == {
        "whoever opened it",
        "the next in order",
        "HighestRankedReviewer(role_priority=['ann'])",
    }
    assert ("ann", "tool back", "bo") in arrows(told)


def test_steps_people_and_the_first_speaker_are_marked() -> None:
    asks = Transition(FromSpeaker("user"), FanOutTarget(["ben", "cat"], step="all"))
    again = Transition(TurnFailed("all"), AgentTarget("user"))
    nodes = {one.label: one for one in graph_picture(TransitionGraph("user", [asks, again], OVER)).nodes}

    assert (nodes["user"].kind, nodes["user"].is_first, nodes["user"].agent_id) == ("human", True, "user")
    assert (nodes["all"].kind, nodes["all"].detail) == ("step", "asks ben, cat")
    assert nodes["over"].kind == "close"


def test_an_edge_does_not_say_again_whose_turn_it_is() -> None:
    others = FromSpeaker("ben") | FromSpeaker("cat")
    rules = [
        Transition(TurnFailed("ann"), AgentTarget("ben")),
        Transition(FromSpeaker("ann") & Always(), AgentTarget("cat")),
        Transition(others & ToolCalled("a") & AtTurn(4), AgentTarget("ann")),
    ]
    picture = graph_picture(TransitionGraph("ann", rules, OVER, 9))

    assert arrows(picture)[:4] == [
        ("ann", "turn failed", "ben"),
        ("ann", "", "cat"),
        ("ben", "tool a and at turn 4", "ann"),
        ("cat", "tool a and at turn 4", "ann"),
    ]
    assert [(one.text, one.target) for one in picture.rules] == [
        ("turn of ann failed", "ben"),
        ("from ann and always", "cat"),
        ("(from ben or from cat) and tool a and at turn 4", "ann"),
    ]


def test_ids_are_shown_by_their_names() -> None:
    graph = TransitionGraph("a-1", [Transition(AtTurn(1), AgentTarget("b-2"))], OVER)
    picture = graph_picture(graph, participants=[Participant("a-1", "ann"), Participant("b-2", "ben")])

    assert arrows(picture)[0] == ("ann", "at turn 1", "ben")
    assert picture.nodes[0].agent_id == "a-1"


@settings(max_examples=150, deadline=None)
@given(graph=graphs)
def test_every_picture_is_whole(graph: TransitionGraph) -> None:
    """No edge without its nodes, JSON that is JSON, one start, and text that fits a terminal."""
    picture = graph_picture(graph)
    ids = {one.id for one in picture.nodes}

    assert all(edge.source in ids and edge.target in ids for edge in picture.edges)
    assert [one.is_first for one in picture.nodes].count(True) == 1
    assert json.loads(json.dumps(picture.to_dict()))["max_turns"] == graph.max_turns
    assert all(len(line) <= WIDTH for line in boxes(picture).splitlines())
    assert mermaid(picture).count("start((") == dot(picture).count("start ->") == 1


HOSTILE = [
    '"]; click n0 "javascript:alert(1)"',
    "<script>alert(1)</script>",
    "a|b --> c",
    "%%{init: {}}%%",
    "end",
    "line\nbreak",
    "\x1b[2Jgone",
    'back\\"slash\\',
    "`code` #quot; &lt;",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_never_anything_but_a_name(name: str) -> None:
    rules = [Transition(FromSpeaker(name) & ContextEquals(name, name), AgentTarget("ben"))]
    picture = graph_picture(TransitionGraph(name, rules, TerminateTarget(name)))
    plain = graph_picture(
        TransitionGraph(
            "x", [Transition(FromSpeaker("x") & ContextEquals("x", "x"), AgentTarget("ben"))], OVER
        )
    )

    text, graphviz, drawn = mermaid(picture), dot(picture), boxes(picture)
    assert len(text.splitlines()) == len(mermaid(plain).splitlines())
    assert len(graphviz.splitlines()) == len(dot(plain).splitlines())
    assert set(re.sub(r'"[^"]*"', "", text)) <= set(re.sub(r'"[^"]*"', "", mermaid(plain))) | set(
        "0123456789"
    )
    assert "<" not in text.replace("-->", "")
    assert re.sub(r'"(?:[^"\\]|\\.)*"', "", graphviz) == re.sub(r'"(?:[^"\\]|\\.)*"', "", dot(plain))
    assert all(one.isprintable() or one == "\n" for one in drawn)


def test_a_long_label_goes_on_below() -> None:
    condition = FromSpeaker("ann") & ContextEquals("a_long_key", "a value of many words " * 6)
    drawn = boxes(graph_picture(TransitionGraph("ann", [Transition(condition, AgentTarget("ben"))], OVER)))

    assert max(map(len, drawn.splitlines())) <= WIDTH
    assert "  |   --> ben" in drawn
