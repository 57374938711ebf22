"""`turnline log`: verify, seal, repair, count, move and erase what is on a log. Looking never changes it."""

# A verb costs its imports only when it is called.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from turnline.cli import log_health
from turnline.cli.looking import (
    BAD,
    Address,
    AsJson,
    could_not_look,
    looking_at,
    needs_extra,
    telling,
)
from turnline.cli.options import Compact, Reason, read_age, waited_for
from turnline.cli.plain import count_of, open_private, plain
from turnline.errors import ChannelQuarantined, EraseRefused, PruneRefused

if TYPE_CHECKING:
    from turnline.flow.data.transfer import RowReader, RowWriter
    from turnline.flow.trust import TrustKey
    from turnline.hub.hub import Hub
    from turnline.log.base import Log
    from turnline.log.export_file import ModelHead
    from turnline.log.pruning import Pruned
    from turnline.log.stats import LogStats
    from turnline.log.transfer import Exported, Imported

PIPE: Final = "-"
_MOST_NAMED: Final = 20
"""Runs that are named one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trusted:
    """What may read secrets after an import."""

    flows: tuple[str, ...]
    runs: int
    longer: tuple[str, ...]
    """Runs that have more lines on the log than in the file: they are not trusted."""


app = typer.Typer(
    name="log",
    help="Verify, seal, move, erase, prune and repair a log.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


app.command(epilog=log_health.VERIFY_EXAMPLE)(log_health.verify)
app.command(epilog=log_health.SEAL_EXAMPLE)(log_health.seal)
app.command(epilog=log_health.REPAIR_EXAMPLE)(log_health.repair)


@app.command(epilog="Example: turnline log stats postgresql://localhost/turnline --json")
def stats(address: Address, *, as_json: AsJson = False) -> None:
    """Count what is on a log. Channels, envelopes, bytes, event types, the largest channels."""
    with could_not_look():
        found = waited_for(_stats(address))
    typer.echo(_json(_numbers(found)) if as_json else "\n".join(_counted(found)))


@app.command(
    epilog="Example: turnline log export log.db | turnline log import - postgresql://localhost/turnline"
)
def export(
    address: Address,
    *,
    output: Annotated[
        str, typer.Option("-o", "--output", help="The file; without it, standard output.")
    ] = PIPE,
    channel: Annotated[list[str] | None, typer.Option(help="Only this channel. Repeat for several.")] = None,
    with_data: Annotated[
        bool, typer.Option("--with-data", help="Also the rows of the data models of the project in --dir.")
    ] = False,
    folder: Annotated[
        Path, typer.Option("--dir", help="The project's folder, for --with-data: its models and `database:`.")
    ] = Path(),
) -> None:
    """Write a log as one file that every backend can import. Exits with 1 if a channel had to be left out."""
    if with_data and channel:
        raise typer.BadParameter("found --channel as well; expected one of the two", param_hint="--with-data")
    with could_not_look(), _written(output) as file:
        done = waited_for(_export(address, file, channel or (), folder if with_data else None))
    rows = f", {count_of(done.rows, 'row')}" if with_data else ""
    rows += f", {count_of(done.files, 'file')}" if done.files else ""
    told = f"{count_of(done.channels, 'channel')}, {count_of(done.records, 'record')}{rows}"
    typer.echo(f"exported {told}", err=True)
    for error in done.left_out:
        typer.echo(plain(f"left out: {error}"), err=True)
    if done.left_out:
        raise typer.Exit(BAD)


@app.command(
    "import",
    epilog="Example: turnline log import backup.jsonl nats://localhost:4222/turnline --trust --dir leads",
)
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; `-` reads it from standard input.")],
    address: Address,
    *,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Let the imported flow definitions and runs read secrets, and let the file add to runs of "
            "this log. Only for an export whose author you trust.",
        ),
    ] = False,
    folder: Annotated[
        Path,
        typer.Option(
            "--dir",
            help="The project's folder: its key for --trust, its models and `database:` for rows.",
        ),
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    """Bring an export onto a log. With ids, seqs and hashes; what is there already is not written twice.

    Rows of data models go into the project's `database:`, or into the database of the log.
    """
    from turnline.log.transfer import check_export

    with could_not_look(), _given(file) as given:
        if given.seekable():  # What can be read twice is read through before anything is written.
            check_export(given)
            given.seek(0)
        done, trusted = waited_for(_import(given, address, folder, is_trusted=trust))
    typer.echo(_json(_moved(done, trusted)) if as_json else _summed(done))
    for line in _trust_lines(done, trusted):
        typer.echo(plain(line), err=True)
    for refused in done.refused:
        typer.echo(plain(f"refused: {refused}"), err=True)
    for left_out in done.left_out:
        typer.echo(plain(f"not in the file: {left_out.channel!r}, {left_out.because}"), err=True)
    if done.refused or done.left_out:
        raise typer.Exit(BAD)


@app.command(epilog="Example: turnline log erase sqlite:///leads/.turnline/log.db CHANNEL --compact")
def erase(
    address: Address,
    channel: Annotated[str, typer.Argument(help="The id of a closed channel. Those below it go with it.")],
    *,
    lines: Annotated[str, typer.Option(help="Only these lines of it, such as 4,7-9.")] = "",
    reason: Reason = "requested",
    compact: Compact = False,
    as_json: AsJson = False,
) -> None:
    """Erase what was said on a closed channel. The chain stays. Exits with 1 if it is refused."""
    ranges = _ranges(lines)
    with could_not_look():
        try:
            done = waited_for(_erase(address, channel, ranges, reason, compact=compact))
        except (EraseRefused, ChannelQuarantined) as error:
            typer.echo(plain(str(error)), err=True)
            raise typer.Exit(BAD) from None
    lines = count_of(sum(done.values()), "line")
    told = f"erased the content of {lines} on {count_of(len(done), 'channel')}"
    typer.echo(_json({"channels": done}) if as_json else told)


@app.command(
    epilog="Example: turnline log prune sqlite:///leads/.turnline/log.db --closed-before 90d --archive old/"
)
def prune(
    address: Address,
    *,
    closed_before: Annotated[
        str, typer.Option(help="How long ago they closed, such as 90d; or a date, such as 2026-01-31.")
    ],
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only with this label. Repeat for several.")
    ] = None,
    archive: Annotated[
        str, typer.Option(metavar="FILE|FOLDER", help="Export them first: to a new file, or into a folder.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be pruned, and stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove runs and channels that closed long ago. Their ids stay taken. Exits with 1 if it is refused.

    A channel leaves with the channels below it and its forks, once all of them closed long ago. With
    --archive, `turnline log import` brings them back.
    """
    labels = _labels(label or [])
    place = Path(archive) if archive else None
    if place is not None and archive.endswith(os.sep) and not place.is_dir():
        raise typer.BadParameter(f"there is no folder {archive}; make it first", param_hint="--archive")
    with could_not_look():
        try:
            done = waited_for(_prune(address, closed_before, labels, place, dry_run=dry_run, is_sure=yes))
        except PruneRefused as error:
            typer.echo(plain(str(error)), err=True)
            raise typer.Exit(BAD) from None
    for tree in done.kept:
        typer.echo(plain(f"kept: {tree.top!r}, {tree.because}"), err=True)
    if as_json:
        typer.echo(_json({"dry_run": dry_run, **_builtins(done)}))
    else:
        verb = "would prune" if dry_run else "pruned"
        into = f"; archive: {done.archive}" if done.archive else ""
        trees = f"{count_of(done.channels, 'channel')} of {count_of(len(done.trees), 'tree')}"
        typer.echo(plain(f"{verb} {trees}{into}"))


