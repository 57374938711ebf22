"""`turnwise runs`: look at the runs of flows, follow them, ask why, retry them, write them down.

Everything is read from the log, and nothing private is shown (F2). Only `retry` needs the project's code.
"""

# What reads flows is installed on request, and costs its imports only when a verb is called.
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from turnwise.cli import tables
from turnwise.cli.channels import last_turn
from turnwise.cli.open_log import AsJson, Folder, LogAddress, looking_at
from turnwise.cli.plain import one_line, plain, print_json, public
from turnwise.errors import MissingExtra, UnknownParticipant, UnknownRun

if TYPE_CHECKING:
    from turnwise.client.embedded import Hub
    from turnwise.core.envelope import JsonObject
    from turnwise.core.state import WorkflowState
    from turnwise.flow.runs import Runs

FAILED: Final = 1
WAITS: Final = 3
"""Exit code of a run that waits for somebody, as of `turnwise run`."""
INTERRUPTED: Final = 130
_CHARACTERS: Final = 200
_MOST: Final = 100_000
"""Runs that are looked at to list the newest."""

app = typer.Typer(
    name="runs",
    help="Look at the runs of flows, follow them, ask why, retry them, write them down.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

RunId = Annotated[str, typer.Argument(metavar="ID", help="The run's id; `list` shows them.")]


@app.command("list", epilog="Example: turnwise runs list --flow lead_processing --dir examples/leads")
def list_runs(
    *,
    flow: Annotated[str | None, typer.Option(help="Only those of this flow.")] = None,
    limit: Annotated[int, typer.Option(help="How many, the newest.", min=1)] = 50,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """List runs, the newest last. Those below another run are not in it."""

    async def work() -> None:
        async with _reading(log, directory) as (_, runs):
            found = [] if runs is None else await runs.runs(flow=flow, limit=_MOST)
        told = [_summary(one) for one in sorted(found, key=lambda one: one.created_at)[-limit:]]
        if as_json:
            print_json(told)
            return
        tables.show(("id", "flow", "status", "step", "error"), [_row(one) for one in told])
        if not told:
            typer.echo("no run is there.", err=True)

    _run(work())


@app.command(epilog="Example: turnwise runs show 06sdq...")
def show(
    run_id: RunId, *, log: LogAddress = None, directory: Folder = Path(), as_json: AsJson = False
) -> None:
    """Show a run: where it stands, its public context, its steps."""

    async def work() -> None:
        from turnwise.flow.verdict import verdict

        async with _reading(log, directory) as (hub, runs):
            state = await _state(runs, run_id)
            events = await _events(hub, run_id, 0)
        told, data = _summary(state), public(verdict(state).data)
        if as_json:
            print_json({**told, "data": data, "events": [msgspec.to_builtins(one) for one in events]})
            return
        head = ("id", "flow", "status", "step", "error")
        tables.show(head, [_row(told)])
        for event in events:
            _say(event)
        print_json(data)

    _run(work())


@app.command(epilog="Example: turnwise runs tail 06sdq... --dir examples/leads")
def tail(
    run_id: RunId,
    *,
    since: Annotated[int, typer.Option(metavar="SEQ", help="Only what stands behind this line.", min=0)] = 0,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Follow a run's steps as they end, until it is over or Ctrl-C."""

    async def work() -> None:
        async with _reading(log, directory, follow=True) as (hub, runs):
            await _state(runs, run_id)
            seq = since
            while True:
                reached = (await hub.state(run_id)).seq
                for event in await _events(hub, run_id, seq):
                    if as_json:
                        typer.echo(msgspec.json.encode(event).decode())
                    else:
                        _say(event)
                seq = max(seq, reached)
                if not await hub.wait_beyond(run_id, seq):
                    return

    _run(work())


@app.command(epilog="Example: turnwise runs why 06sdq... 9")
def why(
    run_id: RunId,
    seq: Annotated[
        int | None, typer.Argument(metavar="[SEQ]", help="Which line; else the last step.")
    ] = None,
    *,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Say why a run went where it did after a step: every route, and the one that was taken."""

    async def work() -> None:
        async with _reading(log, directory) as (hub, runs):
            await _state(runs, run_id)
            told = await hub.why(run_id, seq or await last_turn(hub, run_id))
        print_json(public(msgspec.to_builtins(told))) if as_json else tables.paragraph(str(told))

    _run(work())


@app.command(epilog="Example: turnwise runs retry 06sdq... --step save --dir examples/leads")
def retry(
    run_id: RunId,
    *,
    step: Annotated[str | None, typer.Option(help="From which step; else from the last one.")] = None,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Start a run that goes on from a step of one that is over, and wait until it rests."""

    async def work() -> int:
        with _flows():
            from turnwise.flow.project import load_project
            from turnwise.server.runtime import open_runtime

        project = load_project(directory)
        project.report.raise_if_bad()
        async with open_runtime(project, log_address=log) as runtime:
            new = await runtime.runs.retry(run_id, step=step)
            found = await runtime.runs.wait(new)
        told: JsonObject = {
            "run_id": new,
            "retry_of": run_id,
            "status": found.status,
            "data": public(found.data),
        }
        if found.error is not None:
            told["error"] = msgspec.to_builtins(found.error)
        print_json(told) if as_json else _tell(told)
        return {"succeeded": 0, "waiting": WAITS}.get(found.status, FAILED)

    code = asyncio.run(work())
    if code:
        raise typer.Exit(code)


@app.command(epilog="Example: turnwise runs export 06sdq... -o tests/lead.fixture.json")
def export(
    run_id: RunId,
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file; else standard output.")
    ] = None,
    log: LogAddress = None,
    directory: Folder = Path(),
) -> None:
    """Write a run down as a test fixture, which `turnwise test` plays without a model."""

    async def work() -> None:
        async with _reading(log, directory) as (_, runs):
            from turnwise.flow.testing.fixture import export_run

            await _state(runs, run_id)
            assert runs is not None  # `_state` has seen the run.
            fixture = await export_run(runs, run_id)
        text = msgspec.json.format(msgspec.json.encode(fixture), indent=2).decode()
        output.write_text(f"{text}\n") if output is not None else typer.echo(text)

    _run(work())


@asynccontextmanager
async def _reading(
    log: str | None, folder: Path, *, follow: bool = False
) -> AsyncIterator[tuple[Hub, Runs | None]]:
    """The runs on a log, to look at: nobody works on them here. None, where there never was one."""
    with _flows():
        from turnwise.flow.driver import DRIVER, Driver
        from turnwise.flow.runs import Runs
        from turnwise.flow.work import Services

    async with looking_at(log, folder, follow=follow) as hub:
        driver = Driver(hub, Services())
        try:
            driver.agent_id = hub.participant(DRIVER).agent_id
        except UnknownParticipant:
            yield hub, None
        else:
            yield hub, Runs(driver)


async def _state(runs: Runs | None, run_id: str) -> WorkflowState:
    if runs is None:
        raise UnknownRun(run_id)
    return await runs.state(run_id)


async def _events(hub: Hub, run_id: str, after: int) -> list[Any]:
    from turnwise.flow.events import event_of

    return [event for event in map(event_of, await hub.read_wal(run_id, after)) if event is not None]


def _summary(state: WorkflowState) -> JsonObject:
    with _flows():
        from turnwise.server.runs import summary

    told = public(msgspec.to_builtins(summary(state)))
    assert isinstance(told, dict)
    return told


def _row(told: JsonObject) -> tuple[str, ...]:
    error = told.get("error")
    because = f"{error['type']}: {error['message']}" if error else ""
    texts = (told["run_id"], told["flow"], told["status"], told.get("step") or "", because)
    return tuple(one_line(str(text), _CHARACTERS) for text in texts)


def _say(event: Any) -> None:
    from turnwise.cli.steps import told

    text = told(event)
    if event.type == "ended":
        text = f"ended: {plain(event.reason)}"
    if text:
        typer.echo(f"{event.seq:>5} {event.at:%H:%M:%S} {text}")


def _tell(told: JsonObject) -> None:
    error = told.get("error")
    typer.echo(f"{told['run_id']} {told['status']}")
    if error:
        typer.echo(plain(f"{error['type']}: {error['message']}"), err=True)
    else:
        print_json(told["data"])


@contextmanager
def _flows() -> Iterator[None]:
    """What reads flows is there, or the error says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("turnwise"):
            raise
        raise MissingExtra("flows", extra="server") from None


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
