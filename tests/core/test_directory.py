"""The directory: who is registered, folded from a channel of its own."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

from turnline.core.channel import check_id
from turnline.core.directory import Directory, fold_directory, readable_id
from turnline.core.envelope import Envelope
from turnline.errors import UnknownParticipant

from .scenes import line


def registered(agent_id: str, name: str, seq: int, **rule: Any) -> Envelope:
    data = {"agent_id": agent_id, "passport": {"name": name}, "rule": rule}
    return line("hub", "participant.registered", data, seq=seq)


def after(*lines: Envelope) -> Directory:
    return reduce(fold_directory, lines, Directory())


def test_l2_somebody_is_found_by_id_and_by_name() -> None:
    directory = after(registered("id-a", "alice", 1), registered("id-b", "bob", 2))

    assert directory.resolve("alice") is directory.resolve("id-a")
    assert directory.resolve("bob").agent_id == "id-b"
    assert directory.seq == 2


def test_l2_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(UnknownParticipant) as unknown:
        after(registered("id-a", "alice", 1)).resolve("zoe")

    assert unknown.value.known == ("alice",)


def test_registering_again_replaces() -> None:
    directory = after(registered("id-a", "alice", 1), registered("id-a", "alicia", 2, inbox=3))

    assert directory.resolve("alicia").rule.inbox == 3
    assert directory.named("alice") is None


def test_whoever_is_removed_is_gone() -> None:
    gone = line("hub", "participant.removed", {"agent_id": "id-a"}, seq=2)

    assert after(registered("id-a", "alice", 1), gone).find("alice") is None


def test_other_lines_change_nothing_but_the_seq() -> None:
    directory = after(registered("id-a", "alice", 1), line("hub", "audit.note", {"agent_id": "id-a"}, seq=2))

    assert (directory.seq, list(directory.by_id)) == (2, ["id-a"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Alice", "alice-7x"),
        ("Dr. Zoë  Q!", "dr-zo-q-7x"),
        ("日本", "participant-7x"),
        ("x" * 99, "x" * 40 + "-7x"),
    ],
)
def test_an_id_is_readable_and_safe(name: str, expected: str) -> None:
    assert readable_id(name, "7x") == expected
    check_id(readable_id(name, "7x"), "agent_id")
