"""Durable two-step runs over HTTP, beside other servers on the same machine, measured in turn.

    durability: end        the same runs, recorded at their end
    bare FastAPI, uvloop   an endpoint that answers the same bytes and keeps nothing
    bare FastAPI, asyncio  the same endpoint on asyncio and h11, which `pip install fastapi uvicorn` gives
    Starlette, 3 commits   an endpoint that writes three rows, each with a group commit of its own
    raw fsync              a page written over an old one and synced, over and over

Each server is uvicorn in a process of its own, with the event loop and the parser that `[server]` installs
(uvloop and httptools), except for the one on asyncio.
The flow has two steps, its log is a SQLite file, and the answer goes out when the last line of the run is on
the disk. One client waits for each answer before it asks again, so it cannot beat the disk; many clients
share syncs. The rounds of the servers alternate; each figure is the median of the rounds.

CPU is that of the server's process, so it does not depend on what else the machine does.

    python bench/flows_http.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from threading import Thread
from typing import Any, Final, NamedTuple

from append import fsyncs

SECONDS: Final = 1.0
"""Of each round."""
ROUNDS: Final = 5
WARM_UP: Final = 100
CLIENTS: Final = (1, 32)
COMMITS: Final = 3
"""Of a run of two steps: its opening, and a packet for each step."""
FLOWS, COMMITTING = "durable two-step runs", f"Starlette, {COMMITS} commits"
AT_END: Final = "the same, durability: end"
BARE, BARE_ON_ASYNCIO = "bare FastAPI, uvloop", "bare FastAPI, asyncio"
TARGETS: Final = (
    (1, FLOWS, (COMMITTING,), 0.5),
    (32, FLOWS, (BARE, BARE_ON_ASYNCIO), 0.35),
    (32, AT_END, (BARE, BARE_ON_ASYNCIO), 0.5),
)
"""Clients, what they ask for, the servers beside which it is measured, the ratio that is wanted."""
FLOW: Final[dict[str, Any]] = {
    "metadata": {"name": "lead"},
    "spec": {
        "trigger": {
            "path": "/lead",
            "public": True,
            "input": {"email": {"type": "string", "required": True}},
        },
        "steps": [{"id": "save", "runner": "save"}, {"id": "score", "runner": "score"}],
    },
}
BODY: Final = b'{"email": "ada@example.com", "name": "Ada", "company": "Analytical Engines"}'
REQUEST: Final = (
    b"POST /lead HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
)


# The servers.


def serve_flows(path: str, durability: str = "step") -> None:
    from turnline.flow.definition.flow import read  # noqa: PLC0415  The parent process needs none of it.
    from turnline.flow.node import node  # noqa: PLC0415
    from turnline.flow.work import Services  # noqa: PLC0415
    from turnline.log.sqlite import SqliteLog  # noqa: PLC0415
    from turnline.server.app import create_app  # noqa: PLC0415
    from turnline.server.auth.api_keys import ApiKeys  # noqa: PLC0415
    from turnline.server.runtime import Runtime  # noqa: PLC0415
    from turnline.server.serving import DrainingServer, bind, run_loop, settle_memory  # noqa: PLC0415
    from turnline.server.settings import ServerSettings  # noqa: PLC0415

    @node(pure=True)
    async def save(ctx: dict[str, Any]) -> dict[str, Any]:
        return {"id": 7}

    @node(pure=True)
    async def score(ctx: dict[str, Any]) -> dict[str, Any]:
        return {"score": len(ctx["email"])}

    async def main() -> None:
        document = {**FLOW, "spec": {**FLOW["spec"], "durability": durability}}
        services = Services(flows={"lead": read(document, name="lead")}, nodes={"save": save, "score": score})
        runtime = Runtime(services, open_log=lambda: SqliteLog(path))
        with bind("127.0.0.1", 0) as listening:
            async with runtime:
                settings = ServerSettings()
                app = create_app(runtime, authenticator=ApiKeys({}), settings=settings)
                settle_memory()  # As `turnline serve` does.
                print(listening.getsockname()[1], flush=True)
                await DrainingServer(app, runtime, settings, access_log=False).serve([listening])

    run_loop(main())


def answer_to(body: dict[str, Any]) -> dict[str, Any]:
    return {"success": True, "data": {**body, "id": 7, "score": len(body["email"])}}


def serve_bare(path: str, **reading: Any) -> None:
    from fastapi import FastAPI  # noqa: PLC0415

    app = FastAPI()

    @app.post("/lead")
    async def lead(body: dict[str, Any]) -> dict[str, Any]:
        return answer_to(body)

    serve_app(app, **reading)


def serve_committing(path: str) -> None:
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.requests import Request  # noqa: PLC0415
    from starlette.responses import JSONResponse  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    rows = GroupCommit(path)

    async def lead(request: Request) -> JSONResponse:
        body = await request.json()
        for _ in range(COMMITS):
            await rows.add(BODY)
        return JSONResponse(answer_to(body))

    serve_app(Starlette(routes=[Route("/lead", lead, methods=["POST"])]))


class GroupCommit:
    """Rows of a SQLite file, synced; what waits at the same time shares a commit."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._waiting: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        Thread(target=self._write, daemon=True).start()

    async def add(self, row: bytes) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.put((row, future))
        await future

    def _write(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB)")
        while True:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO rows (body) VALUES (?)", [(row,) for row, _ in batch])
            connection.execute("COMMIT")
            futures = [future for _, future in batch]
            futures[0].get_loop().call_soon_threadsafe(_resolve, futures)


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


