"""Options that several verbs have, and how a verb that waits is run. Light: `--help` imports it."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C."""
T = TypeVar("T")

LogAddress = Annotated[
    str | None,
    typer.Option(
        "--log", help="The log's address. Without it, what turnline.yaml says, or DIR/.turnline/log.db."
    ),
]
Folder = Annotated[Path, typer.Option("--dir", metavar="DIR", help="The project's folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Since = Annotated[int, typer.Option(metavar="SEQ", help="Only what stands behind this line.", min=0)]
Every = Annotated[bool, typer.Option("--all", help="Also claims and other lines of the machinery.")]
FIELD: Final = "A field of the {}, read as its type: n=3, sure=yes. n:=3 is JSON, whatever the type."
Reason = Annotated[str, typer.Option(help="A code that stays on the log.")]
Compact = Annotated[
    bool,
    typer.Option(
        "--compact",
        help="Also remove the bytes from the files. On PostgreSQL nobody can use the log meanwhile.",
    ),
]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="The file; else standard output.")]


def waited_for(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` comes to."""
    import asyncio  # noqa: PLC0415  A fifth of a second that `--help` does not need.

    return asyncio.run(work)


def run(work: Coroutine[Any, Any, int | None]) -> None:
    """Do what a verb does; end with the exit code it gives."""
    try:
        code = waited_for(work)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code:
        raise typer.Exit(code)
