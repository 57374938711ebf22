"""A cursor of psycopg that takes one statement at a time, and tells errors without anybody's data.

The driver sends a text without parameters as it stands, so `SELECT 1; COMMIT` would commit. The
server itself refuses two statements in one that is to be prepared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from psycopg import AsyncCursor, Error

from turnline.flow.data.postgres_errors import clean


class OneStatementCursor(AsyncCursor[Any]):
    """What the connections of a step are used by."""

    async def execute(
        self, query: Any, params: Any = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Self:
        is_several = not params and ";" in str(query).rstrip("; \n\t")
        try:
            return await super().execute(query, params, prepare=is_several or prepare, binary=binary)
        except Error as error:
            clean(error)
            raise

    async def executemany(self, query: Any, params_seq: Iterable[Any], *, returning: bool = False) -> None:
        try:
            await super().executemany(query, params_seq, returning=returning)
        except Error as error:
            clean(error)
            raise
