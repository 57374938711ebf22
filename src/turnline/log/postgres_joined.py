"""An append of a `PostgresLog` inside somebody else's transaction (F7).

    rows of theirs -> SAVEPOINT -> turnline_append -> COMMIT      all on their connection

Rule 1: between the append and its COMMIT the transaction holds the channel, and tails wait for it.
That is one round trip; a client that is paused there is ended by the server after `IDLE_SECONDS`.
The rows are sent before, so nobody waits for the log while a step thinks.

Rule 2: what the log promises of a commit is not the step's to change: `synchronous_commit` is what
the connection began with.

Rule 3: a COMMIT without an answer means *unknown*, and it may still be under way. So whoever looks
whether it has landed first takes the channel as an append does, and thereby waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.errors import LogError
from turnline.log.base import Blob
from turnline.log.joined import Statements
from turnline.log.postgres_reader import DELETE_BLOB
from turnline.log.postgres_schema import APPEND
from turnline.log.postgres_server import PostgresServer
from turnline.log.postgres_work import Again, Answer, Append, Ends, parameters

IDLE_SECONDS: Final = 10
ATTEMPTS: Final = 3
"""The hash that a channel ends with is asked for at most once; one to spare."""

PREPARE: Final = ("SELECT set_config('default_transaction_isolation', 'read committed', false)",)
"""What a connection begins with on which an append can be made."""
_PROMISES: Final = (
    "SET LOCAL synchronous_commit TO DEFAULT",
    f"SET LOCAL idle_in_transaction_session_timeout TO '{IDLE_SECONDS}s'",
)
_LANDED: Final = "SELECT hash FROM turnline_records WHERE channel = %s AND seq = %s AND envelope_id = %s"

_FORGET_ROW: Final = "UPDATE turnline_heads SET created = NULL, row = NULL WHERE channel = %s"
"""The next row is written as a first one is, with its labels."""
_ERASE: Final = "UPDATE turnline_records SET payload = NULL WHERE channel = %s AND seq BETWEEN %s AND %s"
COMPACTED: Final = ("records", "heads", "tags", "snapshots", "blobs", "chunks")
"""Tables in which something of a line's content is kept."""


class JoinedAppend:
    """One append, written by the connection of somebody's transaction."""

    def __init__(
        self,
        channel_id: str,
        envelopes: Sequence[Envelope],
        *,
        after: int,
        row: ChannelRow | None,
        ends: Ends,
    ) -> None:
        nobody = asyncio.get_running_loop().create_future()
        self._work = Append(channel_id, envelopes, after=after, row=row, answer=nobody)
        self._ends = ends
        self._work.seal(ends.hash_at(channel_id, after))

    def write(self, connection: Statements) -> None:
        """Append, and do not commit. Raises a `LogError` that says why not."""
        for statement in _PROMISES:
            connection.execute(statement)
        for _ in range(ATTEMPTS):
            answer = Answer(*connection.execute(APPEND, parameters([self._work])).fetchone())
            if answer.outcome == "written":
                return
            refusal = self._work.refusal(answer)
            if refusal is not Again:
                raise refusal
            self._work.seal(answer.hash)
        raise LogError(f"the end of channel {self._work.channel_id!r} could not be made out")

    def erase(self, connection: Statements, lines: Sequence[tuple[int, int]], blobs: Sequence[Blob]) -> None:
        """Append the line that says what is erased, and delete the content of those lines (Y2)."""
        channel_id = self._work.channel_id
        connection.execute(_FORGET_ROW, (channel_id,))
        self.write(connection)
        for first, last in lines:
            connection.execute(_ERASE, (channel_id, first, last))
        connection.execute("DELETE FROM turnline_snapshots WHERE channel = %s", (channel_id,))
        for blob in blobs:
            connection.execute(DELETE_BLOB, (blob.root, blob.blob_id))

    def replace(self, connection: Statements) -> None:
        """Write the channel again in the place of what it has (Y5)."""
        for table in ("records", "heads", "snapshots"):
            connection.execute(f"DELETE FROM turnline_{table} WHERE channel = %s", (self._work.channel_id,))
        if self._work.envelopes:
            self.write(connection)

    def committed(self) -> None:
        """Take note of the channel's new end."""
        last = self._work.sent[-1]
        self._ends.keep(self._work.channel_id, last.seq, last.hash)

    async def landed(self, server: PostgresServer) -> bool:
        """Whether it is there, after a COMMIT whose answer was lost. Raises what `connection` raises."""
        work = self._work
        if not work.sent:
            return False
        last = work.sent[-1]
        asking = Append(work.channel_id, work.envelopes, after=work.after, answer=asyncio.Future())
        async with server.connection() as connection:
            await connection.execute(APPEND, parameters([asking]))
            cursor = await connection.execute(_LANDED, (work.channel_id, last.seq, last.envelope_id))
            return await cursor.fetchone() == (last.hash,)
