"""`check_up`: what each backend's acknowledgements mean, and what should be otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from nats.js.api import StreamConfig

from tests.nats_servers import NatsCluster, NatsServer, running as running_nats
from tests.postgres import Postgres, run
from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.errors import LogUnavailable, UnknownName
from turnline.log.address import open_log
from turnline.log.checkup import PROBE_CHANNEL, PROBES, Checkup, Watch, check_up, probe, skew
from turnline.log.memory import MemoryLog
from turnline.log.nats import NatsLog
from turnline.log.nats_address import NatsAddress
from turnline.log.nats_checkup import check_up_nats
from turnline.log.postgres import PostgresLog
from turnline.log.postgres_schema import FORMAT
from turnline.log.sqlite import SqliteLog
from turnline.log.sqlite_checkup import check_up_sqlite
from turnline.testing.lines import NOON, line

from .backends import KEPT_KINDS, KINDS, Place
from .nats_stage import made, stream_of
from .postgres_stage import own_folder, running

WATCH = Watch(lambda: datetime.now(UTC), lambda: 0.0)


def names(checkup: Checkup) -> list[str]:
    return [finding.what for finding in checkup.findings]


def mounts(folder: Path, kind: str) -> Path:
    (folder / "mounts").write_text(f"disk / ext4 rw 0 0\nplace {folder} {kind} rw 0 0\n")
    return folder / "mounts"


@pytest.mark.parametrize("kind", KEPT_KINDS)
async def test_a_log_as_it_is_made_has_no_findings_and_says_what_it_means(place: Place) -> None:
    async with place.log() as log:
        await log.append("a", [line("a", 1)], after=0)

    found = await check_up(place.address, WATCH)

    assert found.findings == []
    assert "survives a crash" in " ".join(found.means)
    assert len(found.facts) > 5


@pytest.mark.parametrize("kind", KEPT_KINDS)
async def test_a_place_without_a_log_is_looked_at_and_stays_without(place: Place) -> None:
    for _ in range(2):
        found = await check_up(place.address, WATCH)

        assert found.findings == []
        assert any("not there yet" in fact for fact in found.facts.values())


@pytest.mark.parametrize("kind", KINDS)
async def test_a_probe_is_one_record_on_a_channel_of_its_own(place: Place) -> None:
    ticks = count()
    async with place.log() as log:
        for number in range(2):
            watch = Watch(lambda: NOON, lambda: float(next(ticks)))
            assert await probe(log, watch, envelope_id=f"probe-{number}") == 1.0

    kept = await place.kept()
    assert [record.envelope_id for record in kept[PROBE_CHANNEL]] == ["probe-0", "probe-1"]
    assert list(kept) == [PROBE_CHANNEL]


class BusyLog(MemoryLog):
    """Another doctor appends first, a number of times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        if self.times:
            self.times -= 1
            await super().append(channel_id, [line(channel_id, after + 1)], after=after)
        await super().append(channel_id, envelopes, after=after, row=row)


async def test_a_probe_is_repeated_while_other_doctors_append_first() -> None:
    await probe(BusyLog(PROBES - 1), WATCH, envelope_id="probe")
    with pytest.raises(LogUnavailable, match=f"first in {PROBES} appends to '{PROBE_CHANNEL}'"):
        await probe(BusyLog(PROBES), WATCH, envelope_id="probe")


async def test_a_log_in_memory_is_a_finding() -> None:
    assert names(await check_up("memory:", WATCH)) == ["durability"]


async def test_an_unknown_scheme_is_told_without_what_follows_it() -> None:
    for address in ("mysql://user:hidden@host/db", "mysql:user:hidden@host/db"):
        for ask in (check_up(address, WATCH), _opened(address)):
            with pytest.raises(UnknownName) as told:
                await ask
            assert "mysql" in str(told.value)
            assert "hidden" not in str(told.value)


async def _opened(address: str) -> object:
    return open_log(address)


@pytest.mark.parametrize(("seconds", "found"), [(0, 0), (4.9, 0), (-4.9, 0), (6, 1), (-3_600, 1)])
def test_a_clock_far_from_the_servers_is_a_finding(seconds: float, found: int) -> None:
    assert len(skew(NOON, NOON + timedelta(seconds=seconds))) == found


# SQLite.


@pytest.mark.parametrize(
    ("kind", "found"), [("ext4", []), ("nfs4", ["file system"]), ("tmpfs", ["file system"])]
)
async def test_a_file_system_that_forgets_is_a_finding(tmp_path: Path, kind: str, found: list[str]) -> None:
    await SqliteLog(tmp_path / "log.db").close()

    checkup = await check_up_sqlite(f"sqlite:///{tmp_path / 'log.db'}", WATCH, mounts=mounts(tmp_path, kind))

    assert names(checkup) == found
    assert checkup.facts["file system"] == kind


async def test_a_journal_that_somebody_changed_is_a_finding(tmp_path: Path) -> None:
    place = Place("sqlite", f"sqlite:///{tmp_path / 'log.db'}")
    await SqliteLog(place.path).close()
    place.sql("PRAGMA journal_mode = DELETE")

    assert names(await check_up(place.address, WATCH)) == ["journal mode"]


