"""A hub with participants on it, logs that can be watched, and what people do on channels.

async with house(MemoryLog(), "alice", "bob") as home:
    channel = await home.open(sequence(["alice", "bob"]))
    await channel.send("hello")
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pytest

from tests.logs import FullLog
from turnline.client.channel import Channel
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.human_client import HumanClient
from turnline.client.link import LocalLink
from turnline.client.participant import AgentClient
from turnline.client.turn import Turn, TurnHandler
from turnline.core.channel import ChannelFilter, ChannelRow, ChannelSpec, Participant
from turnline.core.claims import MAX_CLAIMS
from turnline.core.envelope import SCHEMA_VERSION, Decision, Draft, Envelope, JsonObject
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_CHANNEL_INVITE, EV_CONTEXT_SET, EV_TEXT, HUB
from turnline.core.fold import SUSPECT_CLAIMS
from turnline.core.governance import Passport, Registration, Resume, Rule
from turnline.core.graph import TransitionGraph, sequence
from turnline.errors import ClaimLost
from turnline.hub.worker import this_host
from turnline.log.base import Head, Log
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.testing.lines import NOON
from turnline.testing.manual_clock import ManualClock

SAFETY_SECONDS: Final = 60.0
"""No test waits so long; one that does is stuck."""

DEAD: Final = f"{this_host()}:999999999:1/agent"
"""A worker of a process of this host that is gone."""
A_B: Final = sequence(["alice", "bob"])
A_B_A: Final = sequence(["alice", "bob", "alice"])

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


async def die(log: Log, channel_id: str, agent_id: str, *, is_found: bool = False) -> None:
    """Claim the channel's first turn five times in processes that die, the last two times alone.

    With `is_found` the next process claims it as well, and gives it up.
    """
    hub = await Hub.open(log, ttl_sweep_interval=0)
    for place in range(MAX_CLAIMS):
        await hub.turns.claim(channel_id, agent_id, worker=DEAD, turn=1, alone=place >= SUSPECT_CLAIMS)
    if is_found:
        await refused(ClaimLost, hub.turns.claim(channel_id, agent_id, worker=DEAD, turn=1))
    await hub.close()


class House:
    """A hub and the clients that are attached to it."""

    def __init__(self, hub: Hub, clock: ManualClock) -> None:
        self.hub = hub
        self.clock = clock
        self.door = HubClient(LocalLink(hub), hub=hub)
        self.agents: dict[str, AgentClient] = {}
        self.people: dict[str, HumanClient] = {}

    def __getitem__(self, name: str) -> AgentClient:
        return self.agents[name]

    async def agent(self, name: str, *, rule: Rule | None = None) -> AgentClient:
        client = await self.door.register(None, Passport(name=name), Resume(), rule=rule)
        self.agents[name] = client
        return client

    async def person(self, name: str, *, auto_ack_invites: bool = True) -> HumanClient:
        passport = Passport(name=name, kind="human")
        client = await self.door.register_human(passport, auto_ack_invites=auto_ack_invites)
        self.people[name] = client
        return client

    async def open(self, graph: TransitionGraph = A_B, *, by: str = "alice", **given: Any) -> Channel:
        """A workflow channel of `graph` among everybody here."""
        knobs = {"graph": graph.to_dict(), **given.pop("knobs", {})}
        everybody = self.agents | self.people
        given.setdefault("target", [name for name in everybody if name != by])
        return await everybody[by].open(type="workflow", knobs=knobs, **given)

    async def talk(self, *, by: str = "alice", to: str = "bob", **given: Any) -> Channel:
        """A conversation of two, which never closes by itself."""
        return await self.agents[by].open(type="conversation", target=to, **given)

    def handle(self, name: str, channel: Channel) -> Channel:
        """The handle of `name` on the same channel."""
        return (self.agents | self.people)[name].channel(channel.channel_id)

    async def wal(self, channel: Channel) -> list[Envelope]:
        return await self.hub.read_wal(channel.channel_id)

    async def types(self, channel: Channel) -> list[str]:
        return types(await self.wal(channel))

    async def audited(self, what: str) -> list[JsonObject]:
        """What the audit says about one kind of event."""
        lines = await self.hub.audit_log.read_all()
        return [line.event_data for line in lines if line.event_type == f"audit.{what}"]

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.hub.tick()


@asynccontextmanager
async def house(
    log: Log,
    *agents: str,
    people: Iterable[str] = (),
    clock: ManualClock | None = None,
    ttl_sweep_interval: float = 0,
    **options: Any,
) -> AsyncIterator[House]:
    """A hub on `log` with `agents` and `people` attached; closed in the end, as a program closes it."""
    clock = clock or ManualClock()
    hub = await Hub.open(log, ttl_sweep_interval=ttl_sweep_interval, clock=clock, **options)
    home = House(hub, clock)
    try:
        async with asyncio.timeout(SAFETY_SECONDS):
            for name in agents:
                await home.agent(name)
            for name in people:
                await home.person(name)
            yield home
    finally:
        await home.door.close()
        await hub.close()


@asynccontextmanager
async def bob_is_away(clock: ManualClock | None = None) -> AsyncIterator[House]:
    """Alice is here; bob is registered, but in no running process."""
    log = MemoryLog()
    async with house(log, "alice", "bob", clock=clock):
        pass
    async with house(log, "alice", clock=clock) as home:
        yield home


@asynccontextmanager
async def two_houses(
    log: Log, *agents: str, at_both: Sequence[str] = ()
) -> AsyncIterator[tuple[House, House]]:
    """Two hubs on one log; the first has `agents`, and both have those `at_both`, as two processes would."""
    async with AsyncExitStack() as stack:
        clock = ManualClock()
        first = await stack.enter_async_context(house(log, *agents, *at_both, clock=clock, follow=True))
        second = await stack.enter_async_context(house(log, *at_both, clock=clock, follow=True))
        yield first, second


class Wrapped:
    """A log around another one, to watch it or to get in its way."""

    def __init__(self, inner: FullLog | None = None) -> None:
        self.inner: FullLog = inner or MemoryLog()
        self.address = self.inner.address
        self.durability = self.inner.durability

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        await self.inner.append(channel_id, envelopes, after=after, row=row)

    def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        return self.inner.read(channel_id, after=after)

    async def find(self, channel_id: str, envelope_id: str) -> Envelope | None:
        return await self.inner.find(channel_id, envelope_id)

    async def head(self, channel_id: str) -> Head | None:
        return await self.inner.head(channel_id)

    async def channels(
        self, *, closed: bool | None = None, after: str = "", limit: int | None = None
    ) -> list[Head]:
        return await self.inner.channels(closed=closed, after=after, limit=limit)

    async def rows(
        self, where: ChannelFilter, *, after: ChannelRow | None = None, limit: int
    ) -> list[ChannelRow]:
        return await self.inner.rows(where, after=after, limit=limit)

    async def row(self, channel_id: str) -> ChannelRow | None:
        return await self.inner.row(channel_id)

    async def without_row(self, *, after: str = "", limit: int) -> list[str]:
        return await self.inner.without_row(after=after, limit=limit)

    async def end(self) -> int:
        return await self.inner.end()

    def tail(self, *, after: int = 0) -> AsyncIterator[Head]:
        return self.inner.tail(after=after)

    async def close(self) -> None:
        await self.inner.close()

    async def save_snapshot(self, channel_id: str, *, seq: int, body: bytes) -> None:
        await self.inner.save_snapshot(channel_id, seq=seq, body=body)

    async def load_snapshot(self, channel_id: str) -> tuple[int, bytes] | None:
        return await self.inner.load_snapshot(channel_id)

    async def delete_snapshots(self) -> None:
        await self.inner.delete_snapshots()


class CountingLog(Wrapped):
    """Counts the envelopes that are read, and the appends that succeeded, by channel."""

    def __init__(self, inner: FullLog | None = None) -> None:
        super().__init__(inner)
        self.read_of: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        """Channel -> how often a reading of it was begun."""
        self.appends: Counter[str] = Counter()

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        await super().append(channel_id, envelopes, after=after, row=row)
        self.appends[channel_id] += 1

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        self.reads[channel_id] += 1
        async for envelope in self.inner.read(channel_id, after=after):
            self.read_of[channel_id] += 1
            yield envelope


class FailingLog(Wrapped):
    """Raises what it is told to, once, instead of appending or reading."""

    def __init__(self, inner: FullLog | None = None) -> None:
        super().__init__(inner)
        self.fail_append: Exception | None = None
        self.fail_read: Exception | None = None
        self.fails_on: str | None = None
        """The channel whose append or read fails; None: any. The audit may write at any moment."""

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        if self.fails_on in (None, channel_id):
            error, self.fail_append = self.fail_append, None
            if error is not None:
                raise error
        await super().append(channel_id, envelopes, after=after, row=row)

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        if self.fails_on in (None, channel_id):
            error, self.fail_read = self.fail_read, None
            if error is not None:
                raise error
        async for envelope in self.inner.read(channel_id, after=after):
            yield envelope


class SlowLog(Wrapped):
    """Appends to one channel only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.held: str | None = None
        self.let = asyncio.Event()

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        if channel_id == self.held:
            await self.let.wait()
        await super().append(channel_id, envelopes, after=after, row=row)


