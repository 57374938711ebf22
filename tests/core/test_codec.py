"""Envelope <-> bytes: versions, and the chain that makes damage visible."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from turnline.core.codec import (
    HASH_BYTES,
    NO_HASH,
    SALT_BYTES,
    Kept,
    Record,
    decode,
    encode,
    read_structure,
    seal,
    seal_all,
    unseal,
)
from turnline.core.envelope import SCHEMA_VERSION, Basis, Close, Decision, Envelope, Rest, Speak
from turnline.core.event_types import EV_CHANNEL_OPENED, EV_PACKET, EV_TURN_CLAIMED
from turnline.errors import CorruptRecord
from turnline.testing.damage import flip_byte, written_longer
from turnline.testing.lines import line

FIRST = line("c", 1, data={"text": "hello", "n": 12.5, "list": [None, True, "ü"]})


SALT = bytes(range(SALT_BYTES))
DECIDED = replace(
    FIRST,
    event_type=EV_PACKET,
    event_data={"body": "hello", "routing": {"kind": "finish", "reason": "Anna is happy"}},
    decision=Close(
        "Anna is happy", Basis(kind="transition", index=2, condition="said 'thanks'", target="end")
    ),
)
"""A line with content in its data and in its decision."""


def chain(*envelopes: Envelope) -> list[Record]:
    return seal_all(envelopes, NO_HASH, salt=SALT)


def test_an_envelope_is_decoded_equal() -> None:
    assert decode(encode(FIRST)) == FIRST


def test_every_line_carries_its_schema_version() -> None:
    assert msgspec.json.decode(encode(FIRST))["v"] == SCHEMA_VERSION


def test_an_envelope_that_was_kept_is_sealed_with_the_bytes_it_has() -> None:
    fields = {name: getattr(FIRST, name) for name in Envelope.__struct_fields__}
    usual = seal(FIRST, NO_HASH, salt=SALT)
    longer = written_longer(usual.head)

    record = seal(Kept(**fields, head=longer, payload=usual.payload), NO_HASH, salt=bytes(SALT_BYTES))

    assert (record.head, record.payload) == (longer, usual.payload)
    assert record.hash != usual.hash
    assert unseal("c", record, previous=NO_HASH, seq=1) == FIRST


def test_fields_at_their_defaults_are_not_written() -> None:
    assert set(msgspec.json.decode(encode(FIRST))) == {
        *("v", "envelope_id", "channel_id", "seq", "sender_id", "event_type", "event_data", "created_at")
    }


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_a_line_of_another_schema_version_is_refused(version: int) -> None:
    other = replace(FIRST, schema_version=version)
    expected = f"its schema version is {version}, this program reads {SCHEMA_VERSION}"

    with pytest.raises(ValueError, match=expected):
        decode(encode(other))
    (record,) = chain(FIRST)
    fields = {name: getattr(FIRST, name) for name in Envelope.__struct_fields__}
    head = record.head[:1] + bytes([version]) + record.head[2:]
    kept = seal(Kept(**fields, head=head, payload=record.payload), NO_HASH, salt=SALT)
    with pytest.raises(CorruptRecord, match=expected):
        unseal("c", kept, previous=NO_HASH, seq=1)


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b'{"v": "1"}', b'{"v": 1}', b"\xff\xfe", b'{"v": 1'])
def test_what_is_not_an_envelope_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(body)


def test_a_record_is_read_after_the_one_it_was_written_after() -> None:
    one, two = chain(line("c", 1), line("c", 2))

    assert unseal("c", two, previous=one.hash, seq=2) == line("c", 2)
    assert len(one.hash) == HASH_BYTES


def test_a_record_behind_another_history_is_damaged() -> None:
    _, two = chain(line("c", 1), line("c", 2))
    other = seal(line("c", 1, envelope_id="other"), NO_HASH, salt=SALT)

    with pytest.raises(CorruptRecord, match="checksum"):
        unseal("c", two, previous=other.hash, seq=2)


def test_a_record_that_is_missing_is_named() -> None:
    one, _, three = chain(line("c", 1), line("c", 2), line("c", 3))

    with pytest.raises(CorruptRecord, match="missing") as missing:
        unseal("c", three, previous=one.hash, seq=2)
    assert (missing.value.channel_id, missing.value.seq) == ("c", 2)


def test_a_record_belongs_to_its_channel_its_seq_and_its_id() -> None:
    (record,) = chain(FIRST)

    for channel_id, changed, seq in [
        ("d", record, 1),
        ("c", replace(record, seq=2), 2),
        ("c", replace(record, envelope_id="other"), 1),
    ]:
        with pytest.raises(CorruptRecord):
            unseal(channel_id, changed, previous=NO_HASH, seq=seq)


def test_names_that_run_together_are_not_confused() -> None:
    """`ab` + `c` and `a` + `bc` are different records, though their letters are the same."""
    sealed = seal(line("a", 1, envelope_id="1:c"), NO_HASH, salt=SALT)
    other = seal(line("a1", 1, envelope_id=":c"), NO_HASH, salt=SALT)

    assert sealed.head == other.head
    assert sealed.hash != other.hash


@given(data=st.data())
def test_a_flipped_bit_anywhere_in_the_head_is_detected(data: st.DataObject) -> None:
    (record,) = chain(FIRST)
    index = data.draw(st.integers(0, len(record.head) - 1))
    mask = data.draw(st.integers(1, 255))

    with pytest.raises(CorruptRecord, match="checksum"):
        unseal("c", replace(record, head=flip_byte(record.head, index, mask=mask)), previous=NO_HASH, seq=1)


@given(data=st.data())
def test_a_flipped_bit_anywhere_in_the_payload_is_detected(data: st.DataObject) -> None:
    (record,) = chain(FIRST)
    assert record.payload is not None
    index = data.draw(st.integers(0, len(record.payload) - 1))
    mask = data.draw(st.integers(1, 255))
    payload = flip_byte(record.payload, index, mask=mask)

    with pytest.raises(CorruptRecord, match="digest"):
        unseal("c", replace(record, payload=payload), previous=NO_HASH, seq=1)


@pytest.mark.parametrize("cut", [0, 1, SALT_BYTES, SALT_BYTES + 1])
def test_a_payload_that_was_cut_is_detected(cut: int) -> None:
    (record,) = chain(FIRST)
    assert record.payload is not None

    with pytest.raises(CorruptRecord, match="digest"):
        unseal("c", replace(record, payload=record.payload[:cut]), previous=NO_HASH, seq=1)


def test_a_payload_of_another_line_is_detected() -> None:
    one, two = chain(line("c", 1), line("c", 2))
    (bare,) = chain(replace(FIRST, event_type=EV_CHANNEL_OPENED, event_data={}))

    for record in (one, bare):
        with pytest.raises(CorruptRecord, match="digest"):
            unseal("c", replace(record, payload=two.payload), previous=NO_HASH, seq=1)


def test_a_line_without_content_has_no_payload_and_no_digest() -> None:
    claim = {"agent_id": "bob", "turn": 3, "worker": "here", "lease_seconds": 60.0}
    (record,) = chain(replace(FIRST, event_type=EV_TURN_CLAIMED, event_data=claim))

    assert record.payload is None
    assert not read_structure(record.head).digest
    assert not unseal("c", record, previous=NO_HASH, seq=1).is_erased


def test_equal_content_has_another_payload_and_digest_on_each_line() -> None:
    """Otherwise a line that stays shows what an erased one said."""
    same = [line("c", seq, data={"text": "yes"}) for seq in range(1, 6)]
    again = seal_all(same, NO_HASH, salt=bytes(SALT_BYTES))
    records = [*chain(*same), *again]

    assert len({record.payload for record in records}) == len(records)
    assert len({read_structure(record.head).digest for record in records}) == len(records)


def test_no_salt_of_an_append_leads_to_another_one() -> None:
    """The salts are hashes of one secret that is written nowhere, so only it leads to them."""
    salts = [(one.payload or b"")[:SALT_BYTES] for one in chain(*(line("c", seq) for seq in range(1, 6)))]

    assert len({*salts, SALT}) == 6
    for known in salts:
        derived = {sha256(known + seq.to_bytes(8)).digest() for seq in range(7)} | {sha256(known).digest()}
        assert not derived & set(salts)
    assert {sha256(SALT + seq.to_bytes(8)).digest() for seq in range(1, 6)} == set(salts)


def test_a_line_whose_payload_is_gone_has_its_structure_only() -> None:
    (record,) = chain(DECIDED)

    erased = unseal("c", replace(record, payload=None), previous=NO_HASH, seq=1)

    assert unseal("c", record, previous=NO_HASH, seq=1) == DECIDED
    assert erased == replace(
        DECIDED,
        event_data={"routing": {"kind": "finish"}},
        decision=Close("", Basis(kind="transition", index=2)),
        is_erased=True,
    )


@pytest.mark.parametrize(
    "decision",
    [
        Speak("bob", Basis(kind="transition", index=1, condition="Anna asked", target="bob")),
        Speak("bob", Basis(kind="initial")),
        Close("resolved", Basis(kind="default", target="end")),
        Close("Anna is happy", Basis(kind="finish")),
        Close("", Basis(kind="finish")),
        Rest(Basis(kind="default", condition="x")),
    ],
)
def test_a_decision_is_read_back_and_its_texts_are_content(decision: Decision) -> None:
    said = replace(FIRST, decision=decision)
    (record,) = chain(said)

    assert unseal("c", record, previous=NO_HASH, seq=1) == said
    assert b"Anna" not in record.head


@given(index=st.integers(0, HASH_BYTES - 1), mask=st.integers(1, 255))
def test_a_flipped_bit_anywhere_in_the_hash_is_detected(index: int, mask: int) -> None:
    (record,) = chain(FIRST)

    with pytest.raises(CorruptRecord, match="checksum"):
        unseal("c", replace(record, hash=flip_byte(record.hash, index, mask=mask)), previous=NO_HASH, seq=1)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(value=json_values)
def test_any_json_is_read_back_equal(value: object) -> None:
    said = line("c", 1, data={"value": value})

    assert unseal("c", seal(said, NO_HASH, salt=SALT), previous=NO_HASH, seq=1) == said
