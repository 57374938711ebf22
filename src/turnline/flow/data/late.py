"""The database of a project without data models: opened when a step first asks for it.

A node may use `ctx["_session"]` in any flow, and most never do. Importing SQLAlchemy takes half a
second, so that a project that does not use it does not pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING
from uuid import uuid4

from turnline.flow.definition.flow import ModelUse
from turnline.flow.work import UnitOfWork
from turnline.hub.timers import Clock, SystemClock
from turnline.log.base import Log

if TYPE_CHECKING:
    from turnline.flow.data.database import Database


class LateData:
    """See `turnline.flow.work.Data`. It knows no data model."""

    def __init__(self, log: Log, *, url: str | None = None, clock: Clock | None = None) -> None:
        self._log = log
        self._url = url
        self._clock = clock or SystemClock()
        self._lock = Lock()
        """Nodes that are plain functions run in threads."""
        self._database: Database | None = None

    @property
    def shares_log(self) -> bool:
        return self._opened().shares_log

    @property
    def is_open(self) -> bool:
        return self._database is not None

    def begin(self, declared: Sequence[ModelUse], versions: Mapping[str, str]) -> UnitOfWork:
        """See `Data.begin`. Raises `NoDatabase` if there is nowhere to keep anything."""
        return self._opened().begin(declared, versions)

    async def close(self) -> None:
        if self._database is not None:
            await self._database.close()

    def _opened(self) -> Database:
        with self._lock:
            if self._database is None:
                # The point of this class: see the module.
                from turnline.flow.data.database import Database  # noqa: PLC0415
                from turnline.flow.data.home import find_home  # noqa: PLC0415
                from turnline.flow.data.mapped import Sources  # noqa: PLC0415
                from turnline.flow.data.tables import build  # noqa: PLC0415

                sources = Sources(now=self._clock.now, new_id=lambda: str(uuid4()))
                self._database = Database(find_home(self._log, self._url), build({}, sources), self._clock)
            return self._database
