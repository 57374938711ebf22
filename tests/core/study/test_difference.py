from __future__ import annotations

from typing import Any

import pytest

from tests.core.scenes import Scene, claims, draft, live, packs, says, workflow, writes
from turnline.core.event_types import EV_TURN_MODEL, HUB
from turnline.core.graph import round_robin
from turnline.core.study.difference import Difference, Side, difference
from turnline.core.study.spent import Spent, spent

PEOPLE = ("alice", "bob")


def scene(**given: Any) -> Scene[Any]:
    return workflow(round_robin(PEOPLE, max_turns=3), *PEOPLE, **given)


def compared(a: Scene[Any], b: Scene[Any]) -> Difference:
    return difference(Side(a.state, a.log, Spent()), Side(b.state, b.log, Spent()))


def replies(stage: Scene[Any], text: str, *, tokens: int = 1, cost: float = 0.0, **more: Any) -> None:
    """A turn with one recorded reply, and the packet that sums it up."""
    who = stage.state.expected_next_speaker
    stage.accept(claims(who))
    usage = {"requests": 1, "input_tokens": tokens, "output_tokens": 1, "cost": cost}
    entry = {"text": text, "usage": usage, "model": f"model-{tokens}", **more}
    stage.accept(draft(HUB, EV_TURN_MODEL, {"entry": entry}, claim=live(stage), audience=[]))
    packet = packs(who, body=text, claim=live(stage))
    packet.event_data["usage"] = usage
    stage.accept(packet)


def test_two_that_say_the_same_are_the_same_whatever_they_cost_and_whoever_worked() -> None:
    a, b = scene(), scene()
    for stage, tokens in ((a, 10), (b, 30)):
        stage.accept(says("alice"))
        replies(stage, "yes", tokens=tokens, calls=[{"call_id": f"call-{tokens}", "tool": "look"}])
    told = compared(a, b)

    assert told.is_same
    assert (told.tokens, told.a.spent.input_tokens, told.b.spent.input_tokens) == (20, 10, 30)
    assert "They say the same." in str(told)


def test_the_first_line_where_they_part_is_named_on_both_sides() -> None:
    a, b = scene(), scene()
    for stage, answer in ((a, "yes"), (b, "no")):
        stage.accept(says("alice"))
        stage.accept(says("bob", answer))
        stage.accept(says("alice", "thank you"))
    told = compared(a, b)

    assert told.first_a is not None
    assert told.first_b is not None
    assert (told.first_a.text, told.first_b.text) == ("yes", "no")
    assert told.first_a.speaker == "bob"
    assert told.first_a.seq == a.log[3].seq
    assert "the floor goes to alice" in str(told)


def test_one_that_only_goes_on_longer_parts_where_the_other_ends() -> None:
    a, b = scene(), scene()
    a.accept(says("alice"))
    b.accept(says("alice"))
    b.accept(says("bob", "and more"))
    told = compared(a, b)

    assert told.first_a is None
    assert told.first_b is not None
    assert told.first_b.text == "and more"
    assert "a  (it ends)" in str(told)


def test_the_same_words_with_another_decision_are_not_the_same() -> None:
    a, b = scene(), workflow(round_robin(PEOPLE, max_turns=1), *PEOPLE)
    a.accept(says("alice"))
    b.accept(says("alice"))
    told = compared(a, b)

    assert told.first_a is not None
    assert told.first_b is not None
    assert (told.first_a.then, told.first_b.then) == (
        "the floor goes to bob",
        "the channel closes with 'max_turns'",
    )


def test_context_variables_that_differ_are_told_with_both_values() -> None:
    a, b = (
        scene(knobs={"context_vars": {"same": 1, "n": 1}}),
        scene(knobs={"context_vars": {"same": 1, "n": 1}}),
    )
    a.accept(writes("alice", set={"n": 2, "only": None}))
    told = compared(a, b)

    assert told.context.keys() == {"n", "only"}
    assert (told.context["n"].a, told.context["n"].b) == (2, 1)
    assert (told.context["only"].in_a, told.context["only"].in_b) == (True, False)
    assert "  only: None | (not set)" in str(told)


def test_cost_is_the_packets_and_of_a_turn_that_is_not_over_its_replies() -> None:
    stage = scene()
    stage.accept(says("alice"))
    replies(stage, "yes", tokens=10, cost=0.5)
    stage.accept(claims("alice"))
    usage = {"requests": 1, "input_tokens": 7, "cost": 0.25}
    stage.accept(draft(HUB, EV_TURN_MODEL, {"entry": {"usage": usage}}, claim=live(stage), audience=[]))

    assert spent(stage.log) == Spent(requests=2, input_tokens=17, output_tokens=1, cost=0.75)
    assert compared(scene(), stage).cost == pytest.approx(0.75)


@pytest.mark.parametrize("usage", [None, "much", {"requests": "x"}, {"cost": True}])
def test_what_is_no_usage_costs_nothing(usage: object) -> None:
    stage = scene()
    stage.accept(says("alice"))
    stage.log[-1].event_data["usage"] = usage

    assert spent(stage.log) == Spent()
