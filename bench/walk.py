"""The path of one piece of work through the code: four walks, counted.

    post          from `channel.send` until the next participant's handler runs
    agent turn    an embedded agent's turn with one tool, from the floor to the packet
    flow          POST of a two-step flow, until its answer
    remote turn   the same agent behind a `WsLink`; client and server run in this process

Counts do not depend on the machine: files and functions of Turnline that ran, changes of room (a call
into another folder of `src/turnline`), appends to channels and to
system channels (the audit), tasks (without the audit's, which is for many units), turns of the event loop,
folds, envelope decodes, `hub.state` calls, and round trips of the link. `bench/count.py` counts more of them.

    python bench/walk.py [--calls WALK]      also list the functions of one walk, in order
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import turnline
from turnline.agent.agent import Agent
from turnline.agent.tool import tool
from turnline.client.link import Link
from turnline.client.turn import Turn
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.network import (
    AgentTarget,
    FromSpeaker,
    Hub,
    HubClient,
    LocalLink,
    Passport,
    TerminateTarget,
    Transition,
    TransitionGraph,
    WsLink,
    serve_ws,
)
from turnline.testing import ScriptedModel, call

SOURCE: Final = Path(turnline.__file__).parent
_COUNTED: Final = {
    ("core/fold.py", "fold"): "folds",
    ("core/codec.py", "decode"): "decodes",
    ("core/codec.py", "encode"): "encodes",
    ("core/codec.py", "seal"): "encodes",
    ("core/json.py", "normalised"): "JSON checks",
    ("core/json.py", "survey"): "JSON walks",
    ("core/json.py", "_plain"): "JSON walks",
    ("core/graph.py", "TransitionGraph.loads"): "graphs read",
    ("hub/hub.py", "Hub.state"): "hub.state",
    ("hub/hub.py", "Hub.entry"): "hub.state",
    ("client/ws_calls.py", "Calls._begin"): "round trips",
    ("log/sqlite_writer.py", "Writer._commit"): "commits",
    ("log/sqlite_reader.py", "heads_by_position"): "tail queries",
}
_APPENDS: Final = {("log/memory.py", "MemoryLog.append"), ("log/sqlite.py", "SqliteLog.append")}
_ELSEWHERE: Final = {
    ("core/codec.py", "seal"): "encodes",
    ("log/sqlite_writer.py", "Writer._commit"): "commits",
    ("log/sqlite_reader.py", "heads_by_position"): "tail queries",
    ("", "BaseEventLoop.call_soon_threadsafe"): "wake-ups",
}
"""What is counted in other threads: those of a log. A thread wakes the loop with `call_soon_threadsafe`."""
_WAKES_A_THREAD: Final = ("ThreadPoolExecutor.submit", "Condition.notify")
COLUMNS: Final = (
    "files",
    "functions",
    "room changes",
    "appends",
    "system appends",
    "round trips",
    "tasks",
    "loop turns",
    "folds",
    "decodes",
    "hub.state",
)


class Walk:
    """What ran between `start` and `stop`, in the thread of the event loop; and what a log's threads did.

    It is made before the log, so that it sees the log's threads.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.calls: list[str] = []
        self._places: dict[CodeType, tuple[str, str]] = {}
        self._files: set[str] = set()
        self._runs = False
        threading.setprofile(self._see_elsewhere)

    def start(self) -> None:
        if not self._runs:
            self._runs = True
            loop = asyncio.get_running_loop()
            loop.set_task_factory(self._create_task)
            sys.setprofile(self._see)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        self._runs = False
        asyncio.get_running_loop().set_task_factory(None)
        self.counts["files"] = len(self._files)
        self.counts["functions"] = len(set(self.calls))

    def _create_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        # The audit gathers lines of many units, and writes them when a timer says so.
        self.counts["tasks"] += getattr(work, "__qualname__", "") != "AuditLog._flush"
        return asyncio.Task(work, loop=loop, **options)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        file, name = self._place(code)
        if name == "BaseEventLoop._run_once":
            self.counts["loop turns"] += 1
        elif name in _WAKES_A_THREAD and frame.f_back is not None:
            self.counts["wake-ups"] += bool(self._place(frame.f_back.f_code)[0]) or name == _WAKES_A_THREAD[0]
        if not file or (frame.f_lasti > 0 and code.co_flags & _RESUMABLE and _is_resumed(frame)):
            return
        self.counts["room changes"] += _room(file) != self._caller_room(frame)
        self._files.add(file)
        self.calls.append(f"{file}:{name}")
        if counted := _COUNTED.get((file, name)):
            self.counts[counted] += 1
        if counted == "JSON checks":
            data = frame.f_locals["data"]
            places = (data, data.get("knobs")) if isinstance(data, dict) else ()
            self.counts["graph checks"] += any(isinstance(one, dict) and "graph" in one for one in places)
        if (file, name) in _APPENDS:
            is_system = frame.f_locals["channel_id"].startswith("_")
            self.counts["system appends" if is_system else "appends"] += 1

    def _see_elsewhere(self, frame: FrameType, event: str, _: object) -> None:
        if self._runs and event == "call" and (counted := _ELSEWHERE.get(self._place(frame.f_code))):
            self.counts[counted] += 1

    def _place(self, code: CodeType) -> tuple[str, str]:
        return self._places.get(code) or self._places.setdefault(code, _place(code))

    def _caller_room(self, frame: FrameType) -> str:
        """Return the room of the function of Turnline that called this one; empty for none."""
        caller = frame.f_back
        while caller is not None:
            code = caller.f_code
            file, _ = self._place(code)
            if file:
                return _room(file)
            caller = caller.f_back
        return ""


