"""`NatsLog`: the contract on one server, and what is JetStream's own. For three see `test_nats_cluster`."""

from __future__ import annotations

import asyncio
import shutil
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import pytest
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

from tests.log.nats_stage import (
    damage_nats,
    lose_the_index,
    made,
    messages_of,
    note_as_open,
    open_in_the_index,
    put_foreign,
    records_of,
    stream_of,
)
from tests.nats_servers import NatsServer, running
from turnline.core.envelope import Envelope
from turnline.errors import CorruptRecord, DuplicateEnvelope, LogUnavailable
from turnline.log.base import Head, Log, TellsOutage
from turnline.log.chain import Chain
from turnline.log.memory import MemoryLog
from turnline.log.nats import NatsLog
from turnline.log.nats_address import NatsAddress
from turnline.log.nats_channel import SHORT
from turnline.log.nats_message import FORMAT
from turnline.log.nats_stream import FORMAT_KEY
from turnline.log.records import open_records
from turnline.testing import Damage, DurableLogContract
from turnline.testing.lines import closing_line, line, lines, say

CUTS = 12
PATIENCE_SECONDS = 60.0


def torn_copies(kept: Path, stream: str, folder: Path) -> Iterator[Path]:
    """Copy what a server keeps, the stream's file of messages cut at many places."""
    block = f"jetstream/$G/streams/{stream}/msgs/1.blk"
    whole = (kept / block).read_bytes()
    for cut in range(0, len(whole) + 1, len(whole) // CUTS):
        copy = folder / f"torn-{cut}"
        for name in (stream, f"{stream}_index", f"{stream}_keys"):
            shutil.copytree(kept / f"jetstream/$G/streams/{name}", copy / f"jetstream/$G/streams/{name}")
        (copy / block).write_bytes(whole[:cut])
        (copy / block).with_name("index.db").unlink(missing_ok=True)
        yield copy


@pytest.fixture
async def log(nats_server: NatsServer) -> AsyncIterator[NatsLog]:
    log = NatsLog(nats_server.fresh())
    yield log
    await log.close()


class TestNatsLog(DurableLogContract):
    def damage(self, log: Log, channel_id: str, seq: int, damage: Damage) -> None:
        damage_nats(log.address, channel_id, seq, damage)

    async def reopen(self, log: Log) -> Log:
        await log.close()
        return NatsLog(log.address)

    async def torn(self, log: Log, folder: Path) -> AsyncIterator[Log]:
        stream = NatsAddress(log.address).stream
        for copy in torn_copies(self.kept, stream, folder):
            with running(NatsServer(copy)) as server:
                torn = NatsLog(f"nats://{server.host}/{stream}")
                yield torn
                await torn.close()

    @pytest.fixture(autouse=True)
    def _where_it_is_kept(self, nats_server: NatsServer) -> None:
        self.kept = nats_server.folder


async def test_several_envelopes_are_one_message(log: NatsLog) -> None:
    await log.append("c", [line("c", 1), line("c", 2), line("c", 3)], after=0)
    head = await log.head("c")

    assert head == Head(channel_id="c", seq=3, closed=False, position=1)
    assert await messages_of(log.address) == 1


async def test_the_bytes_and_the_chain_are_those_of_any_log(log: NatsLog) -> None:
    memory, chain = MemoryLog(), Chain("c")
    for seq in range(1, 6, 2):
        await memory.append("c", [line("c", seq), line("c", seq + 1)], after=seq - 1)
        await log.append("c", [chain.keep(one) for one in memory.records["c"][seq - 1 :]], after=seq - 1)

    assert await records_of(log.address, "c") == memory.records["c"]


async def test_message_ids_are_of_the_whole_stream_so_they_begin_with_the_channel(log: NatsLog) -> None:
    """Two writers that count alike, as after a crash; a server drops an id it has seen within two minutes."""
    for name in ("a", "b"):
        writer = NatsLog(log.address, writer="same")
        await writer.append(name, [line(name, 1, envelope_id="once")], after=0)
        await writer.close()

    assert [head.channel_id for head in await log.channels()] == ["a", "b"]


async def test_a_process_that_knows_nothing_of_a_long_channel_reads_finds_and_goes_on(log: NatsLog) -> None:
    """More appends than are asked for one by one."""
    said = [line("c", seq) for seq in range(1, 4 * SHORT + 1)]
    for envelope in said:
        await log.append("c", [envelope], after=envelope.seq - 1)
    for act in (reads_all, reads_the_end, finds, is_refused, goes_on):
        fresh = NatsLog(log.address)
        await act(fresh, said)
        await fresh.close()


async def reads_all(log: NatsLog, said: list[Envelope]) -> None:
    assert await lines(log, "c") == said


async def reads_the_end(log: NatsLog, said: list[Envelope]) -> None:
    assert await lines(log, "c", after=len(said) - 3) == said[-3:]


async def finds(log: NatsLog, said: list[Envelope]) -> None:
    assert await log.find("c", said[30].envelope_id) == said[30]


async def is_refused(log: NatsLog, said: list[Envelope]) -> None:
    again = line("c", len(said) + 1, envelope_id=said[5].envelope_id)
    with pytest.raises(DuplicateEnvelope):
        await log.append("c", [again], after=len(said))


async def goes_on(log: NatsLog, said: list[Envelope]) -> None:
    assert await say(log, "c", "new") == len(said) + 1


async def test_ids_too_many_for_a_header_are_known_all_the_same(log: NatsLog) -> None:
    long = [line("c", seq, envelope_id=f"{seq}-{'i' * 100}") for seq in range(1, 301)]
    await log.append("c", long, after=0)
    await log.append("c", [line("c", 301)], after=300)
    other = NatsLog(log.address)

    with pytest.raises(DuplicateEnvelope):
        await other.append("c", [line("c", 302, envelope_id=long[7].envelope_id)], after=301)
    await other.close()


async def test_an_append_larger_than_the_servers_take_is_refused_with_the_setting_to_change(
    log: NatsLog,
) -> None:
    huge = line("c", 1, data={"text": "x" * 9_000_000})

    with pytest.raises(LogUnavailable, match="`max_payload` of its servers, 8388608"):
        await log.append("c", [huge], after=0)
    assert await say(log, "c", "smaller") == 1


async def test_a_snapshot_larger_than_the_servers_take_is_not_kept(log: NatsLog) -> None:
    await log.save_snapshot("c", seq=1, body=b"x" * 9_000_000)

    assert await log.load_snapshot("c") is None


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_age", 3600.0),
        ("max_msgs", 1000),
        ("max_bytes", 1_000_000),
        ("max_msgs_per_subject", 5),
        ("max_msg_size", 1000),
        ("discard", DiscardPolicy.OLD),
        ("storage", StorageType.MEMORY),
        ("retention", RetentionPolicy.INTEREST),
        ("allow_direct", True),
        ("no_ack", True),
        ("subjects", ["elsewhere"]),
    ],
)
async def test_a_stream_that_could_forget_is_refused_naming_the_setting(
    nats_server: NatsServer, setting: str, value: object
) -> None:
    address = nats_server.fresh()
    name = NatsAddress(address).stream
    subjects = [f"{name}.*"]
    right = StreamConfig(name=name, subjects=subjects, discard=DiscardPolicy.NEW, allow_direct=False)
    await made(address, right.evolve(**{setting: value}))
    log = NatsLog(address)

    with pytest.raises(LogUnavailable, match=setting):
        await log.append("c", [line("c", 1)], after=0)
    await log.close()


