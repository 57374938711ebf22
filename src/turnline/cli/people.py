"""`turnline people`: what a log knows of people."""
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnline.cli.options import AsJson, Compact, Folder, LogAddress, Reason, run

app = typer.Typer(
    name="people",
    help="Forget people.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def people() -> None:
    """Forget people."""


@app.command(epilog="Example: turnline people forget ann --log sqlite:///leads/.turnline/log.db --compact")
def forget(
    name: Annotated[str, typer.Argument(help="The name that the person is registered by.")],
    *,
    reason: Reason = "requested",
    compact: Compact = False,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Erase a person from the directory and the audit. Their name is free. Exits with 1 if it is refused.

    What they said on closed channels is erased with `turnline log erase`.
    """
    run(_forget(name, reason, log, directory, compact=compact, as_json=as_json))


async def _forget(
    name: str, reason: str, log: str | None, folder: Path, *, compact: bool, as_json: bool
) -> None:
    from turnline.cli.open_log import looking_at
    from turnline.cli.plain import count_of, plain, print_json

    async with looking_at(log, folder) as hub:
        done = await hub.forget(name, by="operator", reason=reason)
        if compact:
            typer.echo("compacting the files of the log", err=True)
            await hub.lines.compact()
    if as_json:
        print_json({"channels": done.channels})
    else:
        lines = count_of(sum(done.channels.values()), "line")
        typer.echo(plain(f"forgot {name!r}: erased the content of {lines}"))
