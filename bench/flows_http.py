"""Durable runs a second over HTTP, beside two limits of the same machine measured in the same run.

    raw fsync      a page written over an old one and synced, over and over
    bare FastAPI   an endpoint that answers the same bytes and keeps nothing

Each server is uvicorn in a process of its own; the flow has two steps, its log is a SQLite
file, and the answer goes out when the last line of the run is on the disk. One client waits
for each answer before it asks again, so it cannot beat the disk; many clients share syncs.

    python bench/flows_http.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from append import fsyncs

SECONDS: Final = 3.0
"""Of each measurement."""
WARM_UP: Final = 50
CLIENTS: Final = (1, 32)
LINES_OF_A_RUN: Final = "lines of a run"
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


def serve_flows(path: str) -> None:
    from turnline.flow.definition.flow import read  # noqa: PLC0415  The parent process needs none of it.
    from turnline.flow.work import Services  # noqa: PLC0415
    from turnline.log.sqlite import SqliteLog  # noqa: PLC0415
    from turnline.server.app import create_app  # noqa: PLC0415
    from turnline.server.auth.api_keys import ApiKeys  # noqa: PLC0415
    from turnline.server.runtime import Runtime  # noqa: PLC0415
    from turnline.server.serving import DrainingServer, bind  # noqa: PLC0415
    from turnline.server.settings import ServerSettings  # noqa: PLC0415

    async def save(ctx: dict[str, Any]) -> dict[str, Any]:
        return {"id": 7}

    async def score(ctx: dict[str, Any]) -> dict[str, Any]:
        return {"score": len(ctx["email"])}

    async def main() -> None:
        services = Services(flows={"lead": read(FLOW, name="lead")}, nodes={"save": save, "score": score})
        runtime = Runtime(services, open_log=lambda: SqliteLog(path))
        with bind("127.0.0.1", 0) as listening:
            async with runtime:
                settings = ServerSettings()
                app = create_app(runtime, authenticator=ApiKeys({}), settings=settings)
                print(listening.getsockname()[1], flush=True)
                await DrainingServer(app, runtime, settings, access_log=False).serve([listening])

    asyncio.run(main())


def serve_bare(path: str) -> None:
    import uvicorn  # noqa: PLC0415
    from fastapi import FastAPI  # noqa: PLC0415

    from turnline.server.serving import bind  # noqa: PLC0415

    app = FastAPI()

    @app.post("/lead")
    async def lead(body: dict[str, Any]) -> dict[str, Any]:
        return {"success": True, "data": {**body, "id": 7, "score": len(body["email"])}}

    with bind("127.0.0.1", 0) as listening:
        print(listening.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_level="warning", access_log=False)
        asyncio.run(uvicorn.Server(config).serve([listening]))


SERVERS: Final[dict[str, Callable[[str], None]]] = {"flows": serve_flows, "bare": serve_bare}


@contextmanager
def served(kind: str, path: Path) -> Iterator[int]:
    """A server in a process of its own; its port."""
    command = [sys.executable, __file__, "--serve", kind, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)


# The clients.


async def asked(port: int, clients: int) -> tuple[float, list[float]]:
    """Return the answers a second that so many clients got, and how long each took."""
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(clients)]
    await asyncio.gather(*(repeated(*one, until=lambda n: n < WARM_UP / clients) for one in connections))
    start = time.perf_counter()
    until = start + SECONDS
    took = await asyncio.gather(
        *(repeated(*one, until=lambda n: time.perf_counter() < until) for one in connections)
    )
    seconds = time.perf_counter() - start
    for _, writer in connections:
        writer.close()
    every = sorted(one for several in took for one in several)
    return len(every) / seconds, every


async def repeated(
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
    import sqlite3  # noqa: PLC0415
    from contextlib import closing  # noqa: PLC0415

    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT avg(seq) FROM turnline_heads WHERE channel NOT LIKE '\\_%' ESCAPE '\\'"
        return float(connection.execute(query).fetchone()[0])


def main(folder: Path) -> None:
    disk = fsyncs(folder)
    print(f"{'raw fsync':34}{disk:10,.0f} /s")
    rates: dict[int, float] = {}
    with served("bare", folder) as port:
        for clients in CLIENTS:
            rates[clients], _ = asyncio.run(asked(port, clients))
            print(f"{f'bare FastAPI, {clients} clients':34}{rates[clients]:10,.0f} /s")
    path = folder / "log.db"
    with served("flows", path) as port:
        for clients in CLIENTS:
            rate, took = asyncio.run(asked(port, clients))
            middle, slow = took[len(took) // 2] * 1e3, took[len(took) * 99 // 100] * 1e3
            name = f"durable two-step runs, {clients} clients"
            print(
                f"{name:34}{rate:10,.0f} /s{rate / disk:8.2f} x fsync{rate / rates[clients]:8.3f} x bare"
                f"{middle:9.1f} ms median{slow:9.1f} ms p99"
            )
    print(f"{LINES_OF_A_RUN:34}{lines_of_a_run(path):10.1f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        SERVERS[sys.argv[2]](sys.argv[3])
    else:
        parent = sys.argv[1] if len(sys.argv) > 1 else None
        with tempfile.TemporaryDirectory(dir=parent) as temporary:
            main(Path(temporary))
