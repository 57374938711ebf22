"""The head of a record: what is packed is read back, and it is short."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, strategies as st

from turnline.core import event_types as ev
from turnline.core.codec import STRUCTURE, WORDS, Structure, pack_head, pack_id, unpack_head, unpack_id
from turnline.core.envelope import Basis, Close, Rest, Speak

AT = datetime(2026, 11, 18, 4, 52, 53, 904589, tzinfo=UTC)
ID = "06guq01d2rogagdkbpv1gbdaa4"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(), inner),
    max_leaves=10,
)
decisions = st.one_of(
    st.none(),
    st.builds(lambda about, kind: Speak(about, Basis(kind=kind)), st.text(), st.text()),
    st.builds(
        lambda why, index: Close(why, Basis(kind="transition", index=index)), st.text(), st.integers(0, 9)
    ),
    st.just(Rest(Basis(kind="empty_reply"))),
)
structures = st.builds(
    Structure,
    sender=st.sampled_from(["hub", "bob", ""]),
    type=st.sampled_from([*STRUCTURE, "acme.note"]),
    at=st.just(AT),
    data=st.dictionaries(st.sampled_from(WORDS) | st.text(), json_values, max_size=4),
    to=st.none() | st.lists(st.text(), max_size=2),
    cause=st.none() | st.text() | st.sampled_from([ID, f"{ID}-12", ID[:-1], ID.upper()]),
    priority=st.integers(0, 9),
    decision=decisions,
    trace=st.none() | st.text(),
    digest=st.sampled_from([b"", bytes(32)]),
)


@given(structure=structures)
def test_a_structure_is_read_back_as_it_was_packed(structure: Structure) -> None:
    assert unpack_head(pack_head(structure)) == structure


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 2**1023])
def test_a_number_of_any_size_is_read_back(number: int) -> None:
    structure = Structure(sender="bob", type="text", at=AT, data={"turn": number, "seconds": [1, {"a": -1}]})

    assert unpack_head(pack_head(structure)) == structure


@given(rest=st.text(), drawn=st.binary(min_size=16, max_size=16))
def test_an_id_that_a_hub_has_drawn_takes_16_bytes(rest: str, drawn: bytes) -> None:
    text = unpack_id(drawn) + rest

    packed = pack_id(text)

    assert packed == drawn + rest.encode()
    assert unpack_id(drawn + rest.encode()) == text


@pytest.mark.parametrize(
    "text", ["", "bob", ID[:-1], ID[:-1] + "5", ID.upper(), f" {ID}", "w" * 26, "\N{THAI DIGIT ONE}" * 26]
)
def test_any_other_id_stays_as_it_is(text: str) -> None:
    assert pack_id(text) == text


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\x90",
        b"\xc0",
        b"{}",
        msgspec.msgpack.encode([2, 999, "hub", AT, None, None, None, None, None, 0, None]),
        msgspec.msgpack.encode([2, -1, "hub", AT, None, None, None, None, None, 0, None]),
        msgspec.msgpack.encode([2, 1, "hub", AT, [1], None, None, None, None, 0, None]),
        msgspec.msgpack.encode([2, 1, "hub", AT, {1.5: 1}, None, None, None, None, 0, None]),
        msgspec.msgpack.encode([2, 1, "hub", AT, None, None, 7, None, None, 0, None]),
        msgspec.msgpack.encode([2, 1, "hub", AT, None, None, None, ["sing", "bob", 1, 0], None, 0, None]),
        msgspec.msgpack.encode([2, 1, "hub", AT, {"n": msgspec.msgpack.Ext(9, b"1")}]),
    ],
)
def test_bytes_that_are_not_a_head_are_a_value_error(head: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack_head(head)


def test_words_have_one_number_each_that_takes_one_byte() -> None:
    assert len(set(WORDS)) == len(WORDS) <= 128
    assert {ev.HUB, ev.EV_TEXT, *STRUCTURE} <= set(WORDS)


def test_a_claim_takes_at_most_80_bytes_and_a_packet_at_most_120() -> None:
    """Each turn of a chat has one of each, for good (Y9)."""
    claim = Structure(
        sender="hub",
        type=ev.EV_TURN_CLAIMED,
        at=AT,
        data={"agent_id": "writer-n9153bm8", "worker": "vm~ee6fb836:9641:45872/klg8lhb4", "turn": 198},
        to=[],
    )
    packet = Structure(
        sender="writer-n9153bm8",
        type=ev.EV_PACKET,
        at=AT,
        data={"routing": {"kind": "text"}, "usage": {"requests": 1}},
        cause=ID,
        decision=Speak("editor-8oaep958", Basis(kind="transition", index=0)),
        digest=bytes(32),
    )

    assert len(pack_head(claim)) <= 80
    assert len(pack_head(packet)) <= 120
