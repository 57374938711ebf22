"""Y6: `verify` reads the files that lines refer to, on every backend, and names the bad ones."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from turnline.core.adapters import built_in
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_FORKED, EV_CHANNEL_INVITE
from turnline.log.base import Blob, Blobs, Log
from turnline.log.blobs import CHUNK_BYTES
from turnline.log.memory import MemoryLog
from turnline.log.nats_blobs import BLOB
from turnline.log.records import MemoryRecords
from turnline.log.verify import BadFile, Verdict, verify
from turnline.testing.blob_contract import file_data, files, write
from turnline.testing.damage import flip_byte
from turnline.testing.lines import closing_line, erased_line, line

from .backends import KEPT_KINDS, KINDS, Place
from .nats_stage import stream_of

LARGE = b"0123456789abcdef" * (2 * CHUNK_BYTES // 16) + b"and a rest"
SMALL = b"a small file"


def invite(channel_id: str, **said: Any) -> Envelope:
    data = msgspec.to_builtins(ChannelSpec(channel_id=channel_id, type="conversation", **said))
    return replace(line(channel_id, 1), event_type=EV_CHANNEL_INVITE, event_data=data, sender_id="hub")


async def send(log: Log, channel_id: str, *contents: bytes, **said: Any) -> None:
    """Open a channel with one message that has these files."""
    lines = [invite(channel_id, **said), line(channel_id, 2, data=file_data(*contents))]
    await log.append(channel_id, lines, after=0)


async def fill(place: Place) -> None:
    async with place.log() as log:
        for number, content in enumerate((SMALL, LARGE)):
            await write(log, "top", content, blob_id=f"b{number}")
        await write(log, "top", b"no line refers to this one" * 20_000, blob_id="unused")
        await send(log, "top", SMALL, LARGE)
        await send(log, "below", LARGE, parent_id="top", depth=1)
        await write(log, "other", LARGE, blob_id="b3")
        await send(log, "other", LARGE)


async def look(place: Place) -> Verdict:
    async with place.records() as records:
        return await verify(records, built_in())


def places(bad: list[BadFile]) -> list[tuple[str, int, int]]:
    return [(one.channel_id, one.seq, one.file) for one in bad]


@pytest.mark.parametrize("kind", KINDS)
async def test_files_that_are_what_was_written_are_good(place: Place) -> None:
    await fill(place)

    found = await look(place)

    assert found.is_good
    assert found.files == 4


async def lose_a_chunk(place: Place) -> None:
    if place.kind == "nats":
        async with stream_of(place.address) as (stream, name):
            await stream.purge_stream(f"{name}_blobs", subject=f"{name}_blobs.top.b1.1")
    else:
        place.sql(f"DELETE FROM turnline_chunks WHERE number = 1 AND {LARGE_OF_TOP}")


async def replace_on_nats(place: Place, name: str, change: Callable[[bytes], bytes]) -> None:
    """Publish a message of the large file again, with another body."""
    async with stream_of(place.address) as (stream, log):
        subject = f"{log}_blobs.top.b1.{name}"
        kept = await stream.get_last_msg(f"{log}_blobs", subject)
        headers = {key: text for key, text in (kept.headers or {}).items() if key == BLOB}
        await stream.publish(subject, change(kept.data or b""), headers=headers)


async def change_a_byte(place: Place) -> None:
    if place.kind == "nats":
        await replace_on_nats(place, "1", lambda kept: flip_byte(kept, 90))
        return
    changed = "CAST(substr(data, 1, 90) || 'X' || substr(data, 92) AS BLOB)"
    if place.kind == "postgres":
        changed = "overlay(data placing 'X'::bytea from 91)"
    place.sql(f"UPDATE turnline_chunks SET data = {changed} WHERE number = 1 AND {LARGE_OF_TOP}")


async def cut_the_last_chunk(place: Place) -> None:
    if place.kind == "nats":
        await replace_on_nats(place, "2", lambda kept: kept[:-1])
        return
    place.sql(f"UPDATE turnline_chunks SET data = substr(data, 1, 4) WHERE number = 2 AND {LARGE_OF_TOP}")


async def change_the_row(place: Place) -> None:
    if place.kind == "nats":
        await replace_on_nats(place, "blob.-", lambda kept: kept[:-1])
        return
    place.sql("UPDATE turnline_blobs SET size = size - 1 WHERE id = 'b1'")


LARGE_OF_TOP = "blob = (SELECT blob FROM turnline_blobs WHERE id = 'b1')"
DAMAGES = [lose_a_chunk, change_a_byte, cut_the_last_chunk, change_the_row]


@pytest.mark.parametrize("kind", KEPT_KINDS)
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_bad_file_is_named_by_its_lines_in_its_tree_only(
    place: Place, damage: Callable[[Place], Coroutine[Any, Any, None]]
) -> None:
    await fill(place)
    await damage(place)

    found = await look(place)

    assert places(found.bad_files) == [("below", 2, 0), ("top", 2, 1)]
    assert found.bad == [], "the channels themselves are good"
    assert not found.is_good
    assert "a.txt" not in repr(found.bad_files), "a name is content"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_that_is_gone_is_named(place: Place) -> None:
    await fill(place)
    async with place.log() as log:
        gone = [one for one in await files(log).blobs("top") if one.size == len(SMALL)]
        await files(log).delete_blobs(gone)

    found = await look(place)

    assert places(found.bad_files) == [("top", 2, 0)]
    assert "missing" in found.bad_files[0].found
    assert str(len(SMALL)) in found.bad_files[0].expected


@pytest.mark.parametrize("damage", ["size = 'many'", "created = 9223372036854775807", "digest = x'00'"])
@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_row_of_another_type_is_damage_and_no_crash(place: Place, damage: str) -> None:
    await fill(place)
    place.sql(f"UPDATE turnline_blobs SET {damage} WHERE root = 'other'")

    assert places((await look(place)).bad_files) == [("other", 2, 0)]


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_chunk_of_another_type_is_damage_and_no_crash(place: Place) -> None:
    await fill(place)
    place.sql(f"UPDATE turnline_chunks SET data = 99999999999 WHERE {LARGE_OF_TOP}")

    assert places((await look(place)).bad_files) == [("below", 2, 0), ("top", 2, 1)]


async def test_a_file_is_read_once_for_all_lines_of_its_tree() -> None:
    log = MemoryLog()
    await write(log, "top", LARGE)
    await log.append("top", [invite("top")], after=0)
    for seq in range(2, 40):
        await log.append("top", [line("top", seq, data=file_data(LARGE))], after=seq - 1)
    records = _Counted(log)

    found = await verify(records, built_in())

    assert (found.is_good, found.files) == (True, 38)
    assert records.chunks == 3


class _Counted(MemoryRecords):
    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self.chunks = 0

    async def read_chunk(self, blob: Blob, number: int) -> bytes | None:
        self.chunks += 1
        return await super().read_chunk(blob, number)


async def test_a_file_of_a_fork_belongs_to_the_tree_of_its_origin() -> None:
    log = MemoryLog()
    await write(log, "top", SMALL, blob_id="b1")
    await write(log, "top", LARGE, blob_id="b2")
    await send(log, "top", SMALL)
    forked = {"forked_from": {"channel": "top", "seq": 2}, "by": "alice"}
    begin = replace(line("f-fork", 1), event_type=EV_CHANNEL_FORKED, event_data=forked, sender_id="hub")
    await log.append("f-fork", [begin, line("f-fork", 2, data=file_data(LARGE))], after=0)
    assert (await verify(MemoryRecords(log), built_in())).bad_files == []

    await log.delete_blobs([one for one in await log.blobs("top") if one.blob_id == "b2"])

    found = await verify(MemoryRecords(log), built_in())
    assert places(found.bad_files) == [("f-fork", 2, 0)]


async def test_files_of_a_tree_whose_top_is_elsewhere_are_not_looked_for() -> None:
    log = MemoryLog()
    await send(log, "below", SMALL, parent_id="elsewhere", depth=1)

    found = await verify(MemoryRecords(log), built_in())

    assert (found.bad_files, found.files) == ([], 0)


class _Meanwhile(MemoryRecords):
    """Does something to the log after the lines of a channel were read, before its files are."""

    def __init__(self, log: MemoryLog, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().__init__(log)
        self._act: Callable[[], Coroutine[Any, Any, None]] | None = act

    async def blobs(self, root: str | None = None) -> list[Blob]:
        if self._act is not None:
            act, self._act = self._act, None
            await act()
        return await super().blobs(root)


async def test_a_line_that_says_another_size_than_its_file_has_is_named() -> None:
    log = MemoryLog()
    await write(log, "top", SMALL)
    data = file_data(SMALL)
    data["parts"][0]["size"] += 1
    await log.append("top", [invite("top"), line("top", 2, data=data)], after=0)

    (bad,) = (await verify(MemoryRecords(log), built_in())).bad_files

    assert (bad.seq, bad.found) == (2, f"a file of {len(SMALL)} bytes")


async def test_a_line_that_is_erased_while_its_file_is_looked_for_is_not_damage() -> None:
    log = MemoryLog()
    blob = await write(log, "top", SMALL)
    await send(log, "top", SMALL)
    await log.append("top", [closing_line("top", 3)], after=2)

    async def erase() -> None:
        await log.erase("top", erased_line("top", 4, (2, 2)), after=3, row=None, blobs=[blob])

    found = await verify(_Meanwhile(log, erase), built_in())

    assert found.bad_files == []
    assert isinstance(log, Blobs)
    assert await log.blobs("top") == []
