"""The one thread that writes to a `SqliteLog`'s file.

    take what is waiting -> BEGIN IMMEDIATE -> each work in a savepoint -> COMMIT -> answer

Rule 1: an answer goes out only after COMMIT has returned.

Rule 2: a batch closes when nobody waits or at `MAX_BATCH`, never on a timer:
a lone append waits for nobody, and many share one sync.

Rule 3: an error from COMMIT means *unknown*. The connection is opened anew and
each work is looked up. A failed sync is never repeated and never answered as a
success, even if the lines can be read: the kernel may have dropped them.

Rule 3b: chunks of files wait until no append does, one in each transaction; but not for more than
`MAX_PASSED` batches.

Rule 4: when the storage fails (full, input/output error), the log is read-only:
the next append is preceded by a probe, and until one succeeds nothing is tried.
"""

from __future__ import annotations

import asyncio
import sqlite3
from asyncio import AbstractEventLoop, Future
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from shutil import disk_usage
from threading import Condition, Thread
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnline.core.json import MAX_BYTES
from turnline.errors import LogUnavailable
from turnline.log.sqlite_file import FORMAT, LogFile, code, reason
from turnline.log.sqlite_work import Work
from turnline.threads import call_in, resolve

MAX_BATCH: Final = 256
"""Works committed together."""
MAX_WAITING: Final = 100_000
"""Works queued behind the batch being written; more are refused."""
MAX_PASSED: Final = 8
"""Batches of appends that are written before a chunk that waits."""

ROOM_BYTES: Final = 2 * MAX_BYTES
"""What a disk that was full has to have free before the log is written again: more than the largest line."""

STORAGE_FAILURES: Final = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
)
SYNC_FAILURES: Final = frozenset({sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC})

Outcome = Exception | None
"""None: it is on the disk."""


class WriterStats(Struct, frozen=True, kw_only=True):
    """What the writer has done since the log was opened."""

    works: int = 0
    """Appends and other writes that were committed."""
    transactions: int = 0
    """Commits that were tried; fewer than `works` when callers share them."""
    largest_batch: int = 0
    waiting: int = 0
    read_only: str = ""
    """Why nothing can be written just now; empty while the storage works."""


class _Ticket(Struct, frozen=True):
    """A work, and who waits for its outcome."""

    work: Work
    loop: AbstractEventLoop
    answer: Future[None]


