"""Y2 on NATS: content is encrypted, and what was erased has no key."""

from __future__ import annotations

import asyncio
import gc
import hmac
import json
import signal
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from urllib.request import urlopen

import msgspec
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from nats.js.errors import NotFoundError

from turnline.client.channel import Channel
from turnline.core.adapters import built_in
from turnline.core.channel import ChannelFilter
from turnline.core.codec import Record
from turnline.core.event_types import EV_TEXT
from turnline.errors import ChannelQuarantined, LogConflict, LogUnavailable
from turnline.log.blobs import find_blob, sweep_blobs
from turnline.log.nats import NatsLog
from turnline.log.nats_keys import ChannelKeys
from turnline.log.nats_message import Message, channel_of, token, unpack
from turnline.log.records import open_records
from turnline.log.verify import BadRecord, verify
from turnline.testing.blob_contract import write
from turnline.testing.lines import NOON, erased_line, line, lines, say
from turnline.testing.prune_contract import closed_channel, delete_all

from ..hub.scenes import A_B, House, house, refused
from ..hub.test_erasing import until_state
from ..nats_servers import NatsServer
from .nats_stage import stream_of

CANARY = "CANARY-5e0d"


KILLED_ERASE = """
import asyncio, json, os, signal, sys
from turnline.client.embedded import Hub
from turnline.log.nats import NatsLog

class EndsBeforeKeys(NatsLog):
    async def finish_erasing(self, channel_id):
        os.kill(os.getpid(), signal.SIGKILL)

async def main(address, channel_id, lines):
    hub = await Hub.open(EndsBeforeKeys(address), ttl_sweep_interval=0)
    await hub.erase(channel_id, by="admin", lines=json.loads(lines))

asyncio.run(main(*sys.argv[1:]))
"""


