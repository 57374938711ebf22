"""Options that several verbs have, and how a verb that waits is run. Light: `--help` imports it."""

from __future__ import annotations

import re
from collections.abc import Coroutine
from datetime import timedelta
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
Output = Annotated[Path | None, typer.Option("-o", "--output", help="The file; else standard output.")]


_AGE: Final = re.compile(r"(\d{1,6})([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_age(text: str, option: str) -> timedelta:
    """Return a duration such as `90d`. Raises `BadParameter` for any other text, and for zero."""
    found = _AGE.fullmatch(text.strip())
    age = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else timedelta()
    if not age:
        raise typer.BadParameter(
            f"found {text!r}, expected a duration such as 90d, 12h or 4w", param_hint=option
        )
    return age


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
