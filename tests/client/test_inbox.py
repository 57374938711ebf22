"""An inbox: what reaches one participant, channel by channel, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.hub.scenes import CountingLog, House, add_one, house, quiet, until
from turnline.client.channel import Channel
from turnline.client.inbox import Deliver, Inbox
from turnline.client.link import LocalLink
from turnline.core.envelope import Envelope
from turnline.core.views import Notice
from turnline.log.memory import MemoryLog


class Forward:
    """A receiver that lets an inbox read what it is told of."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def wake(self, notice: Notice) -> None:
        self._inbox.wake(notice.channel_id, notice.first, notice.seq)


@asynccontextmanager
async def bobs_inbox(home: House, deliver: Deliver) -> AsyncIterator[Inbox]:
    """Bob's client makes room; this inbox takes its place."""
    await home["bob"].close()
    inbox = Inbox(deliver)
    inbox.start(await LocalLink(home.hub).attach(home.hub.participant("bob"), Forward(inbox)))
    yield inbox
    await inbox.stop()


class Heard:
    """What was delivered; may be held up, and may raise."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []
        self.let = asyncio.Event()
        self.let.set()
        self.holds: Channel | None = None
        self.raises: str | None = None

    async def __call__(self, envelope: Envelope) -> None:
        if self.holds is not None and envelope.channel_id == self.holds.channel_id:
            await self.let.wait()
        self.envelopes.append(envelope)
        if self.raises is not None and self.raises == envelope.event_data.get("text"):
            raise RuntimeError("a fault in the callback")

    def texts(self, channel: Channel | None = None) -> list[str]:
        """What was said, perhaps on one channel only."""
        wanted = {e.channel_id for e in self.envelopes} if channel is None else {channel.channel_id}
        said = (e for e in self.envelopes if e.event_type == "text" and e.channel_id in wanted)
        return [e.event_data["text"] for e in said]


async def say(channel: Channel, *texts: str) -> None:
    for text in texts:
        await channel.send(text)


async def test_everything_arrives_once_and_in_order() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        heard = Heard()
        async with bobs_inbox(home, heard):
            texts = [str(number) for number in range(300)]
            await say(channel, *texts)
            await until(lambda: len(heard.texts()) >= 300)
            await quiet()

            assert heard.texts() == texts


async def test_one_busy_channel_does_not_hold_up_another() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        busy, free = [await home.talk() for _ in range(2)]
        heard = Heard()
        heard.holds = busy
        heard.let.clear()
        async with bobs_inbox(home, heard):
            await say(busy, "one", "two")
            await say(free, "three")
            await until(lambda: heard.texts(free) == ["three"])
            assert heard.texts(busy) == []

            heard.let.set()
            await until(lambda: heard.texts(busy) == ["one", "two"])


async def test_a_slow_consumer_keeps_a_place_not_a_queue() -> None:
    """What it has not read is read from the log when it gets there."""
    log = CountingLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.talk()
        heard = Heard()
        heard.holds = channel
        heard.let.clear()
        async with bobs_inbox(home, heard):
            await say(channel, *map(str, range(500)))
            assert log.read_of[channel.channel_id] == 0

            heard.let.set()
            await until(lambda: len(heard.texts()) == 500)
            assert log.read_of[channel.channel_id] > 0


async def test_a_callback_that_raises_costs_that_envelope_only(caplog: pytest.LogCaptureFixture) -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        heard = Heard()
        heard.raises = "two"
        async with bobs_inbox(home, heard):
            await asyncio.gather(*(channel.send(text) for text in ("one", "two", "three")))
            await until(lambda: heard.texts() == ["one", "two", "three"])

        assert "a fault in the callback" in caplog.text


async def test_what_does_not_concern_the_participant_is_passed_over() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        heard = Heard()
        async with bobs_inbox(home, heard):
            await add_one(channel)
            await channel.send("for me alone", audience=[])
            await channel.send("for bob")
            await until(lambda: "for bob" in str(heard.envelopes))
            await quiet()

            assert [e.event_data for e in heard.envelopes] == [{}, {"text": "for bob"}]


async def test_nothing_is_delivered_after_the_stop() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        heard = Heard()
        async with bobs_inbox(home, heard) as inbox:
            await inbox.stop()
            await channel.send("anybody there?")
            await quiet()

            assert heard.texts() == []


async def test_a_channel_that_has_closed_is_forgotten_and_another_begins_at_its_beginning() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        first = await home.talk()
        heard = Heard()
        async with bobs_inbox(home, heard):
            await say(first, "one")
            await first.close()
            await until(lambda: any(e.event_type == "channel.closed" for e in heard.envelopes))

            heard.envelopes.clear()
            await quiet()
            assert heard.envelopes == []


async def test_a_channel_that_cannot_be_read_any_more_costs_only_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """E5."""
    async with house(MemoryLog(), "alice", "bob") as home:
        good = await home.talk()
        heard = Heard()
        async with bobs_inbox(home, heard) as inbox:
            inbox.wake("nowhere", 7, 7)
            await quiet()
            await say(good, "still here")
            await until(lambda: heard.texts(good) == ["still here"])

        assert "nowhere" in caplog.text
