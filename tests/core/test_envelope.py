"""E1: the fields of an envelope, and who is told."""

from __future__ import annotations

from turnline.core.envelope import Basis, Close, Envelope, Speak, gives_floor_to, shown_to, visible_to

from .scenes import line

BY = Basis(kind="initial")


def test_e1_an_envelope_has_exactly_these_fields() -> None:
    assert set(Envelope.__struct_fields__) == {
        "envelope_id", "channel_id", "seq", "sender_id", "audience", "event_type", "event_data",
        "causation_id", "priority", "created_at", "decision", "traceparent", "schema_version", "is_erased",
    }  # fmt: skip


def test_e1_an_audience_of_none_is_everyone() -> None:
    assert visible_to(line("alice", audience=None), "bob")


def test_e1_an_empty_audience_is_nobody_but_the_sender() -> None:
    whispered = line("alice", audience=[])

    assert not visible_to(whispered, "bob")
    assert visible_to(whispered, "alice")


def test_e1_a_list_is_those_on_it() -> None:
    told = line("alice", audience=["bob"])

    assert visible_to(told, "bob")
    assert not visible_to(told, "carol")


def test_only_a_decision_to_speak_gives_the_floor() -> None:
    assert gives_floor_to(line("alice", decision=Speak("bob", BY))) == "bob"
    assert gives_floor_to(line("alice", decision=Close("done", BY))) is None
    assert gives_floor_to(line("alice")) is None


def test_e1_whoever_may_see_a_line_gets_all_of_it() -> None:
    told = line("alice", data={"text": "psst"}, audience=["bob"])

    assert shown_to(told, "bob") is told
    assert shown_to(told, "carol") is None


def test_w6_whoever_has_the_floor_is_told_that_much_and_no_more() -> None:
    """A turn nobody was told about would wait for ever; what was whispered stays whispered."""
    whispered = line("alice", data={"text": "psst"}, audience=["bob"], decision=Speak("carol", BY))

    shown = shown_to(whispered, "carol")

    assert shown is not None
    assert (shown.event_data, shown.decision) == ({}, Speak("carol", BY))
