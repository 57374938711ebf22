"""Commits to a `SqliteLog`'s file: in the event loop while the disk is quick, else in one thread.

    take what is waiting -> BEGIN IMMEDIATE -> each work in a savepoint -> COMMIT -> answer

Rule 1: an answer goes out only after COMMIT has returned.

Rule 2: a batch closes when no more work waits or at `MAX_BATCH`, never on a timer:
a lone append waits for no other, and many share one sync.

Rule 3: an error from COMMIT means *unknown*. The connection is opened again and
each work is looked up. A failed sync is never repeated and never answered as a
success, even if the lines can be read: the kernel may have dropped them.

Rule 3b: chunks of files wait until no append does, one in each transaction; but not for more than
`MAX_PASSED` batches.

Rule 4: when the storage fails (full, input/output error), the log is read-only:
the next append is preceded by a probe, and until one succeeds nothing is tried.

Rule 5: a change of threads costs more than a quick sync. While commits are quick (`Pace`), the event loop
commits, at the end of its turn, what was submitted in it. It waits for the sync and for nothing else: a file
that another connection writes, a batch over `LOOP_BYTES`, a checkpoint that is due, a chunk and everything
after a fault are left to the thread. So is every commit after a slow one, which stalls the loop once.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from asyncio import AbstractEventLoop, Future
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from shutil import disk_usage
from sqlite3 import Connection
from threading import Condition, Lock, Thread
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnline.core.json import MAX_BYTES
from turnline.errors import LogUnavailable
from turnline.log.sqlite_file import FILE_PAGE_BYTES, FORMAT, LogFile, code, reason
from turnline.log.sqlite_work import Work
from turnline.threads import call_in, resolve

MAX_BATCH: Final = 256
"""Works committed together."""
MAX_WAITING: Final = 100_000
"""Works queued behind the batch being written; more are refused."""
MAX_PASSED: Final = 8
"""Batches of appends that are written before a chunk that waits."""

LOOP_SECONDS: Final = 0.002
"""Commits that take less, on average, are made in the event loop."""
PACE_COMMITS: Final = 8
"""Commits over which the loop averages their time. One that takes as long as so many is a stall: it moves the
next ones to the thread at once."""
QUICK_COMMITS: Final = 32
"""Quick commits of the thread, without a stall between them, after which the loop commits again."""
LOOP_BYTES: Final = 64 * 1024
"""What the loop encodes and commits at most in one batch."""
PAGES_OF_A_WORK: Final = 8
"""About how many pages a small work adds to the -wal file."""

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
    loop_commits: int = 0
    """Those of them that an event loop made itself."""
    largest_batch: int = 0
    waiting: int = 0
    tail_queries: int = 0
    """How often tails have asked the file."""
    read_only: str = ""
    """Why nothing can be written just now; empty while the storage works."""


class _Ticket(Struct, frozen=True):
    """A work, and the caller that waits for its outcome."""

    work: Work
    loop: AbstractEventLoop
    answer: Future[None]


class _Unknown(Struct, frozen=True):
    """Works whose commit failed in the loop: the file may hold them."""

    batch: Sequence[_Ticket]
    outcomes: list[Outcome]
    error: sqlite3.Error


class Pace:
    """Decides by the time of commits whether an event loop may wait for them."""

    def __init__(self, loop_seconds: float = LOOP_SECONDS) -> None:
        """`loop_seconds` is how long commits may take, on average; 0: the loop waits for none."""
        self._limit = loop_seconds
        self._average = 0.0
        self._quick = 0
        """Quick commits since the loop stopped committing, or since the last stall."""
        self.is_quick = loop_seconds > 0

    def note(self, seconds: float) -> None:
        """Note how long a commit took."""
        if self.is_quick:
            self._average += (seconds - self._average) / PACE_COMMITS
            self.is_quick = self._average <= self._limit
            self._quick = 0
        else:
            # The thread may get the interpreter late when its sync is over: a commit that seems neither
            # quick nor stalled says nothing about the disk.
            is_stall = seconds > self._limit * PACE_COMMITS
            self._quick = 0 if is_stall else self._quick + (seconds < self._limit / 2)
            self.is_quick = self._quick >= QUICK_COMMITS
            self._average = 0.0


class Writer:
    """Takes work from any event loop; writes it there or in its own thread."""

    def __init__(
        self,
        file: LogFile,
        *,
        committed: Callable[[Sequence[Work]], None],
        loop_seconds: float = LOOP_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`committed` gets the works of each commit, in the thread that has made it."""
        self._file = file
        self._committed = committed
        self._monotonic = monotonic
        self._pace = Pace(loop_seconds)
        self._connection = file.connect()
        self._waiting: deque[_Ticket] = deque()
        self._later: deque[_Ticket] = deque()
        """What waits until nothing else does."""
        self._passed = 0
        """Batches that were written since something waits there."""
        self._unknown: deque[_Unknown] = deque()
        self._wake = Condition()
        self._in_loop = Lock()
        """Held while the loop commits."""
        self._is_working = False
        """Whether the thread has a batch that it has not answered, or is about to take one."""
        self._closing = False
        self._stats = WriterStats()
        self._home: AbstractEventLoop | None = None
        """The loop that commits by itself: the first one that is still open."""
        self._is_scheduled = False
        """Whether that loop will commit what waits, at the end of its turn."""
        self._loop_connection: Connection | None = None
        """The loop's own connection: it waits for no lock, and makes no checkpoint."""
        self._pages = 0
        """About how many pages the loop has added to the -wal file since the thread committed last."""
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
            self._begin(loop)
        return ticket.answer

    def _begin(self, loop: AbstractEventLoop) -> None:
        """Have what waits committed: by `loop`, at the end of its turn, or by the thread."""
        if self._later or not self._is_for(loop):
            self._wake.notify()
        elif not self._is_scheduled:
            loop.call_soon(self._commit_in_loop)
            self._is_scheduled = True

    def _is_for(self, loop: AbstractEventLoop) -> bool:
        """Return whether `loop` commits what is submitted in it."""
        if self._home is None or self._home.is_closed():
            self._home, self._is_scheduled = loop, False
        if loop is not self._home or self._is_working or not self._pace.is_quick:
            return False
        return not self._stats.read_only and self._pages < self._file.checkpoint_pages

    def stats(self) -> WriterStats:
        return replace(self._stats, waiting=len(self._waiting))

    def close(self) -> None:
        """Write what is waiting, then stop. Blocks; closing twice is allowed."""
        with self._in_loop, self._wake:
            self._closing = True
            self._drop_loop_connection()  # The last connection tidies up: it is the thread's.
            self._wake.notify()
        self._thread.join()

    # In the thread.

    def _run(self) -> None:
        while self._wait():
            self._settle_unknown()
            if batch := self._take():
                outcomes = self._settle_safely(batch)
                with self._wake:  # Before the answer: what follows it may be the loop's again.
                    self._is_working = self._has_work
                self._answer(batch, outcomes)
        with suppress(sqlite3.Error):
            self._connection.close()

    def _wait(self) -> bool:
        """Wait for work. Return False once the log is closed and all is written."""
        with self._wake:
            self._is_working = False
            self._wake.wait_for(lambda: self._has_work or self._closing)
            self._is_working = self._has_work
            return self._is_working

    @property
    def _has_work(self) -> bool:
        return bool(self._waiting or self._later or self._unknown)

    def _take(self) -> list[_Ticket]:
        """Return what the thread commits next."""
        with self._wake:
            if self._later and (not self._waiting or self._passed >= MAX_PASSED):
                self._passed = 0
                return [self._later.popleft()]
            self._passed += 1 if self._later else 0
            return self._take_waiting()

    def _take_waiting(self) -> list[_Ticket]:
        return [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]

    def _settle_unknown(self) -> None:
        """Look up what the loop committed without learning the outcome."""
        while self._unknown:
            found = self._unknown.popleft()
            self._note(found.error)
            works = [ticket.work for ticket in found.batch]
            self._answer(found.batch, self._look_up(works, found.outcomes, found.error))

    def _settle_safely(self, batch: Sequence[_Ticket]) -> list[Outcome]:
        try:
            with self._file.turnstile.turn(timeout_seconds=self._file.busy_timeout_seconds):
                return self._settle([ticket.work for ticket in batch])
        except Exception as error:  # Whatever it is, no caller may be left waiting.
            _roll_back(self._connection)
            return [self._unavailable(f"{type(error).__name__}: {error}") for _ in batch]

    def _settle(self, works: Sequence[Work]) -> list[Outcome]:
        try:
            if self._stats.read_only:
                self._probe()
            outcomes = self._write(self._connection, works)
        except sqlite3.Error as error:
            return self._refuse(self._connection, works, error)
        is_due = self._pages >= self._file.checkpoint_pages
        self._pages = 0
        try:
            self._commit(self._connection, outcomes, is_measured=not is_due)
        except sqlite3.Error as error:
            self._note(error)
            outcomes = self._look_up(works, outcomes, error)
        self._count(outcomes)
        return outcomes

    # In the loop.

    def _commit_in_loop(self) -> None:
        """Commit what waits, or leave it to the thread."""
        with self._in_loop:
            with self._wake:
                self._is_scheduled = False
                batch = [] if self._is_working or self._closing else self._take_waiting()
            outcomes = self._settle_in_loop(batch) if batch else None
        if outcomes is not None:
            self._answer(batch, outcomes)
        with self._wake:
            if self._waiting and not self._is_working:
                self._begin(asyncio.get_running_loop())

    def _settle_in_loop(self, batch: Sequence[_Ticket]) -> list[Outcome] | None:
        """Return what became of the works; None if the thread has to say it."""
        works = [ticket.work for ticket in batch]
        size = sum(work.size for work in works)
        if size > LOOP_BYTES or self._file.turnstile.is_taken:
            return self._leave_to_thread(batch)
        try:
            connection = self._connect_loop()
            outcomes = self._write(connection, works)
        except LogUnavailable:
            return self._leave_to_thread(batch)
        except sqlite3.Error as error:
            if code(error) == sqlite3.SQLITE_BUSY:  # Another connection writes. The thread may wait.
                return self._leave_to_thread(batch)
            return self._refuse(connection, works, error)
        try:
            self._commit(connection, outcomes)
        except sqlite3.Error as error:
            self._drop_loop_connection()
            return self._leave_to_thread(_Unknown(batch, outcomes, error))
        self._pages += PAGES_OF_A_WORK * len(works) + size // FILE_PAGE_BYTES
        self._count(outcomes)
        self._stats = replace(self._stats, loop_commits=self._stats.loop_commits + 1)
        return outcomes

    def _leave_to_thread(self, left: Sequence[_Ticket] | _Unknown) -> list[Outcome] | None:
        """Queue it for the thread. Return None: the outcomes are not known yet."""
        with self._wake:
            if isinstance(left, _Unknown):
                self._unknown.append(left)
            else:
                self._waiting.extendleft(reversed(left))
            self._is_working = True
            self._wake.notify()
        return None

    def _connect_loop(self) -> Connection:
        if self._loop_connection is None:
            self._loop_connection = self._file.connect_for_loop()
        return self._loop_connection

    def _drop_loop_connection(self) -> None:
        if self._loop_connection is not None:
            with suppress(sqlite3.Error):
                self._loop_connection.close()
        self._loop_connection = None

    # In both.

    def _write(self, connection: Connection, works: Sequence[Work]) -> list[Outcome]:
        """Begin a transaction and do each work, or undo it and say why. Raises `sqlite3.Error`.

        Undoing the only work of a batch is undoing the transaction: that takes no savepoint.
        """
        connection.execute("BEGIN IMMEDIATE")
        if len(works) == 1:
            return [self._try(connection, works[0])]
        return [self._try_alone(connection, work) for work in works]

    def _try_alone(self, connection: Connection, work: Work) -> Outcome:
        connection.execute("SAVEPOINT work")
        outcome = self._try(connection, work)
        if outcome is not None:
            connection.execute("ROLLBACK TO work")
        connection.execute("RELEASE work")
        return outcome

    def _try(self, connection: Connection, work: Work) -> Outcome:
        """Do `work`, or say why it has to be undone. Raises what leaves no hope for the rest of the batch."""
        try:
            work.write(connection)
        except sqlite3.Error as error:
            if code(error) in STORAGE_FAILURES or not connection.in_transaction:
                raise
            return self._unavailable(reason(error))
        except Exception as error:  # A conflict, a duplicate, data that has no JSON: its caller's affair.
            return error
        return None

    def _refuse(self, connection: Connection, works: Sequence[Work], error: sqlite3.Error) -> list[Outcome]:
        """Undo the transaction. It was not committed, so nothing of it can be on the disk."""
        _roll_back(connection)
        self._note(error)
        return [self._unavailable(reason(error)) for _ in works]

    def _commit(
        self, connection: Connection, outcomes: Sequence[Outcome], *, is_measured: bool = True
    ) -> None:
        if None not in outcomes:
            _roll_back(connection)
            return
        began = self._monotonic()
        connection.execute("COMMIT")
        if is_measured:
            self._pace.note(self._monotonic() - began)

    def _answer(self, batch: Sequence[_Ticket], outcomes: Sequence[Outcome]) -> None:
        """Answer every caller in its own loop: one call for each loop, however large the batch."""
        answers: defaultdict[AbstractEventLoop, list[tuple[Future[None], Outcome]]] = defaultdict(list)
        for ticket, outcome in zip(batch, outcomes, strict=True):
            answers[ticket.loop].append((ticket.answer, outcome))
        for loop, found in answers.items():
            call_in(loop, _resolve, found)
        done = [ticket.work for ticket, outcome in zip(batch, outcomes, strict=True) if outcome is None]
        if done:
            self._committed(done)

    # After a fault.

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
            _roll_back(self._connection)
            return False
        with suppress(sqlite3.Error):
            old.close()
        return True

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


def _roll_back(connection: Connection) -> None:
    with suppress(sqlite3.Error):  # SQLite has done it itself after some errors.
        connection.execute("ROLLBACK")


def _resolve(answers: list[tuple[Future[None], Outcome]]) -> None:
    for answer, outcome in answers:
        resolve(answer, None, outcome)