async def test_a_stream_made_by_hand_with_the_right_settings_is_taken(nats_server: NatsServer) -> None:
    address = nats_server.fresh()
    name = NatsAddress(address).stream
    await made(address, StreamConfig(name=name, subjects=[f"{name}.*"], discard=DiscardPolicy.NEW))
    log = NatsLog(address)

    assert await say(log, "c", "one") == 1
    await log.close()


@pytest.mark.parametrize("number", [FORMAT - 1, FORMAT + 1])
async def test_a_stream_of_another_format_is_refused(nats_server: NatsServer, number: int) -> None:
    address = nats_server.fresh()
    log = NatsLog(address)
    await say(log, "c", "one")
    await log.close()
    async with stream_of(address) as (streams, name):
        config = (await streams.stream_info(name)).config
        assert config.metadata is not None
        assert config.metadata[FORMAT_KEY] == str(FORMAT)
        await streams.update_stream(config.evolve(metadata={FORMAT_KEY: str(number)}))
    log = NatsLog(address)

    for looked in (say(log, "c", "two"), open_records(address)):
        with pytest.raises(LogUnavailable, match=f"its format is {number}, this program reads {FORMAT}"):
            await looked
    await log.close()


async def test_one_server_says_what_an_append_survives_and_what_it_cannot_know(log: NatsLog) -> None:
    assert log.durability == "unknown until it is connected"
    await log.connect()

    assert log.durability == (
        "process; loss of power if its server runs with `sync_interval: always`, which no client can see"
    )


async def test_listing_open_channels_costs_only_those(log: NatsLog) -> None:
    for name in ("a", "b", "c"):
        await log.append(name, [line(name, 1)], after=0)
    await log.append("b", [closing_line("b", 2)], after=1)
    await log.append("d", [closing_line("d", 1)], after=0)

    assert await open_in_the_index(log.address) == ["a", "c"]


async def test_an_index_that_says_too_much_is_not_believed_and_put_right(log: NatsLog) -> None:
    """A process may die between a channel's last append and the note of it, or before its first one."""
    await log.append("a", [line("a", 1), closing_line("a", 2)], after=0)
    await log.append("b", [line("b", 1)], after=0)
    await note_as_open(log.address, "a", "never")

    assert [head.channel_id for head in await log.channels(closed=False)] == ["b"]
    assert await open_in_the_index(log.address) == ["b", "never"]


