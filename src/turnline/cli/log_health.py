"""`turnline log verify | seal | repair`: is a log what was written to it, and how is it served again."""

# A verb costs its imports only when it is called.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from turnline.cli.looking import BAD, Address, AsJson, could_not_look, looking_at, telling
from turnline.cli.options import waited_for
from turnline.cli.plain import count_of, open_private, plain
from turnline.errors import ChannelQuarantined, CorruptRecord, LogUnavailable

if TYPE_CHECKING:
    from turnline.log.base import Log
    from turnline.log.repair import ChannelRepair
    from turnline.log.seal_keys import PublicSealKey, SealKey
    from turnline.log.seals import KeptSeal
    from turnline.log.sqlite_salvage import SalvagedLog
    from turnline.log.verify import BadFile, BadRecord, Verdict

VERIFY_EXAMPLE: Final = "Example: turnline log verify sqlite:///leads/.turnline/log.db --seal seal.txt"
SEAL_EXAMPLE: Final = "Example: turnline log seal sqlite:///leads/.turnline/log.db --out /media/usb/seal.txt"
REPAIR_EXAMPLE: Final = "Example: turnline log repair leads/.turnline/log.db --archive backup.jsonl --yes"
_CONSEQUENCES: Final = {
    "_directory": "A lost line may have been a change, a rule, or a removal: register these again.",
    "_revocations": "Tokens revoked in a lost line are valid again: revoke them again, or change the key.",
    "_audit": "What happened is on the channels themselves; the audit lacks it.",
    "_seals": "Seals that were kept before do not fit any more. Make a new one.",
}
"""What it means that lines of a channel are lost."""
_TEXT_START: Final = "turnline-seal:"
_MOST_LISTED: Final = 20
"""Erased lines, and pruned channels, that are listed one by one. --json has them all."""


