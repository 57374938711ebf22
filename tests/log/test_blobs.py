"""Y6: files beside a log, on every kind of log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from threading import Event

import pytest
from msgspec.structs import replace

from turnline.errors import FileTooLarge, LogConflict
from turnline.log.base import Blob, Log
from turnline.log.blobs import CHUNK_BYTES, UnderWay, find_blob, write_blob
from turnline.log.joined import Statements
from turnline.log.memory import MemoryLog
from turnline.log.records import looking_at_log
from turnline.log.sqlite import SqliteLog
from turnline.log.sqlite_file import LogFile
from turnline.log.sqlite_work import Work
from turnline.log.sqlite_writer import MAX_BATCH, MAX_PASSED, Writer
from turnline.testing import BlobContract
from turnline.testing.blob_contract import files, pieces, write
from turnline.testing.lines import NOON, erased_line, line

from .backends import KINDS, Place

CANARY = b"canary-7f3a-" * 40_000


@pytest.mark.parametrize("kind", KINDS)
class TestBlobs(BlobContract):
    @pytest.fixture
    async def log(self, place: Place) -> AsyncIterator[Log]:
        async with place.log() as log:
            yield log


def has_canary(path: Path) -> bool:
    return any(b"canary-7f3a" in one.read_bytes() for one in path.parent.iterdir())


@pytest.mark.parametrize("way", ["delete", "erase"])
async def test_no_byte_of_a_deleted_file_is_left_in_the_files_of_sqlite(tmp_path: Path, way: str) -> None:
    log = SqliteLog(tmp_path / "log" / "log.db")
    await write(log, "root", b"before" * CHUNK_BYTES, blob_id="first")
    blob = await write(log, "root", CANARY, blob_id="second")
    await write(log, "root", b"after" * CHUNK_BYTES, blob_id="third")
    await log.append("root", [line("root", 1)], after=0)
    assert has_canary(log.path)

    if way == "delete":
        await log.delete_blobs([blob])
    else:
        await log.erase("root", erased_line("root", 2, (1, 1)), after=1, row=None, blobs=[blob])
    await log.compact()

    assert not has_canary(log.path)
    assert [one.blob_id for one in await log.blobs("root")] == ["first", "third"]
    await log.close()
    assert not has_canary(log.path)


async def test_an_erase_that_is_refused_keeps_the_file(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    blob = await write(log, "root", b"file")
    await log.append("root", [line("root", 1)], after=0)

    with pytest.raises(LogConflict):
        await log.erase("root", erased_line("root", 3, (1, 1)), after=2, row=None, blobs=[blob])

    assert await log.blobs("root") == [blob]
    await log.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_an_append_passes_the_chunks_that_wait(place: Place) -> None:
    async with place.log() as log:
        blob = Blob(root="root", blob_id="b", created_at=NOON)
        await files(log).add_blob(blob)
        chunks = [asyncio.create_task(files(log).add_chunk(blob, n, bytes(CHUNK_BYTES))) for n in range(40)]
        await chunks[0]

        await log.append("other", [line("other", 1)], after=0)

        waiting = sum(not one.done() for one in chunks)
        assert waiting >= 30, "the append has waited for a few chunks at most"
        await asyncio.gather(*chunks)


class Noted(Work):
    """A work that writes nothing, and notes when it is its turn; the first one waits to be let go."""

    def __init__(self, name: str, order: list[str], go: Event) -> None:
        self._name, self._order, self._go = name, order, go

    def write(self, connection: Statements) -> None:
        self._go.wait()
        self._order.append(self._name)

    def landed(self, connection: Statements) -> bool:
        return True


async def test_a_chunk_waits_for_appends_but_not_for_ever(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "log.db", durability="process", busy_timeout_seconds=10)
    writer, order, go = Writer(file, committed=lambda _: None, loop_seconds=0), list[str](), Event()
    waiting = [writer.submit(Noted("first", order, go))]
    waiting.append(writer.submit(Noted("chunk", order, go), is_urgent=False))
    waiting += [writer.submit(Noted("append", order, go)) for _ in range((MAX_PASSED + 3) * MAX_BATCH)]
    go.set()
    await asyncio.gather(*waiting)
    await asyncio.to_thread(writer.close)

    passed = order.index("chunk")
    assert (MAX_PASSED - 1) * MAX_BATCH < passed <= (MAX_PASSED + 1) * MAX_BATCH
    assert order[-1] == "append"


async def test_a_file_survives_opening_again(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    blob = await write(log, "root", CANARY)
    await log.set_blob(replace(blob, is_kept=True))
    await log.close()

    again = SqliteLog(tmp_path / "log.db")
    assert await again.blobs("root") == [replace(blob, is_kept=True)]
    assert await again.read_chunk(blob, 0) == CANARY[:CHUNK_BYTES]
    await again.close()


async def test_pieces_of_any_size_become_chunks_of_one_size(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    small = [piece async for piece in pieces(CANARY, 7_001)]
    assert len(small) > 50

    blob = await write(log, "root", CANARY)

    sizes = [len(await log.read_chunk(blob, n) or b"") for n in range(3)]
    assert sizes == [CHUNK_BYTES, len(CANARY) - CHUNK_BYTES, 0]
    await log.close()


async def test_a_log_with_files_has_its_own_schema(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    await write(log, "root", b"file")
    await log.append("root", [line("root", 1)], after=0)

    async with looking_at_log(log.address, log) as records:
        assert await records.damage() == []
    await log.close()


class CountingSlowly(MemoryLog):
    """Counts the files of `ann` for the second time only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = 0
        self.is_counting, self.may_count = asyncio.Event(), asyncio.Event()

    async def count_blobs(self, user_key: str, *, limit: int) -> tuple[int, int]:
        found = await super().count_blobs(user_key, limit=limit)
        self.counts += user_key == "ann"
        if user_key == "ann" and self.counts == 2:
            self.is_counting.set()
            await self.may_count.wait()
        return found


async def test_an_upload_that_its_quota_refuses_takes_no_copy_of_another_user_along() -> None:
    log = CountingSlowly()
    refused = asyncio.create_task(
        write_blob(log, "tree", pieces(b"same"), blob_id="a", now=NOON, user_key="ann", user_bytes=3)
    )
    await log.is_counting.wait()
    kept = await write_blob(log, "tree", pieces(b"same"), blob_id="b", now=NOON, user_key="bob")
    log.may_count.set()
    with pytest.raises(FileTooLarge):
        await refused

    assert await find_blob(log, "tree", kept.digest) == kept


@pytest.mark.parametrize("quota", ["user_bytes", "tree_bytes"])
async def test_a_quota_counts_uploads_that_are_under_way(quota: str) -> None:
    log, under_way, go_on = MemoryLog(), UnderWay(), asyncio.Event()
    has_begun = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"a" * CHUNK_BYTES
        has_begun.set()
        await go_on.wait()

    def upload(given: AsyncIterator[bytes], name: str) -> Coroutine[None, None, Blob]:
        most = {quota: 2 * CHUNK_BYTES - 1}
        return write_blob(
            log, "root", given, blob_id=name, now=NOON, user_key="ann", under_way=under_way, **most
        )

    first = asyncio.create_task(upload(slow(), "b1"))
    await has_begun.wait()
    with pytest.raises(FileTooLarge) as refused:
        await upload(pieces(b"b" * CHUNK_BYTES), "b2")
    small = await upload(pieces(b"c"), "b3")
    go_on.set()
    large = await first

    assert str(2 * CHUNK_BYTES) in str(refused.value)
    assert await log.blobs("root") == [large, small]
    assert not under_way