async def test_an_index_that_is_lost_is_made_again(log: NatsLog) -> None:
    await log.append("a", [closing_line("a", 1)], after=0)
    await log.append("b", [line("b", 1)], after=0)
    await lose_the_index(log.address)
    other = NatsLog(log.address)

    assert [head.channel_id for head in await other.channels(closed=False)] == ["b"]
    await other.close()


@pytest.mark.parametrize("headers", [{}, {"Turnline-Lines": "2"}, {"Turnline-Lines": "2 x 00 open a"}])
async def test_a_message_that_is_not_an_append_costs_its_channel_only(
    log: NatsLog, headers: dict[str, str]
) -> None:
    await log.append("a", [line("a", 1)], after=0)
    await log.append("b", [line("b", 1)], after=0)
    await put_foreign(log.address, "a", headers)
    read: list[Envelope] = []

    async def read_all() -> None:
        async for envelope in log.read("a"):
            read.append(envelope)

    with pytest.raises(CorruptRecord) as corrupt:
        await read_all()
    assert (read, corrupt.value.seq) == ([line("a", 1)], 2)
    with pytest.raises(CorruptRecord):
        await log.append("a", [line("a", 2)], after=1)
    assert [head.channel_id for head in await log.channels()] == ["a", "b"]
    assert await say(log, "b", "new") == 2


async def test_an_outage_is_told_and_over_when_it_is_over(tmp_path: Path) -> None:
    with running(NatsServer(tmp_path)) as server:
        log = NatsLog(server.fresh(), patience_seconds=0.5)
        await log.append("c", [line("c", 1)], after=0)
        server.kill()

        with pytest.raises(LogUnavailable):
            await log.append("c", [line("c", 2)], after=1)
        assert isinstance(log, TellsOutage)
        assert log.outage
        with pytest.raises(LogUnavailable):
            await lines(log, "c")
        with pytest.raises(LogUnavailable):
            await anext(aiter(log.tail(after=1)))
        with pytest.raises(LogUnavailable):
            await NatsLog(log.address, patience_seconds=0.5).connect()
        server.start()
        server.wait()
        assert await until_it_works(log) == 2
        assert not log.outage
        assert await lines(log, "c", after=1) == [line("c", 2)]
        await log.close()


async def until_it_works(log: NatsLog) -> int:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await say(log, "c", "c-2")
            except LogUnavailable:
                continue


async def test_no_credential_is_shown(tmp_path: Path) -> None:
    secret = "s3cr3t/p%ss"
    more = f'authorization {{ user: someone, password: "{secret}" }}'
    with running(NatsServer(tmp_path, more=more)) as server:
        right = f"nats://someone:{quote(secret, safe='')}@{server.host}/log"
        wrong = f"nats://someone:{quote(secret, safe='')}x@{server.host}/log"
        log, refused = NatsLog(right), NatsLog(wrong, patience_seconds=PATIENCE_SECONDS)

        assert await say(log, "c", "one") == 1
        with pytest.raises(LogUnavailable, match=r"(?i)authorization") as error:
            await refused.connect()
        trace = "".join(traceback.format_exception(error.value))
        shown = f"{log.address} {log!r} {error.value.address} {trace} {log.durability}"
        assert "s3cr3t" not in shown
        assert "someone" not in shown
        await log.close()
        await refused.close()


async def test_event_loops_may_share_a_log_and_any_of_them_closes_it(log: NatsLog) -> None:
    elsewhere = asyncio.new_event_loop()
    thread = Thread(target=elsewhere.run_forever)
    thread.start()
    assert await say(log, "c", "here") == 1
    there = asyncio.run_coroutine_threadsafe(say(log, "c", "there"), elsewhere)

    assert await asyncio.wrap_future(there) == 2
    assert [envelope.envelope_id for envelope in await lines(log, "c")] == ["here", "there"]
    await log.close()
    elsewhere.call_soon_threadsafe(elsewhere.stop)
    thread.join()
    elsewhere.close()


async def test_a_closed_log_takes_nothing_and_its_tail_ends(log: NatsLog) -> None:
    await log.append("c", [line("c", 1)], after=0)
    tail = aiter(log.tail())
    assert (await anext(tail)).seq == 1
    waiting = asyncio.ensure_future(anext(tail, None))
    await asyncio.sleep(0)
    await log.close()
    await log.close()

    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await waiting is None
    with pytest.raises(LogUnavailable, match="closed"):
        await log.append("c", [line("c", 2)], after=1)


async def test_a_channel_id_too_long_for_a_subject_is_the_callers_mistake(log: NatsLog) -> None:
    with pytest.raises(ValueError, match="1000 fit"):
        await log.append("c" * 2_000, [line("c" * 2_000, 1)], after=0)


@pytest.mark.parametrize("name", ["", "%", "a.b", "*", ">", "a b", "a\r\nb", "$JS.x"])
async def test_any_name_is_one_token_of_a_subject(log: NatsLog, name: str) -> None:
    await log.append(name, [line(name, 1, envelope_id="\r\n, :")], after=0)

    head = await log.head(name)
    assert head is not None
    assert head.channel_id == name
    assert await log.find(name, "\r\n, :") is not None
