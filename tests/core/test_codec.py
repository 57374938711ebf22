"""Envelope <-> bytes: versions, and the chain that makes damage visible."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from turnline.core.codec import HASH_BYTES, NO_HASH, Kept, Record, decode, encode, seal, unseal
from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.errors import CorruptRecord
from turnline.testing.damage import flip_byte
from turnline.testing.lines import line

FIRST = line("c", 1, data={"text": "hello", "n": 12.5, "list": [None, True, "ü"]})


def chain(*envelopes: Envelope) -> list[Record]:
    records: list[Record] = []
    for envelope in envelopes:
        records.append(seal(envelope, records[-1].hash if records else NO_HASH))
    return records


def test_an_envelope_is_decoded_equal() -> None:
    assert decode(encode(FIRST)) == FIRST


def test_every_line_carries_its_schema_version() -> None:
    assert msgspec.json.decode(encode(FIRST))["v"] == SCHEMA_VERSION


def test_an_envelope_that_was_kept_is_sealed_with_the_bytes_it_has() -> None:
    fields = {name: getattr(FIRST, name) for name in Envelope.__struct_fields__}
    spaced = msgspec.json.format(encode(FIRST))

    record = seal(Kept(**fields, body=spaced), NO_HASH)

    assert record.body == spaced
    assert unseal("c", record, previous=NO_HASH, seq=1) == FIRST


def test_fields_at_their_defaults_are_not_written() -> None:
    assert set(msgspec.json.decode(encode(FIRST))) == {
        *("v", "envelope_id", "channel_id", "seq", "sender_id", "event_type", "event_data", "created_at")
    }


def test_a_newer_line_is_not_guessed_at() -> None:
    newer = encode(replace(FIRST, schema_version=SCHEMA_VERSION + 1))

    with pytest.raises(ValueError, match="upgrade turnline"):
        decode(newer)
    with pytest.raises(CorruptRecord, match="upgrade turnline"):
        unseal("c", seal(replace(FIRST, schema_version=SCHEMA_VERSION + 1), NO_HASH), previous=NO_HASH, seq=1)


def test_an_older_line_is_brought_up_to_date_while_it_is_read() -> None:
    def sender_was_called_author(old: JsonObject) -> JsonObject:
        return {("sender_id" if key == "author" else key): value for key, value in old.items()}

    old = msgspec.json.decode(encode(FIRST)) | {"v": SCHEMA_VERSION - 1}
    old["author"] = old.pop("sender_id")
    body = msgspec.json.encode(old)

    assert decode(body, upcasters={SCHEMA_VERSION - 1: sender_was_called_author}) == FIRST
    with pytest.raises(ValueError, match=f"no upcaster from schema version {SCHEMA_VERSION - 1}"):
        decode(body, upcasters={})


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
    other = seal(line("c", 1, envelope_id="other"), NO_HASH)

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
    one = Record(seq=1, envelope_id="1:c", body=b"{}", hash=NO_HASH)
    sealed = seal(line("a", 1, envelope_id="1:c"), NO_HASH)

    assert seal(line("a1", 1, envelope_id=":c"), NO_HASH).hash != sealed.hash
    assert one.hash != sealed.hash


@given(data=st.data())
def test_a_flipped_bit_anywhere_in_the_body_is_detected(data: st.DataObject) -> None:
    (record,) = chain(FIRST)
    index = data.draw(st.integers(0, len(record.body) - 1))
    mask = data.draw(st.integers(1, 255))

    with pytest.raises(CorruptRecord, match="checksum"):
        unseal("c", replace(record, body=flip_byte(record.body, index, mask=mask)), previous=NO_HASH, seq=1)


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

    assert unseal("c", seal(said, NO_HASH), previous=NO_HASH, seq=1) == said