async def erase_and_die(address: str, channel_id: str, lines: list[tuple[int, int]] | None) -> None:
    """Erase in a process that is killed when the note is written and no key is destroyed."""
    command = [sys.executable, "-c", KILLED_ERASE, address, channel_id, json.dumps(lines)]
    done = await asyncio.to_thread(subprocess.run, command, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


async def bad_records(address: str) -> list[BadRecord]:
    records = await open_records(address)
    try:
        return (await verify(records, built_in())).bad
    finally:
        await records.close()


async def left_keys(address: str) -> list[bytes]:
    """Every key that is left on the keys stream of a log."""
    async with stream_of(address) as (stream, name):
        info = await stream.stream_info(f"{name}_keys")
        found = list[bytes]()
        for position in range(1, info.state.last_seq + 1):
            with suppress(NotFoundError):
                base, lines = msgspec.msgpack.decode(
                    (await stream.get_msg(f"{name}_keys", position)).data or b""
                )
                found += [base] * bool(base) + list(lines.values())
        return found


async def contents(address: str) -> list[tuple[str, int, bytes]]:
    """The channel, seq and encrypted content of every line on the stream."""
    async with stream_of(address) as (stream, name):
        found = list[tuple[str, int, bytes]]()
        for position in range(1, (await stream.stream_info(name)).state.last_seq + 1):
            kept = await stream.get_msg(name, position)
            channel_id = channel_of(kept.subject or "")
            message = Message(subject="", position=0, headers={}, payload=kept.data or b"")
            _, records = unpack(channel_id, message, seq=1)
            found += [(channel_id, one.seq, one.payload) for one in records if one.payload is not None]
        return found


def opens(key: bytes, channel_id: str, seq: int, body: bytes) -> bytes:
    """What one key, or the line key that follows from it, makes of encrypted content."""
    for one in (key, hmac.digest(key, b"line" + seq.to_bytes(8), "sha256")):
        with suppress(InvalidTag):
            return AESGCM(one).decrypt(body[8:20], body[20:], f"{seq}:{channel_id}".encode())
    return b""


async def can_be_decrypted(address: str) -> bool:
    """Whether a key that is left opens content with the canary."""
    keys, found = await left_keys(address), await contents(address)
    return any(CANARY.encode() in opens(key, *one) for key in keys for one in found)


def in_the_store(server: NatsServer) -> bool:
    files = (one for one in server.folder.rglob("*") if one.is_file())
    return any(CANARY.encode() in one.read_bytes() for one in files)


async def closed_with_canary(home: House) -> Channel:
    channel = await home.open(
        A_B, labels={"who": CANARY}, knobs={"context_vars": {"name": CANARY}}, message=f"I am {CANARY}"
    )
    await home.handle("bob", channel).send(f"{CANARY}, good to see you.")
    return channel


async def test_y2_on_nats_what_was_erased_cannot_be_decrypted_and_is_nowhere_in_clear(
    nats_server: NatsServer,
) -> None:
    address = nats_server.fresh()
    log = NatsLog(address)
    async with house(log, "alice", "bob") as home:
        channel = await closed_with_canary(home)
        await log.save_snapshot(channel.channel_id, seq=1, body=CANARY.encode())
        assert await log.load_snapshot(channel.channel_id) == (1, CANARY.encode())
        assert await can_be_decrypted(address)
        keys = await left_keys(address)

        await home.hub.erase(channel.channel_id, by="admin")

        assert not in_the_store(nats_server)
        assert not await can_be_decrypted(address)
        gone = set(keys) - set(await left_keys(address))
        files = [one.read_bytes() for one in nats_server.folder.rglob("*.blk")]
        assert len(gone) == 2  # Of the lines and of the snapshot.
        assert not any(key in file for key in gone for file in files)
        assert await log.load_snapshot(channel.channel_id) is None
        state = await home.hub.state(channel.channel_id)
        assert (state.is_over, state.is_incomplete, state.context_vars) == (True, True, {})
        assert not await log.rows(ChannelFilter(labels={"who": CANARY}), limit=1)
        assert not (await home.hub.erase(channel.channel_id, by="admin")).channels
    assert await bad_records(address) == []


async def opened_in_memory(channel_id: str, records: Sequence[Record]) -> bool:
    """Whether keys that this process has in memory open content with the canary."""
    kept = [one for one in gc.get_objects() if type(one) is ChannelKeys and one.channel_id == channel_id]
    assert kept
    found = [(await keys.decrypt(one)).payload or b"" for keys in kept for one in records]
    return any(CANARY.encode() in payload for payload in found)


@pytest.mark.parametrize("lines", [None, [(1, 3)]])
async def test_y2_on_nats_every_hub_drops_destroyed_keys_from_its_memory_when_it_sees_the_erase(
    nats_server: NatsServer, lines: list[tuple[int, int]] | None
) -> None:
    address = nats_server.fresh()
    here, there = NatsLog(address), NatsLog(address)
    async with house(here, "alice", "bob", follow=True) as home, house(there, follow=True) as other:
        channel = await closed_with_canary(home)
        await until_state(other.hub, channel.channel_id, lambda state: state.is_over)
        encrypted = [
            Record(seq=seq, envelope_id="", head=b"", hash=b"", payload=payload)
            for name, seq, payload in await contents(address)
            if name == channel.channel_id and (lines is None or seq <= 3)
        ]
        assert await opened_in_memory(channel.channel_id, encrypted)

        await home.hub.erase(channel.channel_id, by="admin", lines=lines)

        await until_state(other.hub, channel.channel_id, lambda state: state.is_incomplete)
        assert not await opened_in_memory(channel.channel_id, encrypted)


async def test_y2_on_nats_the_lines_that_stay_can_be_read_after_some_were_erased(
    nats_server: NatsServer,
) -> None:
    address = nats_server.fresh()
    async with house(NatsLog(address), "alice", "bob") as home:
        channel = await home.open(A_B)
        first = await channel.send(f"I am {CANARY}")
        await home.handle("bob", channel).send("bye")

        await home.hub.erase(channel.channel_id, by="admin", lines=[(first.seq, first.seq)])

        assert not await can_be_decrypted(address)
    async with house(NatsLog(address)) as home:
        said = [line.event_data.get("text") for line in await home.wal(channel) if line.event_type == EV_TEXT]
        assert said == [None, "bye"]
    assert await bad_records(address) == []


@pytest.mark.parametrize("is_whole", [True, False])
async def test_y2_on_nats_an_erase_that_was_interrupted_is_reported_and_finished(
    nats_server: NatsServer, *, is_whole: bool
) -> None:
    address = nats_server.fresh()
    async with house(NatsLog(address), "alice", "bob") as home:
        channel = await home.open(A_B)
        text = (await channel.send(f"I am {CANARY}")).seq
        await home.handle("bob", channel).send("bye")
    ranges = None if is_whole else [(text, text)]

    await erase_and_die(address, channel.channel_id, ranges)

    assert await can_be_decrypted(address)
    (bad,) = await bad_records(address)
    assert (bad.channel_id, "was interrupted" in bad.expected) == (channel.channel_id, True)
    async with house(NatsLog(address)) as home:
        erased = [one.seq for one in await home.wal(channel) if one.is_erased]
        assert text in erased  # Nobody reads what is about to be destroyed.
        await home.hub.erase(channel.channel_id, by="admin", lines=ranges)
    assert not await can_be_decrypted(address)
    assert await bad_records(address) == []


async def test_y2_on_nats_keys_that_were_stored_before_the_old_one_was_destroyed_do_not_end_the_erase(
    nats_server: NatsServer,
) -> None:
    address = nats_server.fresh()
    log = NatsLog(address)
    said = [line("_c", 1), line("_c", 2, data={"text": CANARY})]
    await log.append("_c", said, after=0)
    await log.append("_c", [erased_line("_c", 3, (2, 2))], after=2)
    (base,) = await left_keys(address)
    async with stream_of(address) as (stream, name):
        staying = hmac.digest(base, b"line" + (1).to_bytes(8), "sha256")
        await stream.publish(f"{name}_keys._c.0-0", msgspec.msgpack.encode([b"", {1: staying}]))

    (bad,) = await bad_records(address)
    await log.finish_erasing("_c")

    assert "says that it was erased" in bad.found
    assert await left_keys(address) == [staying]
    assert [one.is_erased for one in await lines(log, "_c")] == [False, True, False]
    await log.close()


async def test_y2_on_nats_keys_cost_no_message_for_each_append(nats_server: NatsServer) -> None:
    log = NatsLog(nats_server.fresh())
    await log.append("c", [line("c", 1)], after=0)
    before = messages_to(nats_server)

    for seq in range(2, 52):
        await log.append("c", [line("c", seq)], after=seq - 1)

    assert messages_to(nats_server) - before <= 55  # One for each, and a few pings.
    await log.close()


def messages_to(server: NatsServer) -> int:
    """How many messages clients have sent to a server."""
    with urlopen(f"http://127.0.0.1:{server.monitor_port}/varz") as answer:
        return int(json.load(answer)["in_msgs"])


async def test_y1_on_nats_a_key_that_is_gone_without_an_erase_is_damage(nats_server: NatsServer) -> None:
    address = nats_server.fresh()
    async with house(NatsLog(address), "alice", "bob") as home:
        channel = await closed_with_canary(home)
    async with stream_of(address) as (stream, name):
        await stream.purge_stream(f"{name}_keys", subject=f"{name}_keys.{token(channel.channel_id)}.*")

    (bad,) = await bad_records(address)
    assert (bad.channel_id, "content is missing" in bad.found) == (channel.channel_id, True)
    async with house(NatsLog(address)) as home:
        await refused(ChannelQuarantined, home.hub.state(channel.channel_id))


async def test_y2_on_nats_two_hubs_that_open_a_channel_at_once_agree_on_one_key(
    nats_server: NatsServer,
) -> None:
    address = nats_server.fresh()
    logs = [NatsLog(address) for _ in range(4)]

    results = await asyncio.gather(
        *(log.append("c", [line("c", 1, envelope_id=f"of-{n}")], after=0) for n, log in enumerate(logs)),
        return_exceptions=True,
    )

    assert Counter(type(one) for one in results) == {type(None): 1, LogConflict: 3}
    for number, log in enumerate(logs):
        await say(log, "c", f"again-{number}")
    assert len(await left_keys(address)) == 1
    for log in logs:
        assert [one.is_erased for one in await lines(log, "c")] == [False] * 5
        await log.close()


async def test_y2_on_nats_a_channel_goes_on_with_a_new_key_after_some_lines_were_erased(
    nats_server: NatsServer,
) -> None:
    address = nats_server.fresh()
    first, second = NatsLog(address), NatsLog(address)
    await first.append("_own", [line("_own", 1), line("_own", 2, data={"text": CANARY})], after=0)
    assert len(await lines(second, "_own")) == 2  # It has the key in memory.

    await first.erase("_own", erased_line("_own", 3, (2, 2)), after=2, row=None)
    await second.append("_own", [line("_own", 4)], after=3)
    await first.append("_own", [line("_own", 5)], after=4)

    for log in (first, second, NatsLog(address)):
        assert [one.is_erased for one in await lines(log, "_own")] == [False, True, False, False, False]
        await log.close()
    assert not await can_be_decrypted(address)
    assert await bad_records(address) == []


async def test_y2_on_nats_a_writer_that_knows_nothing_of_an_erase_brings_nothing_back(
    nats_server: NatsServer,
) -> None:
    address = nats_server.fresh()
    log, late = NatsLog(address), NatsLog(address)
    await log.append("_own", [line("_own", 1, data={"text": CANARY})], after=0)
    await log.erase("_own", erased_line("_own", 2, (1, 1)), after=1, row=None)

    await refused(LogConflict, late.append("_own", [line("_own", 1, envelope_id="late")], after=0))

    assert [one.is_erased for one in await lines(late, "_own")] == [True, False]
    assert not await can_be_decrypted(address)
    assert await bad_records(address) == []
    for one in (log, late):
        await one.close()


async def test_y2_on_nats_a_log_without_its_keys_is_refused(nats_server: NatsServer) -> None:
    address = nats_server.fresh()
    log = NatsLog(address)
    await log.append("c", [line("c", 1)], after=0)
    await log.close()
    async with stream_of(address) as (stream, name):
        await stream.delete_stream(f"{name}_keys")

    without = NatsLog(address)
    error = await refused(LogUnavailable, without.connect())

    await without.close()
    assert "_keys' is gone" in error.because


async def test_y3_on_nats_the_keys_of_a_pruned_channel_are_destroyed_and_a_restored_one_has_new_ones(
    nats_server: NatsServer,
) -> None:
    address = nats_server.fresh()
    log = NatsLog(address)
    kept, tombstone = closed_channel("c")
    await log.append("c", kept, after=0)
    before = await left_keys(address)

    await log.prune([tombstone])
    await delete_all(log)

    assert before
    assert await left_keys(address) == []
    await log.restore("c", kept, after=0)
    found = await lines(log, "c")
    assert [one.event_data for one in found] == [one.event_data for one in kept]
    assert not set(before) & set(await left_keys(address))
    await log.close()


async def every_message(address: str) -> list[bytes]:
    """The headers and bodies of all messages of the log's streams."""
    found = list[bytes]()
    async with stream_of(address) as (stream, name):
        for one in (name, f"{name}_index", f"{name}_keys", f"{name}_blobs"):
            last = (await stream.stream_info(one)).state.last_seq
            for seq in range(1, last + 1):
                with suppress(NotFoundError):
                    message = await stream.get_msg(one, seq)
                    found.append(repr(message.headers).encode() + (message.data or b""))
    return found


async def test_y6_on_nats_nothing_that_follows_from_a_file_is_in_clear(nats_server: NatsServer) -> None:
    """A digest would prove, also after an erase, that a file was sent by those who have a copy of it."""
    address = nats_server.fresh()
    log, content = NatsLog(address), CANARY.encode() * 1_000
    blob = await write(log, "top", content)
    assert blob.digest == sha256(content).hexdigest()

    digest = bytes.fromhex(blob.digest)
    traces = [CANARY.encode(), blob.digest.encode(), digest, b64encode(digest)]
    messages = await every_message(address)
    stored = [one.read_bytes() for one in nats_server.folder.rglob("*.blk")]
    assert len(messages) >= 3
    assert not any(trace in one for trace in traces for one in (*messages, *stored))
    assert await log.blobs("top") == [blob]
    await log.close()


async def test_y6_on_nats_a_file_without_its_key_is_not_found_and_goes(nats_server: NatsServer) -> None:
    address = nats_server.fresh()
    log = NatsLog(address)
    blob = await write(log, "top", b"file")
    async with stream_of(address) as (stream, name):
        await stream.purge_stream(f"{name}_keys", subject=f"{name}_keys.top.>")

    assert await find_blob(log, "top", blob.digest) is None
    assert await log.read_chunk(blob, 0) is None
    assert await sweep_blobs(log, now=NOON + timedelta(days=2)) == 1
    assert await log.blobs("top") == []
    await log.close()
