"""Y6: files of messages, as the hub keeps and deletes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from turnline.agent.files import File
from turnline.client.channel import Channel
from turnline.core.parts import FilePart
from turnline.errors import BadDraft, ChannelClosed, UnknownFile
from turnline.hub.files import SWEEP_SECONDS, UPLOAD_SECONDS
from turnline.hub.request import OpenRequest
from turnline.log.base import Blob, Blobs
from turnline.log.blobs import UNUSED_SECONDS
from turnline.log.memory import MemoryLog
from turnline.log.postgres import PostgresLog
from turnline.log.sqlite import SqliteLog

from ..postgres import Postgres, run
from .scenes import A_B, A_B_A, House, house, refused

CANARY = b"CANARY-7f3a" * 30_000


async def kept(home: House, channel: Channel) -> list[Blob]:
    assert isinstance(home.hub.log, Blobs)
    return await home.hub.log.blobs(channel.channel_id)


def with_canary(folder: Path) -> list[Path]:
    """Return the files in a folder that hold a part of the file."""
    files = [one for one in folder.rglob("*") if one.is_file()]
    return [
        one for one in files if b"CANARY-7f3aCANARY" in one.read_bytes() or b"7f3a.txt" in one.read_bytes()
    ]


async def pieces(data: bytes = b"file") -> AsyncIterator[bytes]:
    yield data


async def add(home: House, channel: Channel, data: bytes = b"file") -> tuple[str, int]:
    return await home["alice"].seat.add_file(channel.channel_id, pieces(data))


async def test_a_file_that_no_line_refers_to_goes_after_a_day_and_another_stays() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        said = await channel.send(parts=[File(b"said")])
        await add(home, channel, b"never said")
        await home.pass_time(UNUSED_SECONDS - SWEEP_SECONDS)
        assert len(await kept(home, channel)) == 2

        await home.pass_time(2 * SWEEP_SECONDS)

        (blob,) = await kept(home, channel)
        assert blob.is_kept
        assert (await channel.read_file(said)).read() == b"said"


async def test_a_line_cannot_refer_to_an_upload_of_long_ago() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        digest, size = await add(home, channel)
        part = {"type": "file", "media_type": "text/plain", "name": "a", "size": size, "digest": digest}
        home.clock.advance(UPLOAD_SECONDS + 1)

        await refused(BadDraft, channel.send(event_data={"parts": [part]}))


async def test_a_message_with_a_file_that_is_sent_again_is_said_once() -> None:
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B_A)
        first = await channel.send(parts=[File(b"x")], envelope_id="once")
    async with house(log, "alice", "bob") as home:
        handle = home.handle("alice", channel)

        assert await handle.send(event_data=first.event_data, envelope_id="once") == first
        assert await handle.send(parts=[File(b"x")], envelope_id="once") == first
        assert len(await kept(home, channel)) == 1


async def test_a_closed_channel_takes_no_file() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        await channel.close()

        await refused(ChannelClosed, add(home, channel))
        assert await kept(home, channel) == []


async def test_a_tree_has_one_copy_and_a_fork_reads_it() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        said = await channel.send(parts=[File(CANARY)])
        below = await home.talk(parent=channel.channel_id)
        await below.send(parts=[File(CANARY)])
        forked = await home.hub.fork(channel.channel_id, at=said.seq)
        fork = home["alice"].channel(forked)

        assert len(await kept(home, channel)) == 1
        assert await kept(home, below) == await kept(home, fork) == []
        assert (await fork.read_file(said.seq)).read() == CANARY
        await home["bob"].channel(forked).send(parts=[File(b"of the fork")])
        assert len(await kept(home, channel)) == 2


async def test_erasing_deletes_a_file_once_no_line_of_the_tree_refers_to_it() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        first = await channel.send(parts=[File(b"twice"), File(b"once")])
        second = await home.handle("bob", channel).send(parts=[File(b"twice", "other.bin")])
        await home.pass_time(UNUSED_SECONDS + SWEEP_SECONDS)
        assert [blob.is_kept for blob in await kept(home, channel)] == [True, True]

        await home.hub.erase(channel.channel_id, by="admin", lines=[(first.seq, first.seq)])
        assert len(await kept(home, channel)) == 1
        assert (await channel.read_file(second)).read() == b"twice"
        await refused(UnknownFile, channel.read_file(first))
        await home.hub.erase(channel.channel_id, by="admin")

        assert await kept(home, channel) == []
        await refused(UnknownFile, channel.read_file(second))


async def test_erasing_a_channel_keeps_the_file_that_one_above_refers_to() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        said = await channel.send(parts=[File(b"shared")])
        below = await home.talk(parent=channel.channel_id)
        await below.send(parts=[File(b"shared"), File(b"below")])
        await below.close()
        await channel.close()

        await home.hub.erase(below.channel_id, by="admin")

        assert len(await kept(home, channel)) == 1
        assert (await channel.read_file(said)).read() == b"shared"


async def test_erasing_a_tree_deletes_uploads_that_no_line_refers_to(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B)
        await add(home, channel, CANARY)
        said = await channel.send("hello")
        await home.handle("bob", channel).send("thanks")
        await home.hub.erase(channel.channel_id, by="admin", lines=[(said.seq, said.seq)])
        assert len(await kept(home, channel)) == 1
        await home.hub.erase(channel.channel_id, by="admin")
        await log.compact()

        assert await kept(home, channel) == []
        assert with_canary(tmp_path) == []


async def test_no_byte_of_an_erased_file_is_left_in_the_files_of_sqlite(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B)
        await channel.send(parts=[File(CANARY, "CANARY-7f3a.txt")])
        await home.handle("bob", channel).send("thanks")
        assert with_canary(tmp_path)
        await home.hub.erase(channel.channel_id, by="admin")
        await log.compact()

        assert with_canary(tmp_path) == []


async def test_no_byte_of_an_erased_file_is_left_in_the_tables_of_postgres(postgres: Postgres) -> None:
    address = postgres.fresh()
    async with house(PostgresLog(address), "alice", "bob") as home:
        channel = await home.open(A_B)
        await channel.send(parts=[File(CANARY)])
        await home.handle("bob", channel).send("thanks")
        run(address, "CHECKPOINT")
        assert with_canary(postgres.folder / "base")
        await home.hub.erase(channel.channel_id, by="admin")
        await home.hub.lines.compact()

        assert with_canary(postgres.folder / "base") == []


@pytest.mark.parametrize("size", [0, 1, 300_000])
async def test_a_tool_of_any_size_reads_what_was_sent(size: int) -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        said = await channel.send(parts=[File(b"x" * size)])

        assert (await channel.read_file(said)).read() == b"x" * size


def request_with(
    digest: str, size: int, channel_id: str = "mine", parent_id: str | None = None
) -> OpenRequest:
    file = FilePart(media_type="text/plain", name="a.txt", size=size, digest=digest)
    return OpenRequest(
        type="conversation", target=["bob"], channel_id=channel_id, files=[file], parent_id=parent_id
    )


async def test_a_channel_begins_with_files_that_its_opener_uploaded_for_it_and_with_no_others() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        alice, bob = home["alice"].seat, home["bob"].seat
        other = await home.open(A_B_A)
        digest, size = await add(home, other)
        await refused(BadDraft, alice.open(request_with(digest, size)))
        await home.hub.files.add_before("mine", alice.agent_id, pieces())
        await refused(BadDraft, alice.open(request_with(digest, size + 1)))
        await refused(BadDraft, bob.open(request_with(digest, size)))
        await refused(BadDraft, alice.open(request_with(digest, size, "another")))
        assert await home.hub.lines.head("mine") is None

        assert await alice.open(request_with(digest, size)) == "mine"
        assert (await alice.read_chunk("mine", 1, 0, 0)).data == b"file"
        assert (await bob.read_chunk("mine", 1, 0, 0)).data == b"file"
        below = request_with(digest, size, "below", parent_id="mine")
        assert await alice.open(below) == "below"
        assert (await alice.read_chunk("below", 1, 0, 0)).data == b"file"
        unknown = request_with("0" * 64, size, "below2", parent_id="mine")
        await refused(BadDraft, alice.open(unknown))


async def test_files_that_a_channel_begins_with_are_erased_with_its_first_line() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        alice = home["alice"].seat
        blob = await home.hub.files.add_before("mine", alice.agent_id, pieces())
        await alice.open(request_with(blob.digest, blob.size))
        await alice.close_channel("mine", "done")
        await home.hub.erase("mine", by="alice")
        first = (await home.hub.read_wal("mine"))[0]

        assert blob.digest not in str(first)
        assert isinstance(home.hub.log, Blobs)
        assert await home.hub.log.blobs("mine") == []
        await refused(UnknownFile, alice.read_chunk("mine", 1, 0, 0))