def _labels(given: Sequence[str]) -> dict[str, str]:
    for one in given:
        if not one.partition("=")[0] or "=" not in one:
            raise typer.BadParameter(f"found {one!r}, expected KEY=VALUE", param_hint="--label")
    return {key: value for key, _, value in (one.partition("=") for one in given)}


async def _prune(
    address: str,
    closed_before: str,
    labels: dict[str, str],
    archive: Path | None,
    *,
    dry_run: bool,
    is_sure: bool,
) -> Pruned:
    import asyncio

    from msgspec.structs import replace

    from turnline.cli.open_log import looking_at as open_hub
    from turnline.log.base import Prunes
    from turnline.log.pruning import MAX_PLANNED, Pruned, Pruner, finish_pruning, plan_trees

    is_file = archive is not None and not await asyncio.to_thread(archive.is_dir)
    async with open_hub(address, Path()) as hub:
        log = hub.log
        assert isinstance(log, Prunes)
        before = await _cutoff(hub, closed_before)
        trees, kept, is_all = await plan_trees(log, before=before, labels=labels, most=MAX_PLANNED)
        if not is_all:
            typer.echo(f"There are more than {MAX_PLANNED} channels; run it again for the others.", err=True)
        planned = Pruned(
            trees=[tree.top for tree in trees], channels=sum(len(tree.channels) for tree in trees), kept=kept
        )
        if dry_run:
            return planned
        if trees and not is_sure:
            channels = count_of(planned.channels, "channel")
            what = f"Prune {channels} that closed before {before:%Y-%m-%d %H:%M} UTC"
            _confirm(f"{what}{'' if archive else ', without an archive'}?")
        await finish_pruning(log)
        pruner = Pruner(
            log, partial(looking_at, address), now=hub.clock.now, new_id=hub.new_id, forget=hub.forget_pruned
        )
        done = await pruner.prune_all(trees, archive, is_file=is_file)
        if done.trees:
            hub.audit_log.note_pruned(done, before)
            await hub.audit_log.flush()
        return replace(done, kept=[*kept, *done.kept])


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody can be asked here; expected --yes or --dry-run", param_hint="--yes")
    typer.confirm(question, abort=True, err=True)


