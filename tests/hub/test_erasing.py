"""Y2: what is erased is gone from the files, and the rest of the channel still holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from turnline.client.embedded import Hub
from turnline.client.fixture import export_channel
from turnline.client.replay import replay
from turnline.core.adapters import built_in
from turnline.core.channel import ChannelFilter
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_CONTEXT_SET, EV_PAYLOAD_ERASED, EV_TEXT
from turnline.core.governance import Passport, Registrar, Rule
from turnline.core.state import State
from turnline.errors import (
    ChannelClosed,
    Denied,
    EnvelopeIdReused,
    Erased,
    EraseRefused,
    ForgetRefused,
    PastErased,
    UnknownParticipant,
)
from turnline.hub.request import OpenRequest
from turnline.log.address import open_log
from turnline.log.memory import MemoryLog
from turnline.log.postgres import PostgresLog
from turnline.log.records import open_records
from turnline.log.sqlite import SqliteLog
from turnline.log.verify import verify

from ..logs import OpenLog
from ..nats_servers import NatsServer
from ..postgres import Postgres, run
from .scenes import A_B, SAFETY_SECONDS, draft, house, refused

CANARY = "CANARY-7f3a"


def found_in(folder: Path) -> list[str]:
    return [one.name for one in sorted(folder.iterdir()) if CANARY.encode() in one.read_bytes()]


async def until_state(hub: Hub, channel_id: str, holds: Callable[[State], bool]) -> None:
    """Wait until this hub has heard what another one has written."""
    async with asyncio.timeout(SAFETY_SECONDS):
        while not holds(await hub.state(channel_id)):  # noqa: ASYNC110  another hub has no event of ours
            await asyncio.sleep(0.01)


async def is_good(address: str) -> bool:
    records = await open_records(address)
    try:
        return (await verify(records, built_in())).is_good
    finally:
        await records.close()


async def test_y2_no_byte_of_what_was_erased_is_left_in_the_files(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    async with house(log, "alice", "bob") as home:
        for number in range(40):  # Other channels around it, so that pages are shared.
            other = await home.open(A_B, labels={"n": str(number)})
            await other.send(f"another {number}")
        channel = await home.open(
            A_B, labels={"who": CANARY}, knobs={"context_vars": {"name": CANARY}}, message=f"I am {CANARY}"
        )
        await channel.send(event_type=EV_CONTEXT_SET, event_data={"set": {"more": CANARY * 100}}, audience=[])
        await home.handle("bob", channel).send(f"{CANARY}, good to see you. " + CANARY * 1000)
        assert (await home.hub.state(channel.channel_id)).is_over
        assert found_in(tmp_path)

        await home.hub.erase(channel.channel_id, by="admin")
        await log.compact()

        assert found_in(tmp_path) == []
        state = await home.hub.state(channel.channel_id)
        assert (state.is_over, state.is_incomplete, state.context_vars) == (True, True, {})
        (row,) = await log.rows(ChannelFilter(participants=[home["bob"].agent_id]), limit=1)
        assert (row.channel_id, row.labels) == (channel.channel_id, {})
        assert not await log.rows(ChannelFilter(labels={"who": CANARY}), limit=1)
        lines = await home.wal(channel)
        assert [line.is_erased for line in lines if line.event_type == EV_TEXT] == [True, True]
        assert lines[-1].event_type == EV_PAYLOAD_ERASED
    assert await is_good(f"sqlite:///{tmp_path}/log.db")
    assert found_in(tmp_path) == []


async def test_y2_no_byte_of_what_was_erased_is_left_in_the_tables_of_postgresql(postgres: Postgres) -> None:
    address = postgres.fresh()
    log = PostgresLog(address)
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B, labels={"who": CANARY}, message=f"I am {CANARY}")
        await home.handle("bob", channel).send(f"{CANARY}, good to see you. " + CANARY * 1000)
        folder = Path(run(address, "SHOW data_directory")[0][0]) / "base"
        run(address, "CHECKPOINT")
        assert [one for one in folder.rglob("*") if one.is_file() and CANARY.encode() in one.read_bytes()]

        await home.hub.erase(channel.channel_id, by="admin")
        await log.compact()

        assert not [one for one in folder.rglob("*") if one.is_file() and CANARY.encode() in one.read_bytes()]
        assert not await log.rows(ChannelFilter(labels={"who": CANARY}), limit=1)
        state = await home.hub.state(channel.channel_id)
        assert (state.is_over, state.is_incomplete) == (True, True)
    assert await is_good(address)


async def test_y2_only_what_is_closed_is_erased() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await channel.send("hello")

        error = await refused(EraseRefused, home.hub.erase(channel.channel_id, by="admin"))

        assert "is open" in error.because


@pytest.mark.parametrize("left_open", ["itself", "above", "below", "fork"])
async def test_y2_nothing_is_erased_while_a_channel_that_hangs_together_with_it_is_open(
    left_open: str,
) -> None:
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        found: dict[str, str] = {}
        for name, parent in (("above", ""), ("itself", "above"), ("below", "itself")):
            request = OpenRequest(type="conversation", target=["bob"], parent_id=found.get(parent))
            found[name] = await home.hub.open_channel(request, home["alice"].agent_id)
            await home["alice"].channel(found[name]).send(f"I am {CANARY}")
        found["fork"] = await home.hub.fork(found["itself"], at=(await home.hub.state(found["itself"])).seq)
        await write_closed(home.hub, [id_ for name, id_ in found.items() if name != left_open])
        before = [line async for line in log.read(found["itself"])]

        error = await refused(EraseRefused, home.hub.erase(found["itself"], by="admin"))
        assert (found[left_open] in str(error), "is open" in error.because) == (True, True)
        assert [line async for line in log.read(found["itself"])] == before

        await write_closed(home.hub, [found[left_open]])
        done = await home.hub.erase(found["itself"], by="admin")

        assert done.channels.keys() == {found["itself"], found["below"]}
        assert not (await home.hub.state(found["above"])).is_incomplete
        states = [await home.hub.state(found[name]) for name in ("itself", "below", "fork")]
        assert [(one.is_over, one.is_incomplete) for one in states] == [(True, True)] * 3
    async with house(log) as home:  # Another process folds and lists all of them.
        states = [await home.hub.state(one) for one in found.values()]
        assert [one.is_over for one in states] == [True] * 4
        assert await home.hub.tree.top(found["below"]) == found["above"]
        assert (await home.hub.state(found["fork"])).spec.forked_from is not None


async def write_closed(hub: Hub, channels: Iterable[str]) -> None:
    """Close these channels one by one, and no other."""
    for one in channels:
        await hub.write(one, EV_CHANNEL_CLOSED, {"reason": "done"})


async def test_y2_some_lines_are_erased_and_the_others_stay() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        first = await channel.send("hello")
        await home.handle("bob", channel).send("bye")

        done = await home.hub.erase(channel.channel_id, by="admin", lines=[(first.seq, first.seq)])

        assert done.channels == {channel.channel_id: 1}
        said = [line.event_data.get("text") for line in await home.wal(channel) if line.event_type == EV_TEXT]
        assert said == [None, "bye"]
        assert (
            await home.hub.erase(channel.channel_id, by="admin", lines=[(first.seq, first.seq)])
        ).channels == {}


async def test_y2_a_message_that_was_erased_and_is_sent_again_is_answered_so() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await channel.send("hello", envelope_id="once")
        await home.handle("bob", channel).send("bye")
        await home.hub.erase(channel.channel_id, by="admin")

        await refused(Erased, channel.send("hello", envelope_id="once"))


@pytest.mark.parametrize("reason", ["Bob asked for it", "", "x" * 65])
async def test_y2_the_reason_is_a_code_and_no_sentence(reason: str) -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await refused(EraseRefused, home.hub.erase(channel.channel_id, by="admin", reason=reason))


async def test_y2_an_erased_channel_cannot_be_forked_and_says_so() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        first = await channel.send("hello")
        await home.handle("bob", channel).send("bye")
        await home.hub.erase(channel.channel_id, by="admin")

        await refused(PastErased, home.hub.fork(channel.channel_id, at=first.seq))


async def test_y2_a_person_is_forgotten_in_the_directory_and_the_audit(tmp_path: Path) -> None:
    log, name = SqliteLog(tmp_path / "log.db"), f"Ann {CANARY}"
    async with house(log, "alice") as home, house(log) as other:
        ann = await home.person(name)
        await home.hub.note_user(name)
        await home.agent("strict", rule=Rule(addressable_by=[]))
        await refused(Denied, ann.open(type="conversation", target="strict"))
        channel = await home.talk(to=name)
        await channel.close()
        await home.hub.audit_log.flush()
        assert other.hub.find_participant(name) is None
        assert await other.hub.lookup(name)

        await home.hub.erase(channel.channel_id, by="admin")
        done = await home.hub.forget(name, by="admin")
        await log.compact()

        assert done.channels == {"_directory": 2, "_audit": 1}
        assert found_in(tmp_path) == []
        assert "ann" not in ann.agent_id
        again = await other.person(name)
        assert again.agent_id != ann.agent_id
        assert other.hub.find_participant(ann.agent_id) is None
        await refused(Denied, home.hub.post(channel.channel_id, draft(ann)))
    assert await is_good(f"sqlite:///{tmp_path}/log.db")
    async with house(SqliteLog(tmp_path / "log.db")) as home:
        assert (await home.hub.lookup(name)).agent_id == again.agent_id
        assert (await home.hub.lookup("alice")).name == "alice"


async def test_y2_a_user_who_was_forgotten_is_seen_as_a_new_one() -> None:
    async with house(MemoryLog()) as home:
        await home.hub.note_user("ann")
        await home.hub.forget("ann", by="admin")
        await home.hub.note_user("ann")
        seen = [line async for line in home.hub.lines.read("_directory") if line.event_type == "user.seen"]

    assert [line.is_erased for line in seen] == [True, False]


async def test_y2_a_person_on_an_open_channel_is_not_forgotten_and_the_error_names_it() -> None:
    async with house(MemoryLog(), "alice", people=["ann"]) as home:
        channel = await home.talk(to="ann")

        error = await refused(ForgetRefused, home.hub.forget("ann", by="admin"))

        assert (error.channels, channel.channel_id in str(error)) == ((channel.channel_id,), True)
        assert home.hub.participant("ann").name == "ann"
        await channel.close()
        assert (await home.hub.forget("ann", by="admin")).channels == {"_directory": 1}
        await refused(UnknownParticipant, home.hub.forget("ann", by="admin"))


async def test_y2_a_person_who_owns_participants_is_not_forgotten_before_those_are_removed() -> None:
    async with house(MemoryLog(), people=["ann"]) as home:
        await home.hub.enrol(Passport(name="bot", owner="ann"), None, None, by=Registrar("ann"))

        error = await refused(ForgetRefused, home.hub.forget("ann", by="admin"))
        await home.hub.unregister("bot")
        done = await home.hub.forget("ann", by="admin")

        assert "'bot'" in error.because
        assert done.channels == {"_directory": 2}


async def test_y2_a_system_channel_goes_on_after_lines_of_it_were_erased(open_log: OpenLog) -> None:
    async with house(open_log(), people=["ann"]) as home:
        await home.hub.forget("ann", by="admin")
        head = await home.hub.log.head("_directory")

        assert head is not None
        assert not head.closed
        await home.person("bob")
        assert "_directory" in [one.channel_id for one in await home.hub.log.channels(closed=False)]
    async with house(open_log()) as home:
        assert [one.name for one in home.hub.participants()] == ["bob"]


async def test_y2_a_system_channel_is_not_erased_as_a_whole() -> None:
    async with house(MemoryLog(), "alice") as home:
        error = await refused(EraseRefused, home.hub.erase("_directory", by="admin"))

        assert "people forget" in error.because
        assert home.hub.participant("alice").name == "alice"


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "nats"])
async def test_y2_every_hub_drops_what_it_has_in_memory(
    kind: str, tmp_path: Path, postgres: Postgres, nats_server: NatsServer
) -> None:
    """Also of a fork, whose lines come from the channel that is erased."""
    address = {"sqlite": f"sqlite:///{tmp_path}/log.db"}.get(kind) or (
        postgres.fresh() if kind == "postgres" else nats_server.fresh()
    )
    here, there = open_log(address), open_log(address)
    async with house(here, "alice", "bob", follow=True) as home, house(there, follow=True) as other:
        channel = await home.open(A_B, labels={"who": CANARY}, message=f"I am {CANARY}")
        at = (await home.hub.state(channel.channel_id)).seq
        fork = await home.hub.fork(channel.channel_id, at=at)
        for one in (channel.channel_id, fork):
            await home.handle("bob", home.agents["bob"].channel(one)).send("bye")
            await other.hub.state_at(one, at)
            await until_state(other.hub, one, lambda state: state.is_over)
        assert (await other.hub.state(fork)).spec.labels == {"who": CANARY}

        await home.hub.erase(channel.channel_id, by="admin")

        await until_state(other.hub, channel.channel_id, lambda state: state.is_incomplete)
        for hub in (home.hub, other.hub):
            for one in (channel.channel_id, fork):
                assert (await hub.state_at(one, at)).is_incomplete
                assert (await hub.state(one)).is_incomplete
                assert CANARY not in str(await hub.read_wal(one))
            assert await hub.lines.rows(ChannelFilter(labels={"who": CANARY}), limit=1) == []
    assert await is_good(address)


async def test_y2_no_byte_is_left_in_the_snapshot_and_the_row_of_a_fork(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B, labels={"who": CANARY}, message=f"I am {CANARY}")
        state = await home.hub.state(channel.channel_id)
        fork = await home.hub.fork(channel.channel_id, at=state.seq)
        for one in (channel.channel_id, fork):
            await log.save_snapshot(one, seq=1, body=f"I am {CANARY}".encode())
            await home["bob"].channel(one).send("bye")

        await home.hub.erase(channel.channel_id, by="admin")
        await log.compact()

        assert found_in(tmp_path) == []
    assert await is_good(f"sqlite:///{tmp_path}/log.db")


async def test_y2_an_erased_channel_closes_nothing_and_reopens_nothing() -> None:
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        erased, other = await home.open(A_B, message="hello"), await home.open(A_B, message="hello")
        await home.handle("bob", erased).send("bye")
        await home.hub.erase(erased.channel_id, by="admin")

        assert not (await home.hub.state(other.channel_id)).is_over
        await refused(ChannelClosed, home.handle("alice", erased).send("more"))
        again = await home["alice"].open(
            type="workflow",
            target="bob",
            knobs={"graph": A_B.to_dict()},
            channel_id=erased.channel_id,
        )
        assert (await home.hub.state(again.channel_id)).is_over  # The id stays that of the erased channel.
        assert [one.channel_id for one in await log.channels(closed=False) if one.channel_id[0] != "_"] == [
            other.channel_id
        ]
    async with house(log) as home:
        assert (await home.hub.state(erased.channel_id)).is_over
        assert not (await home.hub.state(other.channel_id)).is_over


async def test_y2_a_channel_goes_with_the_channels_below_it_and_not_before_they_are_closed() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        above = await home.open(A_B, message="hello")
        request = OpenRequest(type="conversation", target=["alice"], parent_id=above.channel_id)
        below = home["bob"].channel(await home.hub.open_channel(request, home["bob"].agent_id))
        await below.send(f"I am {CANARY}")
        early = await refused(EraseRefused, home.hub.erase(above.channel_id, by="admin"))
        await home.handle("bob", above).send("bye")
        if not (await home.hub.state(below.channel_id)).is_over:
            open_below = await refused(EraseRefused, home.hub.erase(above.channel_id, by="admin"))
            assert below.channel_id in open_below.because
            await below.close()

        done = await home.hub.erase(above.channel_id, by="admin")

        assert "is open" in early.because
        assert done.channels.keys() == {above.channel_id, below.channel_id}
        assert CANARY not in str(await home.wal(below))
        for one in (above, below):
            assert (await home.hub.state(one.channel_id)).is_over
        assert (await home.hub.tree.top(below.channel_id)) == above.channel_id


@pytest.mark.parametrize(
    ("sender", "event_type", "error"),
    [
        ("alice", EV_TEXT, Erased),
        ("bob", EV_TEXT, EnvelopeIdReused),
        ("alice", EV_CONTEXT_SET, EnvelopeIdReused),
    ],
)
async def test_y2_a_re_sent_id_is_compared_by_sender_and_type(
    sender: str, event_type: str, error: type[Exception]
) -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await channel.send("hello", envelope_id="once")
        await home.handle("bob", channel).send("bye")
        await home.hub.erase(channel.channel_id, by="admin")

        await refused(
            error,
            home.hub.post(channel.channel_id, draft(home[sender], event_type, envelope_id="once")),
        )


async def test_y2_what_needs_the_past_refuses_an_erased_one() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="hello")
        await home.handle("bob", channel).send("bye")
        await home.hub.erase(channel.channel_id, by="admin", lines=[(1, 1)])
        again = replay(home.hub, channel.channel_id, agents=[])

        for asked in (
            home.hub.history.what_if(channel.channel_id, A_B),
            home.hub.fork(channel.channel_id, at=3),
            export_channel(home.hub, channel.channel_id),
            again,
        ):
            assert channel.channel_id in str(await refused(PastErased, asked))


async def test_y2_why_says_that_what_a_line_was_decided_on_was_erased() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="hello")
        await home.handle("bob", channel).send("bye")
        await home.hub.erase(channel.channel_id, by="admin")

        told = [str(await home.hub.why(channel.channel_id, one.seq)) for one in await home.wal(channel)]

        said = [one.seq for one in await home.wal(channel) if one.event_type == EV_TEXT]
        assert ["was erased" in told[seq - 1] for seq in said] == [True, True]
