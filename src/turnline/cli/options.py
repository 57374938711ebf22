"""Options that several verbs have, and how a verb that waits is run. Light: `--help` imports it."""

from __future__ import annotations

import re
from collections.abc import Coroutine
from dataclasses import dataclass
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
CreatedSince = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Only those created since 2026-01-31, or 24h (24 hours ago)."
    ),
]
CreatedUntil = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Only those created before; as --since.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="Only those with this label; may be repeated."),
]
OfParticipant = Annotated[
    str | None, typer.Option("--participant", metavar="NAME", help="Only those of this participant.")
]
OfFlow = Annotated[str | None, typer.Option("--flow", metavar="NAME", help="Only those of this flow.")]
Limit = Annotated[int, typer.Option("--limit", help="How many, the newest.", min=1, max=10_000)]
After = Annotated[
    str | None, typer.Option("--after", metavar="NEXT", help="The page after another: its `next`.")
]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a list is asked for, as it was typed."""

    status: str | None = None
    since: str | None = None
    until: str | None = None
    labels: list[str] | None = None
    participant: str | None = None
    flow: str | None = None
    limit: int = 50
    after: str | None = None


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
