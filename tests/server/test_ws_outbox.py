"""An outbox: bounded, whatever is put in, and putting in never waits."""

from __future__ import annotations

import asyncio
import json

from tests.hub.scenes import quiet
from turnline.client.frames import Text
from turnline.core.views import Notice
from turnline.server.ws_outbox import Outbox
from turnline.server.ws_settings import WsCounters, WsSettings


def outbox(**limits: int) -> tuple[Outbox, WsCounters]:
    counters = WsCounters()
    return Outbox(WsSettings(**limits), counters), counters


def words(number: int) -> Text:
    return Text(channel_id="c", agent_id="a", text=str(number))


async def test_of_a_channels_news_only_where_they_begin_and_end_is_kept() -> None:
    box, _ = outbox()
    for seq in range(5, 10_005):
        box.put_news("alice", Notice(channel_id="story", first=seq, seq=seq))
    box.put_news("alice", Notice(channel_id="other", first=1, seq=1))
    frames = [json.loads(await box.next()) for _ in range(2)]

    story = {"channel_id": "story", "first": 5, "seq": 10_004}
    assert frames[0] == {"kind": "wake", "seat": "alice", "notice": story}
    assert frames[1]["notice"]["channel_id"] == "other"


async def test_words_that_nobody_takes_are_dropped_the_oldest_first() -> None:
    box, counters = outbox(unsent_words=3)
    for number in range(10):
        box.put_words(words(number))

    assert [json.loads(await box.next())["text"] for _ in range(3)] == ["7", "8", "9"]
    assert counters.dropped_words == 7


async def test_words_come_before_the_answer_with_the_packet_they_became() -> None:
    box, _ = outbox()
    box.put("an answer")
    box.put_words(words(1))

    assert json.loads(await box.next())["kind"] == "text"
    assert await box.next() == "an answer"


async def test_more_bytes_than_may_wait_end_the_connection_and_are_forgotten() -> None:
    box, counters = outbox(unsent_bytes=100, room_bytes=50)
    for _ in range(20):
        box.put("x" * 30)

    assert (box.ended.is_set(), box.reason) == (True, "too_slow")
    assert (counters.slow, counters.dropped_answers) == (1, 4)


async def test_more_channels_with_news_than_may_wait_end_the_connection() -> None:
    box, counters = outbox(unsent_channels=3)
    for number in range(5):
        box.put_news("alice", Notice(channel_id=f"c{number}", first=1, seq=1))

    assert box.reason == "too_slow"
    assert counters.slow == 1


async def test_while_much_waits_nothing_more_is_asked_for() -> None:
    box, _ = outbox(room_bytes=50)
    box.put("x" * 60)
    room = asyncio.ensure_future(box.room())
    await quiet()
    assert not room.done()

    box.sent(await box.next())
    await room


async def test_what_is_not_sent_yet_is_given_again() -> None:
    """A connection that ends in the middle of a send has not taken it."""
    box, _ = outbox()
    box.put("an answer")

    assert await box.next() == await box.next() == "an answer"
