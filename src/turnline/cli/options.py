"""Options that several verbs have, and how a verb that waits is run. Light: `--help` imports it."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from inspect import Parameter, Signature, signature
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
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without it, they are only listed.")]


def _option(name: str, kind: Any, default: Any = None, **more: Any) -> Parameter:
    annotation = Annotated[kind, typer.Option(f"--{name}", **more)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_LIST_OPTIONS: Final = (
    _option(
        "since",
        str | None,
        metavar="TIME",
        help="Only those created since 2026-01-31, or 24h (24 hours ago).",
    ),
    _option("until", str | None, metavar="TIME", help="Only those created before; as --since."),
    _option(
        "label", list[str] | None, metavar="KEY=VALUE", help="Only those with this label; may be repeated."
    ),
    _option("participant", str | None, metavar="NAME", help="Only those of this participant."),
    _option("flow", str | None, metavar="NAME", help="Only those of this flow."),
    _option("limit", int, 50, help="How many, the newest.", min=1, max=10_000),
    _option("after", str | None, metavar="NEXT", help="The page after another: its `next`."),
)
"""What every list of channels is filtered by, beside its status."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a list is asked for, as it was typed."""

    status: str | None = None
    since: str | None = None
    until: str | None = None
    label: list[str] | None = None
    participant: str | None = None
    flow: str | None = None
    limit: int = 50
    after: str | None = None


def takes_list(
    statuses: type[StrEnum], help: str = "Only those of this status."
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb the options of a list, of these statuses, in the place of its parameter `asked`."""
    listed = (_option("status", statuses | None, help=help), *_LIST_OPTIONS)

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        own = [one for one in signature(verb, eval_str=True).parameters.values() if one.name != "asked"]
        first = [one for one in own if one.kind is not Parameter.KEYWORD_ONLY]
        parameters = [*first, *listed, *(one for one in own if one not in first)]

        def call(**given: Any) -> None:
            asked = Asked(**{one.name: given.pop(one.name) for one in listed})
            verb(asked=asked, **given)

        call.__name__, call.__doc__ = verb.__name__, verb.__doc__
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return call

    return decorate


_AGE: Final = re.compile(r"(\d{1,6})([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_age(text: str, option: str, *, more: str = "") -> timedelta:
    """Return a duration such as `90d`. Raises `BadParameter` for any other text, and for zero."""
    found = _AGE.fullmatch(text.strip())
    age = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else timedelta()
    if not age:
        raise typer.BadParameter(
            f"found {text!r}, expected a duration such as 90d, 12h or 4w{more}", param_hint=option
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
