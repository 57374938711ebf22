"""What every log backend must do.

Subclass `LogContract`, give it a `log` fixture and a `damage` method, done.
pytest-asyncio's `auto` mode runs it; nothing here needs more than one process.
A backend that survives its process passes `DurableLogContract` as well.
"""

# ruff: noqa: PLR2004  A test counts what it wrote.

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final

from turnline.core.envelope import SCHEMA_VERSION, Basis, Close, Envelope, Speak
from turnline.errors import CorruptRecord, DuplicateEnvelope, LogConflict
from turnline.log.base import Log, Snapshots
from turnline.testing.damage import Damage, drop_payload, flip_head, flip_payload
from turnline.testing.index_contract import IndexContract
from turnline.testing.lines import NOON, closing_line, erased_line, line, lines, refusal, say, until
from turnline.testing.prune_contract import PruneContract

WRITERS: Final = 100
CHANNELS: Final = 50
LONG_CHANNEL: Final = 700
"""More than any backend reads at once."""
PATIENCE_SECONDS: Final = 60.0
"""How long something that has to happen may take. Only a hang ever waits so long."""


class LogContract(IndexContract, PruneContract, ABC):
    """The tests; every method's name is a rule of `turnline.log.base.Log`."""

    @abstractmethod
    def damage(self, log: Log, channel_id: str, seq: int, damage: Damage) -> None:
        """Keep `damage(record)` in the place of one record, behind the log's back."""

    async def test_what_is_appended_is_read_back_equal_in_every_field(self, log: Log) -> None:
        full = Envelope(
            schema_version=SCHEMA_VERSION,
            envelope_id="id-1",
            channel_id="c",
            seq=1,
            sender_id="alice",
            event_type="packet",
            event_data={"body": "hi", "n": [1, 2.5, None, True], "deep": {"a": {"b": []}}},
            audience=["bob"],
            causation_id="id-0",
            priority=-3,
            created_at=NOON,
            decision=Speak("bob", by=Basis(kind="transition", index=2, condition="Always", target="bob")),
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        last = Envelope(
            schema_version=SCHEMA_VERSION,
            envelope_id="id-2",
            channel_id="c",
            seq=2,
            sender_id="bob",
            event_type="packet",
            audience=[],
            created_at=NOON.replace(microsecond=123_456),
            decision=Close("done", by=Basis(kind="finish")),
        )
        await log.append("c", [full, last], after=0)

        assert await lines(log, "c") == [full, last]

    async def test_an_unknown_channel_is_empty(self, log: Log) -> None:
        assert await lines(log, "nobody") == []
        assert await log.head("nobody") is None
        assert await log.find("nobody", "id") is None
        assert await log.channels() == []

    async def test_reading_after_a_seq_skips_what_came_before(self, log: Log) -> None:
        await log.append("c", [line("c", 1), line("c", 2), line("c", 3)], after=0)

        assert await lines(log, "c", after=2) == [line("c", 3)]
        assert await lines(log, "c", after=3) == []
        assert await lines(log, "c", after=9) == []

    async def test_an_append_of_nothing_writes_nothing(self, log: Log) -> None:
        await log.append("c", [], after=0)

        assert await log.head("c") is None

    async def test_a_stale_append_writes_nothing_and_says_what_was_found(self, log: Log) -> None:
        await log.append("c", [line("c", 1), line("c", 2)], after=0)
        stale = [line("c", 1, envelope_id="other")]
        ahead = [line("c", 9, envelope_id="other")]

        conflict = await refusal(LogConflict, log.append("c", stale, after=0))
        assert (conflict.channel_id, conflict.after, conflict.found) == ("c", 0, 2)
        assert (await refusal(LogConflict, log.append("c", ahead, after=8))).found == 2
        assert await lines(log, "c") == [line("c", 1), line("c", 2)]
        assert await log.find("c", "other") is None

    async def test_envelopes_that_do_not_follow_are_the_callers_mistake(self, log: Log) -> None:
        await refusal(ValueError, log.append("c", [line("c", 2)], after=0))
        await refusal(ValueError, log.append("c", [line("d", 1)], after=0))

        assert await log.channels() == []

    async def test_an_id_is_refused_a_second_time_at_any_seq(self, log: Log) -> None:
        await log.append("c", [line("c", 1, envelope_id="once"), line("c", 2)], after=0)

        duplicate = await refusal(
            DuplicateEnvelope, log.append("c", [line("c", 3, envelope_id="once")], after=2)
        )
        assert (duplicate.channel_id, duplicate.envelope_id) == ("c", "once")
        assert len(await lines(log, "c")) == 2

    async def test_another_channel_may_use_the_same_id(self, log: Log) -> None:
        await log.append("c", [line("c", 1, envelope_id="once")], after=0)
        await log.append("d", [line("d", 1, envelope_id="once")], after=0)

        assert len(await lines(log, "d")) == 1

    async def test_an_append_lands_as_a_whole_or_not_at_all(self, log: Log) -> None:
        """R3."""
        await log.append("c", [line("c", 1, envelope_id="once")], after=0)
        known = [line("c", 2), line("c", 3, envelope_id="once"), line("c", 4)]
        twice = [line("c", 2), line("c", 3, envelope_id="x"), line("c", 4, envelope_id="x")]

        await refusal(DuplicateEnvelope, log.append("c", known, after=1))
        await refusal(DuplicateEnvelope, log.append("c", twice, after=1))
        assert await lines(log, "c") == [line("c", 1, envelope_id="once")]

        await log.append("c", [line("c", 2), line("c", 3)], after=1)
        assert [e.seq for e in await lines(log, "c")] == [1, 2, 3]

    async def test_an_envelope_is_found_by_its_id(self, log: Log) -> None:
        await log.append("c", [line("c", 1), line("c", 2, envelope_id="wanted"), line("c", 3)], after=0)

        assert await log.find("c", "wanted") == line("c", 2, envelope_id="wanted")
        assert await log.find("c", "missing") is None
        assert await log.find("d", "wanted") is None

    async def test_writers_of_one_channel_leave_no_gap_and_lose_nothing(self, log: Log) -> None:
        seqs = await asyncio.gather(*(say(log, "c", f"w{n}") for n in range(WRITERS)))

        found = await lines(log, "c")
        assert [e.seq for e in found] == list(range(1, WRITERS + 1))
        assert {e.envelope_id: e.seq for e in found} == {f"w{n}": seq for n, seq in enumerate(seqs)}

    async def test_channels_written_at_once_do_not_touch_each_other(self, log: Log) -> None:
        async def fill(channel_id: str) -> None:
            for seq in range(1, 6):
                await log.append(channel_id, [line(channel_id, seq)], after=seq - 1)

        names = [f"c{n:02}" for n in range(CHANNELS)]
        await asyncio.gather(*map(fill, names))

        for name in names:
            assert await lines(log, name) == [line(name, seq) for seq in range(1, 6)]

    async def test_a_mebibyte_is_read_back(self, log: Log) -> None:
        big = line("c", 1, data={"text": "x" * 1024 * 1024})
        await log.append("c", [big, line("c", 2)], after=0)

        assert await lines(log, "c") == [big, line("c", 2)]

    async def test_any_script_is_read_back(self, log: Log) -> None:
        said = line("kanal-ü-通道", 1, envelope_id="идентификатор", data={"🦊": 'ñ \u2028 \U0010ffff "\\'})
        await log.append(said.channel_id, [said], after=0)

        assert await lines(log, said.channel_id) == [said]
        assert await log.find(said.channel_id, said.envelope_id) == said
        assert [head.channel_id for head in await log.channels()] == [said.channel_id]

    async def test_a_long_channel_is_read_in_order(self, log: Log) -> None:
        await log.append("c", [line("c", seq) for seq in range(1, LONG_CHANNEL + 1)], after=0)

        assert [e.seq for e in await lines(log, "c")] == list(range(1, LONG_CHANNEL + 1))
        assert [e.seq for e in await lines(log, "c", after=LONG_CHANNEL - 1)] == [LONG_CHANNEL]

    async def test_reading_while_others_write_sees_a_whole_beginning(self, log: Log) -> None:
        async def write() -> None:
            for seq in range(1, 200, 2):
                await log.append("c", [line("c", seq), line("c", seq + 1)], after=seq - 1)

        writing = asyncio.create_task(write())
        while not writing.done():
            seqs = [e.seq for e in await lines(log, "c")]
            assert seqs == list(range(1, len(seqs) + 1))
            await asyncio.sleep(0)
        await writing
        assert len(await lines(log, "c")) == 200

    async def test_heads_say_where_channels_end_and_whether_they_are_closed(self, log: Log) -> None:
        await log.append("b", [line("b", 1), line("b", 2)], after=0)
        await log.append("a", [line("a", 1), closing_line("a", 2)], after=0)
        await log.append("c", [line("c", 1)], after=0)

        heads = await log.channels()
        assert [(h.channel_id, h.seq, h.closed) for h in heads] == [
            ("a", 2, True),
            ("b", 2, False),
            ("c", 1, False),
        ]
        assert heads[1].position < heads[0].position < heads[2].position
        assert [h.channel_id for h in await log.channels(closed=False)] == ["b", "c"]
        assert [h.channel_id for h in await log.channels(closed=True)] == ["a"]
        assert await log.head("a") == heads[0]

    async def test_a_channel_that_closes_is_no_longer_listed_as_open(self, log: Log) -> None:
        await log.append("c", [line("c", 1)], after=0)
        assert len(await log.channels(closed=False)) == 1
        await log.append("c", [closing_line("c", 2)], after=1)

        assert await log.channels(closed=False) == []

    async def test_channels_are_listed_in_pages(self, log: Log) -> None:
        for name in ("c", "a", "e", "d", "b"):
            await log.append(name, [line(name, 1)], after=0)

        first = await log.channels(limit=2)
        second = await log.channels(after=first[-1].channel_id, limit=2)
        assert [h.channel_id for h in [*first, *second]] == ["a", "b", "c", "d"]
        assert [h.channel_id for h in await log.channels(after="d")] == ["e"]
        assert [h.channel_id for h in await log.channels(closed=False, after="b", limit=1)] == ["c"]
        assert await log.channels(limit=0) == []

    async def test_a_tail_from_the_end_tells_only_what_is_appended_later(self, log: Log) -> None:
        for name in ("a", "b"):
            await log.append(name, [line(name, 1)], after=0)
        await log.append("a", [closing_line("a", 2)], after=1)
        after = await log.end()
        await log.append("b", [line("b", 2)], after=1)

        async with asyncio.timeout(PATIENCE_SECONDS):
            head = await anext(aiter(log.tail(after=after)))
        assert (head.channel_id, head.seq) == ("b", 2)

    async def test_the_tail_tells_what_is_there_and_goes_on_waiting(self, log: Log) -> None:
        await log.append("c", [line("c", 1)], after=0)
        told: list[int] = []
        heard = asyncio.Event()

        async def follow() -> None:
            async for seq in until(log, "c", 3):
                told.append(seq)
                heard.set()

        async with asyncio.timeout(PATIENCE_SECONDS):
            following = asyncio.create_task(follow())
            await heard.wait()
            await log.append("c", [line("c", 2)], after=1)
            await log.append("c", [line("c", 3)], after=2)
            await following
        assert told[0] == 1
        assert told[-1] == 3
        assert told == sorted(set(told))

    async def test_the_tail_starts_behind_a_position(self, log: Log) -> None:
        await log.append("a", [line("a", 1)], after=0)
        seen = await log.head("a")
        await log.append("b", [line("b", 1)], after=0)
        assert seen is not None

        async with asyncio.timeout(PATIENCE_SECONDS):
            head = await anext(aiter(log.tail(after=seen.position)))
        assert (head.channel_id, head.seq) == ("b", 1)

    async def test_the_tail_misses_no_channel_while_many_write(self, log: Log) -> None:
        names = {f"c{n:02}" for n in range(CHANNELS)}

        async def follow() -> dict[str, int]:
            ends: dict[str, int] = {}
            async for head in log.tail():
                assert head.seq > ends.get(head.channel_id, 0)
                ends[head.channel_id] = head.seq
                if ends == dict.fromkeys(names, 4):
                    return ends
            raise AssertionError("the tail ended")

        async with asyncio.timeout(PATIENCE_SECONDS):
            following = asyncio.create_task(follow())
            await asyncio.gather(*(say(log, name, f"{name}-{n}") for n in range(4) for name in names))
            assert await following

    async def test_what_is_read_is_the_readers_own(self, log: Log) -> None:
        written = line("c", 1, data={"list": [1]})
        await log.append("c", [written], after=0)
        (mine,) = await lines(log, "c")
        mine.event_data["list"].append(2)
        written.event_data["list"].append(3)

        assert (await lines(log, "c"))[0].event_data == {"list": [1]}
        found = await log.find("c", "c-1")
        assert found is not None
        assert found.event_data == {"list": [1]}

    async def test_snapshots_are_kept_replaced_and_forgotten(self, log: Log) -> None:
        if not isinstance(log, Snapshots):
            return
        assert await log.load_snapshot("c") is None
        await log.save_snapshot("c", seq=3, body=b"three")
        await log.save_snapshot("d", seq=1, body=b"")
        await log.save_snapshot("c", seq=7, body=b"\x00seven\xff")

        assert await log.load_snapshot("c") == (7, b"\x00seven\xff")
        assert await log.load_snapshot("d") == (1, b"")
        await log.delete_snapshots()
        assert await log.load_snapshot("c") is None

    async def test_a_damaged_record_is_named_and_costs_only_what_follows_it(self, log: Log) -> None:
        await self._check_damage(log, flip_head)

    async def test_damaged_content_is_named_and_costs_only_what_follows_it(self, log: Log) -> None:
        await self._check_damage(log, flip_payload)

    async def _check_damage(self, log: Log, damage: Damage) -> None:
        """E5: one channel is lost from there on; every other one is untouched."""
        for name in ("a", "b"):
            await log.append(name, [line(name, seq) for seq in range(1, 6)], after=0)
        self.damage(log, "a", 3, damage)
        read: list[Envelope] = []

        async def read_all() -> None:
            async for envelope in log.read("a"):
                read.append(envelope)

        corrupt = await refusal(CorruptRecord, read_all())
        assert (corrupt.channel_id, corrupt.seq) == ("a", 3)
        assert read == [line("a", 1), line("a", 2)]
        assert (await refusal(CorruptRecord, log.find("a", "a-3"))).seq == 3
        assert len(await lines(log, "b")) == 5
        assert len(await log.channels()) == 2

    async def test_content_that_is_missing_is_damage_at_the_end_of_reading(self, log: Log) -> None:
        """Y1: until the end, a later line may still say that it was erased."""
        await log.append("c", [line("c", seq) for seq in range(1, 6)], after=0)
        self.damage(log, "c", 3, drop_payload)
        self.damage(log, "c", 4, drop_payload)
        read: list[Envelope] = []

        async def read_all() -> None:
            async for envelope in log.read("c"):
                read.append(envelope)

        corrupt = await refusal(CorruptRecord, read_all())
        assert (corrupt.channel_id, corrupt.seq) == ("c", 3)
        assert [one.seq for one in read if one.is_erased] == [3, 4]
        assert (len(read), read[2].event_data) == (5, {})

    async def test_content_that_a_later_line_says_was_erased_is_not_damage(self, log: Log) -> None:
        await log.append("c", [line("c", seq) for seq in range(1, 5)], after=0)
        await log.append("c", [closing_line("c", 5)], after=4)
        await log.append("c", [erased_line("c", 6, (2, 2)), erased_line("c", 7, (4, 9))], after=5)
        for seq in (2, 4):
            self.damage(log, "c", seq, drop_payload)

        read = await lines(log, "c")
        assert [one.is_erased for one in read] == [False, True, False, True, False, False, False]
        assert read[0] == line("c", 1)
        assert read[1].event_data == {}
        assert (await lines(log, "c", after=3))[0].is_erased
        found = await log.find("c", "c-2")
        assert found is not None
        assert found.is_erased

    async def test_content_that_only_an_earlier_line_says_was_erased_is_damage(self, log: Log) -> None:
        await log.append("c", [line("c", 1), erased_line("c", 2, (1, 9)), line("c", 3)], after=0)
        self.damage(log, "c", 3, drop_payload)

        assert (await refusal(CorruptRecord, lines(log, "c"))).seq == 3

    async def test_a_channel_stays_closed_after_its_content_was_erased(self, log: Log) -> None:
        await log.append("c", [line("c", 1), closing_line("c", 2)], after=0)
        await log.append("c", [erased_line("c", 3, (1, 1))], after=2)

        head = await log.head("c")
        assert head is not None
        assert (head.seq, head.closed) == (3, True)
        assert await log.channels(closed=False) == []
        assert await log.channels(closed=True) == [head]
