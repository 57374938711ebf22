"""`ctx["_once"]`: run a function of a node once, and commit its rows with the record of its result (N4).

    charge = await ctx["_once"]("charge", pay)        in an async node
    charge = ctx["_once"]("charge", pay)              in a sync node, and in any thread

Rule 1: a function that uses the database gets a unit of work of its own, and the record is written inside its
transaction. After a crash either both are there or neither.

Rule 2: inside of the function every `_db` is that unit's, also one that the node took out of `ctx` before. A
`_session` that was taken before is refused: its rows would land with the packet.

Rule 3: where the data models are not in the log's database, such a function is refused when it asks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from turnline.errors import OnceRefused
from turnline.flow.work import UnitOfWork
from turnline.threads import call_user
from turnline.turns.journal import TurnJournal

_inside: Final[ContextVar[OnceRows | None]] = ContextVar("once_rows", default=None)
"""The rows of the function that this task or thread works on."""


class OnceRows:
    """The database work of one function that `once` runs."""

    def __init__(self, key: str, begin: Callable[[], UnitOfWork], shares_log: Callable[[], bool]) -> None:
        self._key = key
        self._begin = begin
        self._shares_log = shares_log
        self.unit: UnitOfWork | None = None

    def open_unit(self) -> UnitOfWork:
        """Return the function's unit of work. Raises `NoDatabase`, and `OnceRefused` (rule 3)."""
        if self.unit is None:
            unit = self._begin()
            if not self._shares_log():
                found = "the function uses a database that is not the log's; expected one for both"
                do = "Let `database:` in turnline.yaml name the log's, or write the rows outside of `once`."
                raise OnceRefused(self._key, found=found, do=do)
            self.unit = unit
        return self.unit

    def check_session(self, session: object) -> None:
        """Refuse a session that is not the function's own (rule 2)."""
        if self.unit is None or self.unit.session.sync_session is not session:
            found = "the function uses a session that was taken outside of it; expected its own"
            raise OnceRefused(self._key, found=found, do='Take ctx["_session"] inside of the function.')


def rows_inside() -> OnceRows | None:
    """Return the rows of the function that `once` runs here; None outside of one."""
    return _inside.get()


async def run_once(
    journal: TurnJournal,
    key: str,
    fn: Callable[[], Any],
    *,
    rows: OnceRows,
    outer: Callable[[], UnitOfWork | None],
) -> Any:
    """See `TurnJournal.once`. `outer` gives the database work of the code that calls `once`."""

    async def run() -> Any:
        _check_unheld(key, outer())
        token = _inside.set(rows)
        try:
            return await call_user(fn)
        finally:
            _inside.reset(token)

    try:
        return await journal.once(key, run, joined=lambda: rows.unit)
    finally:
        if rows.unit is not None:
            await rows.unit.close()


def _check_unheld(key: str, unit: UnitOfWork | None) -> None:
    """Refuse a `once` that could not be recorded, because the step itself keeps the database locked."""
    if unit is not None and unit.holds_database:
        found = "the step has sent rows to the database, which is locked until its packet; expected none yet"
        raise OnceRefused(
            key, found=found, do="Call `once` before you flush or execute, or write inside of it."
        )