async def _cutoff(hub: Hub, text: str) -> datetime:
    """Return the time before which channels closed: a date, or some time before now."""
    from turnline.core.state import LONG_AGO
    from turnline.hub.audit import AUDIT_CHANNEL
    from turnline.log.pruning import TRUSTED_AHEAD, newest_time

    now = hub.clock.now()
    with suppress(ValueError):
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        if found > now:
            raise typer.BadParameter(f"{text} is in the future", param_hint="--closed-before")
        return found
    age = read_age(text, "--closed-before", more=", or a date such as 2026-01-31")
    newest = await newest_time(hub.log, AUDIT_CHANNEL)
    if newest > LONG_AGO and now - newest > TRUSTED_AHEAD:
        now = newest + TRUSTED_AHEAD
        typer.echo(
            f"The newest line of the log is of {newest:%Y-%m-%d %H:%M} UTC, more than a day before now. In "
            f"case the clock is wrong, {text} is counted back from {now:%Y-%m-%d %H:%M}. If it is right, "
            "give a date.",
            err=True,
        )
    return now - age


def _ranges(text: str) -> list[tuple[int, int]] | None:
    """Return the lines that `4,7-9` names; None for all of them."""
    if not text:
        return None
    found = list[tuple[int, int]]()
    for one in text.split(","):
        first, _, last = one.strip().partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise typer.BadParameter(f"found {text!r}, expected lines such as 4,7-9", param_hint="--lines")
        found.append((int(first), int(last or first)))
    return found


async def _erase(
    address: str, channel: str, lines: Sequence[tuple[int, int]] | None, reason: str, *, compact: bool
) -> dict[str, int]:
    from turnline.cli.open_log import looking_at as open_hub

    async with open_hub(address, Path()) as hub:
        done = await hub.erase(channel, by="operator", lines=lines, reason=reason)
        if compact:
            typer.echo("compacting the files of the log", err=True)
            await hub.lines.compact()
        return done.channels


async def _stats(address: str) -> LogStats:
    from turnline.log.stats import stats

    with telling("counted") as progress:
        async with looking_at(address) as records:
            return await stats(records, progress=progress)


