"""What verbs that look at a log share: opening it, telling how far they are, and the exit codes.

0   good
1   something is wrong with what was looked at
2   it could not be looked at
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnline.errors import LogUnavailable, MissingExtra, UnknownName

if TYPE_CHECKING:
    from turnline.log.records import Records

BAD: Final = 1
COULD_NOT_LOOK: Final = 2
TELL_EVERY_SECONDS: Final = 0.5

Address = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS", help="The log: sqlite:///path, a path that ends in .db, postgresql://, nats://."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@asynccontextmanager
async def looking_at(address: str) -> AsyncIterator[Records]:
    from turnline.log.records import open_records  # noqa: PLC0415  A verb costs its imports when it is called.

    records = await open_records(address)
    try:
        yield records
    finally:
        await records.close()


@contextmanager
def could_not_look() -> Iterator[None]:
    """Turn what keeps a verb from looking into the exit code that says so."""
    try:
        yield
    except (LogUnavailable, UnknownName, MissingExtra) as error:
        typer.echo(f"turnline: {error}", err=True)
        raise typer.Exit(COULD_NOT_LOOK) from None


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Turn a package that is missing into the name of the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("turnline"):
            raise
        raise MissingExtra("projects", extra=extra) from None


@contextmanager
def telling(what: str) -> Iterator[Callable[[int, int], None]]:
    """Give what tells how far the work is, on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda channels, records: None
        return
    told = time.monotonic()

    def tell(channels: int, records: int) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_EVERY_SECONDS:
            told = time.monotonic()
            sys.stderr.write(f"\r{what}: {channels} channels, {records} records")
            sys.stderr.flush()

    try:
        yield tell
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
