"""The longest that a second client waits while a first one works, or sends the worst graphs and bodies.

A server in a process of its own, as `turnline serve` makes it; an attacker in another; this
process asks for `/health`, again and again, and writes down the slowest answer. The limit is
250 ms; beside it stands the slowest answer of the same server while nobody attacks.

First the work of a busy server, on a SQLite file: runs with 100 KB in their context, posts to a channel of
10,000 lines and readings of it, listings and searches of channels, all of it again and again. Of the answers
to `/health`, 99 of 100 come within 50 ms.

Then, for the same bodies: what reading one strictly takes, over what `json.loads` takes. The
limit is 3. A body of more values than are allowed is refused before it is read: its ratio is small.

    python bench/stall.py            # --ratios: the last part alone; --busy: the first part alone
"""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, Final

from turnline.server.auth.api_keys import API_KEY_PREFIX

LIMIT_SECONDS: Final = 0.25
BUSY_LIMIT_SECONDS: Final = 0.05
"""For 99 of 100 answers, while a busy server works."""
BUSY_SECONDS: Final = 8.0
LINES: Final = 10_000
CONTEXT_BYTES: Final = 100_000
LIMIT_RATIO: Final = 3.0
QUIET_SECONDS: Final = 2.0
KEY: Final = API_KEY_PREFIX + "a" * 40
FLOW: Final[dict[str, Any]] = {
    "metadata": {"name": "open"},
    "spec": {
        "trigger": {
            "path": "/open",
            "public": True,
            "input": {
                "a": {"type": "any"},
                "items": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "n": {"type": "integer", "required": True, "min": 0},
                            "tag": {"type": "string", "default": "new", "pattern": "^[a-z]+$"},
                        },
                    },
                },
            },
        },
        "steps": [
            {
                "id": "choose",
                "router": {"conditions": [{"if": "5 in a", "signal": "x"}, {"if": "a == a", "signal": "y"}]},
                "routes": {"x": "keep", "y": "keep", "default": "keep", "error": "keep"},
            },
            {"id": "keep", "runner": "keep"},
        ],
    },
}