def serve_app(app: Any, *, loop: Any = "uvloop", http: Any = "httptools") -> None:
    """Serve an app as `uvicorn` does, on this event loop and with this parser."""
    import uvicorn  # noqa: PLC0415

    from turnline.server.serving import bind  # noqa: PLC0415

    with bind("127.0.0.1", 0) as listening:
        print(listening.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_level="warning", access_log=False, loop=loop, http=http)
        uvicorn.Server(config).run([listening])


SERVERS: Final[dict[str, Callable[[str], None]]] = {
    FLOWS: serve_flows,
    AT_END: partial(serve_flows, durability="end"),
    BARE: serve_bare,
    BARE_ON_ASYNCIO: partial(serve_bare, loop="asyncio", http="h11"),
    COMMITTING: serve_committing,
}


class Server(NamedTuple):
    """A server in a process of its own."""

    port: int
    pid: int

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(kind: str, path: Path) -> Iterator[Server]:
    """Start a server, and stop it in the end."""
    command = [sys.executable, __file__, "--serve", kind, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(int(process.stdout.readline()), process.pid)
        finally:
            process.send_signal(signal.SIGTERM)


# The clients.


class Round(NamedTuple):
    """What one round of clients found."""

    rate: float
    cpu_seconds: float
    """Of the server, for each answer."""
    took: list[float]


async def ask(server: Server, clients: int) -> Round:
    """Ask with so many clients for a while."""
    connections = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(clients)]
    await asyncio.gather(*(repeat(*one, until=lambda n: n < WARM_UP / clients) for one in connections))
    start, cpu = time.perf_counter(), server.cpu_seconds
    until = start + SECONDS
    took = await asyncio.gather(
        *(repeat(*one, until=lambda n: time.perf_counter() < until) for one in connections)
    )
    seconds, cpu = time.perf_counter() - start, server.cpu_seconds - cpu
    for _, writer in connections:
        writer.close()
    every = sorted(one for several in took for one in several)
    return Round(len(every) / seconds, cpu / len(every), every)


async def repeat(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, until: Callable[[int], bool]
) -> list[float]:
    """Ask again and again; return how long each answer took. Nothing but 200 counts."""
    took: list[float] = []
    while until(len(took)):
        start = time.perf_counter()
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        assert head.startswith(b"HTTP/1.1 200"), body
        took.append(time.perf_counter() - start)
    return took


def lines_of_a_run(path: Path) -> float:
    """Return how many lines on the log a run has."""
    with sqlite3.connect(path) as connection:
        query = (
            "SELECT avg(seq) FROM turnline_heads JOIN turnline_names USING (channel) WHERE id NOT GLOB '_*'"
        )
        return float(connection.execute(query).fetchone()[0])


def main(folder: Path) -> None:
    disk = fsyncs(folder)
    print(f"{'raw fsync':36}{disk:10,.0f} /s")
    ratios: list[str] = []
    with ExitStack() as stack:
        servers = {
            kind: stack.enter_context(served(kind, folder / f"{place}.db"))
            for place, kind in enumerate(SERVERS)
        }
        for clients, asked, peers, wanted in TARGETS:
            kinds = (*peers, asked)
            rounds = [
                {kind: asyncio.run(ask(servers[kind], clients)) for kind in kinds} for _ in range(ROUNDS)
            ]
            for kind in kinds:
                show(f"{kind}, {clients} clients", [one[kind] for one in rounds])
            for beside in peers:
                rate = median(one[asked].rate / one[beside].rate for one in rounds)
                cpu = median(one[beside].cpu_seconds / one[asked].cpu_seconds for one in rounds)
                ratios.append(
                    f"{asked}, {clients} clients: {rate:.2f} of {beside} (wanted: {wanted}); by CPU {cpu:.2f}"
                )
    print(f"{'lines of a run':36}{lines_of_a_run(folder / '0.db'):10.1f}")
    print("\n".join(ratios))


def show(name: str, rounds: list[Round]) -> None:
    took = sorted(seconds for one in rounds for seconds in one.took)
    print(
        f"{name:36}{median(one.rate for one in rounds):10,.0f} /s"
        f"{median(one.cpu_seconds for one in rounds) * 1e6:9,.0f} us of CPU"
        f"{took[len(took) // 2] * 1e3:8.1f} ms median{took[len(took) * 99 // 100] * 1e3:8.1f} ms p99",
        flush=True,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        SERVERS[sys.argv[2]](sys.argv[3])
    else:
        parent = sys.argv[1] if len(sys.argv) > 1 else None
        with tempfile.TemporaryDirectory(dir=parent) as temporary:
            main(Path(temporary))
