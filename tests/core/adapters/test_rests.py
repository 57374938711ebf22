"""Agents alone do not keep a channel busy: it rests until a person or a program says something."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.adapter import AnyAdapter
from turnline.core.adapters import (
    MAX_AGENT_TURNS,
    ConsultingAdapter,
    ConversationAdapter,
    DiscussionAdapter,
    WorkflowAdapter,
)
from turnline.core.channel import Participant
from turnline.core.envelope import Rest
from turnline.core.graph import TransitionGraph, round_robin
from turnline.core.state import metadata_of
from turnline.core.study.why import why
from turnline.errors import BadSpec, OutOfTurn

from ..scenes import Scene, claims, decided, fails, invited, live, packs, says, workflow

ANN = Participant("ann", "ann", "human")
FREE = [ConversationAdapter(), DiscussionAdapter()]
GRAPH = round_robin(["alice", "bob"])


def talk(adapter: AnyAdapter, *more: str | Participant, **knobs: Any) -> Scene[Any]:
    scene = invited(adapter, "alice", "bob", *more, knobs=knobs)
    scene.accept(says("alice"))
    return scene


def turn(scene: Scene[Any], body: str = "done") -> None:
    """The agent that has the floor takes its turn, under a claim."""
    speaker = str(scene.state.expected_next_speaker)
    scene.accept(claims(speaker))
    scene.accept(packs(speaker, claim=live(scene), body=body))


def turns(scene: Scene[Any], most: int = 200) -> int:
    """The turns that agents take until nobody has the floor."""
    for number in range(most):
        if scene.state.expected_next_speaker is None:
            return number
        turn(scene)
    return most


@pytest.mark.parametrize("adapter", FREE)
@pytest.mark.parametrize("body", ["", "  \n"])
def test_an_empty_reply_rests(adapter: AnyAdapter, body: str) -> None:
    scene = talk(adapter)
    turn(scene, body=body)

    assert (scene.state.status, scene.state.expected_next_speaker) == ("active", None)
    assert isinstance(decided(scene.log[-1:]), Rest)
    assert scene.replayed() == scene.state


@pytest.mark.parametrize("adapter", FREE)
def test_agents_among_themselves_rest_after_fifty_turns(adapter: AnyAdapter) -> None:
    scene = talk(adapter)

    assert (turns(scene), scene.state.status) == (MAX_AGENT_TURNS, "active")
    assert MAX_AGENT_TURNS == 50


@pytest.mark.parametrize("adapter", FREE)
def test_the_next_message_resumes_a_channel_that_rests(adapter: AnyAdapter) -> None:
    scene = talk(adapter)
    turn(scene, body="")

    scene.accept(says("alice", "go on"))

    assert scene.state.expected_next_speaker == "bob"
    assert turns(scene) == MAX_AGENT_TURNS


@pytest.mark.parametrize("interject", [False, True])
def test_a_person_resumes_a_discussion_that_rests_whose_turn_it_ever_is(interject: bool) -> None:
    scene = talk(DiscussionAdapter(), ANN)
    turn(scene, body="")

    scene.accept(says("ann", "go on", interject=interject))

    assert scene.state.expected_next_speaker == "alice"


def test_an_agent_that_interjects_does_not_resume_what_rests() -> None:
    """A tool that interjects in each turn would keep the channel busy for ever."""
    scene = talk(DiscussionAdapter())
    turn(scene, body="")

    scene.accept(says("bob", "still here", interject=True))

    assert scene.state.is_resting


def test_an_aside_of_a_person_counts_as_a_message() -> None:
    scene = talk(DiscussionAdapter(), ANN, max_turns=500)
    turn(scene)
    scene.accept(says("alice", "aside", interject=True))
    assert scene.state.agent_turns == 1

    scene.accept(says("ann", "aside", interject=True))
    assert scene.state.agent_turns == 0


def test_nobody_can_claim_a_turn_of_a_channel_that_rests() -> None:
    scene = talk(ConversationAdapter())
    turn(scene, body="")

    scene.refusal(claims("bob"), OutOfTurn)


def test_a_channel_that_rests_is_not_late() -> None:
    scene = talk(ConversationAdapter())
    turn(scene, body="")

    assert scene.due() == []


@pytest.mark.parametrize(
    "scene",
    [
        talk(ConversationAdapter(), max_turns=5),
        talk(DiscussionAdapter(), max_turns=5),
        workflow(GRAPH, "alice", "bob", knobs={"max_turns": 5}),
    ],
    ids=lambda scene: scene.spec.type,
)
def test_every_channel_type_takes_max_turns(scene: Scene[Any]) -> None:
    turns(scene)

    assert (scene.state.turn_count, scene.state.pending_close_reason) == (5, "max_turns")


def test_a_question_is_a_turn_of_consulting_as_well() -> None:
    scene = talk(ConsultingAdapter(), max_turns=1)

    assert scene.state.pending_close_reason == "max_turns"


def test_the_smaller_limit_of_a_graph_and_its_channel_holds() -> None:
    scene = workflow(round_robin(["alice", "bob"], max_turns=3), "alice", "bob", knobs={"max_turns": 9})
    turns(scene)

    assert scene.state.turn_count == 3


def test_with_max_turns_agents_may_speak_for_longer_than_fifty_turns() -> None:
    scene = talk(ConversationAdapter(), max_turns=120)
    turns(scene)

    assert (scene.state.turn_count, scene.state.pending_close_reason) == (120, "max_turns")


def test_in_a_graph_an_empty_reply_goes_on() -> None:
    scene = workflow(GRAPH, "alice", "bob")
    turn(scene, body="")

    assert scene.state.expected_next_speaker == "bob"


@pytest.mark.parametrize("adapter", [*FREE, ConsultingAdapter()])
def test_a_failed_turn_closes_where_on_failure_says_so(adapter: AnyAdapter) -> None:
    scene = talk(adapter, on_failure="close")
    scene.accept(fails("bob"))

    assert scene.state.pending_close_reason == "turn_failed"


def test_in_a_graph_a_failed_turn_closes_unless_it_is_to_stay() -> None:
    closes, stays = (workflow(GRAPH, "alice", "bob", knobs=knobs) for knobs in ({}, {"on_failure": "stay"}))
    for scene in (closes, stays):
        scene.accept(fails("alice"))
    stays.accept(says("alice", "again"))

    assert closes.state.pending_close_reason == "turn_failed"
    assert stays.state.expected_next_speaker == "bob"


@pytest.mark.parametrize(
    "knobs", [{"max_turns": 0}, {"max_turns": True}, {"max_turns": "9"}, {"on_failure": "panic"}]
)
def test_a_limit_that_is_none_is_refused_at_open(knobs: dict[str, Any]) -> None:
    with pytest.raises(BadSpec, match=r"knobs\.(max_turns|on_failure)"):
        invited(WorkflowAdapter(), "alice", "bob", knobs={"graph": GRAPH.to_dict(), **knobs})


@pytest.mark.parametrize(
    ("bodies", "because"),
    [
        ([""], "the reply was empty"),
        (["x"] * MAX_AGENT_TURNS, "agents spoke without a message from a person or a program"),
        ([None], "the turn failed and no rule takes it"),
    ],
)
def test_why_says_that_the_channel_rests_and_because_of_what(bodies: list[str | None], because: str) -> None:
    scene = talk(ConversationAdapter())
    for body in bodies:
        before = scene.state
        scene.accept(fails("bob")) if body is None else scene.accept(
            packs(str(before.expected_next_speaker), body=body)
        )

    told = why(before, scene.log[-1], scene.adapter)

    assert "the channel rests until a person or a program says something" in told.summary
    assert because in told.summary
    assert told.differs == ""


def test_a_list_says_that_a_channel_waits_for_a_message() -> None:
    scene = talk(ConversationAdapter())
    assert metadata_of(scene.state).waiting_for == ""

    turn(scene, body="")
    assert metadata_of(scene.state).waiting_for == "message"


def test_a_graph_is_never_at_rest_by_itself() -> None:
    graph: TransitionGraph = GRAPH
    scene = workflow(graph, "alice", "bob")

    assert turns(scene, 120) == 120
