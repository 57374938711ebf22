"""`turnline demo`: a pipeline, a routed conversation, a YAML flow; the last two meet a `kill -9`.

No model, no key, no service: the models are scripted, the log is one SQLite file.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from turnline.cli import demo_flow
from turnline.cli.demo_scenes import Ledger, pipeline
from turnline.core import event_types as ev
from turnline.core.envelope import Close, Envelope, Speak
from turnline.core.event_types import body_of
from turnline.errors import TurnlineError
from turnline.log.sqlite import SqliteLog


def run(log: Path | None = None, model: str | None = None) -> None:
    """Play the demo; the log is kept at `log`, or in a new file. With `model`, its agents ask that one."""
    console = Console(highlight=False, soft_wrap=True)
    log = log or _new_file(Path(".turnline"))
    asyncio.run(_read(log, ""))  # A file that cannot be a log is told before anything is played.
    _pipeline(console, model)
    channel = _refund(log, console, model)
    demo_flow.play(log, console)
    _next(log, channel, console)


def _new_file(folder: Path) -> Path:
    """An earlier demo's log may hold a fork that waits for billing, who would go on with it in this play."""
    names = itertools.chain(["demo.db"], (f"demo-{number}.db" for number in itertools.count(2)))
    return next(path for path in map(folder.joinpath, names) if not path.exists())


def _pipeline(console: Console, model: str | None) -> None:
    console.print(
        "\n1. Three agents, one after the other: sequence(['researcher', 'writer', 'editor'])\n", style="bold"
    )
    result = asyncio.run(pipeline(model))
    for line in result.transcript:
        console.print(Text.assemble("   ", (f"{line.speaker}: ", "cyan"), line.text))
    console.print(f"   closed: {result.reason}\n", style="dim")


def _refund(log: Path, console: Console, model: str | None) -> str:
    """Play it, and return the channel it was played on."""
    channel = f"refund-{secrets.token_hex(4)}"
    ledger = Ledger(log.with_name(f"{channel}.ledger"))
    title = "2. A complaint, routed by a context variable; the process is killed in the middle of a tool\n"
    console.print(title, style="bold")
    first = _play(log, channel, ledger, model)
    before = asyncio.run(_read(log, channel))
    _tell(before, before, console)
    killed = (
        f"\n   kill -9 (exit code {first}) while the refund tool was running, behind line {before[-1].seq}\n"
    )
    console.print(killed, style="bold red")
    console.print("   The same program, started again, goes on from there:\n", style="bold")
    last = _play(log, channel, ledger, model)
    if last != 0:
        raise TurnlineError(f"the demo's second process ended with exit code {last}; please report it.")
    after = asyncio.run(_read(log, channel))
    _tell(after[len(before) :], after, console)
    _compare(before, after, ledger, console)
    return channel


def _next(log: Path, channel: str, console: Console) -> None:
    here = ".venv/bin/" if Path(".venv/bin/turnline").exists() else ""  # Where `./run` has put everything.
    turnline, address = f"{here}turnline", f"sqlite:///{log}"
    console.print(f"\nAll of it is in {log}. Three things to try next:\n")
    tries = [
        (f"{turnline} channels why {channel} --log {address}", "why the floor moved, rule by rule"),
        (
            f"{turnline} channels fork {channel} --at 10 --log {address}",
            "the same conversation, from line 10 on",
        ),
        _serving(turnline, address),
    ]
    for command, what in tries:
        console.print(Text.assemble("   ", (command, "bold"), f"\n      {what}"))
    console.print("\nThe studio is at http://127.0.0.1:8484/studio while that server runs.\n")


def _serving(turnline: str, address: str) -> tuple[str, str]:
    if demo_flow.is_playable():
        command = f"{turnline} serve {demo_flow.LEADS} --dev --log {address}"
        return command, "the flow, and the studio: open the address it prints"
    command = f"{turnline} new shop && {turnline} serve shop --dev --log {address}"
    return command, "a flow of your own, and the studio; with the extra [server] installed"


def _play(log: Path, channel: str, ledger: Ledger, model: str | None) -> int:
    command = [sys.executable, "-m", "turnline.cli.demo_scenes", str(log), channel, str(ledger.path)]
    return subprocess.run([*command, *filter(None, [model])], check=False, timeout=300).returncode


async def _read(path: Path, channel: str) -> list[Envelope]:
    log = SqliteLog(path)
    try:
        return [envelope async for envelope in log.read(channel)]
    finally:
        await log.close()


def _tell(lines: Iterable[Envelope], log: list[Envelope], console: Console) -> None:
    names = {one["agent_id"]: one["name"] for one in log[0].event_data["participants"]}
    for envelope in lines:
        for text in _told(envelope, names):
            console.print(text)


def _told(envelope: Envelope, names: dict[str, str]) -> Iterable[Text]:
    who, place = names.get(envelope.sender_id, "hub"), f"   {envelope.seq:>3}  "
    data = envelope.event_data
    match envelope.event_type:
        case ev.EV_TEXT | ev.EV_PACKET:
            yield Text.assemble(place, (f"{who}: ", "cyan"), body_of(envelope.event_type, data))
            yield Text(f"        {_why(envelope, names)}", style="dim")
        case ev.EV_CONTEXT_SET:
            sets = ", ".join(f"{key} = {value!r}" for key, value in data["set"].items())
            yield Text(f"{place}{who} sets {sets}", style="green")
        case ev.EV_TURN_MODEL:
            calls = ", ".join(call["tool"] for call in data["entry"]["calls"])
            yield Text(f"{place}the model calls {calls}", style="dim")
        case ev.EV_TURN_TOOL:
            yield Text(f"{place}{data['entry']['tool']}: {data['entry']['text']}", style="dim")
        case ev.EV_TURN_CLAIMED:
            yield Text(f"{place}{names[data['agent_id']]} takes the turn", style="dim")
        case ev.EV_CHANNEL_CLOSED:
            yield Text(f"{place}closed: {data['reason']}", style="bold")


def _why(envelope: Envelope, names: dict[str, str]) -> str:
    match envelope.decision:
        case Speak(agent_id=agent_id, by=by):
            return f"-> {names.get(agent_id, agent_id)}, because {by.condition} (transition {by.index})"
        case Close(reason=reason, by=by):
            return f"-> close as {reason!r}, because {by.condition} (transition {by.index})"
        case _:
            return "the floor stays where it is"


def _compare(before: list[Envelope], after: list[Envelope], ledger: Ledger, console: Console) -> None:
    lost = sum(one not in after for one in before)
    replies = sum(one.event_type in (ev.EV_TURN_MODEL, ev.EV_PACKET) for one in after)
    asked = [what for kind, what in ledger.lines() if kind == "asked"]
    paid = [what for kind, what in ledger.lines() if kind == "paid"]
    console.print(f"\n   lines acknowledged before the kill and lost: {lost}")
    if asked:  # A real model keeps no ledger.
        console.print(f"   replies of the models on the log: {replies}; requests they got: {len(asked)}")
    console.print(f"   the tool in flight ran {len(paid)} times, under {len(set(paid))} idempotency key")
