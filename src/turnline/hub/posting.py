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
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol

from turnline.core.channel import ChannelRow
from turnline.core.envelope import Draft, Envelope
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
from turnline.hub.channels import Channels, Entry, Waiting
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

    def __init__(self, log: Log, channels: Channels, clock: Clock, owner: Owner) -> None:
        self._log = log
        self._joins = log if isinstance(log, JoinsTransactions) else None
        self._channels = channels
        self._clock = clock
        self._owner = owner
        self._draining: set[asyncio.Task[None]] = set()
        self._behind: set[asyncio.Task[None]] = set()
        """Those that wait to read what could not be read."""

    async def post(
        self, entry: Entry, draft: Draft, within: Transaction | None = None
    ) -> tuple[Envelope, ...]:
        """Return the envelopes `draft` brought about, or raise what refused it.

        A draft that is on the log already is answered with its first result (E1).
        """
        if within is not None:
            await self._check_joining(entry, within)
        if len(entry.waiting) >= MAX_WAITING:
            raise ChannelBusy(entry.channel_id, waiting=MAX_WAITING)
        waiting = Waiting(draft, asyncio.get_running_loop().create_future(), within)
        entry.waiting.append(waiting)
        self._start(entry)
        return await waiting.future

    async def post_together(self, entry: Entry, drafts: Sequence[Draft]) -> None:
        """Post drafts that are decided one after another and appended at once. Raises what refused the first.

        Nothing may be on its way for the channel.
        """
        futures = [asyncio.get_running_loop().create_future() for _ in drafts]
        entry.waiting.extend(Waiting(*one) for one in zip(drafts, futures, strict=True))
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

    async def settle(self) -> None:
        """Wait until every draft that was posted has its answer; what others appended is left alone."""
        for task in self._behind:
            task.cancel()
        while self._draining:
            await asyncio.wait(set(self._draining))

    def _start(self, entry: Entry) -> None:
        if not entry.is_draining:
            entry.drain = self._begin(self._draining, self._drain(entry))
            entry.drain.add_done_callback(lambda _: self._drained(entry))

    def _drained(self, entry: Entry) -> None:
        """Drain what is left: a task that is cancelled before its first step takes nothing."""
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
            outcomes, state = await self._decide(entry, batch, entry.state)
            if state.claim is None and within is None:
                unparked += entry.unpark(DRAFTS_PER_APPEND)
            decided, state = await self._decide(entry, unparked, state)
            outcomes += decided
            envelopes = [envelope for one in outcomes if not isinstance(one, Exception) for envelope in one]
            claim, state = self._claim(entry, state)
            row = row_for(entry.adapter, state) if envelopes else None
            try:
                await self._append(entry, row, [*envelopes, *claim], within)
            except LogConflict:
                self._withdraw(claim, state)
                if entry.state.seq == 0:  # Somebody else opened a channel of this id.
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
                outcomes, envelopes = [error], []  # What the transaction holds is its sender's affair.
            if envelopes:
                self._take_over(entry, state, [*envelopes, *claim])
            await self._answer(entry, [*batch, *unparked], outcomes)
            return
        raise LogError(
            f"channel {entry.channel_id!r} had {CONFLICTS} conflicts in a row; is its log damaged?"
        )

    def _claim(self, entry: Entry, state: State) -> tuple[Sequence[Envelope], State]:
        """Return the claim that rides with the floor that this append gives, and the state after it (N6)."""
        gives_floor = state.floor_line > entry.state.seq
        if not gives_floor or state.claim is not None or state.pause is not None or entry.parked:
            return (), state
        draft = self._owner.claim_for(state)
        return ((), state) if draft is None else entry.adapter.decide(state, draft, self._clock.now())

    def _withdraw(self, claim: Sequence[Envelope], state: State) -> None:
        if claim:
            self._owner.withdraw_claim(state)

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
        if entry.state.seq == 0:
            return error
        self._channels.quarantine(entry.channel_id, error)
        return ChannelQuarantined(entry.channel_id, cause=error)

    def _take_over(self, entry: Entry, state: State, envelopes: Sequence[Envelope]) -> None:
        entry.advance(state, envelopes)
        self._channels.quarantined.pop(entry.channel_id, None)
        self._unpark(entry)
        self._channels.snapshot_if_due(entry)
        self._owner.appended(entry, envelopes)

    async def _catch_up(self, entry: Entry) -> None:
        new = await self._channels.catch_up(entry)
        self._unpark(entry)
        self._owner.caught_up(entry, new)

    def _unpark(self, entry: Entry) -> None:
        if entry.parked and (entry.state.claim is None or entry.is_over):
            entry.waiting.extendleft(reversed(entry.parked))
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
        """An id is taken. Of several drafts, each is tried by itself; one alone is answered (E1)."""
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
