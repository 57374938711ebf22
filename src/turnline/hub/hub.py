"""The hub: one log, the channels on it, and whoever is attached.

    post = decide, append, fold, deliver

The hub decides nothing itself: rules are the adapters', storage is the log's.
It brings them together, and everything it holds in memory can be read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, Self, Unpack
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from turnline import tracing
from turnline.core import event_types as ev
from turnline.core.adapter import AnyAdapter
from turnline.core.adapters import built_in
from turnline.core.channel import ChannelRow, ChannelSpec, ChannelState
from turnline.core.codec import encode as encode_line
from turnline.core.directory import DIRECTORY_CHANNEL, RECLAIMED, UNREGISTERED
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.expectations import REMOVED, Deadline, absences
from turnline.core.governance import (
    OPEN_CHANNELS_PER_USER,
    Passport,
    Registrar,
    Registration,
    Resume,
    Rule,
)
from turnline.core.graph import TransitionGraph
from turnline.core.json import size_of
from turnline.core.state import LEASE_SECONDS, State
from turnline.core.variables import MAX_CONTEXT_BYTES
from turnline.core.views import unclaimed_floor
from turnline.errors import (
    BadGraph,
    Denied,
    HubClosed,
    LogConflict,
    NameTaken,
    UnknownChannel,
)
from turnline.hub import worker
from turnline.hub.audit import AUDITED, AuditLog
from turnline.hub.channels import CACHE_BYTES, Channels, Entry
from turnline.hub.delivery import Delivery, Receiver, Undecided
from turnline.hub.directory import HubDirectory
from turnline.hub.erasing import Erasing
from turnline.hub.files import Files
from turnline.hub.following import Following
from turnline.hub.governance import Gate, Listener, tell
from turnline.hub.history import History
from turnline.hub.observed import Observed, observed
from turnline.hub.opening import Opening, first_of
from turnline.hub.options import HubOptions
from turnline.hub.posting import Posting
from turnline.hub.recovery import Recovery
from turnline.hub.request import OpenRequest, checked, spec_of, without_graph
from turnline.hub.sweep import Sweep
from turnline.hub.texts import Texts
from turnline.hub.timers import Clock, SystemClock, Timers, sortable_ids
from turnline.hub.tree import Tree
from turnline.hub.turns import Turns
from turnline.log.base import Log
from turnline.log.forks import reading, with_forks
from turnline.log.joined import Transaction
from turnline.log.rows import rebuild_rows
from turnline.log.walks import EVERY, STATUSES, has_status, list_rows
from turnline.threads import off_the_loop

logger = logging.getLogger(__name__)

PAGE_LINES: Final = 256
PAGE_BYTES: Final = 256 * 1024
"""Lines of one channel that are read at once for a client, and about how many bytes they have."""
OWN_PREFIX: Final = "_"
"""What the id of a channel of the hub's own starts with: the directory, the audit, definitions of flows."""


class Health(Struct, frozen=True, kw_only=True):
    """How a hub is doing, for people and for probes."""

    log: str
    durability: str
    """What an acknowledgement survives: `power`, `process` or `none`."""
    open_channels: int
    cached_channels: int
    quarantined: dict[str, str]
    clock_behind_seconds: float
    """By how much the clock was behind the newest line when the hub opened; 0 up to an hour."""


