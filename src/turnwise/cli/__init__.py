"""The command line: one module a verb. Verbs are imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnwise import __version__
from turnwise.errors import TurnwiseError

app = typer.Typer(
    name="turnwise",
    help="Multi-agent workflows that survive anything: every turn is a line on one log.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"turnwise {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
]


@app.callback()
def _root(version: Version = False) -> None:
    """Options that go before the verb."""


@app.command(epilog="Example: turnwise demo --log /tmp/demo.db")
def demo(
    log: Annotated[Path, typer.Option(help="The SQLite file to play on; what is in it stays.")] = Path(
        ".turnwise/demo.db"
    ),
) -> None:
    """Play two conversations on a SQLite file, one of them killed with SIGKILL and taken up again."""
    from turnwise.cli.demo import run  # noqa: PLC0415  A verb costs its imports only when it is called.

    run(log)


def main() -> None:
    """Run the command line. What Turnwise raises on purpose is told in one line, with exit code 1."""
    try:
        app(prog_name="turnwise")
    except TurnwiseError as error:
        typer.echo(f"turnwise: {error}", err=True)
        raise SystemExit(1) from None