class Writer:
    """Takes work from any event loop; writes it in its own thread."""

    def __init__(self, file: LogFile, *, committed: Callable[[], None]) -> None:
        self._file = file
        self._committed = committed
        self._connection = file.connect()
        self._waiting: deque[_Ticket] = deque()
        self._later: deque[_Ticket] = deque()
        """What waits until nothing else does."""
        self._passed = 0
        """Batches that were written since something waits there."""
        self._wake = Condition()
        self._closing = False
        self._stats = WriterStats()
        self._thread = Thread(target=self._run, name="turnline-log-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work, *, is_urgent: bool = True) -> Future[None]:
        """Queue `work`; the future is done once its outcome is known. What is not urgent waits longer."""
        loop = asyncio.get_running_loop()
        ticket = _Ticket(work, loop, loop.create_future())
        queue = self._waiting if is_urgent else self._later
        with self._wake:
            if self._closing:
                raise self._unavailable("it has been closed")
            if len(queue) >= MAX_WAITING:
                raise self._unavailable(f"{MAX_WAITING} writes are waiting already")
            queue.append(ticket)
            self._wake.notify()
        return ticket.answer

    def stats(self) -> WriterStats:
        return replace(self._stats, waiting=len(self._waiting))

    def close(self) -> None:
        """Write what is waiting, then stop. Blocks; closing twice is allowed."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._take():
            try:
                with self._file.turnstile.turn(timeout_seconds=self._file.busy_timeout_seconds):
                    outcomes = self._settle(batch)
            except Exception as error:  # Whatever it is, nobody may be left waiting.
                self._roll_back()
                outcomes = [self._unavailable(f"{type(error).__name__}: {error}") for _ in batch]
            _answer(batch, outcomes)
            if None in outcomes:
                self._committed()
        with suppress(sqlite3.Error):
            self._connection.close()

    def _take(self) -> list[_Ticket]:
        """Return what is waiting; nothing once the log is closed and all is written."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._later or self._closing)
            if self._later and (not self._waiting or self._passed >= MAX_PASSED):
                self._passed = 0
                return [self._later.popleft()]
            self._passed += 1 if self._later else 0
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]

    def _settle(self, batch: Sequence[_Ticket]) -> list[Outcome]:
        works = [ticket.work for ticket in batch]
        try:
            if self._stats.read_only:
                self._probe()
            self._connection.execute("BEGIN IMMEDIATE")
            outcomes = [self._try(work) for work in works]
        except sqlite3.Error as error:  # Before COMMIT, so nothing of it can be on the disk.
            self._roll_back()
            self._note(error)
            return [self._unavailable(reason(error)) for _ in works]
        outcomes = self._commit(works, outcomes)
        self._count(outcomes)
        return outcomes

    def _try(self, work: Work) -> Outcome:
        """Do `work`, or undo it and say why. Raises what leaves no hope for the rest of the batch."""
        self._connection.execute("SAVEPOINT work")
        outcome: Outcome = None
        try:
            work.write(self._connection)
        except sqlite3.Error as error:
            if code(error) in STORAGE_FAILURES or not self._connection.in_transaction:
                raise
            outcome = self._unavailable(reason(error))
        except Exception as error:  # A conflict, a duplicate, data that has no JSON: its caller's affair.
            outcome = error
        if outcome is not None:
            self._connection.execute("ROLLBACK TO work")
        self._connection.execute("RELEASE work")
        return outcome

    def _commit(self, works: Sequence[Work], outcomes: list[Outcome]) -> list[Outcome]:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._note(error)
            return self._look_up(works, outcomes, error)
        return outcomes

    def _look_up(
        self, works: Sequence[Work], outcomes: list[Outcome], failure: sqlite3.Error
    ) -> list[Outcome]:
        known = getattr(failure, "sqlite_errorcode", 0) not in SYNC_FAILURES and self._reopen()
        return [
            outcome
            if outcome is not None or (known and self._landed(work))
            else self._unavailable(reason(failure))
            for work, outcome in zip(works, outcomes, strict=True)
        ]

    def _landed(self, work: Work) -> bool:
        try:
            return work.landed(self._connection)
        except sqlite3.Error:
            return False

    def _probe(self) -> None:
        """Write the format number over itself: a commit that changes nothing.

        It needs little room, and the next line perhaps more: a disk that is nearly full is full.
        """
        if disk_usage(self._file.path.parent).free < ROOM_BYTES or not self._reopen():
            raise sqlite3.OperationalError(self._stats.read_only)
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(f"PRAGMA user_version = {FORMAT}")
        self._connection.execute("COMMIT")
        self._stats = replace(self._stats, read_only="")

    def _reopen(self) -> bool:
        # The new one first: a file's last connection takes what readers need along, and a full disk
        # has no room to make it again.
        old = self._connection
        try:
            self._connection = self._file.connect()
        except LogUnavailable:
            self._roll_back()
            return False
        with suppress(sqlite3.Error):
            old.close()
        return True

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):  # SQLite has done it itself after some errors.
            self._connection.execute("ROLLBACK")

    def _note(self, error: sqlite3.Error) -> None:
        if code(error) in STORAGE_FAILURES:
            self._stats = replace(self._stats, read_only=f"nothing can be written: {reason(error)}")

    def _count(self, outcomes: Sequence[Outcome]) -> None:
        self._stats = replace(
            self._stats,
            works=self._stats.works + outcomes.count(None),
            transactions=self._stats.transactions + 1,
            largest_batch=max(self._stats.largest_batch, len(outcomes)),
        )

    def _unavailable(self, because: str) -> LogUnavailable:
        return LogUnavailable(self._file.address, because=because)


def _answer(batch: Sequence[_Ticket], outcomes: Sequence[Outcome]) -> None:
    """Tell every caller in its own loop: one call for each loop, however large the batch."""
    told: defaultdict[AbstractEventLoop, list[tuple[Future[None], Outcome]]] = defaultdict(list)
    for ticket, outcome in zip(batch, outcomes, strict=True):
        told[ticket.loop].append((ticket.answer, outcome))
    for loop, answers in told.items():
        call_in(loop, _resolve, answers)


def _resolve(answers: list[tuple[Future[None], Outcome]]) -> None:
    for answer, outcome in answers:
        resolve(answer, None, outcome)
