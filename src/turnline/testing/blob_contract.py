"""What every log must do with files (Y6). Subclass `BlobContract`, give it a `log` fixture, done."""

# ruff: noqa: PLR2004  A test counts what it wrote.

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from msgspec.structs import replace

from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_CHANNEL_CHILD, EV_CHANNEL_INVITE
from turnline.core.parts import FilePart, message_data
from turnline.errors import BadDraft, CorruptRecord, FileTooLarge
from turnline.log.base import Blob, Blobs, Log
from turnline.log.blobs import (
    CHUNK_BYTES,
    UNUSED_SECONDS,
    find_blob,
    read_blob,
    sweep_blobs,
    write_blob,
)
from turnline.testing.lines import NOON, line, refusal

DAY: Final = timedelta(seconds=UNUSED_SECONDS)
LARGE: Final = bytes(range(256)) * (2 * CHUNK_BYTES // 256) + b"and a rest"


async def pieces(data: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def write(log: Log, root: str, data: bytes, *, blob_id: str = "b1", now: datetime = NOON) -> Blob:
    return await write_blob(files(log), root, pieces(data), blob_id=blob_id, now=now)


async def read(log: Log, blob: Blob) -> bytes:
    return b"".join([piece async for piece in read_blob(files(log), blob)])


def file_data(*contents: bytes) -> JsonObject:
    """Return the data of a message with these files."""
    found = [
        FilePart(media_type="text/plain", name="a.txt", size=len(one), digest=sha256(one).hexdigest())
        for one in contents
    ]
    return message_data(found)


def child_line(channel_id: str, seq: int, child: str) -> Envelope:
    return replace(line(channel_id, seq, data={"child": child, "by": "alice"}), event_type=EV_CHANNEL_CHILD)


def files(log: Log) -> Blobs:
    assert isinstance(log, Blobs)
    return log


class BlobContract:
    """The tests; every method's name is a rule."""

    async def test_a_file_is_read_back_as_it_was_written(self, log: Log) -> None:
        for number, data in enumerate((LARGE, b"small", b"", LARGE[:CHUNK_BYTES])):
            blob = await write(log, "root", data, blob_id=f"b{number}")

            assert (blob.size, blob.digest) == (len(data), sha256(data).hexdigest())
            assert await find_blob(files(log), "root", blob.digest) == blob
            assert await read(log, blob) == data

    async def test_a_file_is_kept_once_in_a_tree_and_unseen_by_others(self, log: Log) -> None:
        first = await write(log, "root", LARGE, blob_id="b1")
        again = await write(log, "root", LARGE, blob_id="b2")
        other = await write(log, "another", LARGE, blob_id="b3")

        assert again == first
        assert await files(log).blobs("root") == [first]
        assert await files(log).blobs("another") == [other]
        assert await find_blob(files(log), "third", first.digest) is None
        assert await files(log).read_chunk(replace(first, root="third"), 0) is None

    async def test_a_copy_that_is_about_to_be_deleted_is_not_used_again(self, log: Log) -> None:
        old = await write(log, "root", b"file", blob_id="old")
        new = await write(log, "root", b"file", blob_id="new", now=NOON + DAY / 2)

        assert old != new
        assert await find_blob(files(log), "root", old.digest) == new
        await files(log).set_blob(replace(old, is_kept=True))
        kept = await write(log, "root", b"file", blob_id="third", now=NOON + 9 * DAY)
        assert kept == replace(old, is_kept=True)

    async def test_nothing_is_left_of_a_file_that_is_refused_or_breaks_off(self, log: Log) -> None:
        async def broken() -> AsyncIterator[bytes]:
            yield LARGE
            raise OSError

        most = CHUNK_BYTES + 1
        too_large = write_blob(files(log), "root", pieces(LARGE), blob_id="a", now=NOON, most_bytes=most)
        assert str(most) in str(await refusal(BadDraft, too_large))
        await refusal(OSError, write_blob(files(log), "root", broken(), blob_id="b", now=NOON))

        assert await files(log).blobs("root") == []
        for name in ("a", "b"):
            assert await files(log).read_chunk(Blob(root="root", blob_id=name, created_at=NOON), 0) is None

    async def test_the_files_of_a_user_are_counted_in_all_trees_and_have_a_limit(self, log: Log) -> None:
        async def add(root: str, data: bytes, name: str, user_key: str = "ann") -> Blob:
            given = pieces(data)
            return await write_blob(
                files(log), root, given, blob_id=name, now=NOON, user_key=user_key, user_bytes=10
            )

        async def unread() -> AsyncIterator[bytes]:
            raise AssertionError("it was read")
            yield b""

        one, same = await add("r1", b"12345", "b1"), await add("r1", b"12345", "b2")
        await add("r2", b"12345678", "b3", "ben")
        await add("r2", b"1234567890", "b4", "")
        await refusal(FileTooLarge, add("r2", b"123456", "b5"))
        last = await add("r2", b"54321", "b6")
        full = write_blob(files(log), "r3", unread(), blob_id="b7", now=NOON, user_key="ann", user_bytes=10)

        assert same == one
        assert "10 bytes in 2 files" in str(await refusal(FileTooLarge, full))
        assert await files(log).count_blobs("ann", limit=10) == (2, 10)
        assert await files(log).count_blobs("ann", limit=1) == (1, 5)
        assert await files(log).count_blobs("", limit=10) == (0, 0)
        assert last in await files(log).blobs("r2")
        await files(log).delete_blobs([one])
        assert await files(log).count_blobs("ann", limit=10) == (1, 5)

    async def test_a_file_of_a_channel_that_was_never_opened_goes_after_a_day(self, log: Log) -> None:
        await write(log, "never", b"file")

        assert await sweep_blobs(log, now=NOON + 1.5 * DAY) == 1
        assert await files(log).blobs("never") == []

    async def test_a_file_that_a_channel_begins_with_is_kept(self, log: Log) -> None:
        blob = await write(log, "root", b"file")
        part = file_data(b"file")["parts"][0]
        invite = replace(line("root", 1, data={"files": [part]}), event_type=EV_CHANNEL_INVITE)
        await log.append("root", [invite], after=0)

        assert await sweep_blobs(log, now=NOON + 1.5 * DAY) == 0
        assert await files(log).blobs("root") == [replace(blob, is_kept=True)]

    async def test_a_file_that_is_not_complete_is_not_found(self, log: Log) -> None:
        begun = Blob(root="root", blob_id="b1", created_at=NOON)
        await files(log).add_blob(begun)
        await files(log).add_chunk(begun, 0, b"file")

        assert await find_blob(files(log), "root", sha256(b"file").hexdigest()) is None
        assert await find_blob(files(log), "root", "") is None

    async def test_a_file_that_no_line_refers_to_goes_after_a_day(self, log: Log) -> None:
        begun = Blob(root="root", blob_id="begun", created_at=NOON)
        await files(log).add_blob(begun)
        await files(log).add_chunk(begun, 0, b"file")
        used = await write(log, "root", b"used", blob_id="used")
        part = FilePart(media_type="text/plain", name="a.txt", size=used.size, digest=used.digest)
        unused = await write(log, "root", b"unused", blob_id="unused")
        new = await write(log, "root", b"new", blob_id="new", now=NOON + DAY)

        await log.append("root", [child_line("root", 1, "below")], after=0)
        await log.append("below", [line("below", 1, data=message_data([part]))], after=0)

        assert await sweep_blobs(log, now=NOON + DAY) == 0
        assert await sweep_blobs(log, now=NOON + 1.5 * DAY) == 2

        assert await files(log).blobs("root") == [replace(used, is_kept=True), new]
        assert await files(log).read_chunk(unused, 0) is None
        assert await files(log).read_chunk(begun, 0) is None
        assert await files(log).old_blobs(before=NOON + DAY, limit=9) == [], "nobody looks again"
        assert await read(log, used) == b"used"

    async def test_what_was_deleted_stays_deleted(self, log: Log) -> None:
        blob = await write(log, "root", b"file")
        await files(log).delete_blobs([blob])
        await files(log).set_blob(replace(blob, is_kept=True))
        await files(log).add_chunk(blob, 0, b"file")
        await files(log).delete_blobs([blob])

        assert await files(log).blobs("root") == []
        assert await files(log).read_chunk(blob, 0) is None

    async def test_a_file_whose_bytes_are_others_is_damage(self, log: Log) -> None:
        blob = await write(log, "root", b"file")

        await refusal(CorruptRecord, read(log, replace(blob, digest="0" * 64)))
        await refusal(CorruptRecord, read(log, replace(blob, size=3)))
        await refusal(CorruptRecord, read(log, replace(blob, size=CHUNK_BYTES + 1)))

    async def test_lines_are_written_while_a_file_comes(self, log: Log) -> None:
        async def with_lines() -> AsyncIterator[bytes]:
            async for piece in pieces(LARGE, CHUNK_BYTES):
                head = await log.head("other")
                after = 0 if head is None else head.seq
                await log.append("other", [line("other", after + 1)], after=after)
                yield piece

        blob = await write_blob(files(log), "root", with_lines(), blob_id="b1", now=NOON)

        head = await log.head("other")
        assert head is not None
        assert head.seq == 3
        assert await read(log, blob) == LARGE