class Hub:
    """Open one with `Hub.open(log)`; everything else is on the clients."""

    def __init__(self, log: Log, *, ttl_sweep_interval: float, **options: Unpack[HubOptions]) -> None:
        """Use `Hub.open`, which also picks up what is on the log."""
        self.clock: Clock = options.get("clock") or SystemClock()
        self.new_id = options.get("new_id") or sortable_ids(self.clock)
        self.log = log
        self.lines = with_forks(log)
        """The log as channels are read and written: a fork reads on from the past it shares."""
        known = built_in(context_bytes=options.get("context_bytes", MAX_CONTEXT_BYTES))
        for adapter in options.get("adapters", ()):
            known.register(adapter)
        self.audit_log = self._audit_log = AuditLog(log, self.clock, self.new_id)  # Both are seeds' names.
        most = options.get("open_channels_per_user", OPEN_CHANNELS_PER_USER)
        self._gate = Gate(options.get("arbiter"), self.audit_log, open_channels_per_user=most)
        self._listeners = list(options.get("listeners", ()))
        most = options.get("cache_bytes", CACHE_BYTES)
        self._channels = Channels(self.lines, known, cache_bytes=most, on_quarantine=self._note_quarantine)
        self._directory = HubDirectory(log, self.clock, self.new_id, self._look_for)
        self.learn, self.note_user = self._directory.learn, self._directory.note_user
        self.follows = options.get("follow", False)
        self._delivery = Delivery(follows=self.follows)
        self._timers = Timers(self.clock, self._list_absences)
        self.seconds_since = self._timers.seconds_since
        self._posting = Posting(self.lines, self._channels, self.clock, self, self._delivery)
        self.record, self.is_held = self._channels.record, self._channels.is_held
        self.entry_for_work = self._channels.get_for_work
        self._opening = Opening(
            self.lines,
            self._channels,
            self._posting,
            timers=self._timers,
            clock=self.clock,
            new_id=self.new_id,
            tools_of=self._delivery.tools_of,
        )
        self.tree = Tree(self)
        self._recovery = Recovery(self, self._channels, self._delivery)
        self.history = History(
            self.lines,
            self._channels,
            self._opening,
            self.tree,
            lookup=self.lookup,
            may_open=self._may_open,
            place=self._gate.opening,
        )
        self.state_at, self.fork, self.why = self.history.state_at, self.history.fork, self.history.why
        self.files = Files(self, options)
        self._erasing = Erasing(self, self._channels, self._posting)
        self.erase, self.forget = self._erasing.erase, self._erasing.forget
        self.forget_pruned = self._erasing.forget_pruned
        self._sweep = Sweep(self._timers, self._channels, self.clock, self._fire, self.files)
        lease_seconds, process = options.get("lease_seconds", LEASE_SECONDS), options.get("process", worker)
        self.turns = Turns(self, lease_seconds=lease_seconds, process=process)
        if self.follows:
            self._listeners.append(self.turns.note)
        self.texts = Texts()
        self._open: set[str] = set()
        self._naming: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Two that open the same channel id at once open one channel."""
        self._sweep_seconds = ttl_sweep_interval
        self._tasks: list[asyncio.Task[None]] = []
        """What goes on for as long as the hub does."""
        self._has_workers = False
        """Whether a participant was attached: then turns are taken here."""
        self._clock_behind = timedelta(0)
        self._closed = False

    @classmethod
    async def open(
        cls, store: Log, *, ttl_sweep_interval: float = 30.0, **options: Unpack[HubOptions]
    ) -> Self:
        """Open a hub on a log, and pick up what is open on it.

        With `ttl_sweep_interval=0` nothing happens by itself when time passes:
        call `tick`.
        """
        hub = cls(store, ttl_sweep_interval=ttl_sweep_interval, **options)
        await hub._hydrate()
        return hub

    async def close(self) -> None:
        """Finish what was posted and let go of the log. What is open stays open, on the log."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._recovery.close()
        await self._posting.settle()
        self._channels.dismiss(HubClosed())
        self._delivery.dismiss(HubClosed())
        await self._channels.settle()
        try:
            await self.audit_log.flush()
        finally:
            await self.log.close()

    # Participants.

    async def enrol(
        self,
        passport: Passport,
        resume: Resume | None,
        rule: Rule | None,
        *,
        by: Registrar | None = None,
        before_change: Callable[[str], None] | None = None,
    ) -> Registration:
        """Register a participant, or find the one of that name (L6).

        `by` is a user whom a server has authenticated; None: the project, a program that opened the log.
        `before_change` gets the id of a known participant before it is changed, and may detach it.
        Raises `NameTaken` for a name of another owner, and for a change of a participant attached here.
        """
        self._check_open()

        def check_change(known: Registration) -> None:
            if before_change is not None:
                before_change(known.agent_id)
            self._delivery.check_free(known.agent_id, known.name)

        plan = await self._directory.register(passport, resume, rule, by=by, check_change=check_change)
        for one in plan.squatters:
            self._forget(one, reason=RECLAIMED)
        if plan.is_change:
            where = {"channel_id": DIRECTORY_CHANNEL, "seq": plan.seq}
            self.audit_log.note("registered", agent_id=plan.registration.agent_id, **where)
        return plan.registration

    async def unregister(self, name: str, *, reason: str = UNREGISTERED) -> None:
        """Remove a participant: it cannot be addressed any more, and its name is free.

        Channels that it is on keep its id and name. A turn that it has, or gets later, fails with the error
        `ParticipantRemoved`. A later registration of the name is another participant.
        """
        self._check_open()
        registration = await self.lookup(name)
        await self._directory.remove(registration.agent_id, reason=reason)
        self._forget(registration, reason=reason)

    def attach(self, agent_id: str, receiver: Receiver) -> None:
        """From now on `receiver` is woken for this participant; also for what waits for it already."""
        self._check_open()
        unread = self._delivery.attach(agent_id, self.participant(agent_id).name, receiver)
        if unread:
            self._recovery.remind(agent_id, unread)
        if not self._has_workers:
            self._has_workers = True
            self._recovery.look_at_all()

    def detach(self, agent_id: str) -> None:
        self._delivery.detach(agent_id)

    def participant(self, name: str) -> Registration:
        """Return who is registered by this id or name."""
        return self._directory.known.resolve(name)

    async def lookup(self, name: str, *, asked_by: Registration | None = None) -> Registration:
        """Return who is registered by this id or name. Before it is refused, the log is asked."""
        await self._directory.learn([name])
        return self._directory.known.resolve(name, asked_by=asked_by)

    def find_participant(self, name: str) -> Registration | None:
        """Return who is known here by this id or name."""
        return self._directory.known.find(name)

    def participants(self) -> list[Registration]:
        return list(self._directory.known.by_id.values())

    async def observed(self, name: str) -> Observed:
        """Count what the log says of a participant's turns and tasks. Nothing of it is stored elsewhere."""
        self._check_open()
        return await observed(self.lines, (await self.lookup(name)).agent_id)

    async def resume(self, name: str) -> Resume:
        """Return the participant's resume, with its observed record as of now."""
        record = msgspec.to_builtins(await self.observed(name))
        return msgspec.structs.replace(self.participant(name).resume, observed=record)

    # Channels.

    async def open_channel(
        self, request: OpenRequest, opener_id: str, *, log_name: str = "", can_hold: bool = False
    ) -> str:
        """Open a channel and return its id once everybody has accepted (L1).

        The driver of flows gives the `log_name`, which no request can hold: see `log.origin`.
        With `can_hold` the channel may not be recorded yet (`hub.posting`, rule 6); its id must be new.
        """
        self._check_open()
        with tracing.span(f"open_channel {request.type}") as recording:
            channel_id = await self._opened(request, await self.lookup(opener_id), log_name, can_hold)
            recording.note({tracing.CONVERSATION: channel_id})
            await self._opening.wait(channel_id, self._sweep.channel)
        return channel_id

    async def post(
        self, channel_id: str, draft: Draft, *, within: Transaction | None = None, can_hold: bool = False
    ) -> tuple[Envelope, ...]:
        """Return the envelopes `draft` brought about, or raise what refused it. Nothing is half-written.

        `within` is committed with them, or not at all (F7). For `can_hold` see `hub.posting`, rule 6.
        """
        self._check_open()
        if draft.traceparent is None and (traceparent := tracing.current()) is not None:
            draft = msgspec.structs.replace(draft, traceparent=traceparent)
        if draft.sender_id in self._directory.known.removed:
            raise Denied(draft.sender_id, what="post", because=REMOVED)
        entry = await self._channels.get_for_work(channel_id)
        with entry.pinned():
            # Neither the hub nor a step of a flow has a rule.
            if (sender := self._directory.known.by_id.get(draft.sender_id)) is not None:
                await self._gate.may_post(sender, draft, entry, self.clock.monotonic())
            if ev.has_parts(draft.event_data):
                await self.files.check(channel_id, draft)
            return await self._posting.post(entry, draft, within, can_hold=can_hold)

    async def write(
        self, channel_id: str, event_type: str, data: JsonObject, **fields: Any
    ) -> tuple[Envelope, ...]:
        """Post something the hub itself says."""
        fields["envelope_id"] = fields.get("envelope_id") or self.new_id()
        draft = Draft(sender_id=ev.HUB, event_type=event_type, event_data=data, **fields)
        return await self.post(channel_id, draft)

    async def read_wal(self, channel_id: str, since: int = 0) -> list[Envelope]:
        """Return the channel's envelopes behind `since`, in order."""
        self._check_open()
        await self.record(channel_id)
        envelopes = [envelope async for envelope in self.lines.read(channel_id, after=since)]
        if not envelopes and await self.lines.head(channel_id) is None:
            raise UnknownChannel(channel_id)
        return envelopes

    async def read_recent(self, channel_id: str, after: int) -> list[Envelope]:
        """`read_wal`, from memory where it reaches back far enough."""
        recent = (await self._channels.get(channel_id)).recent(after)
        return await self.read_wal(channel_id, after) if recent is None else recent

    async def read_page(
        self, channel_id: str, after: int, most: int = PAGE_LINES, *, most_bytes: int = PAGE_BYTES
    ) -> list[Envelope]:
        """Return the first lines behind `after`: up to `most`, and up to the one that fills `most_bytes`.

        There may be more. A client that reads no further costs one page.
        """
        return await self.read_entry(await self._channels.get(channel_id), after, most, most_bytes)

    async def read_entry(
        self, entry: Entry, after: int, most: int = PAGE_LINES, most_bytes: int = PAGE_BYTES
    ) -> list[Envelope]:
        """`read_page`, of a channel that is at hand."""
        recent = entry.recent(after)
        if most <= 0 or recent is not None:  # What is in memory is little.
            return (recent or [])[:most]
        found, size = list[Envelope](), 0
        async with reading(self.lines.read(entry.channel_id, after=after)) as lines:
            async for line in lines:
                found.append(line)
                size += len(encode_line(line))
                if len(found) >= most or size >= most_bytes:
                    break
        return found

    async def wait_beyond(self, channel_id: str, seq: int) -> bool:
        """Return True once the channel has a line behind `seq`, False if it never will."""
        return await self.wait_entry(await self._channels.get(channel_id), seq)

    async def wait_entry(self, entry: Entry, seq: int) -> bool:
        """`wait_beyond`, of a channel that is at hand."""
        with entry.pinned():
            while entry.state.seq <= seq and not entry.is_over:
                self._check_open()
                await entry.bell.wait(entry.bell.rung)
        return entry.state.seq > seq

    async def state(self, channel_id: str) -> State:
        """Return what the channel's log adds up to now. Read it; do not change what is in it."""
        self._check_open()
        return (await self._channels.get(channel_id)).state

    async def entry(self, channel_id: str) -> Entry:
        """Return the channel as it is in memory: its state, and its last lines. Pin it to wait at it."""
        self._check_open()
        return await self._channels.get(channel_id)

    def adapter(self, channel_type: str) -> AnyAdapter:
        """Return the rules of a channel type."""
        return self._channels.adapter(channel_type)

    async def list_channels(
        self,
        *,
        agent_id: str | None = None,
        state: ChannelState | str | None = None,
        waiting_for: str | None = None,
    ) -> list[ChannelRow]:
        """List channels, the oldest first: all, or those of one participant (by id or name), status or pause.

        The index answers (Y7): no channel is read, so damaged ones are listed too. Pages: see `log.walks`.
        """
        self._check_open()
        status = "" if state is None else ChannelState(state).value
        where = STATUSES[status] if status else EVERY
        if waiting_for is not None:
            where = msgspec.structs.replace(where, waiting_for=[waiting_for])
        if agent_id is not None:
            where = msgspec.structs.replace(where, participants=await self.find_ids([agent_id]))
        return [row for row in reversed(await list_rows(self.lines, where)) if has_status(row, status)]

    async def find_ids(self, names: Iterable[str]) -> list[str]:
        """Return the participant ids of these names. One that is not registered is taken for an id."""
        await self._directory.learn(wanted := list(names))
        known = {one: self._directory.known.find(one) for one in wanted}
        return [name if found is None else found.agent_id for name, found in known.items()]

    # Time.

    async def seconds_left(self, channel_id: str) -> float:
        """Return the seconds until the channel's next deadline; 0 if it has passed, or there is none."""
        return self._timers.seconds_left(await self._channels.get(channel_id))

    async def list_due(self, channel_id: str) -> list[Deadline]:
        """Return what has fallen due on the channel and is not on the log yet."""
        return self._timers.due(await self._channels.get(channel_id))

    async def tick(self) -> None:
        """Do whatever has fallen due by now."""
        self._check_open()
        await self._sweep.once()

    # Governance.

    def add_listener(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def health(self) -> Health:
        quarantined: dict[str, BaseException] = dict(self._channels.quarantined)
        if self._directory.damage is not None:
            quarantined[DIRECTORY_CHANNEL] = self._directory.damage
        return Health(
            log=self.log.address,
            durability=self.log.durability,
            open_channels=len(self._open),
            cached_channels=len(self._channels),
            quarantined={name: str(error) for name, error in quarantined.items()},
            clock_behind_seconds=self._clock_behind.total_seconds(),
        )

    # Inside.

    async def _hydrate(self) -> None:
        await rebuild_rows(self.lines, self._channels.adapters)
        # What is behind these heads is followed, so everything is read after them: nothing falls between.
        heads = await self.log.channels(closed=False)
        position = max((head.position for head in heads), default=0)
        await self._directory.hydrate()
        await self.audit_log.hydrate()
        rows = await self._recovery.list_open(heads)
        times = (row.updated_at for row in rows)
        self._check_clock(max(self._directory.last_at, self.audit_log.last_at, *times))
        for row in rows:
            self._expect(row)
        if self._sweep_seconds > 0:
            self._tasks.append(asyncio.create_task(self._sweep.run(self._sweep_seconds)))
        if self.follows:
            following = Following(
                *(self.lines, self._channels, self._posting, self._opening, self._directory),
                timers=self._timers,
                clock=self.clock,
                found=self._found,
                is_open=self._open.__contains__,
                pruned=self.forget_pruned,
                erased=self._erasing.drop,
            )
            self._tasks.append(asyncio.create_task(following.run(position)))

    def _expect(self, row: ChannelRow) -> None:
        """Note what the index says of an open channel. It is read when somebody needs it (Y8)."""
        channel_id = row.channel_id
        self._channels.note_told(channel_id, row.seq)
        self._note_open(channel_id, row.creator_id, is_fork=bool(row.origin), forked_for=row.forked_for)
        self._delivery.expect(row)
        self.tree.watch(channel_id, row.parent_id, is_fork=bool(row.origin), is_over=False)
        self._timers.expect(channel_id, row.deadline)
        if not self._directory.known.removed.isdisjoint(row.waits_for):
            self._timers.look_at((channel_id,))

    def _check_clock(self, newest: datetime) -> None:
        """Report a clock that is far behind the log's newest line, and count from that line's time."""
        self._clock_behind = self._timers.start_from(newest)
        if not self._clock_behind:
            return
        logger.warning(
            "The clock is %s behind the newest line of the log, which is of %s. Set the clock. "
            "Until the hub is opened again, waits and expiries are counted from the time of that line.",
            timedelta(seconds=round(self._clock_behind.total_seconds())),
            newest.isoformat(timespec="seconds"),
        )
        self.audit_log.note("clock_behind", seconds=self._clock_behind.total_seconds())

    # What posting tells the hub, and asks it.

    def appended(self, entry: Entry, envelopes: Sequence[Envelope]) -> None:
        """Everything that follows an append of this hub."""
        self.caught_up(entry, envelopes)
        audited = [one for one in envelopes if one.event_type in AUDITED]
        if audited:
            self.audit_log.note_envelopes(audited)

    def claim_for(self, state: State) -> Draft | None:
        """Return the claim that rides with the floor, if a performer of this process takes the turn (N6).

        The opener's own first word is the opener's to say: its turn is claimed when it is taken.
        """
        found = unclaimed_floor(state)
        if found is None:
            return None
        (player, floor), channel_id = found, state.spec.channel_id
        worker = self._delivery.offer(player, channel_id, floor)
        claim = self.turns.draft_claim(channel_id, floor, worker, self.new_id()) if worker else None
        if worker and claim is None:
            self._delivery.withdraw(player, channel_id)
        return claim

    def withdraw_claim(self, state: State) -> None:
        """Take back what `claim_for` offered: the claim has not landed."""
        player = state.spec.player_of(state.expected_next_speaker or "")
        self._delivery.withdraw(player, state.spec.channel_id)

    def caught_up(self, entry: Entry, envelopes: Sequence[Envelope]) -> None:
        """Everything that follows an append, also of another hub on the same log."""
        self._channels.keep(entry)
        self._timers.met(entry)
        self._watch(entry)
        self._delivery.landed(entry, envelopes)
        if entry.state.children or entry.state.spec.parent_id is not None:
            self._recovery.look_at_tree(entry.state)
        if self._listeners:
            tell(self._listeners, envelopes)

    def _found(self, entry: Entry) -> None:
        """Do the same for a channel of which this hub has read the state. Listeners get its last line."""
        self._timers.met(entry)
        self._watch(entry)
        self._delivery.found(entry)
        self._recovery.look_at_found(entry.state)
        if self._listeners:
            tell(self._listeners, entry.recent(entry.state.seq - 1) or ())

    def _watch(self, entry: Entry) -> None:
        if entry.is_over:
            self._open.discard(entry.channel_id)
            self._gate.open_channels.note_closed(entry.channel_id)
        else:
            state = entry.state
            is_fork, user = bool(state.forked_by), state.forked_for
            self._note_open(entry.channel_id, state.creator_id, is_fork=is_fork, forked_for=user)
        self._timers.watch(entry)
        if (parent_id := entry.state.spec.parent_id) is not None:
            is_fork = entry.state.spec.forked_from is not None
            self.tree.watch(entry.channel_id, parent_id, is_fork=is_fork, is_over=entry.is_over)
        self._delivery.observe(entry.state)

    def _note_open(self, channel_id: str, creator_id: str, *, is_fork: bool, forked_for: str) -> None:
        """Count an open channel, for its creator's user; a fork counts for the user who made it."""
        self._open.add(channel_id)
        opener = self._directory.known.by_id.get(creator_id)
        user = forked_for if is_fork else "" if opener is None else opener.user
        self._gate.open_channels.note_open(channel_id, user)

    def _note_quarantine(self, channel_id: str, error: Exception) -> None:
        self.audit_log.note("quarantined", channel_id=channel_id, error=str(error))

    def _list_absences(self, state: State) -> Sequence[Deadline]:
        """Return what is due because a participant of the channel was removed."""
        removed = self._directory.known.removed
        return absences(state, removed) if removed else ()

    async def _fire(self, channel_id: str, deadline: Deadline) -> None:
        await self.write(channel_id, deadline.event_type, deadline.event_data, claim=deadline.claim)

    def _look_for(self, removed: str) -> None:
        """Look at the channels that wait for a participant that was removed."""
        self._timers.look_at(self._delivery.waiting_for(removed))

    async def _opened(self, request: OpenRequest, opener: Registration, log_name: str, can_hold: bool) -> str:
        if request.channel_id is None or can_hold:
            return await self._invite(request, opener, log_name, can_hold=can_hold)
        channel_id = request.channel_id
        async with self._naming.setdefault(channel_id, asyncio.Lock()):
            if await self.lines.head(channel_id) is None:
                with suppress(LogConflict):  # Another hub on the same log was faster.
                    await self._invite(request, opener, log_name)
        found = (await self.entry_for_work(channel_id)).tip.spec
        if (found.creator_id, found.parent_id) != (opener.agent_id, request.parent_id):
            do = "It was opened by another participant, or below another channel. Choose another id."
            raise NameTaken("channel", channel_id, do=do)
        return channel_id

    async def _invite(
        self, request: OpenRequest, opener: Registration, log_name: str, *, can_hold: bool = False
    ) -> str:
        if opener.user:
            await _compile_aside(request.knobs.get("graph"))
        spec = await self._spec(request, opener, log_name)
        await self._may_open(opener, spec)
        self._check_steps(spec)
        if spec.parent_id is not None or spec.invited:
            self._opening.check(spec)  # No callback decides on a channel that is refused; no parent notes it.
        answers = await self._answers(spec)
        await self.tree.note_child(spec)
        with self._gate.opening(opener):
            await self._opening.invite(spec, answers, is_own=not opener.user, can_hold=can_hold)
        if spec.parent_id is not None:
            # The parent may have closed between the two lines, or its turn has ended: there was no child yet.
            await self.tree.close_if_cut_off(spec.channel_id)
        return spec.channel_id

    def _check_steps(self, spec: ChannelSpec) -> None:
        """Refuse a channel whose steps no attached participant plays: it would wait for ever (N9)."""
        step = next((one.name for one in spec.participants if one.played_by), None)
        if step is not None and not self._delivery.is_attached(spec.creator_id):
            found = f"the step {step!r}, which the opener plays, who is not attached"
            raise BadGraph("graph", found=found, expected="no step, or an opener that takes turns")

    async def _answers(self, spec: ChannelSpec) -> dict[str, str | None]:
        """Return what the invited participants of this process answer; the others are asked over the log.

        A callback that takes longer than the invitation may last is left to the timeout.
        """
        answers, deciding = dict[str, str | None](), dict[str, asyncio.Future[str | None]]()
        for agent_id in spec.invited:
            with suppress(Undecided):
                decision = self._delivery.decide_invite(agent_id, spec)
                answers[agent_id] = None
                if decision is not None:
                    deciding[agent_id] = asyncio.ensure_future(decision)
        if deciding:
            await first_of(_all_of(deciding.values()), self.clock.sleep(spec.ack_timeout_seconds))
        for agent_id, decided in deciding.items():
            del answers[agent_id]
            if decided.done() and not decided.cancelled() and decided.exception() is None:
                answers[agent_id] = decided.result()
        rejected = [one for one in answers.items() if one[1] is not None]
        return dict(rejected[:1]) or answers

    async def _may_open(self, opener: Registration, spec: ChannelSpec) -> None:
        await self._gate.may_open(opener, spec, self._directory.known, self._delivery.waited_for)

    async def _spec(self, request: OpenRequest, opener: Registration, log_name: str) -> ChannelSpec:
        parent = await self.state(request.parent_id) if request.parent_id else None
        if self.follows and request.target:
            await self._directory.hydrate()  # Another hub may have given a name to another participant.
        else:
            await self._directory.learn(request.target)
        spec = spec_of(
            await off_the_loop(checked, request, size=size_of(without_graph(request.knobs))),
            opener,
            self._directory.known,
            channel_id=request.channel_id or self.new_id(),
            parent=parent,
            traceparent=tracing.current(),
            log_name=log_name,
        )
        return await self.files.check_opening(spec) if spec.files else spec

    def _forget(self, one: Registration, *, reason: str) -> None:
        self._delivery.detach(one.agent_id)
        self._gate.rates.forget(one.agent_id)
        self.audit_log.note("removed", agent_id=one.agent_id, reason=reason)

    def _check_open(self) -> None:
        if self._closed:
            raise HubClosed


async def _all_of(futures: Iterable[asyncio.Future[str | None]]) -> None:
    await asyncio.wait(list(futures))


async def _compile_aside(graph: object) -> None:
    """Compile the expressions of a user's graph in a thread. They are remembered, so `open` is quick."""
    if isinstance(graph, dict):
        with suppress(Exception):  # The next reader of the graph says what is wrong with it.
            await asyncio.to_thread(TransitionGraph.loads, graph)
