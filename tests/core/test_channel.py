"""The spec of a channel: ids, names, and who a name stands for (L2)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from turnline.core.channel import (
    ID_PATTERN,
    ChannelSpec,
    Participant,
    check_id,
    child_id,
    is_child_id,
    turn_of,
)
from turnline.errors import BadDraft, UnknownParticipant

SPEC = ChannelSpec(participants=[Participant("id-a", "alice"), Participant("id-b", "bob", "human")])


@pytest.mark.parametrize("known_as", ["id-a", "alice"])
def test_l2_an_id_or_a_name_will_do(known_as: str) -> None:
    assert SPEC.resolve(known_as) == "id-a"


def test_l2_an_id_goes_before_somebody_elses_name() -> None:
    """Ids are unique; a name that looks like an id must not steal its turns."""
    spec = ChannelSpec(participants=[Participant("alice", "zoe"), Participant("id-2", "alice")])

    assert spec.resolve("alice") == "alice"


def test_l2_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(UnknownParticipant, match="Did you mean 'alice'") as unknown:
        SPEC.resolve("alise")

    assert unknown.value.known == ("alice", "bob")


def test_a_participant_is_found_by_id_only() -> None:
    assert SPEC.participant("id-b") == Participant("id-b", "bob", "human")
    assert SPEC.participant("bob") is None


@pytest.mark.parametrize("value", ["", "a b", "a/b", "../x", "x" * 65, "é", "a\n", None, 5])
def test_e1_an_id_is_safe_in_a_path_an_address_and_a_subject(value: object) -> None:
    with pytest.raises(BadDraft) as refused:
        check_id(value, "envelope_id")

    assert refused.value.field == "envelope_id"


@pytest.mark.parametrize("value", ["a", "A-1_b", "x" * 64])
def test_e1_ids_are_letters_digits_and_two_signs(value: str) -> None:
    check_id(value, "envelope_id")


IDS = st.from_regex(ID_PATTERN, fullmatch=True)
TURNS = st.integers(min_value=1, max_value=10**6)


@given(parent=IDS, turn=TURNS, place=st.text(max_size=80))
def test_the_id_of_a_child_is_an_id_and_names_the_turn_that_opens_it(
    parent: str, turn: int, place: str
) -> None:
    child = child_id(parent, turn, place)

    assert ID_PATTERN.fullmatch(child)
    assert is_child_id(child)
    assert turn_of(child, parent) == turn
    assert turn_of(child, f"{parent}x") == 0


@given(parent=IDS, turn=TURNS, place=IDS, again=TURNS)
def test_the_id_of_a_grandchild_is_of_the_childs_turn_and_of_no_turn_above_it(
    parent: str, turn: int, place: str, again: int
) -> None:
    child = child_id(parent, turn, place)
    below = child_id(child, again, "0")

    assert turn_of(below, child) == again
    assert turn_of(below, parent) == 0
