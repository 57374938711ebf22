"""Record what this program writes: `python -m tests.histories.record`.

    unreleased/NAME.jsonl          a log, as `turnline log export` writes it
    unreleased/NAME.states.jsonl   every line of its channels as it is read, and what it changes in the state
    unreleased/NAME.db, -wal       the files of a SQLite log, as a killed process leaves them

Nothing has been released, so a change of the format replaces the recordings in the same commit. The first
release renames the folder to its version. From then on that folder is never changed.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from io import BytesIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from tests.flow.stage import stage
from tests.waits import begin, join
from turnline import Agent, Context, ToolResult, run
from turnline.agent.messages import Message
from turnline.client.embedded import Hub as EmbeddedHub
from turnline.core.codec import SALT_BYTES
from turnline.core.envelope import JsonObject
from turnline.hub.channels import SNAPSHOT_EVERY
from turnline.hub.hub import Hub
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.log.records import MemoryRecords
from turnline.log.sqlite import SqliteLog
from turnline.log.transfer import export_log
from turnline.network import (
    AgentTarget,
    ContextEquals,
    FromSpeaker,
    HubClient,
    LocalLink,
    Passport,
    TerminateTarget,
    Transition,
    TransitionGraph,
    sequence,
)
from turnline.network.workflow_helpers import set_context
from turnline.testing import ManualClock, ScriptedModel, call

CHAT: Final[JsonObject] = {"graph": sequence(["user", "user", "clerk", "user"]).to_dict()}
FOLDER: Final = Path(__file__).parent / "unreleased"
REFUND_FLOW: Final = """
metadata: {name: refund}
spec:
  trigger: {path: /refunds, input: {order: {type: integer, required: true}}}
  context: {defaults: {paid: 0}}
  steps:
    - {id: charge, runner: look_up}
    - id: approve
      human: {title: "Pay {{ amount }} back?", form: {approved: boolean}, signal_from: approved}
      routes: {"true": pay, "false": END}
    - {id: pay, runner: pay_back, retry: {attempts: 2, backoff: 1}}