async def _export(address: str, file: BinaryIO, channels: Sequence[str], folder: Path | None) -> Exported:
    """Write the log. With a project's `folder`, write the rows of its data models as well."""
    from turnline.hub.timers import SystemClock
    from turnline.log.transfer import export_log

    exported_at = SystemClock().now().replace(microsecond=0).isoformat()
    async with AsyncExitStack() as stack:
        progress = stack.enter_context(telling("exported"))
        records = await stack.enter_async_context(looking_at(address))
        rows = None if folder is None else await _rows_in(stack, folder, address)
        return await export_log(
            records, file.write, exported_at=exported_at, channels=channels, rows=rows, progress=progress
        )


async def _rows_in(stack: AsyncExitStack, folder: Path, address: str) -> RowReader:
    """Open the rows of a project. Raises `ModelsRefused` if the tables are not as its models say."""
    from turnline.cli.db import open_database
    from turnline.flow.data.transfer import RowReader

    _, database = await stack.enter_async_context(open_database(folder, address, makes=False))
    return RowReader(database, await database.plan())


async def _import(
    file: BinaryIO, address: str, folder: Path, *, is_trusted: bool
) -> tuple[Imported, _Trusted | None]:
    """Import `file` for the project in `folder`. Mark its definitions and runs if the file `is_trusted`."""
    from turnline.log.address import open_log
    from turnline.log.transfer import import_log

    key = _trust_key(folder) if is_trusted else None  # A bad key is an error before anything is written.
    log = open_log(address)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(log.close)
        await log.channels(
            limit=1
        )  # Some logs are made when they are first used; only then they can be looked at.
        progress = stack.enter_context(telling("imported"))
        there = await stack.enter_async_context(looking_at(address))
        open_rows = partial(_open_rows, stack, folder, log)
        done = await import_log(
            file,
            log,
            there,
            open_rows=open_rows,
            is_trusted=is_trusted,
            is_checked=file.seekable(),
            progress=progress,
        )
        return done, None if key is None else await _trust(log, key, done)


async def _open_rows(stack: AsyncExitStack, folder: Path, log: Log, heads: Sequence[ModelHead]) -> RowWriter:
    """Open where the rows of a file go. Raises `RowsRefused`, before anything is written."""
    from turnline.cli.db import project_data, settings_in
    from turnline.flow.data.transfer import check_heads, write_rows

    database = await stack.enter_async_context(project_data(folder, log, settings_in(folder).database))
    check_heads(heads, database.schema.models.values())
    await database.open()
    return await stack.enter_async_context(write_rows(database))


def _trust_key(folder: Path) -> TrustKey:
    with needs_extra("flow"):
        from turnline.flow.trust import ensure_trust_key
    return ensure_trust_key(os.environ, folder)


async def _trust(log: Log, key: TrustKey, done: Imported) -> _Trusted:
    """Mark the definitions of the file, and its runs. A run that has gone on since is not marked."""
    from turnline.flow.definitions import Definitions
    from turnline.flow.trusted_runs import TrustedRuns
    from turnline.hub.timers import SystemClock, sortable_ids

    clock = SystemClock()
    new_id = sortable_ids(clock)
    flows = await Definitions(log, clock, new_id, key=key).trust_channels(done.own)
    ends = {run: head.seq for run in done.runs if (head := await log.head(run)) is not None}
    whole = [run for run, records in done.runs.items() if ends.get(run) == records]
    await TrustedRuns(log, clock, new_id, key=key).trust(whole)
    longer = sorted(done.runs.keys() - set(whole))
    return _Trusted(flows=tuple(flow.name for flow in flows), runs=len(whole), longer=tuple(longer))


@contextmanager
def _written(output: str) -> Iterator[BinaryIO]:
    """Give standard output, or a file that has its name only once it is whole."""
    if output == PIPE:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(output)
    part = path.with_name(f"{path.name}.part")
    try:
        with open_private(part) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise typer.BadParameter(f"{output} cannot be written: {error.strerror}", param_hint="-o") from None
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _given(name: str) -> Iterator[BinaryIO]:
    if name == PIPE:
        yield sys.stdin.buffer
        return
    if "://" in name:  # It is not shown: an address may hold a password.
        raise typer.BadParameter(
            "this is the address of a log; expected a file first, then the address", param_hint="FILE"
        )
    try:
        file = Path(name).open("rb")  # noqa: SIM115  Closed below; only opening it is blamed on the name.
    except OSError as error:
        raise typer.BadParameter(f"{name} cannot be read: {error.strerror}", param_hint="FILE") from None
    with file:
        yield file


