"""What tests of a `NatsLog` do to its streams behind its back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Thread

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg, StreamConfig

from turnline.core.codec import Record
from turnline.log.nats_address import NatsAddress
from turnline.log.nats_message import Message, pack, token, unpack
from turnline.log.nats_records import NatsRecords
from turnline.testing.damage import Damage, flip_head


@asynccontextmanager
async def stream_of(address: str) -> AsyncIterator[tuple[JetStreamContext, str]]:
    """The servers of a log and its stream's name, as any other client sees them."""
    where = NatsAddress(address)
    client = Client()
    await client.connect(where.servers)
    try:
        yield client.jetstream(), where.stream
    finally:
        await client.close()


async def leader_of(address: str) -> str:
    """Return the name of the server that leads the log's stream."""
    async with stream_of(address) as (stream, name):
        cluster = (await stream.stream_info(name)).cluster
    assert cluster is not None
    return cluster.leader or ""


async def messages_of(address: str) -> int:
    async with stream_of(address) as (stream, name):
        return (await stream.stream_info(name)).state.messages


async def records_of(address: str, channel_id: str) -> list[Record]:
    """Return a channel's records, with the content that is encrypted on the stream."""
    records = await NatsRecords.open(address)
    try:
        return [record async for record in records.read(channel_id)]
    finally:
        await records.close()


async def made(address: str, config: StreamConfig) -> None:
    """Make the log's stream before the log does."""
    async with stream_of(address) as (stream, _):
        await stream.add_stream(config)


async def open_in_the_index(address: str) -> list[str]:
    """Return the channels that a list of open ones would look at."""
    async with stream_of(address) as (stream, name):
        info = await stream.stream_info(f"{name}_index", subjects_filter=f"{name}_index.open.*")
    return sorted(subject.rpartition(".")[2] for subject in info.state.subjects or {})


async def note_as_open(address: str, *channel_ids: str) -> None:
    async with stream_of(address) as (stream, name):
        for channel_id in channel_ids:
            await stream.publish(f"{name}_index.open.{token(channel_id)}")


async def lose_the_index(address: str) -> None:
    async with stream_of(address) as (stream, name):
        await stream.delete_stream(f"{name}_index")


async def put_foreign(address: str, channel_id: str, headers: dict[str, str]) -> None:
    """Write to a channel's subject what no log writes."""
    async with stream_of(address) as (stream, name):
        await stream.publish(f"{name}.{token(channel_id)}", b"hello", headers=headers or None)


def damage_nats(address: str, channel_id: str, seq: int, damage: Damage = flip_head) -> None:
    """Change a record behind the log's back: the stream is written again, all but that record the same."""

    thread = Thread(target=asyncio.run, args=(_damage(address, channel_id, seq, damage),))
    thread.start()  # An event loop is running here already.
    thread.join()


async def _damage(address: str, channel_id: str, seq: int, damage: Damage) -> None:
    async with stream_of(address) as (stream, name):
        subject = f"{name}.{token(channel_id)}"
        await rewrite(stream, name, lambda kept: _changed(kept, subject, channel_id, seq, damage))


async def rewrite(stream: JetStreamContext, name: str, change: Callable[[RawStreamMsg], bytes]) -> None:
    info = await stream.stream_info(name)
    kept = [await stream.get_msg(name, seq) for seq in range(1, info.state.last_seq + 1)]
    await stream.delete_stream(name)
    await stream.add_stream(info.config)
    for message in kept:
        await stream.publish(message.subject or "", change(message), headers=message.headers)


def _changed(kept: RawStreamMsg, subject: str, channel_id: str, seq: int, damage: Damage) -> bytes:
    if kept.subject != subject:
        return kept.data or b""
    previous, records = _unpacked(kept, channel_id)
    return pack([damage(one) if one.seq == seq else one for one in records], previous)


def _unpacked(kept: RawStreamMsg, channel_id: str) -> tuple[bytes, list[Record]]:
    message = Message(subject="", position=0, headers={}, payload=kept.data or b"")
    return unpack(channel_id, message, seq=1)
