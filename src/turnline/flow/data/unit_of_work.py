"""A step's unit of work: its session, its repositories, and the one commit at its end (F7, F12).

Rule 1: nothing lands but by `commit_with` (together with the step's packet) or, where the
log is kept elsewhere, by `commit_alone`. Whatever else happens, everything is undone.

Rule 2: no connection is taken before it is needed, and one that was only read from is given
back at once. Repositories stage, so the database is normally held for the commit alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress

from sqlalchemy.exc import DBAPIError, PendingRollbackError, SQLAlchemyError, TimeoutError as NoneFree
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import SessionTransactionOrigin

from turnline.errors import CommitRefused, DataUnavailable, LogError, WriteRefused
from turnline.flow.data.hold import Hold
from turnline.flow.data.home import Home
from turnline.flow.data.mapped import MappedModel
from turnline.flow.data.repository import Repositories
from turnline.flow.data.session import open_session
from turnline.log.joined import Write


class SqlUnitOfWork:
    """See `turnline.flow.work.UnitOfWork` and `turnline.log.joined.Transaction`."""

    def __init__(
        self, engine: AsyncEngine, models: Mapping[str, MappedModel], hold: Hold, home: Home
    ) -> None:
        self.session = open_session(engine, hold)
        self.db = Repositories(models, self)
        self._hold = hold
        self._home = home
        self._ended = False
        self._lock = asyncio.Lock()
        """One thing at a time: a session cannot do two."""

    @property
    def has_writes(self) -> bool:
        # A session that failed has lost what was staged, and must not land as if there had been nothing.
        return not self._ended and (
            self._hold.begun
            or bool(self._hold.undone)
            or self.session.has_staged
            or not self.session.is_active
        )

    @property
    def holds_database(self) -> bool:
        return self._hold.keeps_others_out

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """While a repository uses the session. A connection that was only read from is given back."""
        async with self._lock:
            try:
                with self._told():
                    yield
            finally:
                if self._is_idle():
                    await self.session.rollback()

    async def flush(self) -> None:
        """Send what is staged to the database. Raises `WriteRefused` for what it does not take."""
        async with self._lock:
            with self._told():
                await self.session.flush()

    async def commit_with(self, write: Write) -> None:
        """See `Transaction.commit_with`."""
        async with self._lock:
            if self._ended:
                raise CommitRefused("a step's transaction was committed or rolled back before")
            try:
                with self._told():
                    await self.session.flush()
                    await (await self.session.connection()).run_sync(self._hold.commit, write)
            except LogError as error:
                if isinstance(error, DataUnavailable):
                    await self._end()
                raise
            except DBAPIError as error:
                await self._end()
                raise driver_error(error) from error
            except BaseException:
                await self._end()
                raise
            await self._end()

    async def commit_alone(self) -> None:
        """Commit where the log is not in the same database. Raises `WriteRefused` and `DataUnavailable`."""
        if not self.has_writes:
            return
        try:
            await self.commit_with(lambda _: None)
        except self._home.errors as error:
            raise self._unavailable(self._home.reason(error)) from error

    async def rollback(self) -> None:
        """See `Transaction.rollback`."""
        async with self._lock:
            await self._end()

    async def close(self) -> None:
        """Let go of everything, also if whoever asks is cancelled meanwhile."""
        await asyncio.shield(asyncio.ensure_future(self.rollback()))

    async def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        with suppress(SQLAlchemyError, DataUnavailable, *self._home.errors):
            if self._hold.is_spoiled:
                # Whatever has become of its transaction, closing a connection undoes it.
                await self.session.invalidate()
        with suppress(SQLAlchemyError, DataUnavailable, *self._home.errors):
            await self.session.end()
        await self._hold.end()

    def _is_idle(self) -> bool:
        """Whether nothing would be lost by giving the connection back."""
        session = self.session.sync_session
        transaction = session.get_transaction()
        return (
            transaction is not None
            and transaction.origin is SessionTransactionOrigin.AUTOBEGIN
            and not self.has_writes
            and not len(session.identity_map)
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tell what the database refuses as `WriteRefused`: its reason, without anybody's data."""
        if self._hold.lost:
            raise self._unavailable(self._hold.lost)
        raised: tuple[type[Exception], ...] = (DBAPIError, *self._home.errors)
        try:
            yield
        except raised as error:  # The driver's own from COMMIT itself.
            refusal = self._home.refusal(driver_error(error))
            if refusal is None:
                raise
            raise WriteRefused(refusal) from error
        except PendingRollbackError as error:
            raise WriteRefused("an earlier write of the step failed") from error
        except NoneFree as error:
            raise self._unavailable("so many steps use it that no connection was free in time") from error

    def _unavailable(self, because: str) -> DataUnavailable:
        return DataUnavailable(self._home.address, because=because)


def driver_error(error: Exception) -> BaseException:
    """The error of the driver behind SQLAlchemy's."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
