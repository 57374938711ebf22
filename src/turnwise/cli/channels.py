"""`turnwise channels`: look at conversations, follow them, fork them, take a person's turn.

Everything is read from the log. Nothing is changed but by `fork` and `answer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from turnwise.cli import answering, lines, tables
from turnwise.cli.open_log import AsJson, Folder, LogAddress, looking_at
from turnwise.cli.plain import one_line, print_json, public
from turnwise.client.embedded import Hub
from turnwise.client.fixture import export_channel
from turnwise.core.channel import ChannelMetadata, ChannelState
from turnwise.core.envelope import JsonObject
from turnwise.core.state import State, metadata_of
from turnwise.core.study.looked import name_of

INTERRUPTED: Final = 130
_VALUE_CHARACTERS: Final = 200

app = typer.Typer(
    name="channels",
    help="Look at conversations, follow them, ask why, fork them, take a person's turn.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ChannelId = Annotated[str, typer.Argument(metavar="ID", help="The channel's id; `list` shows them.")]


@app.command("list", epilog="Example: turnwise channels list --status active --log story.db")
def list_channels(
    *,
    status: Annotated[ChannelState | None, typer.Option(help="Only those of this status.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only those of this participant, by name.")] = None,
    limit: Annotated[int, typer.Option(help="How many, the newest.", min=1)] = 50,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """List channels, the newest last."""

    async def work() -> None:
        async with looking_at(log, directory) as hub:
            found = await hub.list_channels(agent_id=agent, state=status)
        found = sorted(found, key=lambda one: (one.created_at, one.channel_id))[-limit:]
        if as_json:
            print_json([summary(one) for one in found])
            return
        rows = [_row(one) for one in found]
        tables.show(("id", "type", "status", "turns", "lines", "floor", "participants"), rows)
        if not found:
            typer.echo("no channel is there.", err=True)

    _run(work())


@app.command(epilog="Example: turnwise channels show 06sdq... --at 12")
def show(
    channel_id: ChannelId,
    *,
    at: Annotated[int | None, typer.Option(metavar="SEQ", help="As it was after this line.")] = None,
    last: Annotated[int, typer.Option("--lines", help="How many of its lines.", min=0)] = 20,
    every: Annotated[
        bool, typer.Option("--all", help="Also claims and other lines of the machinery.")
    ] = False,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Show a channel: where it stands, its context variables, its last lines."""

    async def work() -> None:
        async with looking_at(log, directory) as hub:
            now = await hub.state(channel_id)
            state = now if at is None else await hub.state_at(channel_id, at)
            wal = [one for one in await hub.read_wal(channel_id) if one.seq <= state.seq]
        if as_json:
            told = [lines.as_json(one, state.spec) for one in (wal[-last:] if last else [])]
            context = public(state.context_vars)
            print_json({**summary(metadata_of(state)), **_origin(state), "context": context, "lines": told})
            return
        for text in _told(state):
            typer.echo(text)
        teller = lines.Teller(state.spec, every=every)
        shown = [one for one in map(teller.tell, wal) if one]
        for one in shown[-last:] if last else []:
            tables.say(one)

    _run(work())


