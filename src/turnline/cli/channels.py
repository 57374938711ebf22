"""`turnline channels`: look at conversations, follow them, fork and close them, take a person's turn.

Everything is read from the log. Nothing is changed but by `fork`, `retry`, `close` and `answer`. What the
verbs do is in `channel_verbs`, which costs its imports only when one is called.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnline.cli.options import (
    AsJson,
    Asked,
    Every,
    Folder,
    LogAddress,
    Output,
    Since,
    run,
    takes_list,
)

if TYPE_CHECKING:
    from turnline.cli.channel_verbs import Verbs


class Status(StrEnum):
    """The words of `log.walks.STATUSES`, which costs more to import."""

    OPEN = "open"
    PENDING = "pending"
    ACTIVE = "active"
    CLOSING = "closing"
    CLOSED = "closed"
    EXPIRED = "expired"
    WAITING = "waiting"
    STUCK = "stuck"
    RESTING = "resting"


app = typer.Typer(
    name="channels",
    help="Look at conversations, follow, explain and fork them. "
    "A channel is one conversation on a log; --log or --dir says which log. Runs of flows: see `runs`.",
    epilog="Example: turnline channels list --dir examples/support_desk",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ChannelId = Annotated[str, typer.Argument(metavar="ID", help="The channel's id; `list` shows them.")]


@app.command("list", epilog="Example: turnline channels list --status active --log story.db")
@takes_list(Status)
def list_channels(
    *, asked: Asked, log: LogAddress = None, directory: Folder = Path(), as_json: AsJson = False
) -> None:
    """List channels, the newest first.

    The index of the log answers: no channel is read. Runs of flows are among them; see `runs list`.
    """
    run(_verbs(log, directory, as_json=as_json).list_channels(asked))


@app.command(epilog="Example: turnline channels show 06sdq... --at 12")
def show(
    channel_id: ChannelId,
    *,
    at: Annotated[int | None, typer.Option(metavar="SEQ", help="As it was after this line.")] = None,
    last: Annotated[int, typer.Option("--lines", help="How many of its lines.", min=0)] = 20,
    every: Every = False,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Show a channel's status, context variables and last lines."""
    run(_verbs(log, directory, as_json=as_json).show(channel_id, at=at, last=last, every=every))


@app.command(epilog="Example: turnline channels tail 06sdq... --log story.db")
def tail(
    channel_id: ChannelId,
    *,
    since: Since = 0,
    every: Every = False,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Follow a conversation as it goes on, until it closes or Ctrl-C."""
    run(_verbs(log, directory, as_json=as_json).tail(channel_id, since=since, every=every))


@app.command(epilog="Example: turnline channels why 06sdq... 12")
def why(
    channel_id: ChannelId,
    seq: Annotated[
        int | None, typer.Argument(metavar="[SEQ]", help="Which line; else the last turn.")
    ] = None,
    *,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Say why the turn went to whom it did after a line. Every rule, and the one that decided."""
    run(_verbs(log, directory, as_json=as_json).why(channel_id, seq))


@app.command(epilog="Example: turnline channels fork 06sdq... --at 12")
def fork(
    channel_id: ChannelId,
    *,
    at: Annotated[int, typer.Option(metavar="SEQ", help="The last line that the fork shares.")],
    by: Annotated[str | None, typer.Option("--as", help="As this participant; else as the operator.")] = None,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Open a new channel with the past of another up to a line. Prints its id."""
    run(_verbs(log, directory, as_json=as_json).fork(channel_id, at=at, by=by))


@app.command(epilog="Example: turnline channels retry 06sdq... --log story.db")
def retry(
    channel_id: ChannelId,
    *,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Take the last turn that failed once more. Prints the channel's id.

    A stuck turn resumes on its own channel. A turn that failed is taken on a fork, from where it was given.
    """
    run(_verbs(log, directory, as_json=as_json).retry(channel_id))


@app.command(epilog="Example: turnline channels close 06sdq... 06sdr... --reason stale")
def close(
    channel_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The channels' ids.")],
    *,
    reason: Annotated[str, typer.Option(help="Why; a code such as `stale` is shown in lists.")] = "closed",
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Close channels, and what is open below them. The log notes that an operator did.

    Each is closed on its own. Exits with 1 if one of them could not be. For runs see `runs cancel`.
    """
    run(_verbs(log, directory, as_json=as_json).close(channel_ids, reason))


@app.command(epilog="Example: turnline channels diff 06sdq... 06sdr...-fork")
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A channel.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another, a fork of it for example.")],
    *,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Say where two channels part, and how they differ in the end. By context variables and cost."""
    run(_verbs(log, directory, as_json=as_json).diff(a, b))


@app.command(epilog="Example: turnline channels export 06sdq... -o tests/story.channel.json")
def export(
    channel_id: ChannelId,
    *,
    output: Output = None,
    log: LogAddress = None,
    directory: Folder = Path(),
) -> None:
    """Write a channel down as a test fixture. `turnline test` plays it without a model."""
    run(_verbs(log, directory).export(channel_id, output))


@app.command(epilog='Example: turnline channels answer 06sdq... "Yes, go on." --as user')
def answer(
    channel_id: ChannelId,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="What to say; else you are asked.")
    ] = None,
    *,
    name: Annotated[
        str | None,
        typer.Option("--as", help="The person you speak as, or answer for, if there are several."),
    ] = None,
    question: Annotated[
        str | None, typer.Option(metavar="ID", help="The question you answer, if several are open.")
    ] = None,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Take a person's turn, or answer what an agent has asked them.

    The log notes that an operator answered, and for which person.
    """
    run(_verbs(log, directory, as_json=as_json).answer(channel_id, text, name, question))


def _verbs(log: str | None, folder: Path, *, as_json: bool = False) -> Verbs:
    from turnline.cli.channel_verbs import Verbs

    return Verbs(log, folder, as_json=as_json)