def bodies() -> dict[str, bytes]:
    """The bodies that cost most for their size: a megabyte, or the most values that are allowed."""
    most = 99_000
    return {
        "a megabyte of empty lists": _listed("[]", 349_000),
        "a megabyte of empty objects": _listed("{}", 349_000),
        "a megabyte of brackets": b'{"a":[' + b"[" * 500_000 + b"]" * 500_000 + b"]}",
        "the most empty lists": _listed("[]", most),
        "the most empty objects": _listed("{}", most),
        "lists 30 deep": _listed("[" * 30 + "]" * 30, most // 30),
        "the most numbers": _listed("1", most),
        "the most texts": _listed('"ab"', most),
        "the most keys": json.dumps({"a": {f"k{n}": n for n in range(50_000)}}).encode(),
        "a megabyte of commas in a text": json.dumps({"a": ",[" * 500_000}).encode(),
        "typed items": json.dumps({"items": [{"n": n} for n in range(30_000)]}).encode(),
        "typed items, all wrong": json.dumps({"items": [{"n": -1, "tag": "X"}] * 30_000}).encode(),
    }


def _listed(item: str, count: int) -> bytes:
    return b'{"a":[' + ",".join([item] * count).encode() + b"]}"


# The server.


def serve(path: str = "") -> None:
    from turnline.flow.definition.flow import read  # noqa: PLC0415  The other processes need none of it.
    from turnline.flow.work import Services  # noqa: PLC0415
    from turnline.log.memory import MemoryLog  # noqa: PLC0415
    from turnline.log.sqlite import SqliteLog  # noqa: PLC0415
    from turnline.server.app import create_app  # noqa: PLC0415
    from turnline.server.auth.api_keys import ApiKey, ApiKeys  # noqa: PLC0415
    from turnline.server.runtime import Runtime  # noqa: PLC0415
    from turnline.server.serving import DrainingServer, bind, run_loop, settle_memory  # noqa: PLC0415
    from turnline.server.settings import ServerSettings  # noqa: PLC0415

    async def keep(ctx: dict[str, Any]) -> dict[str, Any]:
        return {"kept": True}

    async def main() -> None:
        services = Services(flows={"open": read(FLOW, name="open")}, nodes={"keep": keep})
        key = ApiKey(sha256=sha256(KEY.encode()).hexdigest(), scopes=["*"])
        runtime = Runtime(services, open_log=(lambda: SqliteLog(path)) if path else MemoryLog)
        with bind("127.0.0.1", 0) as listening:
            async with runtime:
                settings = ServerSettings()
                app = create_app(runtime, authenticator=ApiKeys({"mallory": key}), settings=settings)
                settle_memory()
                print(listening.getsockname()[1], flush=True)
                await DrainingServer(app, runtime, settings, access_log=False).serve([listening])

    run_loop(main())


# The attacker.


def send_bodies(name: str) -> Callable[[int], Awaitable[None]]:
    async def attack(port: int) -> None:
        body = bodies()[name]
        head = b"POST /open HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head + body)
            await writer.drain()
            await reader.readline()
            writer.close()

    return attack


async def open_idle_connections(port: int) -> None:
    wires = [await asyncio.open_connection("127.0.0.1", port) for _ in range(90)]
    for _, writer in wires:
        writer.write(b"GET /health HTTP/1.1\r\n")
    await asyncio.sleep(1)


async def send_costly_turns(port: int) -> None:
    """A graph as costly as `open` takes it, a context as large as it can be, many turns at once."""
    from turnline.core.graph import Transition, TransitionGraph  # noqa: PLC0415
    from turnline.core.transitions import Expr, StayTarget, TerminateTarget  # noqa: PLC0415
    from turnline.network import HubClient, Passport, WsLink  # noqa: PLC0415

    async with WsLink(f"ws://127.0.0.1:{port}/ws", token=KEY) as link:
        client = HubClient(link)
        ann = await client.register(None, Passport(name="mallory-a"))
        await client.register(None, Passport(name="mallory-b"))
        parts = " or ".join(f"[[{n}]] in big" for n in range(3))
        graph = TransitionGraph(
            "mallory-a",
            [Transition(Expr(f"{n} and ({parts})"), StayTarget()) for n in range(300)],
            StayTarget(),
        )
        for values in (5_000, 90_000):
            knobs = {"graph": graph.to_dict(), "context_vars": {"big": [[0]] * (values // 2)}}
            channel = await ann.open(type="workflow", target="mallory-b", knobs=knobs)
            await asyncio.gather(*(channel.send("go") for _ in range(50)), return_exceptions=True)
        wide = TransitionGraph(
            "mallory-a",
            [Transition(Expr(f"a{n} == {n}"), StayTarget()) for n in range(1_600)],
            TerminateTarget(),
        )
        channel = await ann.open(type="workflow", target="mallory-b", knobs={"graph": wide.to_dict()})
        await asyncio.gather(*(channel.send("go") for _ in range(50)), return_exceptions=True)


async def send_large_frames(port: int) -> None:
    from turnline.network import HubClient, Passport, WsLink  # noqa: PLC0415

    async with WsLink(f"ws://127.0.0.1:{port}/ws", token=KEY) as link:
        client = HubClient(link)
        ann = await client.register(None, Passport(name="mallory-c"))
        await client.register(None, Passport(name="mallory-d"))
        channel = await ann.open(type="conversation", target="mallory-d")
        shapes: list[list[Any]] = [[[]] * 99_000, [{}] * 99_000, ["ab"] * 99_000]
        for shape in shapes:
            for _ in range(3):
                await channel.send(event_type="context.set", event_data={"set": {"big": shape}})


async def work(port: int) -> None:
    """Do what a busy server does, until the process is ended. Prints a line when the work goes on."""
    import httpx2  # noqa: PLC0415  It comes with the server.

    from turnline.network import HubClient, Passport, WsLink  # noqa: PLC0415

    items = [{"id": n, "name": "Ada Lovelace", "tags": ["a", "b"]} for n in range(CONTEXT_BYTES // 55)]
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        WsLink(f"ws://127.0.0.1:{port}/ws", token=KEY) as link,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as http,
    ):
        client = HubClient(link)
        ann = await client.register(None, Passport(name="mallory-a"))
        await client.register(None, Passport(name="mallory-b"))
        channel = await ann.open("conversation", "mallory-b")
        for _ in range(LINES // 200):
            await asyncio.gather(*(channel.send("a line of many") for _ in range(200)))
        print("ready", flush=True)

        async def again(path: str, **options: Any) -> None:
            while True:
                answer = await http.request("POST" if options else "GET", path, **options)
                assert answer.status_code == 200, answer.text

        async def post() -> None:
            while True:
                await channel.send("a further line")

        name = channel.channel_id
        await asyncio.gather(
            again("/open", json={"a": items}),
            again("/open", json={"a": items}),
            again("/runs?limit=100"),
            again("/channels?limit=100&participant=mallory-a"),
            again(f"/channels/{name}/envelopes?after=5000&limit=100"),
            again(f"/channels/{name}"),
            post(),
        )


ATTACKS: Final[dict[str, Callable[[int], Awaitable[None]]]] = {
    **{name: send_bodies(name) for name in bodies()},
    "90 connections with half a request": open_idle_connections,
    "costly graphs, 50 turns at once": send_costly_turns,
    "frames with the most values": send_large_frames,
}


# The second client.


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            if started.poll() is None:
                started.send_signal(signal.SIGTERM)


def answers(port: int, goes_on: Callable[[], bool]) -> list[float]:
    """Ask for /health while it goes on; return the seconds of the answers, the fastest first."""
    took: list[float] = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while goes_on():
        began = time.perf_counter()
        connection.request("GET", "/health")
        assert connection.getresponse().read()
        took.append(time.perf_counter() - began)
        time.sleep(0.002)
    connection.close()
    return sorted(took)


def busy() -> float:
    """Print how long answers take while a server works; return the time that 99 of 100 keep."""
    with (
        tempfile.TemporaryDirectory() as folder,
        process("--serve", f"{folder}/log.db") as server,
    ):
        assert server.stdout is not None
        port = int(server.stdout.readline())
        until = time.perf_counter() + QUIET_SECONDS
        quiet = answers(port, lambda: time.perf_counter() < until)
        with process("--work", str(port)) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
            until = time.perf_counter() + BUSY_SECONDS
            took = answers(port, lambda: time.perf_counter() < until)
            assert worker.poll() is None, "the work ended before its time"
    for name, found in (("the same server without work", quiet), ("a busy server", took)):
        middle, slow = found[len(found) // 2] * 1000, found[len(found) * 99 // 100] * 1000
        print(f"{name:40} {middle:8.1f} ms median {slow:8.1f} ms p99")
    return took[len(took) * 99 // 100]


def stalls() -> float:
    """Print the slowest answer during each attack; return the worst of all."""
    with process("--serve") as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        until = time.perf_counter() + QUIET_SECONDS
        quiet = answers(port, lambda: time.perf_counter() < until)[-1]
        print(f"{'nobody attacks':40} {quiet * 1000:8.1f} ms")
        worst = 0.0
        for name in ATTACKS:
            with process("--attack", name, str(port)) as attacker:
                slowest = answers(port, lambda: attacker.poll() is None)[-1]
                assert attacker.returncode == 0, f"{name} did not get through"
            print(f"{name:40} {slowest * 1000:8.1f} ms")
            worst = max(worst, slowest)
    return worst


def ratios() -> float:
    """Print what strict reading takes over `json.loads`, for each body; return the worst of all."""
    from turnline.errors import TurnlineError  # noqa: PLC0415
    from turnline.server.body import parsed  # noqa: PLC0415

    def strict(body: bytes) -> None:
        with suppress(TurnlineError):
            parsed(body)

    def plain(body: bytes) -> None:
        with suppress(RecursionError):
            json.loads(body)

    worst = 0.0
    for name, body in bodies().items():
        ours, theirs = (min(_seconds(read, body) for _ in range(5)) for read in (strict, plain))
        print(f"{name:40} {ours * 1000:8.1f} ms {theirs * 1000:8.1f} ms {ours / theirs:8.2f}")
        if name != "a megabyte of brackets":  # Which `json.loads` gives up after a thousand.
            worst = max(worst, ours / theirs)
    return worst


def _seconds(read: Callable[[bytes], None], body: bytes) -> float:
    """The seconds of CPU that one reading takes."""
    began = time.process_time()
    read(body)
    return time.process_time() - began


def main() -> None:
    match sys.argv[1:]:
        case ["--ratios"]:
            print(f"worst ratio to json.loads {ratios():.2f} (limit {LIMIT_RATIO:g})")
            return
        case ["--serve", *path]:
            serve(*path)
            return
        case ["--work", port]:
            asyncio.run(work(int(port)))
            return
        case ["--busy"]:
            print(
                f"99 of 100 answers within {busy() * 1000:.0f} ms (limit {BUSY_LIMIT_SECONDS * 1000:.0f} ms)"
            )
            return
        case ["--attack", name, port]:
            asyncio.run(ATTACKS[name](int(port)))  # type: ignore[arg-type]
            return
    slow = busy()
    print("The slowest answer of /health, while another client sends:")
    worst = stalls()
    print(f"\n{'Reading a body':40} {'strictly':>11} {'json.loads':>11} {'ratio':>8}")
    ratio = ratios()
    print(f"\n99 of 100 answers within {slow * 1000:.0f} ms (limit {BUSY_LIMIT_SECONDS * 1000:.0f} ms)")
    print(f"slowest answer {worst * 1000:.0f} ms (limit {LIMIT_SECONDS * 1000:.0f} ms)")
    print(f"worst ratio to json.loads {ratio:.2f} (limit {LIMIT_RATIO:g})")


if __name__ == "__main__":
    main()
