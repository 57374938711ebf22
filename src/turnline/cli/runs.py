"""`turnline runs`: look at the runs of flows, follow them, ask why, retry them, write them down.

Everything is read from the log, and nothing private is shown (F2). Only `retry` needs the project's code.
What the verbs do is in `run_verbs`, which costs its imports only when one is called.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnline.cli.options import (
    FIELD,
    AsJson,
    Asked,
    Folder,
    LogAddress,
    Output,
    Since,
    Yes,
    run,
    takes_list,
)
from turnline.errors import MissingExtra

if TYPE_CHECKING:
    from turnline.cli.run_verbs import Verbs

app = typer.Typer(
    name="runs",
    help="Look at the runs of flows, follow, explain and retry them. "
    "A run is one execution of a flow, on a log; --log or --dir says which log.",
    epilog="Example: turnline runs list --dir examples/leads",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Status(StrEnum):
    """The values of `flow.verdict.LISTED`, which costs more to import."""

    RUNNING = "running"
    WAITING = "waiting"
    STUCK = "stuck"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Cancelled(StrEnum):
    """Which runs can be cancelled."""

    RUNNING = Status.RUNNING.value
    WAITING = Status.WAITING.value
    STUCK = Status.STUCK.value


class Retried(StrEnum):
    """What a retry of many is for."""

    FAILED = Status.FAILED.value
    STUCK = Status.STUCK.value
    CANCELLED = Status.CANCELLED.value


RunId = Annotated[str, typer.Argument(metavar="ID", help="The run's id; `list` shows them.")]


@app.command("list", epilog="Example: turnline runs list --flow lead_processing --dir examples/leads")
@takes_list(Status)
def list_runs(
    *, asked: Asked, log: LogAddress = None, directory: Folder = Path(), as_json: AsJson = False
) -> None:
    """List runs, the newest first. Those below another run are not in it.

    The index of the log answers. Only failed and stuck runs that are listed are read, to say why.
    """
    run(_verbs(log, directory, as_json=as_json).list_runs(asked))


@app.command(epilog="Example: turnline runs show 06sdq...")
def show(
    run_id: RunId, *, log: LogAddress = None, directory: Folder = Path(), as_json: AsJson = False
) -> None:
    """Show a run: where it stands, its public context, its steps."""
    run(_verbs(log, directory, as_json=as_json).show(run_id))


@app.command(epilog="Example: turnline runs tail 06sdq... --dir examples/leads")
def tail(
    run_id: RunId,
    *,
    since: Since = 0,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Follow a run's steps as they end, until it is over or Ctrl-C."""
    run(_verbs(log, directory, as_json=as_json).tail(run_id, since))


@app.command(epilog="Example: turnline runs why 06sdq... 9")
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
    """Say why a run went where it did after a step. Every route, and the one that was taken."""
    run(_verbs(log, directory, as_json=as_json).why(run_id, seq))


@app.command(epilog="Example: turnline runs cancel --status waiting --flow lead_processing --until 30d --yes")
@takes_list(Cancelled, help="Without an ID: cancel every run of this status; see --yes.")
def cancel(
    run_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="The runs' ids.")] = None,
    *,
    asked: Asked,
    yes: Yes = False,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Cancel runs: close them, and what is open below them. The log notes that an operator did.

    With --status it cancels those that the filters leave, the newest first. Each is cancelled on its own.
    Exits with 1 if one of them could not be.
    """
    verbs = _verbs(log, directory, as_json=as_json)
    if run_ids and asked == Asked() and not yes:
        run(verbs.cancel(run_ids))
    elif not run_ids and asked.status is not None:
        run(verbs.cancel_all(asked, is_sure=yes))
    else:
        raise typer.BadParameter("Give IDs, or --status with filters.")


@app.command(epilog="Example: turnline runs retry --status failed --flow lead_processing --since 24h --yes")
@takes_list(Retried, help="Without an ID: retry every run of this status; see --yes.")
def retry(
    run_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The run's id; `list` shows them.")
    ] = None,
    *,
    asked: Asked,
    step: Annotated[str | None, typer.Option(help="From which step; else from the last one.")] = None,
    by: Annotated[
        str | None,
        typer.Option("--as", help="The user of the new run (`_user_id`); else it has none, as with `run`."),
    ] = None,
    yes: Yes = False,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Start a run that continues from a step of one that is over. Waits until it rests.

    A run that is stuck resumes itself, after its last recorded line.

    With --status it retries many: those that the filters leave, the newest first, without those that were
    retried before. Cancelled runs are retried with `--status cancelled` only. It continues after a run that
    fails, and exits with 1 if one did.
    """
    verbs = _verbs(log, directory, as_json=as_json)
    if run_id is not None and asked == Asked() and not yes:
        run(verbs.retry(run_id, step, by))
    elif run_id is None and step is None and asked.status is not None:
        run(verbs.retry_all(asked, by, is_sure=yes))
    else:
        raise typer.BadParameter("Give an ID, or --status with filters. A step belongs to an ID.")


@app.command(epilog="Example: turnline runs fork 06sdq... --at 9")
def fork(
    run_id: RunId,
    *,
    at: Annotated[int, typer.Option(metavar="SEQ", help="The last line that the fork shares.")],
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Open a run with the past of another up to a line. A server on the log goes on with it."""
    run(_verbs(log, directory, as_json=as_json).fork(run_id, at))


@app.command(epilog="Example: turnline runs answer 06sdq... -i approved=yes --dir examples/leads")
def answer(
    run_id: RunId,
    *,
    pairs: Annotated[
        list[str] | None,
        typer.Option("-i", "--set", metavar="KEY=VALUE", help=FIELD.format("form")),
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="ID", help="Which task, if the run has several; see `tasks`.")
    ] = None,
    by: Annotated[str, typer.Option("--as", help="Who answers.")] = "operator",
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Answer a task of a run, and wait until it rests.

    A task is a human step that waits, or a question of an agent step.
    """
    run(_verbs(log, directory, as_json=as_json).answer(run_id, task, pairs or [], by))


@app.command(epilog="Example: turnline runs tasks --group ops --dir examples/leads")
def tasks(
    *,
    group: Annotated[str | None, typer.Option(help="Only those of this group.")] = None,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """List what runs ask of people.

    These are human steps that wait, and questions of agent steps.
    """
    run(_verbs(log, directory, as_json=as_json).list_tasks(group))


@app.command(epilog="Example: turnline runs export 06sdq... -o tests/lead.fixture.json")
def export(
    run_id: RunId,
    *,
    output: Output = None,
    log: LogAddress = None,
    directory: Folder = Path(),
) -> None:
    """Write a run down as a test fixture. `turnline test` plays it without a model."""
    run(_verbs(log, directory).export(run_id, output))


def _verbs(log: str | None, folder: Path, *, as_json: bool = False) -> Verbs:
    try:
        from turnline.cli.run_verbs import Verbs
    except (ModuleNotFoundError, MissingExtra) as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("turnline"):
            raise
        raise MissingExtra("flows", extra="server") from None
    return Verbs(log, folder, as_json=as_json)
