"""A step's hold on the database: from its first write until it has ended.

    begun -> commit, or nothing -> ended

What a hold has to see to is another matter on every database (`sqlite_hold`, `postgres_hold`); that
nothing of a step lands alone, nor is taken for landed when it is gone, is the same on all.
"""

from __future__ import annotations

from typing import Final, Protocol

from sqlalchemy import Connection

from turnline.log.joined import Write

OPTION: Final = "turnline_hold"
"""The execution option by which a connection knows whose it is."""
READS: Final = "turnline_reads"
"""The execution option of a statement that is known to read only."""
UNDONE: Final = "after an error the database itself has undone it"


class Hold(Protocol):
    """One step's. Its methods that take a connection are called where SQLAlchemy may wait."""

    begun: bool
    """Whether there may be something to commit."""
    undone: str
    """Why everything the step wrote is gone, and nothing more can be written; empty if it is not."""
    lost: str
    """Why the database cannot be asked any more; empty if it can. Nothing is wrong with the step then."""

    @property
    def keeps_others_out(self) -> bool:
        """Whether nobody else can write until it has ended."""
        ...

    @property
    def is_spoiled(self) -> bool:
        """Whether the connection has to be closed, to be sure that nothing of the step is left on it."""
        ...

    def commit(self, connection: Connection, write: Write) -> None:
        """Commit everything, and what `write` does. An error from COMMIT means *unknown*."""
        ...

    def ended(self) -> None:
        """Let the next one have it: the transaction has ended. There may be another one."""
        ...

    async def end(self) -> None:
        """The same, and wait until nothing of it is left."""
        ...
