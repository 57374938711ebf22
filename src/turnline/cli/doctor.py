"""`turnline doctor`: whether a log can be reached, and what its acknowledgements mean.

Writes nothing, unless `--write` asks for one record. The exit code is 0 if all is well, 1 for a finding,
2 if the log cannot be reached. One that is not there yet can be: what would hold it is looked at.
"""

# A verb costs its imports only when it is called.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnline import __version__
from turnline.cli.db import settings_in
from turnline.cli.looking import BAD, AsJson, could_not_look
from turnline.cli.options import waited_for
from turnline.cli.plain import count_of, plain

if TYPE_CHECKING:
    from turnline.log.checkup import Checkup, Finding, Watch

EXAMPLE: Final = "Example: turnline doctor postgresql://turnline@localhost/turnline --write"
EXTRAS: Final = {
    "llm": "pydantic_ai",
    "flow": "sqlalchemy",
    "server": "uvicorn",
    "biscuit": "biscuit_auth",
    "remote": "websockets",
    "postgres": "psycopg",
    "nats": "nats",
    "otel": "opentelemetry.sdk",
    "mcp": "mcp",
}
"""Extra -> a package that shows that it is installed."""

Where = Annotated[
    str,
    typer.Argument(metavar="[ADDRESS | DIR]", help="A log, or a project's folder; without any, this one."),
]
Write = Annotated[
    bool,
    typer.Option("--write", help="Append one record to the channel `_doctor`, and say how long it took."),
]


def doctor(where: Where = ".", *, write: Write = False, as_json: AsJson = False) -> None:
    """Say whether a log is well set up, and how safe its writes are. Writes only with --write."""
    import msgspec

    installed = _installed()
    with could_not_look():
        address = _address(where)
        checkup, took = waited_for(_check(address, write=write))
        findings = [*checkup.findings, *_data_findings(where, address)]
    facts = {**installed, **checkup.facts}
    if took is not None:
        facts["one append"] = f"{took * 1000:.1f} ms"
    checkup = msgspec.structs.replace(checkup, findings=findings)
    typer.echo(_json(checkup, facts) if as_json else "\n".join(_told(checkup, facts)))
    if checkup.findings:
        raise typer.Exit(BAD)


def _address(where: str) -> str:
    """The log's address: as given, or the one that a folder's turnline.yaml names."""
    folder = Path(where)
    if not folder.is_dir():
        return where
    return settings_in(folder).log or f"sqlite:///{folder / '.turnline' / 'log.db'}"


def _data_findings(where: str, address: str) -> Iterator[Finding]:
    """Say that a project has data models, and no database for them."""
    from turnline.log.address import has_database, scheme_of
    from turnline.log.checkup import Finding

    folder = Path(where)
    if has_database(address) or not folder.is_dir():
        return
    from turnline.flow.project import models_in

    if settings_in(folder).database is None and models_in(folder):
        do = "Set database: in turnline.yaml, for example database: sqlite:///data.db."
        yield Finding("data models", f"a log ({scheme_of(address)}) without a database", "`database:`", do)


async def _check(address: str, *, write: bool) -> tuple[Checkup, float | None]:
    from turnline.hub.timers import SystemClock
    from turnline.log.checkup import Watch, check_up

    watch = Watch(SystemClock().now, time.perf_counter)
    checkup = await check_up(address, watch)
    return checkup, await _probe(address, watch) if write else None


async def _probe(address: str, watch: Watch) -> float:
    from turnline.hub.timers import SystemClock, sortable_ids
    from turnline.log.address import open_log
    from turnline.log.checkup import probe

    log = open_log(address)
    try:
        return await probe(log, watch, envelope_id=sortable_ids(SystemClock())())
    finally:
        await log.close()


def _installed() -> dict[str, str]:
    extras = [name for name, package in EXTRAS.items() if _is_there(package)]
    return {
        "turnline": __version__,
        "Python": platform.python_version(),
        "extras installed": ", ".join(extras) or "none",
    }


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # Of a name with a dot, the first part is not there.
        return False


def _json(checkup: Checkup, facts: dict[str, str]) -> str:
    import msgspec

    data = {"ok": not checkup.findings, **msgspec.to_builtins(checkup), "facts": facts}
    return json.dumps(data, indent=2, ensure_ascii=False)


def _told(checkup: Checkup, facts: dict[str, str]) -> Iterator[str]:
    yield f"{checkup.address} can be reached."
    yield ""
    width = max(map(len, facts))
    yield from (plain(f"  {name:{width}}  {value}") for name, value in facts.items())
    yield ""
    yield from checkup.means
    for finding in checkup.findings:
        yield ""
        yield plain(f"{finding.what}: found {finding.found}; expected {finding.expected}.")
        yield plain(f"  {finding.do}")
    yield ""
    number = len(checkup.findings)
    yield f"{count_of(number, 'finding')}." if number else "No findings."