_RESUMABLE: Final = 0x20 | 0x80 | 0x200
"""Generators, coroutines and async generators: the interpreter calls them again each time they resume."""


def _is_resumed(frame: FrameType) -> bool:
    """Return whether this call resumes a coroutine that ran before, and does not start it."""
    return frame.f_lineno != frame.f_code.co_firstlineno


def _room(file: str) -> str:
    return file.partition("/")[0]


def _place(code: CodeType) -> tuple[str, str]:
    path = Path(code.co_filename)
    inside = path.relative_to(SOURCE).as_posix() if path.is_relative_to(SOURCE) else ""
    return inside, code.co_qualname


OpenLog = Callable[[], Log]


@asynccontextmanager
async def open_hub(open_log: OpenLog = MemoryLog) -> AsyncIterator[tuple[Hub, HubClient]]:
    hub = await Hub.open(open_log(), ttl_sweep_interval=0)
    client = HubClient(LocalLink(hub))
    try:
        yield hub, client
    finally:
        await client.close()
        await hub.close()


LinkTo = Callable[[Hub], Any]


@asynccontextmanager
async def link_locally(hub: Hub) -> AsyncIterator[Link]:
    yield LocalLink(hub)


@asynccontextmanager
async def link_remotely(hub: Hub) -> AsyncIterator[Link]:
    async with serve_ws(hub) as served:
        link = WsLink(served.url)
        try:
            yield link
        finally:
            await link.close()


async def walk_post() -> Walk:
    """Walk from a post to the next participant's handler."""
    walk = Walk()
    reached = asyncio.Event()
    async with open_hub() as (_, client):
        ann = await client.register(passport=Passport(name="ann"))
        ben = await client.register(passport=Passport(name="ben"))

        @ben.on_turn
        async def answer(turn: Turn) -> str:
            walk.stop()
            reached.set()
            return "done"

        channel = await ann.open("workflow", "ben", {"graph": _sequence("ann", "ben").to_dict()})
        walk.start()
        await channel.send("over to you")
        await reached.wait()
        await channel.result()
    return walk


async def walk_opening() -> Walk:
    """Walk through the opening of a channel whose participants are attached here and accept."""
    walk = Walk()
    async with open_hub() as (_, client):
        ann = await client.register(passport=Passport(name="ann"))
        await client.register(passport=Passport(name="ben"))
        walk.start()
        await ann.open("workflow", "ben", {"graph": _sequence("ann", "ben").to_dict()})
        walk.stop()
    return walk


