"""What every channel with turns has in common: what a draft may be (E2), who may write (C1), what opens."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.adapters import ConversationAdapter, DiscussionAdapter
from turnline.core.channel import Participant
from turnline.core.envelope import JsonObject
from turnline.core.json import MAX_BYTES
from turnline.core.state import State
from turnline.errors import BadDraft, BadSpec, ContextMismatch, NotParticipant

from ..scenes import Scene, draft, invited, packs, says, types, writes


def talk(*names: str | Participant, **given: Any) -> Scene[State]:
    return invited(DiscussionAdapter(), *(names or ("alice", "bob")), **given)


# --- E2: a bad draft is refused before the append, and the field is named ---


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"priority": "high"}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": 2**70}, "priority"),
        ({"causation_id": 5}, "causation_id"),
        ({"causation_id": "\ud800"}, "causation_id"),
        ({"traceparent": "x" * 1000}, "traceparent"),
        ({"traceparent": "a\nb"}, "traceparent"),
        ({"audience": "bob"}, "audience"),
        ({"audience": ["zoe"]}, "audience"),
        ({"audience": [["bob"]]}, "audience"),
        ({"envelope_id": ""}, "envelope_id"),
        ({"envelope_id": "a b"}, "envelope_id"),
        ({"envelope_id": None}, "envelope_id"),
    ],
)
def test_e2_every_field_is_checked_and_named(given: JsonObject, field: str) -> None:
    assert talk().refusal(says("alice", **given), BadDraft).field == field


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"text": "x", "score": float("nan")}, "event_data.score"),
        ({"text": "x", "pair": (1, 2)}, "event_data.pair"),
        ({"text": "x", "deep": {1: 2}}, "event_data.deep"),
        ({"text": "x" * MAX_BYTES}, "event_data"),
        ({"text": 5}, "event_data.text"),
        ([], "event_data"),
    ],
)
def test_e2_event_data_is_json_within_limits(data: Any, field: str) -> None:
    assert talk().refusal(draft("alice", "text", data), BadDraft).field == field


def test_e2_what_is_accepted_shares_nothing_with_the_callers_data() -> None:
    tags = ["new"]
    scene = talk()
    scene.accept(writes("alice", set={"tags": tags}))

    tags.append("changed afterwards")

    assert scene.state.context_vars == {"tags": ["new"]}


def test_e2_what_reads_back_equals_what_was_live() -> None:
    scene = talk("alice", "bob", "carol")
    scene.accept(
        says("alice", "grüß göt 🎈"),
        writes("carol", set={"n": 1.5, "deep": {"a": [None, True]}}, increment={"m": 2**60}),
        packs("bob", updates={"n": -0.0}),
        draft("alice", "acme.note", {"any": ["thing"]}, audience=[]),
    )

    assert scene.replayed() == scene.state


# --- who may write ---


@pytest.mark.parametrize(
    "bad", [says("zoe"), packs("zoe"), writes("zoe", set={"n": 1}), draft("zoe", "acme.note")]
)
def test_c1_a_stranger_is_refused_and_told_who_takes_part(bad: Any) -> None:
    refused = talk().refusal(bad, NotParticipant)

    assert (refused.sender, refused.participants) == ("zoe", ("alice", "bob"))


def test_c1_any_participant_writes_context_at_any_time() -> None:
    scene = talk()

    scene.accept(writes("bob", set={"n": 1}), says("alice"), writes("alice", increment={"n": 1}))

    assert scene.state.context_vars == {"n": 2}


def test_c1_an_update_whose_expect_fails_is_refused_as_a_whole() -> None:
    scene = talk(knobs={"context_vars": {"n": 1}})

    refused = scene.refusal(writes("bob", expect={"n": 2}, set={"m": 1}), ContextMismatch)

    assert (refused.key, refused.found) == ("n", 1)
    scene.accept(writes("bob", expect={"n": 1}, set={"n": 2}))
    assert scene.state.context_vars == {"n": 2}


def test_c2_a_context_write_moves_neither_floor_nor_turn_count() -> None:
    scene = talk()
    before = scene.state

    written = scene.accept(writes("alice", set={"n": 1}))

    assert (types(written), written[0].decision, written[0].audience) == (["context.set"], None, [])
    assert (scene.state.turn_count, scene.state.expected_next_speaker) == (0, "alice")
    assert (scene.state.floor_seq, scene.state.spoken_seq) == (before.floor_seq, before.spoken_seq)


def test_l2_an_audience_may_be_named() -> None:
    scene = talk(Participant("id-a", "alice"), Participant("id-b", "bob"))

    assert scene.accept(says("id-a", audience=["bob", "id-a"]))[0].audience == ["id-b", "id-a"]


# --- what `open` is given ---


def test_c4_initial_context_variables_come_from_the_knobs() -> None:
    assert talk(knobs={"context_vars": {"n": 1}}).state.context_vars == {"n": 1}


@pytest.mark.parametrize("variables", [{"_n": 1}, {"ok": 1, "_": 2}])
def test_c4_reserved_initial_keys_are_refused(variables: JsonObject) -> None:
    with pytest.raises(BadDraft, match="reserved"):
        talk(knobs={"context_vars": variables})


@pytest.mark.parametrize("variables", [[], "n=1", 5])
def test_c4_initial_context_variables_are_an_object(variables: Any) -> None:
    with pytest.raises(BadSpec, match=r"knobs\.context_vars"):
        talk(knobs={"context_vars": variables})


def test_l1_nobody_takes_part_twice() -> None:
    with pytest.raises(BadSpec, match="somebody twice"):
        talk("alice", "bob", "alice")


def test_e4_nobody_is_the_hub() -> None:
    with pytest.raises(BadSpec, match="the hub's own"):
        talk("alice", "hub")


@pytest.mark.parametrize("names", [("alice",), ("alice", "bob", "carol")])
def test_a_channel_for_two_is_for_two(names: tuple[str, ...]) -> None:
    with pytest.raises(BadSpec) as refused:
        invited(ConversationAdapter(), *names)

    assert refused.value.expected == "2"
