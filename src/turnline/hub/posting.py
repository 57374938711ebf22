"""Posting: decide, append, fold, deliver, in that order.

Rule 1: nothing is told to anybody before it is on the log, and nothing that
could not be folded is written: the fold happens on a copy before the append.

Rule 2: a conflict means that somebody appended first. Read, fold, decide again;
a refusal counts only if what it was decided against is on the log.

Rule 3: drafts for one channel that wait at the same time are decided one after
another and appended together: a busy channel pays for a commit once, not per draft.

Rule 4: the claim rides with the floor (N6). If a performer of this process takes the next turn, its claim is
in the append that gives the floor, after the interjections that waited for the packet.

Rule 5: a draft with a transaction of its own is appended alone, inside it: both land or
neither (F7). Whatever else becomes of the draft, the transaction is rolled back before
its sender is told.

Rule 6: lines may be held (`durability: end` of a flow). They are decided and folded, and kept in memory until
the next append of the channel, which writes them first. Only lines that end with a claim of rule 4 are held,
and only if all their senders allow it: a performer of this process works on, and nobody else hears of them.
They are recorded before anybody else reads or posts (`Channels.get`), at `HELD_BYTES` and after
`HELD_SECONDS`. If another process has appended to the channel first, they are dropped, and their turns are
performed again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final, Protocol

from turnline.core.channel import ChannelRow
from turnline.core.envelope import Draft, Envelope
from turnline.core.event_types import HUB
from turnline.core.state import State
from turnline.core.views import row_for
from turnline.errors import (
    BadDraft,
    BadSpec,
    ChannelBusy,
    ChannelQuarantined,
    DuplicateEnvelope,
    EnvelopeIdReused,
    Erased,
    LogConflict,
    LogError,
    LogUnavailable,
    NotYet,
    Refused,
    TurnlineError,
    UnknownName,
)
from turnline.hub.channels import Channels, Entry, Held, Waiting
from turnline.hub.delivery import Delivery
from turnline.hub.retry import RETRY_SECONDS
from turnline.hub.timers import Clock
from turnline.log.base import JoinsTransactions, Log
from turnline.log.joined import Transaction

DRAFTS_PER_APPEND: Final = 128
MAX_WAITING: Final = 10_000
"""Drafts that wait for one channel; more are refused."""
MAX_PARKED: Final = 1_000
"""Interjections that wait for the turn in progress on one channel. Nothing that ends the turn waits behind
them."""
HOLD_SECONDS: Final = 0.01
"""After so long a batch lets others on the loop work before its next decision."""
CONFLICTS: Final = 1000
"""So many conflicts in a row mean that something is wrong with the log, not with the timing."""
HELD_BYTES: Final = 256 * 1024
"""Lines of one channel that are held. More are recorded at once."""
ALL_HELD_BYTES: Final = 64 * 1024 * 1024
"""Lines of all channels of a hub that are held."""
HELD_SECONDS: Final = 1.0
"""How long lines are held."""

logger = logging.getLogger(__name__)

RECORD: Final = Draft(envelope_id="", sender_id=HUB, event_type="record")
"""Stands among the waiting drafts for the wish to record what is held. It brings no line about."""

Outcome = tuple[Envelope, ...] | Exception


class Owner(Protocol):
    """The hub that posts."""

    def appended(self, entry: Entry, envelopes: Sequence[Envelope]) -> None:
        """An append is folded."""
        ...

    def caught_up(self, entry: Entry, envelopes: Sequence[Envelope]) -> None:
        """What others appended is folded."""
        ...

    def claim_for(self, state: State) -> Draft | None:
        """Return the claim on the turn in progress, if a performer of this process takes it (N6)."""
        ...

    def withdraw_claim(self, state: State) -> None:
        """The claim has not landed."""
        ...


class Posting:
    """The way of a draft onto the log."""

    def __init__(self, log: Log, channels: Channels, clock: Clock, owner: Owner, delivery: Delivery) -> None:
        self._log = log
        self._joins = log if isinstance(log, JoinsTransactions) else None
        self._channels = channels
        self._clock = clock
        self._owner = owner
        self._delivery = delivery
        self._held: dict[str, Entry] = {}
        """The channels with lines that are held, the oldest of these first."""
        self._held_bytes = 0
        self._recording: asyncio.Task[None] | None = None
        """What records lines that were held for long, or did so last."""
        channels.record_held = self.record
        self._draining: set[asyncio.Task[None]] = set()
        self._behind: set[asyncio.Task[None]] = set()
        """Those that wait to read what could not be read."""

    async def post(
        self, entry: Entry, draft: Draft, within: Transaction | None = None, *, can_hold: bool = False
    ) -> tuple[Envelope, ...]:
        """Return the envelopes `draft` brought about, or raise what refused it.

        A draft that is on the log already is answered with its first result (E1). With `can_hold` the answer
        may come before the envelopes are on the log (rule 6).
        """
        if within is not None:
            await self._check_joining(entry, within)
        if len(entry.waiting) >= MAX_WAITING:
            raise ChannelBusy(entry.channel_id, waiting=MAX_WAITING)
        future = asyncio.get_running_loop().create_future()
        waiting = Waiting(draft, future, within, can_hold=can_hold)
        entry.waiting.append(waiting)
        self._start(entry)
        return await waiting.future

    async def post_together(self, entry: Entry, drafts: Sequence[Draft], *, can_hold: bool = False) -> None:
        """Post drafts that are decided one after another and appended at once. Raises what refused the first.

        Nothing may be on its way for the channel.
        """
        futures = [asyncio.get_running_loop().create_future() for _ in drafts]
        drafted = zip(drafts, futures, strict=True)
        entry.waiting.extend(Waiting(*one, can_hold=can_hold) for one in drafted)
        self._start(entry)
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def follow(self, entry: Entry, seq: int) -> None:
        """Others have appended up to `seq`, perhaps: read it, once whatever is on its way has landed."""
        entry.known_seq = max(entry.known_seq, seq)
        if entry.known_seq > entry.state.seq:
            self._start(entry)

    async def record(self, entry: Entry) -> None:
        """Record what the channel holds. Raises what an append raises; then it is still held."""
        if entry.held is not None:
            await self.post(entry, RECORD)

    async def settle(self) -> None:
        """Wait until every draft that was posted has its answer, and what is held is recorded.

        What others appended is left alone.
        """
        for task in self._behind:
            task.cancel()
        await self._record_all(list(self._held.values()))
        while self._draining:
            await asyncio.wait(set(self._draining))

    async def _record_all(self, entries: Sequence[Entry]) -> bool:
        """Record what these channels hold, and return whether all of it was."""
        outcomes = await asyncio.gather(*map(self.record, entries), return_exceptions=True)
        failed = [one for one in outcomes if isinstance(one, Exception)]
        if failed:
            logger.warning("the last steps of %d runs are not recorded yet: %s", len(failed), failed[0])
        return not failed

    async def _record_old(self) -> None:
        """Record what was held for `HELD_SECONDS`, until nothing is held."""
        while self._held:
            now = self._clock.monotonic()
            ages = [(entry, now - entry.held.since) for entry in self._held.values() if entry.held]
            old = [entry for entry, age in ages if age >= HELD_SECONDS]
            seconds = RETRY_SECONDS if old else HELD_SECONDS - max(age for _, age in ages)
            if not old or not await self._record_all(old):
                await self._clock.sleep(seconds)

    def _start(self, entry: Entry) -> None:
        if not entry.is_draining:
            entry.drain = asyncio.create_task(self._drain(entry))
            self._draining.add(entry.drain)
            entry.drain.add_done_callback(partial(self._drained, entry))

    def _drained(self, entry: Entry, task: asyncio.Task[None]) -> None:
        """Drain what is left: a task that is cancelled before its first step takes nothing."""
        self._draining.discard(task)
        if entry.waiting:
            self._start(entry)

    def _begin(self, among: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)
        return task

    async def _check_joining(self, entry: Entry, within: Transaction) -> None:
        if self._joins is None:
            raise LogError(f"the log at {self._log.address} cannot join a transaction; commit it before.")
        if entry.is_draining and within.holds_database:
            # What is on its way cannot be written before the transaction ends, which would wait behind it.
            await within.rollback()
            raise LogError(
                f"another draft for channel {entry.channel_id!r} was on its way while the transaction held "
                f"the database; the transaction was rolled back. Begin it again."
            )

    async def _drain(self, entry: Entry) -> None:
        taken: list[Waiting] = []
        try:
            while entry.waiting or entry.known_seq > entry.state.seq:
                if entry.known_seq > entry.state.seq:
                    await self._catch_up(entry)
                    continue
                taken = [one for one in entry.take(DRAFTS_PER_APPEND) if not one.future.done()]
                await self._settle_batch(entry, taken)
        except BaseException as error:
            # Whatever it was, nobody may be left waiting for an answer.
            for one in (*taken, *entry.waiting):
                one.answer(error)
            entry.waiting.clear()
            if not isinstance(error, Exception):
                raise
            if isinstance(error, LogUnavailable) and entry.known_seq > entry.state.seq:
                self._begin(self._behind, self._follow_later(entry))

    async def _follow_later(self, entry: Entry) -> None:
        """Read what others appended, later: it could not be read, and the tail reports it only once.

        The entry is pinned. If the hub forgot it meanwhile, this reading would put an old object in place
        of the one that others wait at by then.
        """
        with entry.pinned():
            await self._clock.sleep(RETRY_SECONDS)
            self.follow(entry, entry.known_seq)

    async def _settle_batch(self, entry: Entry, batch: list[Waiting]) -> None:
        """Append what can be accepted, then answer everybody, also those whose drafts waited for a packet."""
        unparked = list[Waiting]()
        try:
            await self._settle_with(entry, batch, unparked)
        except BaseException as error:
            for one in unparked:
                one.answer(error)
            raise

    async def _settle_with(self, entry: Entry, batch: list[Waiting], unparked: list[Waiting]) -> None:
        within = batch[0].within if batch else None
        for _ in range(CONFLICTS):
            outcomes, state = await self._decide_with(entry, batch, unparked)
            envelopes = [envelope for one in outcomes if not isinstance(one, Exception) for envelope in one]
            claim, state = self._claim(entry, state)
            lines = [*envelopes, *claim]
            if claim and _may_hold([*batch, *unparked], outcomes) and self._hold(entry, state, lines):
                await self._answer(entry, batch, outcomes)
                return
            lines = [*entry.send_held(), *lines]
            row = row_for(entry.adapter, state) if lines else None
            try:
                await self._append(entry, row, lines, within)
            except LogConflict:
                self._withdraw(claim, state)
                if entry.tip.seq == 0:  # Somebody else opened a channel of this id.
                    raise
                await self._catch_up(entry)
                continue
            except DuplicateEnvelope as error:
                self._withdraw(claim, state)
                await self._without_duplicate(entry, [*batch, *unparked], error)
                return
            except BaseException as error:
                self._withdraw(claim, state)
                if within is None or isinstance(error, LogError) or not isinstance(error, Exception):
                    raise
                outcomes, lines = [error], []  # What the transaction holds is its sender's affair.
            if lines:
                self._take_over(entry, state, lines)
            await self._answer(entry, [*batch, *unparked], outcomes)
            return
        raise LogError(
            f"channel {entry.channel_id!r} had {CONFLICTS} conflicts in a row; is its log damaged?"
        )

    async def _decide_with(
        self, entry: Entry, batch: list[Waiting], unparked: list[Waiting]
    ) -> tuple[list[Outcome], State]:
        """Decide the drafts, and those that waited for a packet if none is to come any more."""
        outcomes, state = await self._decide(entry, batch, entry.tip)
        if state.claim is None and not (batch and batch[0].within):
            unparked += entry.unpark(DRAFTS_PER_APPEND)
        if unparked:
            decided, state = await self._decide(entry, unparked, state)
            outcomes += decided
        return outcomes, state

    def _claim(self, entry: Entry, state: State) -> tuple[Sequence[Envelope], State]:
        """Return the claim that rides with the floor that this append gives, and the state after it (N6)."""
        gives_floor = state.floor_line > entry.tip.seq
        if not gives_floor or state.claim is not None or state.pause is not None or entry.parked:
            return (), state
        draft = self._owner.claim_for(state)
        return ((), state) if draft is None else entry.adapter.decide(state, draft, self._clock.now())

    def _withdraw(self, claim: Sequence[Envelope], state: State) -> None:
        if claim:
            self._owner.withdraw_claim(state)

    def _hold(self, entry: Entry, state: State, lines: Sequence[Envelope]) -> bool:
        """Hold the lines, and wake their performer. Returns False if they have to be recorded now."""
        now = self._clock.monotonic()
        held = Held(entry.held, state, lines, now)
        held_bytes = self._held_bytes + held.size - (entry.held.size if entry.held else 0)
        is_old = now - held.since >= HELD_SECONDS or (entry.held is not None and entry.held.is_sent)
        if is_old or held.size > HELD_BYTES or held_bytes > ALL_HELD_BYTES:
            return False
        entry.held, self._held_bytes = held, held_bytes
        self._held[entry.channel_id] = entry
        if entry.state.seq == 0:
            self._channels.keep(entry)
        if self._recording is None or self._recording.done():
            self._recording = self._begin(self._behind, self._record_old())
        self._delivery.wake_workers(state, lines)
        return True

    def _release(self, entry: Entry) -> Held | None:
        """Return what the channel held; it is recorded, or lost."""
        held, entry.held = entry.held, None
        if held is not None:
            del self._held[entry.channel_id]
            self._held_bytes -= held.size
        return held

    async def _append(
        self, entry: Entry, row: ChannelRow | None, envelopes: Sequence[Envelope], within: Transaction | None
    ) -> None:
        """Write what was decided, with the row that the index gets."""
        if envelopes:
            after = entry.state.seq
            if within is not None and self._joins is not None:
                await self._joins.append_within(within, entry.channel_id, envelopes, after=after, row=row)
            else:
                await self._log.append(entry.channel_id, envelopes, after=after, row=row)
            return
        # Where everything is refused no append says that others have moved the channel on: ask.
        head = await self._log.head(entry.channel_id)
        if head is not None and head.seq > entry.state.seq:
            raise LogConflict(entry.channel_id, after=entry.state.seq, found=head.seq)

    async def _decide(
        self, entry: Entry, batch: Sequence[Waiting], state: State
    ) -> tuple[list[Outcome], State]:
        outcomes = list[Outcome]()
        since = self._clock.monotonic()
        for waiting in batch:
            if self._clock.monotonic() - since > HOLD_SECONDS:
                await asyncio.sleep(0)  # Other tasks need not wait for a whole batch of costly decisions.
                since = self._clock.monotonic()
            if waiting.draft is RECORD:
                outcomes.append(())
                continue
            try:
                envelopes, state = entry.adapter.decide(state, waiting.draft, self._clock.now())
            except (UnknownName, BadSpec) as error:
                outcomes.append(self._quarantined(entry, error))
            except Exception as error:  # Refused, or an adapter's own fault: this draft's sender is told.
                outcomes.append(error)
            else:
                outcomes.append(envelopes)
        return outcomes, state

    def _quarantined(self, entry: Entry, error: TurnlineError) -> Exception:
        """The channel is there, but its rules cannot be read: an unregistered condition, say (E5)."""
        if entry.tip.seq == 0:
            return error
        self._channels.quarantine(entry.channel_id, error)
        return ChannelQuarantined(entry.channel_id, cause=error)

    def _take_over(self, entry: Entry, state: State, envelopes: Sequence[Envelope]) -> None:
        held = self._release(entry)
        entry.advance(state, envelopes, () if held is None else held.encoded)
        self._channels.quarantined.pop(entry.channel_id, None)
        self._unpark(entry)
        self._channels.snapshot_if_due(entry)
        self._owner.appended(entry, envelopes)

    async def _catch_up(self, entry: Entry) -> bool:
        """Take over what others appended; return whether there was anything."""
        new = await self._channels.catch_up(entry)
        held = self._release(entry) if new else None
        self._unpark(entry)
        self._owner.caught_up(entry, new)
        if held is not None and not _begins_with(new, held.lines):
            logger.warning(
                "another process wrote to channel %s; its turns since line %d are performed again.",
                *(entry.channel_id, held.lines[0].seq - 1),
            )
            self._owner.withdraw_claim(held.state)
            self._delivery.found(entry)
        return bool(new)

    def _unpark(self, entry: Entry) -> None:
        if entry.parked and (entry.state.claim is None or entry.is_over):
            entry.waiting[:0] = entry.parked
            entry.parked.clear()

    async def _answer(self, entry: Entry, batch: Sequence[Waiting], outcomes: Sequence[Outcome]) -> None:
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if waiting.within is not None:
                await waiting.within.rollback()  # Nothing is left to undo where the draft has landed.
            if isinstance(outcome, NotYet) and waiting.within is None:
                self._park(entry, waiting)
            elif isinstance(outcome, Refused) and not isinstance(outcome, BadDraft):
                waiting.answer(await self._first_result(entry.channel_id, waiting.draft) or outcome)
            else:
                waiting.answer(outcome)

    def _park(self, entry: Entry, waiting: Waiting) -> None:
        if entry.state.claim is None:  # The packet came in the same append.
            entry.waiting.append(waiting)
            return
        if len(entry.parked) >= MAX_PARKED:  # Senders that have gone away keep no place.
            entry.parked = [one for one in entry.parked if not one.future.done()]
        if len(entry.parked) >= MAX_PARKED:
            waiting.answer(ChannelBusy(entry.channel_id, waiting=MAX_PARKED))
        else:
            entry.parked.append(waiting)

    async def _without_duplicate(
        self, entry: Entry, batch: Sequence[Waiting], duplicate: DuplicateEnvelope
    ) -> None:
        """An id is taken. Of several drafts, each is tried by itself; one alone is answered (E1).

        If lines were held, they may be on the log already: all are tried again then.
        """
        if entry.held is not None and await self._catch_up(entry):
            await self._settle_batch(entry, list(batch))
            return
        if len(batch) > 1:
            for waiting in batch:
                await self._settle_batch(entry, [waiting])
            return
        if batch[0].within is not None:
            await batch[0].within.rollback()  # What belongs to the draft has landed the first time.
        first = await self._first_result(entry.channel_id, batch[0].draft)
        batch[0].answer(first or await self._reused(entry.channel_id, duplicate))

    async def _first_result(self, channel_id: str, draft: Draft) -> Outcome | None:
        """What became of a draft with this id, if one is on the log."""
        found = await self._log.find(channel_id, draft.envelope_id)
        if found is None:
            return None
        if found.is_erased and (found.sender_id, found.event_type) == (draft.sender_id, draft.event_type):
            return Erased(channel_id, envelope_id=draft.envelope_id, seq=found.seq)
        said_first = (found.sender_id, found.event_type, found.event_data)
        if said_first != (draft.sender_id, draft.event_type, draft.event_data):
            return EnvelopeIdReused(channel_id, envelope_id=draft.envelope_id, seq=found.seq)
        lines = [found]
        while True:
            following = await self._log.find(channel_id, f"{draft.envelope_id}-{len(lines)}")
            if following is None or following.seq != found.seq + len(lines):
                return tuple(lines)
            lines.append(following)

    async def _reused(self, channel_id: str, duplicate: DuplicateEnvelope) -> Exception:
        """The draft is new, but the id of something it brings about is taken."""
        found = await self._log.find(channel_id, duplicate.envelope_id)
        if found is None:
            return duplicate
        return EnvelopeIdReused(channel_id, envelope_id=duplicate.envelope_id, seq=found.seq)


def _may_hold(batch: Sequence[Waiting], outcomes: Sequence[Outcome]) -> bool:
    """Return whether all drafts are accepted, and their senders allow it."""
    return all(one.can_hold for one in batch) and not any(isinstance(one, Exception) for one in outcomes)


def _begins_with(lines: Sequence[Envelope], held: Sequence[Envelope]) -> bool:
    """Return whether the lines that were held are on the log: they were written, and no answer came."""
    return [one.envelope_id for one in lines[: len(held)]] == [one.envelope_id for one in held]
