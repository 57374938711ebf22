"""`turnline log`: verify, count and move a log. Looking at one never changes it."""

# A verb costs its imports only when it is called.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from turnline.cli.looking import (
    BAD,
    Address,
    AsJson,
    could_not_look,
    looking_at,
    needs_extra,
    telling,
)
from turnline.cli.options import waited_for
from turnline.cli.plain import plain

if TYPE_CHECKING:
    from turnline.flow.trust import TrustKey
    from turnline.log.base import Log
    from turnline.log.stats import LogStats
    from turnline.log.transfer import Exported, Imported
    from turnline.log.verify import Verdict

PIPE: Final = "-"

app = typer.Typer(
    name="log",
    help="Verify a log, count what is on it, and move it between backends.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command(epilog="Example: turnline log verify sqlite:///leads/.turnline/log.db")
def verify(address: Address, *, as_json: AsJson = False) -> None:
    """Check every record: chain, gaps, ids, fold, index. Exits with 1 if one is bad, 2 if it cannot look."""
    with could_not_look():
        verdict = waited_for(_verify(address))
    typer.echo(_json(_verdict(verdict)) if as_json else "\n".join(_told(verdict)))
    if not verdict.is_good:
        raise typer.Exit(BAD)


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
) -> None:
    """Write a log as one file that every backend can import. Exits with 1 if a channel had to be left out."""
    with could_not_look(), _written(output) as file:
        done = waited_for(_export(address, file, channel or ()))
    typer.echo(f"exported {done.channels} channels, {done.records} records", err=True)
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
            help="Let the imported flow definitions read secrets. Only for an export whose author you trust.",
        ),
    ] = False,
    folder: Annotated[
        Path, typer.Option("--dir", help="The project's folder, whose key marks them, for --trust.")
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    """Bring an export onto a log. With ids, seqs and hashes; what is there already is not written twice."""
    from turnline.log.transfer import check_export

    with could_not_look(), _given(file) as given:
        if given.seekable():  # What can be read twice is read through before anything is written.
            check_export(given)
            given.seek(0)
        done, trusted = waited_for(_import(given, address, folder if trust else None))
    typer.echo(_json(_moved(done, trusted)) if as_json else _summed(done))
    for line in _trust_lines(done, trusted):
        typer.echo(plain(line), err=True)
    for refused in done.refused:
        typer.echo(plain(f"refused: {refused}"), err=True)
    for left_out in done.left_out:
        typer.echo(plain(f"not in the file: {left_out.channel!r}, {left_out.because}"), err=True)
    if done.refused or done.left_out:
        raise typer.Exit(BAD)


async def _verify(address: str) -> Verdict:
    from turnline.core.adapters import built_in
    from turnline.log.verify import verify

    with telling("verified") as progress:
        async with looking_at(address) as records:
            return await verify(records, built_in(), progress=progress)


async def _stats(address: str) -> LogStats:
    from turnline.log.stats import stats

    with telling("counted") as progress:
        async with looking_at(address) as records:
            return await stats(records, progress=progress)


async def _export(address: str, file: BinaryIO, channels: Sequence[str]) -> Exported:
    from turnline.hub.clock import SystemClock
    from turnline.log.transfer import export_log

    exported_at = SystemClock().now().replace(microsecond=0).isoformat()
    with telling("exported") as progress:
        async with looking_at(address) as records:
            return await export_log(
                records, file.write, exported_at=exported_at, channels=channels, progress=progress
            )


async def _import(file: BinaryIO, address: str, folder: Path | None) -> tuple[Imported, list[str] | None]:
    """Import `file`. With a project's `folder`, mark its definitions as trusted and return their names."""
    from turnline.log.address import open_log
    from turnline.log.transfer import import_log

    key = None if folder is None else _trust_key(folder)  # A bad key is an error before anything is written.
    log = open_log(address)
    try:
        await log.channels(
            limit=1
        )  # Some logs are made when they are first used; only then they can be looked at.
        with telling("imported") as progress:
            async with looking_at(address) as there:
                done = await import_log(file, log, there, progress=progress)
        return done, None if key is None else await _trust(log, key, done.own)
    finally:
        await log.close()


def _trust_key(folder: Path) -> TrustKey:
    with needs_extra("flow"):
        from turnline.flow.trust import ensure_trust_key
    return ensure_trust_key(os.environ, folder)


async def _trust(log: Log, key: TrustKey, channel_ids: Sequence[str]) -> list[str]:
    from turnline.flow.definitions import Definitions
    from turnline.hub.clock import SystemClock
    from turnline.hub.ids import sortable_ids

    clock = SystemClock()
    definitions = Definitions(log, clock, sortable_ids(clock), key=key)
    return [flow.name for flow in await definitions.trust_channels(channel_ids)]


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
        with part.open("wb") as file:
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


def _verdict(verdict: Verdict) -> dict[str, object]:
    import msgspec

    return {"ok": verdict.is_good, **msgspec.to_builtins(verdict)}


def _told(verdict: Verdict) -> Iterator[str]:
    for fault in verdict.storage:
        yield plain(f"the storage: {fault}")
    for bad in verdict.bad:
        yield plain(f"channel {bad.channel_id!r}, seq {bad.seq}: found {bad.found}; expected {bad.expected}")
    for channel_id, unknown in verdict.not_folded.items():
        yield plain(f"channel {channel_id!r} was not folded: only its own program knows the type {unknown!r}")
    counted = f"{verdict.channels} channels, {verdict.records} records at {verdict.address}"
    if verdict.is_good:
        yield f"{counted}: good."
    else:
        wrong = len(verdict.bad)
        yield f"{counted}: {wrong} bad {'channel' if wrong == 1 else 'channels'}. Restore them from a backup."


def _numbers(found: LogStats) -> dict[str, object]:
    import msgspec

    told: dict[str, object] = msgspec.to_builtins(found)
    return told


def _counted(found: LogStats) -> Iterator[str]:
    yield f"{found.address}"
    yield f"channels    {found.open} open, {found.closed} closed"
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


def _moved(done: Imported, trusted: Sequence[str] | None) -> dict[str, object]:
    import msgspec

    return {
        "trusted": list(trusted or ()),
        "channels": done.channels,
        "records": done.records,
        "written": done.written,
        "known": done.known,
        "left_out": [msgspec.to_builtins(one) for one in done.left_out],
        "refused": [{"channel": one.channel_id, "seq": one.seq, "because": str(one)} for one in done.refused],
    }


def _trust_lines(done: Imported, trusted: Sequence[str] | None) -> Iterator[str]:
    """Say which definitions may read secrets now, or that none may."""
    from turnline.log.base import DEFINITION_PREFIX

    number = sum(channel_id.startswith(DEFINITION_PREFIX) for channel_id in done.own)
    if trusted is not None:
        yield f"trusted: {', '.join(trusted) or 'nothing; the file holds no flow definition'}"
    elif number:
        what = "flow definition gets" if number == 1 else "flow definitions get"
        yield (
            f"{number} imported {what} no secrets, unless the project has the same in its files. "
            f"If you trust the file, import it again with --trust --dir PROJECT."
        )


def _summed(done: Imported) -> str:
    told = f"imported {done.channels} channels: {done.written} records written, {done.known} there already"
    refused = done.records - done.written - done.known
    return f"{told}, {refused} refused" if done.refused else told
