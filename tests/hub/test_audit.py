"""The audit: every governance event, on a channel of its own, readable and tailable."""

from __future__ import annotations

import asyncio

import pytest

from turnline.client.turn import Turn
from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.errors import Denied, InviteRejected, LogUnavailable
from turnline.hub.audit import AUDIT_CHANNEL, MAX_PENDING_LINES
from turnline.log.memory import MemoryLog

from ..logs import OpenLog
from .scenes import A_B, FailingLog, House, begin, closed, house, refused, until


def facts(lines: list[Envelope]) -> list[str]:
    return [line.event_type.removeprefix("audit.") for line in lines]


async def eventful(home: House) -> None:
    """Everything that is audited, once."""
    channel = await home.open(A_B, message="hello")
    await home.pass_time(120)
    await home.handle("bob", channel).send("bye")

    @home["bob"].on_turn
    async def bob(turn: Turn) -> str:
        raise RuntimeError("out of ideas")

    await closed(await home.open(A_B, message="hello"))
    carol = await home.person("carol", auto_ack_invites=False)
    opening = begin(home.open(A_B))
    await carol.reject((await carol.next_envelope()).channel_id, "no time")
    await refused(InviteRejected, _result(opening))


async def test_every_governance_event_has_a_line(open_log: OpenLog) -> None:
    async with house(open_log(), "alice", "bob") as home:
        await eventful(home)
        lines = await home.hub.audit_log.read_all()

        assert facts(lines) == [
            "registered",
            "registered",
            "channel_opened",
            "expectation_violated",
            "channel_closed",
            "channel_opened",
            "turn_failed",
            "channel_closed",
            "registered",
            "invite_rejected",
            "channel_closed",
        ]
        assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
        assert all(line.channel_id == AUDIT_CHANNEL and line.audience == [] for line in lines)


async def test_a_line_says_where_it_happened_and_why() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await channel.close("enough")
        (line,) = await home.audited("channel_closed")

        assert (line["reason"], line["by"]) == ("enough", home["alice"].agent_id)
        assert line["channel_id"] == channel.channel_id
        assert line["seq"] == (await home.wal(channel))[-1].seq


async def test_no_line_repeats_what_was_said() -> None:
    """The audit is about who did what, not about the conversation."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="a secret", knobs={"context_vars": {"k": "a secret"}})
        await home.handle("bob", channel).send("a secret")

        assert "a secret" not in str(await home.hub.audit_log.read_all())


async def test_it_can_be_read_from_a_line_on_and_under_the_seeds_name() -> None:
    async with house(MemoryLog(), "alice", "bob", "carol") as home:
        lines = await home.hub._audit_log.read_all()

        assert await home.hub.audit_log.read_all(since=2) == lines[2:]
        assert len(lines) == 3


async def test_it_can_be_tailed() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        tailed: list[Envelope] = []

        async def tail() -> None:
            async for line in home.hub.audit_log.tail(since=1):
                tailed.append(line)

        tailing = begin(tail())
        await (await home.open(A_B)).close()
        await until(lambda: len(tailed) == 3)
        tailing.cancel()

        assert facts(tailed) == ["registered", "channel_opened", "channel_closed"]


async def test_it_survives_a_restart_and_goes_on(open_log: OpenLog) -> None:
    for name in ("alice", "bob"):
        async with house(open_log(), name):
            pass
    async with house(open_log()) as home:
        ids = [home.hub.participant(name).agent_id for name in ("alice", "bob")]
        assert [line["agent_id"] for line in await home.audited("registered")] == ids


async def test_two_hubs_share_one_audit() -> None:
    log = MemoryLog()
    async with house(log) as first, house(log) as second:
        for number, home in enumerate([first, second, first, second]):
            await home.agent(f"agent {number}")
            await home.hub.audit_log.flush()

        assert await second.hub.audit_log.read_all() == await first.hub.audit_log.read_all()
        assert len(await first.audited("registered")) == 4


async def test_nobody_waits_for_the_audit() -> None:
    """It is written in the background, many lines at a time."""

    class Held(FailingLog):
        let = asyncio.Event()

        async def append(
            self, channel_id: str, envelopes: object, *, after: int, row: ChannelRow | None = None
        ) -> None:
            if channel_id == AUDIT_CHANNEL:
                await self.let.wait()
            await super().append(channel_id, envelopes, after=after, row=row)  # type: ignore[arg-type]

    log = Held()
    async with house(log, "alice", "bob") as home:
        for _ in range(10):
            await (await home.open(A_B)).close()
        assert await log.head(AUDIT_CHANNEL) is None

        log.let.set()
        assert len(await home.audited("channel_closed")) == 10


async def test_what_could_not_be_written_is_written_with_the_next_line() -> None:
    log = FailingLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.open(A_B)
        await home.hub.audit_log.flush()
        await channel.close()
        log.fail_append = LogUnavailable("here", because="the disk is full")
        with pytest.raises(LogUnavailable):
            await home.hub.audit_log.flush()

        assert len(await home.audited("channel_closed")) == 1


async def test_a_no_is_audited() -> None:
    class Never:
        async def may_open(self, opener: object, spec: object) -> None:
            raise Denied("alice", what="open channels", because="it is night")

        async def may_post(self, sender: object, draft: object, channel: object) -> None: ...

    async with house(MemoryLog(), "alice", "bob", arbiter=Never()) as home:
        await refused(Denied, home.open(A_B))
        (line,) = await home.audited("denied")

        assert line == {
            "who": "alice",
            "may_not": "open channels",
            "because": "it is night",
            "channel_id": None,
        }


async def _result(task: asyncio.Task[object]) -> object:
    return await task


async def test_a_log_that_takes_nothing_costs_a_bounded_number_of_lines_and_the_rest_is_counted() -> None:
    """Every queue has a limit with a name."""
    async with house(MemoryLog(), "alice") as home:
        audit = home.hub.audit_log
        await audit.flush()
        for number in range(MAX_PENDING_LINES + 7):
            audit.note("tested", number=number)
        await audit.flush()
        audit.note("tested", number="the last")
        lines = await audit.read_all()

        assert lines[-2].event_data == {"count": 7}
        assert facts(lines)[-2:] == ["lines_dropped", "tested"]


async def test_lines_of_one_append_are_in_the_order_of_their_times_though_the_clock_was_set_back() -> None:
    """R7."""
    async with house(MemoryLog(), "alice") as home:
        await home.hub.audit_log.flush()
        home.hub.audit_log.note("first")
        home.clock.set_back(3600)
        home.hub.audit_log.note("second")
        times = [line.created_at for line in await home.hub.audit_log.read_all()]

    assert times == sorted(times)