def verify(
    address: Address,
    *,
    seal: Annotated[
        str,
        typer.Option(
            metavar="FILE|TEXT",
            help="A seal that you kept: what is gone, shorter or replaced since is bad.",
        ),
    ] = "",
    public_key: Annotated[
        Path | None, typer.Option(help="A PEM file: the public key of the seals that you signed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every record: chain, gaps, ids, fold, index, seals. Exits with 1 if one is bad, or 2."""
    with could_not_look():
        verdict = waited_for(_verify(address, _kept(seal) if seal else None, _public_key(public_key)))
    typer.echo(_json(_data_of(verdict)) if as_json else "\n".join(_lines_of(verdict)))
    if not verdict.is_good:
        raise typer.Exit(BAD)


def seal(
    address: Address,
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the seal to this file, with the channel ends that it names."),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(metavar="KEY", help="Sign it with a private Ed25519 key, a PEM file."),
    ] = None,
) -> None:
    """Seal a log and print the seal. Keep it on another host, for `log verify --seal`.

    A seal that you keep proves everything up to it and nothing after. A signature needs the extra `seals`.
    """
    with could_not_look():
        try:
            kept = waited_for(_seal(address, _private_key(sign)))
        except (CorruptRecord, ChannelQuarantined) as error:
            typer.echo(plain(f"turnline: {error} Run: turnline log repair ADDRESS"), err=True)
            raise typer.Exit(BAD) from None
    if kept is None:
        typer.echo("turnline: there is nothing to seal: the log is empty", err=True)
        raise typer.Exit(BAD)
    if out is None:
        typer.echo(kept.to_text())
        return
    try:
        with open_private(out) as file:
            file.write(kept.to_file().encode())
    except OSError as error:
        raise typer.BadParameter(f"{out} cannot be written: {error.strerror}", param_hint="--out") from None
    typer.echo(f"wrote {out}", err=True)


def repair(
    address: Address,
    *,
    archive: Annotated[
        Path | None, typer.Option(help="An export of this log, for lines that are lost on it.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Write it. Without this, only say what would be done.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write what is damaged again, as far as it is known.

    System channels are rebuilt from the channels' own first lines; a damaged conversation is written again if
    --archive has all of its lines, and otherwise stays as it is. Healthy channels stay as they are.

    A damaged SQLite file is salvaged first, and kept beside the new one.
    A damaged file of a message is written again if --archive has it.

    Stop the servers of a SQLite log first. Exits with 1 if there is something to repair and --yes is missing,
    and if a conversation or a file stays damaged.
    """
    with could_not_look(), _opened(archive) as file:
        done = waited_for(_repair(address, file, is_written=yes))
    typer.echo(_json(done.data()) if as_json else "\n".join(plain(one) for one in done.lines()))
    if done.has_work and not yes:
        typer.echo("Nothing was written. To do this, run the same command with --yes.", err=True)
        raise typer.Exit(BAD)
    if done.damaged or done.damaged_files:
        raise typer.Exit(BAD)


async def _verify(address: str, kept: KeptSeal | None, key: PublicSealKey | None) -> Verdict:
    from turnline.core.adapters import built_in
    from turnline.log.verify import verify

    with telling("verified") as progress:
        async with looking_at(address) as records:
            return await verify(records, built_in(), seal=kept, public_key=key, progress=progress)


async def _seal(address: str, key: SealKey | None) -> KeptSeal | None:
    from turnline.hub.timers import SystemClock, sortable_ids
    from turnline.log.seals import keep_seal, seal_log

    clock = SystemClock()
    log = open_existing(address)
    try:
        await seal_log(log, now=clock.now, new_id=sortable_ids(clock), key=key)
    finally:
        await log.close()
    async with looking_at(address) as records:
        return await keep_seal(records)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repaired:
    """What `log repair` found and did."""

    channels: list[ChannelRepair]
    damaged: list[BadRecord] = field(default_factory=list)
    files: list[BadFile] = field(default_factory=list)
    damaged_files: list[BadFile] = field(default_factory=list)
    salvage: SalvagedLog | None = None
    damage: str = ""
    kept_as: str = ""
    lost_tables: list[str] = field(default_factory=list)

    @property
    def has_work(self) -> bool:
        return bool(self.channels or self.files) or self.salvage is not None

    def data(self) -> dict[str, object]:
        lost = {} if self.salvage is None else {one.channel_id: one.lost for one in self.salvage.channels}
        return {
            "file": {"damage": self.damage, "kept_as": self.kept_as, "lost_tables": self.lost_tables},
            "lost": {name: some for name, some in lost.items() if some},
            "lost_files": 0 if self.salvage is None else self.salvage.lost_files,
            "damaged": {one.channel_id: one.seq for one in self.damaged},
            "files": [_place_of(one) for one in self.files],
            "damaged_files": [_place_of(one) for one in self.damaged_files],
            "channels": [
                {
                    "channel": one.channel_id,
                    "found": one.found,
                    "kept": one.kept,
                    "restored": one.restored,
                    "lost": one.lost,
                    "participants": one.names,
                }
                for one in self.channels
            ],
        }

    def lines(self) -> Iterator[str]:
        if not self.has_work and not self.damaged_files:
            yield "nothing to repair: every system channel is good"
        if self.salvage is not None:
            yield from self._salvage_lines(self.salvage)
        for one in self.channels:
            yield f"{one.channel_id}: {one.found}"
            kept = f"{count_of(one.kept, 'line')} kept, {one.restored} from the archive"
            yield f"  {kept}, {_lines(one.lost)} lost"
            if one.names:
                yield f"  registered again from the channels that they are on: {', '.join(one.names)}"
            if one.lost and one.channel_id in _CONSEQUENCES:
                yield f"  {_CONSEQUENCES[one.channel_id]}"
        yield from self._file_lines()
        for bad in self.damaged:
            yield f"channel {bad.channel_id!r} stays damaged from line {bad.seq} on: {bad.found}"
        if self.damaged:
            yield (
                "  A hub refuses these channels and serves all others. On SQLite and PostgreSQL, an "
                "--archive that has all of their lines repairs them."
            )

    def _file_lines(self) -> Iterator[str]:
        for file in self.files:
            yield f"{_name_file(file)} is written as the archive has it: {file.found}"
        for file in self.damaged_files:
            yield f"{_name_file(file)} stays damaged: {file.found}"
        if self.damaged_files:
            yield "  Their messages are served. An --archive that has these files brings them back."

    def _salvage_lines(self, found: SalvagedLog) -> Iterator[str]:
        yield f"the file is damaged: {self.damage}"
        if self.kept_as:
            yield f"the damaged file is kept as {self.kept_as}"
        yield f"{count_of(len(found.channels), 'channel')}, {count_of(found.lines, 'line')} saved"
        for one in found.channels:
            if one.lost:
                yield f"channel {one.channel_id!r}: {_lines(one.lost)} lost"
        if found.nameless:
            yield f"lost with their names: {count_of(found.nameless, 'channel')}"
        if found.lost_files:
            yield f"lost: {count_of(found.lost_files, 'file')} of messages"
        yield from (f"lost: {one}" for one in self.lost_tables)


def _place_of(one: BadFile) -> dict[str, object]:
    return {"channel": one.channel_id, "seq": one.seq, "file": one.file, "found": one.found}


def _name_file(one: BadFile) -> str:
    return f"channel {one.channel_id!r}, seq {one.seq}, file {one.file}"


def _lines(lost: Sequence[tuple[int, int]]) -> str:
    if not lost:
        return "none"
    word = "line" if len(lost) == 1 and lost[0][0] == lost[0][1] else "lines"
    return f"{word} " + ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in lost)


async def _repair(address: str, archive: BinaryIO | None, *, is_written: bool) -> _Repaired:
    from turnline.cli.open_log import file_of
    from turnline.hub.timers import SystemClock, sortable_ids
    from turnline.log.repair import Repairing, RepairPlan, plan_repairs, repair, restore_files

    clock, done = SystemClock(), _Repaired(channels=[])
    repairing = Repairing(clock.now, sortable_ids(clock), archive)
    file = file_of(address)
    if file is not None:
        done = await _salvage(file, is_written=is_written)
        if done.salvage is not None and not is_written:
            return done  # The channels can be looked at once they are in a good file.

    async def look() -> RepairPlan:
        async with looking_at(address) as records:
            return await plan_repairs(records, repairing)

    plan = first = await look()
    if is_written and first.has_work:
        log = open_existing(address)
        try:
            await repair(log, first.channels)
            if first.channels:  # A file is looked at once the line is good that refers to it.
                plan = await look()
            await restore_files(log, plan.files, repairing)
        finally:
            await log.close()
    return replace(
        done,
        channels=first.channels,
        damaged=plan.damaged,
        files=plan.files,
        damaged_files=plan.damaged_files,
    )


async def _salvage(file: Path, *, is_written: bool) -> _Repaired:
    from turnline.log.sqlite_salvage import find_file_damage, keep_damaged, read_damaged, write_salvaged

    damage = await find_file_damage(file)
    if not damage:
        return _Repaired(channels=[])
    if not is_written:
        return _Repaired(channels=[], salvage=read_damaged(file), damage=damage)
    kept = keep_damaged(file)
    found = read_damaged(kept)
    lost = write_salvaged(found, kept, file)
    return _Repaired(channels=[], salvage=found, damage=damage, kept_as=str(kept), lost_tables=lost)


@contextmanager
def _opened(archive: Path | None) -> Iterator[BinaryIO | None]:
    if archive is None:
        yield None
        return
    try:
        file = archive.open("rb")
    except OSError as error:
        because = f"{archive} cannot be read: {error.strerror}"
        raise typer.BadParameter(because, param_hint="--archive") from None
    with file:
        yield file


def open_existing(address: str) -> Log:
    """Open a log to write. A file that is not there is an error: it is not made."""
    from turnline.cli.open_log import file_of
    from turnline.log.address import open_log

    file = file_of(address)
    if file is not None and not file.exists():
        raise LogUnavailable(address, because="there is no such file")
    return open_log(address)


def _kept(seal: str) -> KeptSeal:
    from turnline.errors import BadSeal
    from turnline.log.seals import MAX_KEPT_CHARACTERS, KeptSeal

    try:
        if seal.startswith(_TEXT_START):
            return KeptSeal.from_text(seal)
        with Path(seal).open(encoding="utf-8") as file:
            return KeptSeal.from_text(file.read(MAX_KEPT_CHARACTERS + 1))
    except BadSeal as error:
        raise typer.BadParameter(plain(str(error)), param_hint="--seal") from None
    except (OSError, UnicodeDecodeError) as error:
        because = error.strerror if isinstance(error, OSError) else "it is not text"
        expected = f"expected a line that starts with {_TEXT_START}, or a file with one"
        raise typer.BadParameter(
            f"{seal} cannot be read: {because}; {expected}", param_hint="--seal"
        ) from None


def _private_key(path: Path | None) -> SealKey | None:
    if path is None:
        return None
    from turnline.log.seal_keys import SealKey

    return SealKey.from_file(path)


def _public_key(path: Path | None) -> PublicSealKey | None:
    if path is None:
        return None
    from turnline.log.seal_keys import PublicSealKey

    return PublicSealKey.from_file(path)


def _json(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)


def _data_of(verdict: Verdict) -> dict[str, object]:
    import msgspec

    return {"ok": verdict.is_good, **msgspec.to_builtins(verdict)}


def _lines_of(verdict: Verdict) -> Iterator[str]:
    for fault in verdict.storage:
        yield plain(f"the storage: {fault}")
    for bad in verdict.bad:
        yield plain(f"channel {bad.channel_id!r}, seq {bad.seq}: found {bad.found}; expected {bad.expected}")
    for one in verdict.bad_files:
        place = f"channel {one.channel_id!r}, seq {one.seq}, file {one.file}"
        yield plain(f"{place}: found {one.found}; expected {one.expected}")
    for channel_id, unknown in verdict.not_folded.items():
        yield plain(f"channel {channel_id!r} was not folded: only its own program knows the type {unknown!r}")
    yield from _changes_since(verdict)
    if verdict.note:
        yield f"note: {verdict.note}."
    pruned = f", {verdict.pruned} pruned" if verdict.pruned else ""
    files = f", {count_of(verdict.files, 'file')}" if verdict.files else ""
    records = f"{count_of(verdict.channels, 'channel')}, {count_of(verdict.records, 'record')}"
    counted = f"{records}{files}{pruned} at {verdict.address}"
    if verdict.is_good:
        yield f"{counted}: good."
        return
    wrong, lost_files = len(verdict.bad), len(verdict.bad_files)
    lost = f", {count_of(lost_files, 'bad file')}" if lost_files else ""
    repair = " `turnline log repair ADDRESS` says what it can save."
    yield f"{counted}: {count_of(wrong, 'bad channel')}{lost}. Restore them from a backup.{repair}"


def _changes_since(verdict: Verdict) -> Iterator[str]:
    """List what is not damage: what was erased, pruned and repaired since the seal."""
    if verdict.sealed_at is not None:
        yield f"sealed up to {verdict.sealed_at.isoformat()} ({count_of(verdict.seals, 'seal')} on the log)"
    for one in verdict.erased[:_MOST_LISTED]:
        lines = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in one.lines)
        yield plain(f"erased since: channel {one.channel_id!r}, lines {lines} (says line {one.seq})")
    yield from _more(len(verdict.erased), "erasures")
    yield from (plain(f"pruned since: channel {one!r}") for one in verdict.pruned_since[:_MOST_LISTED])
    yield from _more(len(verdict.pruned_since), "pruned channels")
    for channel_id in verdict.repaired:
        yield plain(f"repaired: channel {channel_id!r}; seals from before cover lines that were lost")


def _more(number: int, what: str) -> Iterator[str]:
    if number > _MOST_LISTED:
        yield f"and {number - _MOST_LISTED} more {what}"
