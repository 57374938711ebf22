"""Printing to a terminal in colour, and plainly to a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import typer

from turnline.cli.lines import Shown
from turnline.cli.plain import plain


def show(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print columns; nothing if there are no rows."""
    every = list(rows)
    if not every:
        return
    widths = [max(map(len, column)) for column in zip(head, *every, strict=True)]
    for row in (head, *every):
        typer.echo("  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip())


def paragraph(text: str) -> None:
    """Print lines that hold strangers' text."""
    for line in text.splitlines():
        typer.echo(plain(line))


def say(one: Shown) -> None:
    """Print a channel's line; the speaker in its colour where somebody looks."""
    if not sys.stdout.isatty():
        typer.echo(str(one))
        return
    from rich.console import Console  # noqa: PLC0415  A pipe does without it.
    from rich.text import Text  # noqa: PLC0415

    then = f"  {one.then}" if one.then else ""
    parts = ((f"{one.head} ", "dim"), (one.speaker, f"bold {one.colour}".strip()), one.text, (then, "dim"))
    Console(highlight=False).print(Text.assemble(*parts), soft_wrap=True)
