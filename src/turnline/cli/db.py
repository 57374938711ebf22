"""`turnline db`: show and make the changes that a project's data models ask of their tables.

A server makes by itself what a server of the version before can go on with (`flow.data.migration`). The
rest waits for `apply`, which makes all of it in one transaction, or nothing.
"""

# A verb costs its imports only when it is called.
# ruff: noqa: PLC0415

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnline.cli.looking import BAD, could_not_look, needs_extra
from turnline.cli.options import AsJson, LogAddress, waited_for
from turnline.errors import LogUnavailable, NoDatabase

if TYPE_CHECKING:
    from turnline.flow.data.database import Database
    from turnline.flow.data.migration import Plan
    from turnline.flow.settings import Settings
    from turnline.log.base import Log

app = typer.Typer(
    name="db",
    help="Show and make changes of the tables of data models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Directory = Annotated[Path, typer.Argument(metavar="[DIR]", help="The project's folder.")]


@app.command(epilog="Example: turnline db plan leads")
def plan(directory: Directory = Path(), *, log: LogAddress = None, as_json: AsJson = False) -> None:
    """Show what `apply` would change, and what it could lose. Changes nothing.

    Exits with 1 if `apply` would refuse it, or do it only with --allow-loss.
    """
    from turnline.cli.plain import print_json

    with could_not_look():
        address, found = waited_for(_plan(directory, log))
    if as_json:
        print_json({"database": address, "ok": not (found.losses or found.obstacles), **_data(found)})
    else:
        typer.echo("\n".join(_lines(address, found)))
    if found.losses or found.obstacles:
        raise typer.Exit(BAD)


@app.command(epilog="Example: turnline db apply leads")
def apply(
    directory: Directory = Path(),
    *,
    log: LogAddress = None,
    allow_loss: Annotated[
        bool,
        typer.Option(
            "--allow-loss",
            help="Also make changes that lose values, and drop columns that no field has any more.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the tables up to the data models. All changes in one transaction, or none.

    Stop the servers of the version before first, if a column is renamed or has another type.
    """
    from turnline.cli.plain import print_json

    with could_not_look():
        address, done = waited_for(_apply(directory, log, allow_loss=allow_loss))
    if as_json:
        print_json({"database": address, "changes": done})
    else:
        typer.echo("\n".join([f"{address}: {_count(len(done))} made.", *(f"  {one}" for one in done)]))


async def _plan(folder: Path, log: str | None) -> tuple[str, Plan]:
    from turnline.cli.open_log import address_of

    async with open_database(folder, address_of(log, folder), makes=False) as (address, database):
        return address, await database.plan()


async def _apply(folder: Path, log: str | None, *, allow_loss: bool) -> tuple[str, list[str]]:
    from turnline.cli.open_log import address_of

    async with open_database(folder, address_of(log, folder), makes=True) as (address, database):
        return address, await database.migrate(extent="lossy" if allow_loss else "lossless")


@asynccontextmanager
async def open_database(folder: Path, address: str, *, makes: bool) -> AsyncIterator[tuple[str, Database]]:
    """Give the database of a project whose log is at `address`, and where it is, for people.

    Unless this `makes` a file that is not there, an empty database stands for it. Raises `NoDatabase`.
    """
    from turnline.log.address import MEMORY, has_database, open_log, scheme_of
    from turnline.log.memory import MemoryLog

    url = settings_in(folder).database
    if url is None and not has_database(address):
        raise NoDatabase("the data models of this project", log=scheme_of(address))
    from turnline.cli.open_log import file_of

    file = file_of(url or address)
    if file is not None and not file.exists() and not makes:
        async with project_data(folder, MemoryLog(), MEMORY) as database:
            yield str(file), database
        return
    opened = open_log(address) if has_database(address) else MemoryLog()
    try:
        async with project_data(folder, opened, url) as database:
            yield database.address, database
    finally:
        await opened.close()


@asynccontextmanager
async def project_data(folder: Path, log: Log, url: str | None) -> AsyncIterator[Database]:
    """Give the database of a project's data models, its tables as they are. Raises `BadDocuments`."""
    with needs_extra("flow"):
        from turnline.flow.data.database import find_data
        from turnline.flow.data.definition import read_models
        from turnline.flow.finding import Report
        from turnline.flow.project import models_in

    models, mistakes = read_models(models_in(folder))
    Report(mistakes).raise_if_bad()
    database = find_data(models, log=log, url=url)
    try:
        yield database
    finally:
        await database.close()


def settings_in(folder: Path) -> Settings:
    """Return what a folder's turnline.yaml says. Raises `LogUnavailable` if it has mistakes."""
    with needs_extra("flow"):
        from turnline.flow.settings import SETTINGS_FILE, Settings, read_settings

    file = folder / SETTINGS_FILE
    if not file.is_file():
        return Settings()
    settings, findings = read_settings(file.read_bytes(), file=str(file), environment=os.environ)
    if findings:
        raise LogUnavailable(str(file), because="turnline.yaml has mistakes; `turnline check` names them")
    return settings


# What is printed.


def _data(found: Plan) -> dict[str, object]:
    return {
        "changes": list(found.changes),
        "losses": list(found.losses),
        "unused": list(found.unused),
        "obstacles": list(found.obstacles),
    }


def _lines(address: str, found: Plan) -> Iterator[str]:
    yield f"{address}: {_count(len(found.changes))}."
    yield from (f"  {one}" for one in found.changes)
    yield from (
        f"  column {one} stays, though no field has it; --allow-loss drops it" for one in found.unused
    )
    if found.losses:
        yield "This would lose data, so it needs --allow-loss:"
        yield from (f"  {one}" for one in found.losses)
    if found.obstacles:
        yield "This cannot be done:"
        yield from (f"  {one}" for one in found.obstacles)


def _count(number: int) -> str:
    return f"{number or 'no'} {'change' if number == 1 else 'changes'}"
