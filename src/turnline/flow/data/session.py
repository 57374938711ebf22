"""A step's session: SQLAlchemy's, except that it ends with its step.

Inside of a function that `once` runs, only that function's own session is used (N4).

`commit` is refused rather than made a flush: whoever calls it goes on as if the rows were
there for good, and they are not before the packet is. `close` does nothing: the step's rows
would be gone, and its packet would still land.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, SessionTransaction

from turnline.errors import CommitRefused
from turnline.flow.data.hold import OPTION, Hold
from turnline.flow.once import rows_inside

_HOLD: Final = "hold"


class StepSession(AsyncSession):
    """`ctx["_session"]`. Use it as any `AsyncSession`: `execute`, `add`, `flush`, `begin_nested`, ..."""

    async def commit(self) -> None:
        raise CommitRefused("a step called commit")

    async def close(self) -> None:
        """Do nothing: the session ends with its step."""

    async def aclose(self) -> None:
        """Do nothing: the session ends with its step."""

    @property
    def has_staged(self) -> bool:
        """Whether there is anything that was not sent to the database yet."""
        return bool(self.new or self.dirty or self.deleted)

    async def end(self) -> None:
        """Let go of everything. What is not committed is undone."""
        await super().close()


class _BlockingSession(Session):
    """What is behind a `StepSession`."""

    def add(self, *args: Any, **kwargs: Any) -> None:
        _check_own(self)
        super().add(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> None:
        _check_own(self)
        super().delete(*args, **kwargs)

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        _check_own(self)
        return super().execute(*args, **kwargs)


def _check_own(session: Session) -> None:
    rows = rows_inside()
    if rows is not None:
        rows.check_session(session)


def open_session(engine: AsyncEngine, hold: Hold) -> StepSession:
    """Return a session that takes a connection when it needs one."""
    return StepSession(
        engine.execution_options(**{OPTION: hold}),
        sync_session_class=_BlockingSession,
        expire_on_commit=False,
        close_resets_only=False,
        info={_HOLD: hold},
    )


@event.listens_for(_BlockingSession, "before_commit")
def _refuse_commit(session: Session) -> None:
    if not session.in_nested_transaction():
        raise CommitRefused("a step's session was to be committed")


@event.listens_for(_BlockingSession, "after_transaction_end")
def _let_go(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        session.info[_HOLD].ended()