"""


async def pipeline(log: Log) -> None:
    """Three agents, one after the other."""
    agents = [Agent(name, config=ScriptedModel(f"The {name}'s words.")) for name in ("writer", "editor")]
    await run(sequence(["writer", "editor"]), agents=agents, message="HTTPS, in one line", log=log)


async def routed(log: Log) -> None:
    """Tools, context variables, a question to a person; letters of other alphabets."""
    triage = Agent("triage", config=ScriptedModel(call("file", under="billing", weight=3), "Für die Kasse ✓"))
    billing = Agent("billing", config=ScriptedModel(call("pay", amount=19.9), "19,90 € sind unterwegs."))

    @triage.tool
    def file(under: str, weight: int) -> ToolResult:
        """File the case."""
        return ToolResult("filed", context={"desk": under, "weight": weight, "tags": ["дело", None]})

    @billing.tool
    async def pay(amount: float, context: Context) -> str:
        """Pay back, if a person agrees."""
        return f"{amount}: {await context.input('Pay it?')}"

    graph = TransitionGraph(
        "user",
        [
            Transition(FromSpeaker("billing"), TerminateTarget("resolved")),
            Transition(ContextEquals("desk", "billing"), AgentTarget("billing")),
            Transition(FromSpeaker("user"), AgentTarget("triage")),
        ],
        TerminateTarget("nobody"),
        max_turns=8,
    )
    async with clients(log) as client:
        user = await client.register_human(Passport(name="user", kind="human"))
        for agent in (triage, billing):
            await client.register(agent, attach_plugin=False)
        channel = await user.open(
            "workflow",
            ["triage", "billing"],
            {"graph": graph.to_dict(), "context_vars": {"vip": True}},
            message="I was charged twice.",
        )
        while (asked := await user.next_envelope()).event_type != "human.requested":
            pass
        await user.answer(asked, "yes")
        await channel.result()


async def person(log: Log) -> None:
    """Two runs of a flow ask a person; one is answered and ends, the other one waits."""
    async with stage(REFUND_FLOW, log=log, look_up=look_up, pay_back=Bank().pay_back) as house:
        for run_id in ("refund-1", "refund-2"):
            await house.runs.start("refund", {"order": 1042}, run_id=run_id)
            await house.paused(run_id, "person")
        [first] = [one for one in await house.tasks.list() if one.run_id == "refund-1"]
        await house.tasks.answer(first.task_id, {"approved": True}, by="sam")
        await house.paused("refund-1", "retry")
        await house.pass_time(1)
        await house.ended("refund-1")


async def fork(log: Log) -> None:
    """A conversation with an interjection, and another one with its past and another end."""
    async with clients(log) as client:
        assert client.hub is not None
        hub = client.hub
        user = await client.register_human(Passport(name="user", kind="human"))
        writer = await client.register(passport=Passport(name="writer"))
        knobs = {"graph": sequence(["user", "writer", "user"]).to_dict()}
        first = await user.open("workflow", ["writer"], knobs, message="A line, please.", channel_id="first")
        await first.send("A short one.")
        at = (await hub.state("first")).seq
        await writer.channel("first").send("Roses are red.")
        other = await hub.fork("first", at=at)
        await set_context(writer.channel(other), "colour", "blue")
        await writer.channel(other).send("Violets are blue.")
        await first.send("Thank you.")
        await first.result()


async def failed(log: Log) -> None:
    """A turn that fails behind a tool call: what it set is undone, and the channel closes."""
    breaking = ScriptedModel(call("note", text="half done"), RuntimeError("the model is gone"))
    agent = Agent("clerk", config=breaking, attempts=1)

    @agent.tool
    def note(text: str) -> ToolResult:
        """Write something down."""
        return ToolResult("noted", context={"note": text})

    await run(sequence(["clerk"]), agents=[agent], message="go", log=log, context_vars={"note": ""})


SCENES: Final[dict[str, Callable[[Log], Awaitable[None]]]] = {
    one.__name__: one for one in (pipeline, routed, person, fork, failed)
}


async def turn(path: Path, copy: Callable[[], None]) -> None:
    """A conversation with a snapshot; the clerk's turn has one tool call on the log, and asks its model."""

    def last(messages: tuple[Message, ...]) -> str:
        copy()
        return "Filed."

    async with open_file(path) as log, clients(log) as client:
        user = await client.register_human(Passport(name="user", kind="human"))
        await client.register(clerk(ScriptedModel()), attach_plugin=False)
        channel = await user.open("workflow", ["clerk"], CHAT, channel_id="turn", message="hello")
        for number in range(SNAPSHOT_EVERY):
            await channel.interject(str(number))
    async with open_file(path) as log, clients(log) as client:
        user = await client.register_human(Passport(name="user", kind="human"))
        await client.register(clerk(ScriptedModel(call("file", under="billing"), last)), attach_plugin=False)
        channel = user.channel("turn")
        await channel.send("File it, please.")
        while (await channel.state()).expected_next_speaker != user.agent_id:  # noqa: ASYNC110  A script.
            await asyncio.sleep(0.01)


def clerk(model: ScriptedModel) -> Agent:
    """An agent that files."""
    agent = Agent("clerk", config=model)

    @agent.tool
    def file(under: str) -> ToolResult:
        """File the case."""
        return ToolResult("filed", context={"desk": under})

    return agent


async def wait(kind: str, path: Path, copy: Callable[[], None]) -> None:
    """A channel of `tests.waits` that waits for a person."""
    async with open_file(path) as log, clients(log) as client:
        assert client.hub is not None
        people = await join(client, kind, lambda channel_id, what: None)
        await begin(people["user"], kind, kind)
        everybody = {one.agent_id for one in people.values()}
        while not await is_waiting(client.hub, everybody):  # noqa: ASYNC110  A script.
            await asyncio.sleep(0.01)
        copy()


