"""Options that several verbs have, and how a verb that waits is run. Light: `--help` imports it."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Final

import typer

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C."""

LogAddress = Annotated[
    str | None,
    typer.Option(
        "--log", help="The log's address. Without it, what turnwise.yaml says, or DIR/.turnwise/log.db."
    ),
]
Folder = Annotated[Path, typer.Option("--dir", metavar="DIR", help="The project's folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Since = Annotated[int, typer.Option(metavar="SEQ", help="Only what stands behind this line.", min=0)]
Every = Annotated[bool, typer.Option("--all", help="Also claims and other lines of the machinery.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="The file; else standard output.")]


def run(work: Coroutine[Any, Any, int | None]) -> None:
    """Do what a verb does; end with the exit code it gives."""
    import asyncio  # noqa: PLC0415  A verb costs its imports when it is called.

    try:
        code = asyncio.run(work)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code:
        raise typer.Exit(code)