@app.command(epilog="Example: turnwise channels tail 06sdq... --log story.db")
def tail(
    channel_id: ChannelId,
    *,
    since: Annotated[int, typer.Option(metavar="SEQ", help="Only what stands behind this line.", min=0)] = 0,
    every: Annotated[
        bool, typer.Option("--all", help="Also claims and other lines of the machinery.")
    ] = False,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Follow a conversation as it goes on, until it closes or Ctrl-C."""

    async def work() -> None:
        async with looking_at(log, directory, follow=True) as hub:
            then = await hub.state_at(channel_id, max(since, 1))
            seq, spec = since, then.spec
            teller = lines.Teller(spec, floor=then.expected_next_speaker, every=every)
            while True:
                for line in await hub.read_recent(channel_id, seq):
                    seq, shown = line.seq, teller.tell(line)
                    if as_json:
                        typer.echo(msgspec.json.encode(lines.as_json(line, spec)).decode())
                    elif shown is not None:
                        tables.say(shown)
                if not await hub.wait_beyond(channel_id, seq):
                    return

    _run(work())


@app.command(epilog="Example: turnwise channels why 06sdq... 12")
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
    """Say why a line moved the floor: every rule, what it looked at, and the one that decided."""

    async def work() -> None:
        async with looking_at(log, directory) as hub:
            told = await hub.why(channel_id, seq or await last_turn(hub, channel_id))
        print_json(public(msgspec.to_builtins(told))) if as_json else tables.paragraph(str(told))

    _run(work())


@app.command(epilog="Example: turnwise channels fork 06sdq... --at 12")
def fork(
    channel_id: ChannelId,
    *,
    at: Annotated[int, typer.Option(metavar="SEQ", help="The last line that the fork shares.")],
    by: Annotated[str | None, typer.Option("--as", help="As this participant; else as the operator.")] = None,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Open a channel with the past that another had at a line; print its id."""

    async def work() -> None:
        async with looking_at(log, directory) as hub:
            fork_id = await hub.fork(channel_id, at=at, by=by)
            state = await hub.state(fork_id)
        if as_json:
            print_json({**summary(metadata_of(state)), **_origin(state)})
            return
        typer.echo(fork_id)
        if state.expected_next_speaker is not None:
            speaker = one_line(name_of(state.expected_next_speaker, state.spec), _VALUE_CHARACTERS)
            typer.echo(f"{speaker} has the floor; it goes on wherever {speaker} is attached.", err=True)

    _run(work())


@app.command(epilog="Example: turnwise channels diff 06sdq... 06sdr...-fork")
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A channel.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another, a fork of it for example.")],
    *,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Say where two channels part, and what is different in the end: context variables and cost."""

    async def work() -> None:
        async with looking_at(log, directory) as hub:
            told = await hub.history.diff(a, b)
        if as_json:
            print_json({"is_same": told.is_same, **_object(public(msgspec.to_builtins(told)))})
        else:
            tables.paragraph(str(told))

    _run(work())


@app.command(epilog="Example: turnwise channels export 06sdq... -o tests/story.channel.json")
def export(
    channel_id: ChannelId,
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file; else standard output.")
    ] = None,
    log: LogAddress = None,
    directory: Folder = Path(),
) -> None:
    """Write a channel down as a test fixture, which `turnwise test` plays without a model."""

    async def work() -> None:
        async with looking_at(log, directory) as hub:
            fixture = await export_channel(hub, channel_id)
        text = msgspec.json.format(msgspec.json.encode(fixture), indent=2).decode()
        output.write_text(f"{text}\n") if output is not None else typer.echo(text)

    _run(work())


@app.command(epilog='Example: turnwise channels answer 06sdq... "Yes, go on." --as user')
def answer(
    channel_id: ChannelId,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="What to say; else you are asked.")
    ] = None,
    *,
    name: Annotated[
        str | None, typer.Option("--as", help="Which person you are, if there are several.")
    ] = None,
    log: LogAddress = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Take a turn that waits for a person, or answer what an agent has asked a person."""

    async def work() -> None:
        async with looking_at(log, directory) as hub:
            waiting = await answering.waiting(hub, channel_id, name)
            said = text if text is not None else answering.ask(waiting)
            line = await answering.answer(hub, waiting, said)
            state = await hub.state(channel_id)
        if as_json:
            print_json(lines.as_json(line, state.spec))
        elif (shown := lines.Teller(state.spec).tell(line)) is not None:
            tables.say(shown)

    _run(work())


async def last_turn(hub: Hub, channel_id: str) -> int:
    """The last line that moved the floor; the last line, if none did."""
    wal = await hub.read_wal(channel_id)
    return next((one.seq for one in reversed(wal) if one.decision is not None), wal[-1].seq)


def summary(one: ChannelMetadata) -> JsonObject:
    """What a list tells of a channel."""
    names = {member.agent_id: member.name for member in one.participants}
    return {
        "channel_id": one.channel_id,
        "type": one.type,
        "status": one.status.value,
        "reason": one.close_reason,
        "turns": one.turn_count,
        "seq": one.seq,
        "floor": names.get(one.speaker_id or ""),
        "participants": list(names.values()),
        "labels": public(one.labels),
        "created_at": one.created_at.isoformat(),
        "parent_id": one.parent_id,
    }


def _row(one: ChannelMetadata) -> tuple[str, ...]:
    told = summary(one)
    status = f"{told['status']} ({told['reason']})" if told["reason"] else told["status"]
    texts = (told["channel_id"], told["type"], status, str(told["turns"]), str(told["seq"]))
    return tuple(
        one_line(text, _VALUE_CHARACTERS)
        for text in (*texts, told["floor"] or "", ", ".join(told["participants"]))
    )


def _origin(state: State) -> JsonObject:
    origin = state.spec.forked_from
    return {} if origin is None else {"forked_from": msgspec.to_builtins(origin)}


def _told(state: State) -> list[str]:
    told = summary(metadata_of(state))
    status = f"{told['status']}: {told['reason']}" if told["reason"] else told["status"]
    texts = [
        f"{told['channel_id']}  {told['type']}, {status}, {told['turns']} turns, {told['seq']} lines",
        f"participants: {', '.join(told['participants'])}",
    ]
    origin = state.spec.forked_from
    texts += [f"forked from {origin.channel} at {origin.seq}"] if origin else []
    texts += [f"the floor: {told['floor']}"] if told["floor"] else []
    for key, value in _object(public(state.context_vars)).items():
        texts.append(f"  {key} = {msgspec.json.encode(value).decode()}")
    return [
        one_line(text, _VALUE_CHARACTERS) if not text.startswith(" ") else f"  {one_line(text, 200)}"
        for text in texts
    ]


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
