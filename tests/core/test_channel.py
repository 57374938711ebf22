"""The spec of a channel: ids, names, and who a name stands for (L2)."""

from __future__ import annotations

import pytest

from turnline.core.channel import ChannelSpec, Participant, check_id
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