def on_log(
    members: Sequence[Registration],
    *lines: tuple[str, JsonObject, Decision | None],
    channel_id: str,
    type: str = "conversation",
    knobs: JsonObject | None = None,
) -> list[Envelope]:
    """A channel as an earlier process left it: its invitation, and `lines`."""
    spec = ChannelSpec(
        channel_id=channel_id,
        type=type,
        creator_id=members[0].agent_id,
        participants=[Participant(one.agent_id, one.name) for one in members],
        knobs=knobs or {},
    )
    first = (EV_CHANNEL_INVITE, msgspec.to_builtins(spec), None)
    return [
        Envelope(
            schema_version=SCHEMA_VERSION,
            envelope_id=f"{channel_id}-{seq}",
            channel_id=channel_id,
            seq=seq,
            sender_id=HUB,
            event_type=event_type,
            event_data=data,
            created_at=NOON,
            decision=decision,
        )
        for seq, (event_type, data, decision) in enumerate((first, *lines), start=1)
    ]


def sqlite(folder: Path) -> SqliteLog:
    """A log on a file. What is tested here does not depend on the power staying on."""
    return SqliteLog(folder / "log.db", durability="process")


def draft(sender: AgentClient | HumanClient, event_type: str = EV_TEXT, **fields: Any) -> Draft:
    data = fields.pop("data", {"text": "hello"})
    fields.setdefault("envelope_id", f"d-{sender.seat.new_id()}")
    return Draft(sender_id=sender.agent_id, event_type=event_type, event_data=data, **fields)