async def walk_agent(
    link_to: LinkTo = link_locally, *, has_tool: bool = True, open_log: OpenLog = MemoryLog
) -> Walk:
    """Walk through a turn with one tool, from the line that gives the floor to the packet."""
    walk = Walk()

    @tool
    def look_up(name: str) -> str:
        """Look a name up."""
        return f"{name} is known"

    replies = [call("look_up", name="Ada")] if has_tool else []
    model = ScriptedModel(*replies, "Ada is known.")
    async with open_hub(open_log) as (hub, client):
        ann = await client.register(passport=Passport(name="ann"))
        async with link_to(hub) as link:
            remote = HubClient(link)
            clerk = await remote.register(Agent("clerk", config=model, tools=[look_up]))
            channel = await ann.open("workflow", "clerk", {"graph": _sequence("ann", "clerk").to_dict()})
            await hub.audit_log.flush()
            await clerk.seat.peers()  # Its answer comes after all that the opening has sent.
            walk.start()
            await channel.send("Who is Ada?")
            await channel.result()
            walk.stop()
    return walk


async def walk_remote(*, has_tool: bool = True) -> Walk:
    """Walk through the same turn of an agent that is linked over a WebSocket."""
    return await walk_agent(link_remotely, has_tool=has_tool)


async def walk_flow(open_log: OpenLog = MemoryLog, durability: str = "step") -> Walk:
    """Walk from the POST of a two-step flow to its answer."""
    import httpx2  # noqa: PLC0415  The other walks need neither the server nor its client.

    from turnline.flow.definition.flow import read  # noqa: PLC0415
    from turnline.flow.node import node  # noqa: PLC0415
    from turnline.flow.work import Services  # noqa: PLC0415
    from turnline.server.app import create_app  # noqa: PLC0415
    from turnline.server.auth.api_keys import ApiKeys  # noqa: PLC0415
    from turnline.server.runtime import Runtime  # noqa: PLC0415

    @node(pure=True)
    async def save(ctx: dict[str, Any]) -> dict[str, Any]:
        return {"id": 7}

    @node(pure=True)
    async def score(ctx: dict[str, Any]) -> dict[str, Any]:
        return {"score": len(ctx["email"])}

    walk = Walk()
    document = {
        "metadata": {"name": "lead"},
        "spec": {
            "durability": durability,
            "trigger": {"path": "/lead", "public": True, "input": {"email": {"type": "string"}}},
            "steps": [{"id": "save", "runner": "save"}, {"id": "score", "runner": "score"}],
        },
    }
    services = Services(flows={"lead": read(document, name="lead")}, nodes={"save": save, "score": score})
    async with Runtime(services, open_log=open_log) as runtime:
        app = create_app(runtime, authenticator=ApiKeys({}))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for is_measured in (False, True):  # The first run loads and caches.
                if is_measured:
                    walk.start()
                answer = await client.post("/lead", json={"email": "ada@example.com"})
                assert answer.status_code == 200, answer.text
            walk.stop()
    return walk


def _sequence(first: str, second: str) -> TransitionGraph:
    return TransitionGraph(
        initial_speaker=first,
        transitions=[Transition(when=FromSpeaker(first), then=AgentTarget(second))],
        default_target=TerminateTarget("done"),
    )


WALKS: Final[dict[str, Callable[[], Awaitable[Walk]]]] = {
    "post": walk_post,
    "agent turn": walk_agent,
    "flow": walk_flow,
    "remote turn": walk_remote,
}


async def main(listed: str) -> None:
    print(f"{'walk':<12}" + "".join(f"{column:>16}" for column in COLUMNS))
    for name, walk in WALKS.items():
        done = await walk()
        print(f"{name:<12}" + "".join(f"{done.counts[column]:>16}" for column in COLUMNS))
        if name == listed:
            print("\n".join(f"    {call}" for call in done.calls))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", default="", choices=("", *WALKS), help="list the functions of one walk")
    asyncio.run(main(parser.parse_args().calls))
