"""Reading a stream of a `NatsLog`.

    at, last, following    one message, asked of the stream's leader
    subjects, end          what there is, asked of the leader
    scan                   many messages, told by any replica, in order

Rule: a replica may be behind the leader. Whoever needs all there is asks the
leader where that ends and scans until there; `up_to` does the second half.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Final

import msgspec
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg

from turnline.log.nats_connection import NATS_RAISES, PAUSE_SECONDS, Answer, Connection, Refused, heeding
from turnline.log.nats_message import Message

NO_MESSAGE: Final = 10037
BATCH: Final = 64
"""Messages asked for at once."""
SECOND: Final = 1_000_000_000
PULL: Final = msgspec.json.encode({"batch": BATCH, "expires": 30 * SECOND, "idle_heartbeat": 2 * SECOND})
SILENCE_SECONDS: Final = 5.0
"""Without even a heartbeat for so long, a replica is taken to be gone."""
FORGET_SECONDS: Final = 60
"""After which a server drops what an interrupted scan left there."""
MAX_FILTERS: Final = 512
"""Subjects asked for by name in one scan."""


class _Kept(Struct, frozen=True):
    subject: str
    seq: int
    hdrs: str = ""
    data: str = ""


class _Got(Answer, frozen=True):
    message: _Kept | None = None


class _State(Struct, frozen=True):
    last_seq: int = 0
    subjects: dict[str, int] | None = None


class _Info(Answer, frozen=True):
    state: _State = _State()
    total: int = 0


class _Consumer(Answer, frozen=True):
    name: str = ""


class Reader:
    """Reads one stream."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self.stream = stream
        self._connection = connection

    async def at(self, position: int) -> Message | None:
        return await self._get({"seq": position})

    async def last(self, subject: str) -> Message | None:
        return await self._get({"last_by_subj": subject})

    async def following(self, subject: str, *, after: int) -> Message | None:
        """Return the subject's first message behind a position."""
        return await self._get({"seq": after + 1, "next_by_subj": subject})

    async def end(self) -> int:
        """Return the position of the last message."""
        return (await self._info({})).state.last_seq

    async def subjects(self, matching: str) -> list[str]:
        """Return the subjects that have messages."""
        found: dict[str, int] = {}
        while True:
            info = await self._info({"subjects_filter": matching, "offset": len(found)})
            page = info.state.subjects or {}
            found |= page
            if not page or len(found) >= info.total:
                return list(found)

    async def last_of_each(self, subjects: Sequence[str]) -> list[Message]:
        """Return each subject's last message, without its payload."""
        end = await self.end()
        if not end or not subjects:
            return []
        marker = await self.at(end)
        if marker is None:
            raise self._connection.unavailable(f"message {end} of its stream {self.stream!r} is gone")
        found: dict[str, Message] = {}
        for first in range(0, len(subjects), MAX_FILTERS):
            page = set(subjects[first : first + MAX_FILTERS])
            # The stream's last message is asked for as well: once it is told, nothing before it is missing.
            asked = sorted(page | {marker.subject})
            scan = self._scan(asked, {"deliver_policy": "last_per_subject"}, headers_only=True)
            async for message in self.up_to(end, scan):
                if message.subject in page:
                    found[message.subject] = message
        return list(found.values())

    def scan(self, subject: str, *, after: int, headers_only: bool) -> AsyncGenerator[Message]:
        """Yield the subject's messages behind a position and go on waiting. Raises `LogUnavailable`."""
        return self._scan([subject], _behind(after), headers_only=headers_only)

    def scan_newest(self, matching: str) -> AsyncGenerator[Message]:
        """Yield the last message of each subject, without its payload, in order. Raises `LogUnavailable`."""
        return self._scan([matching], {"deliver_policy": "last_per_subject"}, headers_only=True)

    async def up_to(self, position: int, messages: AsyncGenerator[Message]) -> AsyncGenerator[Message]:
        """Yield what a scan gives until the message at `position`, which is known to be there."""
        async with aclosing(messages):
            while True:
                try:
                    async with asyncio.timeout(self._connection.patience_seconds):
                        message = await anext(messages)
                except TimeoutError:
                    raise self._connection.unavailable("no replica tells what its leader has") from None
                yield message
                if message.position >= position:
                    return

    async def _scan(
        self, subjects: Sequence[str], start: Mapping[str, object], *, headers_only: bool
    ) -> AsyncGenerator[Message]:
        while True:
            name = await self._consumer(subjects, start, headers_only=headers_only)
            async with aclosing(self._pull(name)) as messages:
                async for message in messages:
                    yield message
                    if "opt_start_seq" in start:
                        start = _behind(message.position)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _consumer(
        self, subjects: Sequence[str], start: Mapping[str, object], *, headers_only: bool
    ) -> str:
        config = {
            "ack_policy": "none",
            "filter_subjects": subjects,
            "headers_only": headers_only,
            "inactive_threshold": FORGET_SECONDS * SECOND,
            "mem_storage": True,
            "num_replicas": 1,
            **start,
        }
        request = {"stream_name": self.stream, "config": config}
        try:
            return (await self._connection.ask(f"CONSUMER.CREATE.{self.stream}", request, _Consumer)).name
        except Refused as refused:
            raise self._connection.unavailable(str(refused)) from refused

    async def _pull(self, name: str) -> AsyncGenerator[Message]:
        """Yield what a consumer tells; end when it falls silent or something was lost on the way."""
        client = await self._connection.client()
        inbox = client.new_inbox()
        next_ones = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{name}"
        told, owed = 0, 0
        try:
            subscription = await client.subscribe(inbox)
        except NATS_RAISES:
            return
        try:
            while True:
                if not owed:
                    await client.publish(next_ones, PULL, reply=inbox)
                    owed = BATCH
                message = await heeding(subscription.next_msg(timeout=SILENCE_SECONDS))
                match (message.headers or {}).get("Status"):
                    case "100":  # A heartbeat.
                        continue
                    case "408":  # Nothing came for as long as it was asked to wait.
                        owed = 0
                        continue
                    case None if message.metadata.sequence.consumer == told + 1:
                        told, owed = told + 1, owed - 1
                    case _:
                        return
                yield _told(message)
        except NATS_RAISES:
            return
        finally:
            with suppress(*NATS_RAISES):
                await subscription.unsubscribe()
                await self._forget(client, name)

    async def _forget(self, client: Client, name: str) -> None:
        await client.publish(f"$JS.API.CONSUMER.DELETE.{self.stream}.{name}")

    async def _get(self, request: Mapping[str, object]) -> Message | None:
        try:
            got = await self._connection.ask(f"STREAM.MSG.GET.{self.stream}", request, _Got)
        except Refused as refused:
            if refused.err_code == NO_MESSAGE:
                return None
            raise self._connection.unavailable(str(refused)) from refused
        kept = got.message
        if kept is None:
            return None
        return Message(
            subject=kept.subject,
            position=kept.seq,
            headers=_headers(b64decode(kept.hdrs)),
            payload=b64decode(kept.data),
        )

    async def _info(self, request: Mapping[str, object]) -> _Info:
        try:
            return await self._connection.ask(f"STREAM.INFO.{self.stream}", request, _Info)
        except Refused as refused:
            raise self._connection.unavailable(str(refused)) from refused


def _behind(position: int) -> dict[str, object]:
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": position + 1}


def _told(message: Msg) -> Message:
    return Message(
        subject=message.subject,
        position=message.metadata.sequence.stream,
        headers=dict(message.headers or {}),
        payload=message.data,
    )


def _headers(raw: bytes) -> dict[str, str]:
    """Take apart `NATS/1.0`, lines of `name: value`, and an empty line."""
    lines = raw.decode(errors="replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name: value.strip() for name, _, value in pairs}
