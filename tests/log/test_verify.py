"""`verify`: the first bad record of each channel is named, on every backend, and nothing is changed."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from turnline.core.adapters import built_in
from turnline.core.channel import ChannelSpec
from turnline.core.codec import Record
from turnline.core.directory import DIRECTORY_CHANNEL, EV_PARTICIPANT_REGISTERED
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_FORKED, EV_CHANNEL_INVITE
from turnline.errors import LogUnavailable
from turnline.log.forks import with_forks
from turnline.log.memory import MemoryLog
from turnline.log.records import MemoryRecords, open_records
from turnline.log.verify import BadRecord, Verdict, verify
from turnline.testing import Damage, damage_memory, drop_payload, flip_head, flip_payload
from turnline.testing.lines import NOON, closing_line, erased_line, line

from .backends import KEPT_KINDS, KINDS, Place
from .nats_stage import open_in_the_index, put_foreign, stream_of

TABLES = ("sqlite", "postgres")


def spoken(channel_id: str, number: int) -> list[Envelope]:
    """A channel that folds: an invitation, and what was said."""
    spec = ChannelSpec(channel_id=channel_id, type="conversation")
    invite = replace(
        line(channel_id, 1),
        event_type=EV_CHANNEL_INVITE,
        event_data=msgspec.to_builtins(spec),
        sender_id="hub",
    )
    return [invite, *(line(channel_id, seq) for seq in range(2, number + 1))]


async def fill(place: Place) -> None:
    async with place.log() as log:
        for channel_id in "abc":
            for envelope in spoken(channel_id, 4):
                await log.append(channel_id, [envelope], after=envelope.seq - 1)
        await log.append("c", [closing_line("c", 5)], after=4)


async def verdict(place: Place) -> Verdict:
    async with place.records() as records:
        return await verify(records, built_in())


async def bad_in(*envelopes: Envelope) -> list[BadRecord]:
    """What is wrong with a channel that only says these things."""
    log = MemoryLog()
    await log.append(envelopes[0].channel_id, envelopes, after=0)
    return (await verify(MemoryRecords(log), built_in())).bad


@pytest.mark.parametrize("kind", KINDS)
async def test_a_log_that_is_what_was_written_is_good(place: Place) -> None:
    await fill(place)

    found = await verdict(place)

    assert found.is_good
    assert (found.channels, found.records) == (3, 13)


@pytest.mark.parametrize("kind", KINDS)
async def test_r5_the_first_bad_record_of_each_bad_channel_is_named(place: Place) -> None:
    await fill(place)
    place.damage("a", 2)
    place.damage("a", 3)
    place.damage("c", 1)

    found = await verdict(place)

    assert [(bad.channel_id, bad.seq) for bad in found.bad] == [("a", 2), ("c", 1)]
    assert found.channels == 3
    assert all("checksum" in bad.found for bad in found.bad)
    assert not found.is_good


@pytest.mark.parametrize("kind", TABLES)
async def test_a_record_that_is_gone_is_named(place: Place) -> None:
    await fill(place)
    place.sql("DELETE FROM turnline_records WHERE channel = 'a' AND seq = 3")
    place.sql("DELETE FROM turnline_records WHERE channel = 'b' AND seq = 4")

    found = await verdict(place)

    assert [(bad.channel_id, bad.seq) for bad in found.bad] == [("a", 3), ("b", 4)]
    assert "the next one found is 4" in found.bad[0].found


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("change", "seq"),
    [
        ("UPDATE turnline_heads SET seq = 3 WHERE channel = 'a'", 4),
        ("UPDATE turnline_heads SET seq = 9 WHERE channel = 'a'", 5),
        (
            "UPDATE turnline_heads SET hash = (SELECT hash FROM turnline_heads WHERE channel = 'b') "
            "WHERE channel = 'a'",
            4,
        ),
        ("UPDATE turnline_heads SET closed = (1 = 1) WHERE channel = 'a'", 4),
        ("DELETE FROM turnline_heads WHERE channel = 'a'", 4),
    ],
)
async def test_an_index_that_says_something_else_than_the_records_is_bad(
    place: Place, change: str, seq: int
) -> None:
    await fill(place)
    place.sql(change)

    found = await verdict(place)

    assert [(bad.channel_id, bad.seq) for bad in found.bad] == [("a", seq)]
    assert "index" in found.bad[0].found


@pytest.mark.parametrize("kind", ["nats"])
async def test_on_nats_an_open_channel_that_is_on_no_list_is_bad(place: Place) -> None:
    await fill(place)
    async with stream_of(place.address) as (stream, name):
        await stream.purge_stream(f"{name}_index", subject=f"{name}_index.open.b")

    found = await verdict(place)

    assert [(bad.channel_id, bad.seq) for bad in found.bad] == [("b", 4)]
    assert "open channels" in found.bad[0].found


@pytest.mark.parametrize("kind", ["nats"])
async def test_on_nats_a_message_whose_headers_speak_of_other_records_is_bad(place: Place) -> None:
    await fill(place)
    async with stream_of(place.address) as (stream, name):
        kept = await stream.get_last_msg(name, f"{name}.a")
        headers = {key: value for key, value in (kept.headers or {}).items() if key.startswith("Turnline")}
        payload = kept.data or b""
        lines = headers["Turnline-Lines"].split(" ", 2)[2]
        await stream.publish(f"{name}.a", payload, headers=headers | {"Turnline-Lines": f"5 5 {lines}"})
    await put_foreign(place.address, "b", {})

    found = await verdict(place)

    assert [(bad.channel_id, bad.seq) for bad in found.bad] == [("a", 5), ("b", 5)]
    assert "headers" in found.bad[0].found


async def test_r2_a_record_that_cannot_be_folded_names_its_channel() -> None:
    [bad] = await bad_in(line("talk", 1))

    assert (bad.channel_id, bad.seq) == ("talk", 1)
    assert "an invite has to be" in bad.found


async def test_r2_a_registration_that_is_none_is_bad() -> None:
    wrong = replace(line(DIRECTORY_CHANNEL, 1, data={"agent_id": 7}), event_type=EV_PARTICIPANT_REGISTERED)

    [bad] = await bad_in(wrong)

    assert (bad.channel_id, bad.seq) == (DIRECTORY_CHANNEL, 1)


async def test_r7_a_time_that_runs_backwards_is_bad() -> None:
    first, second = spoken("talk", 2)

    [bad] = await bad_in(first, replace(second, created_at=NOON - timedelta(seconds=1)))

    assert (bad.seq, "none before" in bad.expected) == (2, True)


async def test_nothing_stands_behind_the_end_of_a_channel() -> None:
    [bad] = await bad_in(*spoken("talk", 2), closing_line("talk", 3), line("talk", 4))

    assert bad.seq == 4


async def test_only_lines_about_erased_content_follow_the_end_of_a_channel() -> None:
    closed = [*spoken("talk", 2), closing_line("talk", 3)]
    erased = [erased_line("talk", 4, (3, 3)), erased_line("talk", 5, (3, 3))]

    assert await bad_in(*closed, *erased) == []
    [bad] = await bad_in(*closed, *erased, line("talk", 6))

    assert (bad.seq, bad.expected) == (6, "only `payload.erased` behind `channel.closed`")


async def test_y2_content_that_was_erased_and_is_there_is_bad() -> None:
    [bad] = await bad_in(*spoken("talk", 2), closing_line("talk", 3), erased_line("talk", 4, (1, 2)))

    assert (bad.seq, "was interrupted" in bad.expected) == (2, True)


async def test_y2_content_that_is_erased_while_the_channel_is_read_is_not_bad() -> None:
    log = MemoryLog()
    said = [*spoken("talk", 2), closing_line("talk", 3)]
    await log.append("talk", said, after=0)

    class Slow(MemoryRecords):
        """A reader that has the first lines before they are erased, and the others after it."""

        is_first = True

        async def read(self, channel_id: str, *, after: int = 0) -> AsyncGenerator[Record]:
            early = list[Record]()
            if self.is_first and channel_id == "talk":
                self.is_first, early = False, log.records[channel_id][:2]
                await log.erase("talk", erased_line("talk", 4, (1, 2)), after=3, row=None)
            for one in [*early, *log.records.get(channel_id, [])[len(early) :]][after:]:
                yield one

    assert (await verify(Slow(log), built_in())).bad == []


async def test_a_line_about_erased_content_on_an_open_channel_is_bad() -> None:
    [bad] = await bad_in(*spoken("talk", 2), erased_line("talk", 3, (2, 2)))

    assert (bad.seq, bad.expected) == (3, "`channel.closed` before it")


async def test_content_of_a_system_channel_is_erased_while_it_is_in_use() -> None:
    log = MemoryLog()
    await log.append("_audit", [line("_audit", 1), erased_line("_audit", 2, (1, 1))], after=0)
    await log.append("_audit", [line("_audit", 3)], after=2)
    damage_memory(log, "_audit", 1, drop_payload)

    assert (await verify(MemoryRecords(log), built_in())).is_good


@pytest.mark.parametrize("kind", KINDS)
async def test_missing_content_is_bad_unless_a_later_line_says_that_it_was_erased(place: Place) -> None:
    async with place.log() as log:
        for name in ("erased", "lost"):
            invite, *said = spoken(name, 4)
            people = {"participants": [{"agent_id": "alice-1", "name": "Alice"}], "labels": {"case": "7"}}
            invite = replace(invite, event_data=invite.event_data | people)
            await log.append(name, [invite, *said, closing_line(name, 5)], after=0)
            await log.append(name, [erased_line(name, 6, (1, 2))], after=5)
    for name in ("erased", "lost"):
        place.damage(name, 1, drop_payload)
        place.damage(name, 2, drop_payload)
    place.damage("lost", 3, drop_payload)

    found = await verdict(place)

    assert [(bad.channel_id, bad.seq) for bad in found.bad] == [("lost", 3)]
    assert "its content is missing" in found.bad[0].found


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("damage", [flip_head, flip_payload])
async def test_a_changed_bit_of_structure_or_content_is_bad(place: Place, damage: Damage) -> None:
    await fill(place)
    place.damage("a", 2, damage)

    assert [(bad.channel_id, bad.seq) for bad in (await verdict(place)).bad] == [("a", 2)]


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_two_names_that_were_swapped_are_bad(place: Place) -> None:
    await fill(place)
    for change in (
        "SET id = '?' WHERE id = 'a'",
        "SET id = 'a' WHERE id = 'b'",
        "SET id = 'b' WHERE id = '?'",
    ):
        place.sql(f"UPDATE turnline_names {change}")

    found = await verdict(place)

    assert [(bad.channel_id, bad.seq) for bad in found.bad] == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_name_that_is_gone_is_bad(place: Place) -> None:
    await fill(place)
    place.sql("DELETE FROM turnline_names WHERE id = 'a'")

    found = await verdict(place)

    assert found.storage == ["without a name in the table `turnline_names`: 1 channel with records"]
    assert not found.is_good


async def test_an_envelope_under_another_records_name_is_bad() -> None:
    log = MemoryLog()
    await log.append("_own", [line("_own", 1)], after=0)
    await log.append("_other", [replace(line("_own", 1), channel_id="_other")], after=0)
    log.records["_own"] = list(log.records["_other"])

    found = await verify(MemoryRecords(log), built_in())

    assert [(bad.channel_id, bad.seq) for bad in found.bad] == [("_own", 1)]
    assert "checksum" in found.bad[0].found


async def test_a_channel_type_of_somebodys_program_is_told_and_is_not_bad() -> None:
    log = MemoryLog()
    spec = msgspec.to_builtins(ChannelSpec(channel_id="echo", type="echo"))
    invite = replace(line("echo", 1), event_type=EV_CHANNEL_INVITE, event_data=spec)
    await log.append("echo", [invite, line("echo", 2)], after=0)

    found = await verify(MemoryRecords(log), built_in())

    assert found.is_good
    assert (found.records, found.not_folded) == (2, {"echo": "echo"})


def forking(fork_id: str, origin: str, at: int) -> Envelope:
    data = {"forked_from": {"channel": origin, "seq": at}}
    return replace(line(fork_id, at + 1, data=data), event_type=EV_CHANNEL_FORKED, sender_id="hub")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fork_is_folded_behind_the_past_it_shares(place: Place) -> None:
    await fill(place)
    async with place.log() as log:
        forks = with_forks(log)
        await forks.append("x-fork", [forking("x-fork", "a", 3), line("x-fork", 5)], after=3)

    found = await verdict(place)

    assert found.is_good, found.bad
    assert (found.channels, found.records) == (4, 15)


@pytest.mark.parametrize(("at", "seq"), [(3, 2), (9, 0)])
async def test_a_fork_whose_past_cannot_be_read_is_bad(at: int, seq: int) -> None:
    log = MemoryLog()
    await log.append("a", spoken("a", 4), after=0)
    await with_forks(log).append("x-fork", [forking("x-fork", "a", at)], after=at)
    if seq:
        damage_memory(log, "a", seq)

    found = await verify(MemoryRecords(log), built_in())

    assert "x-fork" in [bad.channel_id for bad in found.bad]
    assert "a fork of 'a'" in found.bad[-1].found


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_what_sqlite_finds_wrong_with_its_file_is_told(place: Place) -> None:
    await fill(place)
    place.sql("UPDATE turnline_records SET envelope_id = 'other' WHERE channel = 'a' AND seq = 1")
    whole = place.path.read_bytes()
    at = whole.rindex(b"other")  # In the index of ids, which is a copy of what the table says.
    place.path.write_bytes(whole[:at] + b"OTHER" + whole[at + 5 :])

    found = await verdict(place)

    assert found.storage
    assert not found.is_good


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_record_of_no_channel_at_all_is_told(place: Place) -> None:
    await fill(place)
    with closing(sqlite3.connect(place.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'channel INTEGER NOT NULL', 'channel INTEGER')"
        )
        connection.execute("PRAGMA writable_schema = RESET")
        channel = "(SELECT channel FROM turnline_names WHERE id = 'a')"
        connection.execute(
            f"UPDATE turnline_records SET channel = NULL WHERE channel = {channel} AND seq = 4"
        )

    found = await verdict(place)

    assert [(bad.channel_id, bad.seq) for bad in found.bad] == [("a", 4)]
    assert found.storage == [
        "its tables are not described as they were made",
        "without a name in the table `turnline_names`: 1 channel with records",
    ]


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_looking_at_a_file_changes_no_byte_of_it(place: Place) -> None:
    await fill(place)
    place.sql("DELETE FROM turnline_heads")  # A log that is opened to be used would make them anew.
    before = place.path.read_bytes()

    found = await verdict(place)

    assert len(found.bad) == 3
    assert place.path.read_bytes() == before


@pytest.mark.parametrize("kind", KEPT_KINDS)
async def test_looking_at_a_log_that_is_not_there_makes_none(place: Place) -> None:
    for _ in range(2):  # The second look would find what the first one made.
        with pytest.raises(LogUnavailable):
            await open_records(place.address)


async def test_a_file_that_is_something_else_cannot_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"not a database, but long enough to be taken for one" * 100)

    with pytest.raises(LogUnavailable):
        await open_records(f"sqlite:///{tmp_path / 'other.db'}")


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_appended_between_a_look_at_the_records_and_one_at_the_index_is_read(
    place: Place,
) -> None:
    await fill(place)
    async with place.log() as log, place.records() as records:

        class Racing:
            """A hub appends just before the index is asked."""

            address, channels, read = records.address, records.channels, records.read
            damage, facts, close = records.damage, records.facts, records.close
            tombstones = records.tombstones

            async def indexed(self, channel_id: str) -> object:
                if channel_id == "a":
                    await log.append("a", [line("a", 5)], after=4)
                return await records.indexed(channel_id)

        found = await verify(Racing(), built_in())  # type: ignore[arg-type]

    assert found.is_good
    assert found.records == 14


@pytest.mark.parametrize("kind", ["nats"])
async def test_a_look_leaves_the_list_of_open_channels_alone(place: Place) -> None:
    await fill(place)
    before = await open_in_the_index(place.address)

    await verdict(place)

    assert await open_in_the_index(place.address) == before