# What is printed.


def _json(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)


def _builtins(found: object) -> dict[str, object]:
    import msgspec

    told: dict[str, object] = msgspec.to_builtins(found)
    return told


def _numbers(found: LogStats) -> dict[str, object]:
    import msgspec

    told: dict[str, object] = msgspec.to_builtins(found)
    return told


def _counted(found: LogStats) -> Iterator[str]:
    yield f"{found.address}"
    pruned = f", {found.pruned} pruned" if found.pruned else ""
    yield f"channels    {found.open} open, {found.closed} closed{pruned}"
    if found.damaged:
        yield plain(f"damaged     {', '.join(found.damaged)}")
    yield f"envelopes   {found.records}"
    yield f"bytes       {found.bytes}"
    if found.oldest and found.newest:
        yield f"oldest      {found.oldest.isoformat()}"
        yield f"newest      {found.newest.isoformat()}"
    yield from (f"{name}: {value}" for name, value in found.facts.items())
    yield "largest channels"
    yield from (
        plain(f"  {size.bytes:>12} bytes  {size.records:>8} envelopes  {size.channel_id}")
        for size in found.largest
    )
    yield "event types"
    yield from (plain(f"  {number:>8}  {name}") for name, number in found.event_types.items())


def _moved(done: Imported, trusted: _Trusted | None) -> dict[str, object]:
    import msgspec

    return {
        "trusted": [] if trusted is None else list(trusted.flows),
        "trusted_runs": 0 if trusted is None else trusted.runs,
        "not_trusted": [] if trusted is None else list(trusted.longer),
        "channels": done.channels,
        "records": done.records,
        "written": done.written,
        "known": done.known,
        "rows_written": done.rows_written,
        "rows_known": done.rows_known,
        "files": done.files,
        "left_out": [msgspec.to_builtins(one) for one in done.left_out],
        "refused": [{"channel": one.channel_id, "seq": one.seq, "because": str(one)} for one in done.refused],
    }


def _trust_lines(done: Imported, trusted: _Trusted | None) -> Iterator[str]:
    """Say which definitions and runs may read secrets now, or that none may."""
    from turnline.log.base import DEFINITION_PREFIX

    if trusted is None:
        flows = sum(channel_id.startswith(DEFINITION_PREFIX) for channel_id in done.own)
        found: list[tuple[int, str, str]] = [
            (flows, "flow definition", ""),
            (len(done.runs), "channel of a run", "channels of runs"),
        ]
        told = " and ".join(count_of(*one) for one in found if one[0])
        if told and done.written:
            yield (
                f"imported without secrets: {told}. "
                f"If you trust the file, import it again with --trust --dir PROJECT."
            )
        return
    yield f"trusted: {', '.join(trusted.flows) or 'no flow definition; the file holds none'}"
    yield f"trusted: {count_of(trusted.runs, 'channel of a run', 'channels of runs')}"
    for run in trusted.longer[:_MOST_NAMED]:
        yield f"not trusted: {run!r} has lines on this log that are not in the file"
    if trusted.longer:
        yield (
            f"{len(trusted.longer)} not trusted. If you trust these lines as well, export this log, and "
            f"import that file with --trust."
        )


def _summed(done: Imported) -> str:
    written = count_of(done.written, "record")
    told = f"imported {count_of(done.channels, 'channel')}: {written} written, {done.known} there already"
    refused = done.records - done.written - done.known
    told = f"{told}, {refused} refused" if done.refused else told
    has_rows = done.rows_written or done.rows_known
    told += f"; {count_of(done.files, 'file')} written" if done.files else ""
    rows = f"; {count_of(done.rows_written, 'row')} written, {done.rows_known} there already"
    return f"{told}{rows}" if has_rows else told