async def is_waiting(hub: Hub, people: set[str]) -> bool:
    """Whether a person has a question to answer, or the floor."""
    states = [await hub.state(one.channel_id) for one in await hub.list_channels()]
    return any(one.questions or one.expected_next_speaker in people for one in states)


FILES: Final[dict[str, Callable[[Path, Callable[[], None]], Awaitable[None]]]] = {
    "turn": turn,
    **{kind: partial(wait, kind) for kind in ("approval", "fan-out", "nested")},
}
WITH_WAL: Final = {"turn"}
"""Their last commits are in the `-wal` file. Those of the others are in the main file, which is smaller."""


class Bank:
    """It fails once."""

    def __init__(self) -> None:
        self._asked = 0

    def pay_back(self, ctx: dict[str, Any]) -> JsonObject:
        self._asked += 1
        if self._asked == 1:
            raise ConnectionError("the bank is closed")
        return {"paid": ctx["amount"]}


def look_up(ctx: dict[str, Any]) -> JsonObject:
    return {"amount": 19.9, "_account": "kept to ourselves"}


@asynccontextmanager
async def clients(log: Log) -> AsyncIterator[HubClient]:
    hub = await EmbeddedHub.open(log, clock=ManualClock(), ttl_sweep_interval=0)
    client = HubClient(LocalLink(hub), hub=hub)
    try:
        yield client
    finally:
        await client.close()
        await hub.close()


@asynccontextmanager
async def open_file(path: Path) -> AsyncIterator[SqliteLog]:
    log = SqliteLog(path)
    try:
        yield log
    finally:
        await log.close()


async def read_states(log: Log) -> AsyncIterator[JsonObject]:
    """Every line of every channel on a log, and what it changes in the state of its channel."""
    hub = await EmbeddedHub.open(log, clock=ManualClock(), ttl_sweep_interval=0)
    try:
        for channel in sorted(one.channel_id for one in await hub.list_channels()):
            before: JsonObject = {}
            async for line, state in hub.history.states(channel):
                now: JsonObject = msgspec.to_builtins(state)
                changed = {key: value for key, value in now.items() if before.get(key, ...) != value}
                yield {"channel": channel, "line": msgspec.to_builtins(line), "changed": changed}
                before = now
    finally:
        await hub.close()


async def played(name: str) -> tuple[bytes, bytes]:
    """Play a scene; return the log it leaves behind, and what its lines add up to."""
    salts, exported = Random(name), BytesIO()
    log = MemoryLog(new_salt=partial(salts.randbytes, SALT_BYTES))
    await SCENES[name](log)
    await export_log(MemoryRecords(log), exported.write, exported_at="")
    lines = [msgspec.json.encode(one) async for one in read_states(log)]
    return exported.getvalue(), b"".join(line + b"\n" for line in lines)


def record(folder: Path) -> None:
    """Play every scene and replace its recording in `folder`."""
    folder.mkdir(exist_ok=True)
    for name in SCENES:
        file = folder / f"{name}.jsonl"
        log, states = asyncio.run(played(name))
        file.write_bytes(log)
        file.with_suffix(".states.jsonl").write_bytes(states)
        print(f"recorded {file}")
    for name in FILES:
        asyncio.run(record_files(folder, name))


async def record_files(folder: Path, name: str) -> None:
    """Play a scene on a SQLite log, and copy its files in the middle of it."""
    with TemporaryDirectory() as place:
        source = Path(place, "log.db")
        await FILES[name](source, partial(copy_files, source, folder / f"{name}.db"))


def copy_files(source: Path, target: Path) -> None:
    """Copy the files of a log, at a moment at which nothing is written."""
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{source}{suffix}", f"{target}{suffix}")
    if target.stem not in WITH_WAL:
        with closing(sqlite3.connect(target)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    print(f"recorded {target}")


if __name__ == "__main__":
    record(FOLDER)