async def add_one(channel: Channel, key: str = "n", **fields: Any) -> Envelope:
    """Increment a context variable."""
    return await channel.send(
        event_type=EV_CONTEXT_SET, event_data={"increment": {key: 1}}, audience=[], **fields
    )


def answers(*texts: str | JsonObject | None) -> TurnHandler:
    """A turn handler that gives these answers, one a turn."""
    left = list(texts)

    async def handler(turn: Turn) -> str | JsonObject | None:
        return left.pop(0)

    return handler


def types(envelopes: Iterable[Envelope]) -> list[str]:
    return [envelope.event_type for envelope in envelopes]


def is_closed(envelope: Envelope) -> bool:
    return envelope.event_type == EV_CHANNEL_CLOSED


async def closed(channel: Channel) -> str:
    """Wait for the end; return its reason."""
    return (await channel.result(timeout=SAFETY_SECONDS)).reason


async def refused(kind: type[E], asked: Awaitable[object]) -> E:
    """The error with which `asked` is refused."""
    with pytest.raises(kind) as error:
        await asked
    return error.value


async def until(condition: Callable[[], object]) -> None:
    """Let the others work until `condition` holds."""
    async with asyncio.timeout(SAFETY_SECONDS):
        while not condition():  # noqa: ASYNC110  what is waited for has no event of its own
            await asyncio.sleep(0)


async def quiet(rounds: int = 100) -> None:
    """Let everybody do whatever they can do now, on a log in memory."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def begin(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return asyncio.create_task(work)