async def test_a_file_that_is_no_log_cannot_be_reached(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"something else, for a hundred bytes and more " * 50)

    with pytest.raises(LogUnavailable, match="name another file"):
        await check_up(f"sqlite:///{tmp_path / 'log.db'}", WATCH)


async def test_where_no_hub_could_open_a_file_none_can_be_reached(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for address, found in (
        (f"sqlite:///{tmp_path}", "it is a folder; name a file in it"),
        (f"sqlite:///{tmp_path}/file/log.db", "file is a file, where a folder is expected"),
        (f"sqlite:/{tmp_path}/log.db", "expected `sqlite:///`"),
    ):
        with pytest.raises(LogUnavailable, match=found):
            await check_up(address, WATCH)
        with pytest.raises(LogUnavailable):
            open_log(address)


async def test_a_file_without_a_byte_is_a_log_that_is_not_there_yet(tmp_path: Path) -> None:
    (tmp_path / "log.db").touch()

    found = await check_up(f"sqlite:///{tmp_path / 'log.db'}", WATCH)

    assert found.facts["file"].startswith("not there yet")
    await SqliteLog(tmp_path / "log.db").close()


# PostgreSQL.


async def test_a_commit_that_does_not_wait_for_the_disk_is_a_finding(postgres: Postgres) -> None:
    url = postgres.fresh().replace("&application_name", "%20-csynchronous_commit%3Doff&application_name")

    found = await check_up(url, WATCH)

    assert names(found) == ["synchronous_commit"]
    assert "may undo it" in " ".join(found.means)


async def test_a_table_that_a_crash_empties_is_a_finding(postgres: Postgres) -> None:
    url = postgres.fresh()
    await PostgresLog(url).close()
    run(url, "ALTER TABLE turnline_records SET UNLOGGED")

    assert names(await check_up(url, WATCH)) == ["turnline_records"]


async def test_a_standby_that_is_waited_for_and_away_is_a_finding() -> None:
    with own_folder() as folder, running(folder / "data") as url:
        run(url, "ALTER SYSTEM SET synchronous_standby_names = 'other'")
        run(url, "SELECT pg_reload_conf()")
        while not names(found := await check_up(url, WATCH)):
            pass  # A server reads its settings a moment after it was told to.

    assert names(found) == ["synchronous_standby_names"]


async def test_who_asks_with_which_password_is_never_shown(postgres: Postgres) -> None:
    run(postgres.address(), "CREATE ROLE curious LOGIN PASSWORD 'hidden-word'")
    found = await check_up(postgres.fresh(user="curious", password="hidden-word"), WATCH)
    with pytest.raises(LogUnavailable) as told:
        await check_up("postgresql://curious:hidden-word@127.0.0.1:1/none", WATCH)

    assert "hidden-word" not in f"{found}{told.value}"
    assert "curious" not in f"{found.address}{told.value}"


@pytest.mark.parametrize(
    ("who", "do"),
    [
        ({"database": "nowhere"}, "make it with `createdb`, or name another"),
        ({"user": "nobody-here"}, "make it with `createuser`, or name another user"),
    ],
)
async def test_who_cannot_connect_is_told_what_to_do(
    postgres: Postgres, who: dict[str, str], do: str
) -> None:
    for ask in (check_up(postgres.address(**who), WATCH), _opened(postgres.address(**who))):
        with pytest.raises(LogUnavailable, match=do):
            await ask


async def test_a_wrong_password_is_told_with_what_to_do_and_neither_is_shown() -> None:
    with own_folder() as folder, running(folder / "data") as url:
        run(url, "CREATE ROLE carol LOGIN PASSWORD 'right-word'")
        (folder / "data" / "pg_hba.conf").write_text("local all carol scram-sha-256\nlocal all all trust\n")
        run(url, "SELECT pg_reload_conf()")
        wrong = Postgres(folder / "data").address(user="carol", password="wrong-word")
        while True:  # A server reads its settings a moment after it was told to.
            try:
                await check_up(wrong, WATCH)
            except LogUnavailable as error:
                told = str(error)
                break

    assert "check the user and the password in the address" in told
    assert not any(word in told for word in ("wrong-word", "right-word", "carol"))


async def test_a_server_that_is_not_there_is_told_with_what_to_do() -> None:
    with pytest.raises(LogUnavailable, match="start the server, or correct the host and the port"):
        await check_up("postgresql://127.0.0.1:1/none", WATCH)


async def test_tables_that_are_not_there_and_may_not_be_made_are_a_finding(postgres: Postgres) -> None:
    run(postgres.address(), "CREATE ROLE looker LOGIN")
    url = postgres.fresh(user="looker")
    place = url.rpartition("=")[2]
    run(postgres.address(), f"REVOKE ALL ON SCHEMA {place} FROM PUBLIC")
    run(postgres.address(), f"GRANT USAGE ON SCHEMA {place} TO looker")

    assert names(await check_up(url, WATCH)) == ["tables of the log"]


async def test_tables_of_another_format_are_a_finding(postgres: Postgres) -> None:
    url = postgres.fresh()
    await PostgresLog(url).close()
    run(url, f"UPDATE turnline_format SET number = {FORMAT + 1}")

    found = await check_up(url, WATCH)

    assert names(found) == ["tables of the log"]
    assert f"its format is {FORMAT + 1}, this program reads {FORMAT}" in found.findings[0].found


# NATS.


async def test_a_stream_that_may_lose_records_is_a_finding_for_each_setting(nats_server: NatsServer) -> None:
    address = nats_server.fresh()
    name = NatsAddress(address).stream
    await made(address, StreamConfig(name=name, subjects=[f"{name}.*"], max_age=3600, max_msgs=10))

    found = await check_up(address, WATCH)

    assert {f"stream setting {one}" for one in ("max_age", "max_msgs", "discard", "deny_delete")} <= set(
        names(found)
    )


async def test_a_stream_of_somebody_elses_is_a_finding_also_where_the_index_would_be(
    nats_server: NatsServer,
) -> None:
    address = nats_server.fresh()
    name = NatsAddress(address).stream
    await made(address, StreamConfig(name=name, subjects=[f"other_{name}.*"]))
    await made(address, StreamConfig(name=f"{name}_index", subjects=[f"{name}_index.>"], max_age=60))
    await made(address, StreamConfig(name=f"{name}_keys", subjects=[f"{name}_keys.*.*"], deny_delete=True))

    found = names(await check_up(address, WATCH))

    expected = ("stream setting subjects", "index stream setting max_age", "key stream setting deny_delete")
    assert set(expected) <= set(found)


@asynccontextmanager
async def own_server(**options: Any) -> AsyncIterator[NatsServer]:
    with (
        TemporaryDirectory(prefix="turnline-nats-", ignore_cleanup_errors=True) as folder,
        running_nats(NatsServer(Path(folder), **options)) as server,
    ):
        yield server


@pytest.mark.parametrize(
    "options",
    [{"jetstream": False}, {"more": "accounts { A { users: [{user: me, password: hidden}] } }"}],
    ids=["server", "account"],
)
async def test_servers_without_jetstream_are_told_with_what_to_do(options: dict[str, Any]) -> None:
    async with own_server(**options) as server:
        address = f"nats://me:hidden@{server.host}/log"
        with pytest.raises(LogUnavailable, match=r"set `jetstream \{ sync_interval: always \}`") as told:
            await check_up_nats(address, WATCH, patience_seconds=0.2)

    assert "hidden" not in str(told.value)


async def test_wrong_credentials_are_told_with_what_to_do_and_not_shown() -> None:
    async with own_server(more="authorization { user: me, password: right-word }") as server:
        with pytest.raises(LogUnavailable, match="check the user and the password, or the token") as told:
            await check_up(f"nats://me:hidden@{server.host}/log", WATCH)

    assert not any(word in str(told.value) for word in ("hidden", "right-word", "me:"))


async def test_a_server_that_takes_small_messages_only_is_a_finding() -> None:
    async with own_server(max_payload="1MB") as server:
        found = await check_up(server.fresh(), WATCH)

    assert names(found) == ["max_payload"]
    assert "max_payload: 8MB" in found.findings[0].do


async def test_what_no_client_can_see_is_said_and_is_no_finding(nats_server: NatsServer) -> None:
    found = await check_up(nats_server.fresh(), WATCH)

    assert found.facts["sync_interval"] == "cannot be seen by a client"
    assert "sync_interval: always" in " ".join(found.means)


async def test_one_copy_in_a_cluster_and_a_server_that_is_away_are_findings(
    nats_cluster: NatsCluster,
) -> None:
    single, triple = f"{nats_cluster.fresh()}?replicas=1", nats_cluster.fresh()
    for address in (single, triple):
        log = NatsLog(address)
        await log.append("a", [line("a", 1)], after=0)
        await log.close()

    assert names(await check_up(single, WATCH)) == ["replicas"]
    whole = await check_up(triple, WATCH)
    assert (names(whole), whole.facts["replicas"]) == ([], "3")
    assert "loss of 1 of them" in whole.means[0]
    async with stream_of(triple) as (stream, name):
        cluster = (await stream.stream_info(name)).cluster
    assert cluster is not None
    away = next(server for server in nats_cluster.servers if server.name != cluster.leader)
    away.kill()
    try:
        while not names(found := await check_up_nats(triple, WATCH, patience_seconds=60)):
            pass  # A leader takes a moment to miss a follower.
    finally:
        away.start()
        away.wait()
    assert names(found) == ["copies"]
    assert away.name in found.findings[0].found


async def test_servers_that_do_not_answer_cannot_be_reached_and_no_token_is_shown() -> None:
    with pytest.raises(LogUnavailable, match="start it, or correct the address") as told:
        await check_up_nats("nats://hidden-token@127.0.0.1:1/log", WATCH, patience_seconds=0.2)

    assert "hidden-token" not in str(told.value)
