"""`turnline serve`, as somebody runs it: in a process of its own, on a real port, stopped by a signal."""

from __future__ import annotations

import asyncio
import resource
import shlex
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO

import httpx2
import pytest
import typer
from typer.testing import CliRunner

from turnline.cli.serve import serve
from turnline.errors import BadKey, NameTaken, UnknownName

HELLO = """
kind: Workflow
metadata: {name: hello}
spec:
  trigger: {path: /hello, input: {name: {type: string, required: true}}}
  steps: [{id: greet, runner: greet}]
---
kind: Workflow
metadata: {name: slow}
spec: {trigger: {path: /slow, public: true}, steps: [{id: wait, runner: wait_for_go}]}
---
kind: Workflow
metadata: {name: ask}
spec: {steps: [{id: ask, kind: human, human: {title: "Sure?", group: sales}}]}
"""
NODES = """
import asyncio
import os

from turnline.flow.node import node


@node("greet")
async def greet(ctx):
    return {"greeting": f"Hello {ctx['name']}", "by": ctx["_user_id"]}


@node("wait_for_go")
async def wait_for_go(ctx):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["GO_PORT"]))
    try:
        return {"go": (await reader.readline()).decode()}
    finally:
        writer.close()
"""
MAIN = """
from turnline.cli import app, main
from turnline.cli.serve import serve
app.command("serve")(serve)
main()
"""
"""Works whether or not the verb is among the others yet."""
WITHIN_SECONDS = 60.0


def project(folder: Path, flows: str = HELLO) -> Path:
    (folder / "workflows").mkdir()
    (folder / "workflows" / "all.yaml").write_text(flows)
    (folder / "nodes").mkdir()
    (folder / "nodes" / "all.py").write_text(NODES)
    return folder


class Served:
    """A server process, and what it has printed."""

    def __init__(self, process: Process, lines: list[str]) -> None:
        self.process = process
        self.lines = lines
        self.address = lines[0].split(" on ")[1].split(";")[0]

    @property
    def key(self) -> str:
        place = next(n for n, line in enumerate(self.lines) if line.startswith("Development key"))
        return self.lines[place + 1].strip()

    def client(self, **headers: str) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.address, headers=headers, timeout=WITHIN_SECONDS)

    async def ended(self) -> tuple[int, str]:
        rest = await self.process.stdout.read() if self.process.stdout else b""
        return await self.process.wait(), rest.decode()


@asynccontextmanager
async def serving(
    folder: Path,
    *options: str,
    go_port: int = 0,
    environ: Mapping[str, str] | None = None,
    stderr: IO[bytes] | None = None,
    descriptors: int = 0,
) -> AsyncIterator[Served]:
    """A server process. With `descriptors` it may have so many; its errors go to `stderr`."""
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (descriptors, descriptors))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", MAIN, "serve", str(folder), "--port", "0", *options),
        stdout=PIPE,
        stderr=stderr,
        preexec_fn=limit if descriptors else None,
        env={"PATH": "/usr/bin:/bin", "GO_PORT": str(go_port), **(environ or {})},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            lines: list[str] = []
            while (
                not lines
                or not lines[-1].startswith(("  curl", "  POST /flows/ask/runs"))
                or ("--dev" in options and not lines[-1].startswith("  curl"))
            ):
                line = (await process.stdout.readline()).decode()
                assert line, f"it ended, having said {lines}"
                lines.append(line.rstrip())
            yield Served(process, lines)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


GET_FLOW = """
---
kind: Workflow
metadata: {name: note}
spec: {trigger: {path: /note, method: GET, public: true}, steps: [{id: greet, runner: greet}]}
"""


async def test_a_cross_site_get_does_not_start_a_public_flow_of_a_development_server(tmp_path: Path) -> None:
    async with serving(project(tmp_path, HELLO + GET_FLOW), "--dev") as served:
        async with served.client() as browser:
            sites = ("cross-site", "same-site", "none")
            found = [
                (await browser.get("/note", headers={"Sec-Fetch-Site": one})).status_code for one in sites
            ]
            linked = await browser.get("/note", headers={"Referer": "http://evil.example/"})
        async with served.client(Authorization=f"Bearer {served.key}") as client:
            runs = (await client.get("/runs?flow=note")).json()["data"]["runs"]

    assert (found[:2], linked.status_code) == ([403, 403], 403)
    assert found[2] != 403
    assert len(runs) == 1  # The one that was not cross-site.


async def test_f13_the_development_server_prints_what_to_try_and_accepts_its_key(tmp_path: Path) -> None:
    async with serving(project(tmp_path), "--dev") as served:
        async with served.client(Authorization=f"Bearer {served.key}") as client:
            hello = await client.post("/hello", json={"name": "Ann"})
            asked = await client.post("/flows/ask/runs", json={})
            stream = await client.get(f"{hello.headers['location']}/events")
            async with asyncio.timeout(WITHIN_SECONDS):
                while not (tasks := (await client.get("/tasks")).json()["data"]["tasks"]):
                    pass
            answered = await client.post(f"/tasks/{tasks[0]['task_id']}/answer", json={"answer": {}})
        async with served.client() as stranger:
            denied = await stranger.post("/hello", json={"name": "Ann"})
            alive = await stranger.get("/health")
        served.process.send_signal(signal.SIGINT)
        code, rest = await served.ended()

    told = "\n".join(served.lines)
    assert "POST /hello           hello" in told
    assert "POST /slow            slow (public)" in told
    assert "POST /flows/ask/runs  ask (no trigger)" in told
    words = shlex.split(served.lines[-1])
    assert words[:4] == ["curl", "-i", "-X", "POST"]
    assert f"Authorization: Bearer {served.key}" in words
    assert hello.json()["data"] == {"name": "Ann", "greeting": "Hello Ann", "by": "developer"}
    assert (asked.status_code, answered.status_code) == (201, 200)
    assert "event: ended" in stream.text
    assert (denied.status_code, alive.status_code) == (401, 200)
    assert (code, rest) == (0, "stopped.\n")
    assert (tmp_path / ".turnline" / "log.db").exists()


@pytest.mark.parametrize(
    "trigger",
    [
        "path: '/orders/{order}', input: {order: {type: integer}, code: {type: string, required: true, "
        "pattern: '^ORD-[0-9]{6}$'}, age: {type: integer, required: true, min: 18}}",
        "path: '/orders/{order}', method: GET, input: {sure: {type: boolean, required: true}, "
        "name: {type: string, required: true, min: 8}}",
    ],
)
async def test_the_request_that_a_server_suggests_passes_the_check_of_its_flow(
    tmp_path: Path, trigger: str
) -> None:
    flow = f"{{trigger: {{{trigger}}}, steps: [{{id: a, response: {{mapping: {{done: 'true'}}}}}}]}}"
    async with serving(project(tmp_path, flow), "--dev") as served:
        _, _, _, method, url, *options = shlex.split(served.lines[-1])
        given = dict(zip(options[::2], options[1::2], strict=True))
        headers = dict(
            one.split(": ", 1) for name, one in zip(options[::2], options[1::2], strict=True) if name == "-H"
        )
        async with served.client(**headers) as client:
            answer = await client.request(method, url, content=given.get("-d"))

    assert (answer.status_code, answer.json()["data"]) == (200, {"done": True})


async def test_x20_sigterm_answers_what_is_in_flight_and_takes_nothing_new(tmp_path: Path) -> None:
    inside: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    door = await asyncio.start_server(lambda _, writer: inside.put_nowait(writer), "127.0.0.1", 0)
    port = door.sockets[0].getsockname()[1]
    async with door, serving(project(tmp_path), go_port=port) as served, served.client() as client:
        asking = asyncio.create_task(client.post("/slow", json={}))
        node = await inside.get()
        served.process.send_signal(signal.SIGTERM)
        await refused(served.address)
        node.write(b"now\n")
        answer = await asking
        node.close()
        code, _ = await served.ended()

    assert answer.json() == {"success": True, "data": {"go": "now\n"}}
    assert code == 0


async def refused(address: str) -> None:
    """Wait until nobody takes connections there."""
    host, port = address.removeprefix("http://").split(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except (ConnectionRefusedError, ConnectionResetError):
            return
        writer.close()


# --- what is refused before anything is served ---


def invoke(*arguments: str) -> tuple[int, str, BaseException | None]:
    app = typer.Typer()
    app.command()(serve)
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output, done.exception


def test_documents_with_mistakes_are_reported_whole_and_nothing_is_served(tmp_path: Path) -> None:
    bad = HELLO.replace("runner: greet", "runner: great") + "---\nkind: Workflow\nspec: {steps: []}\n"
    code, told, _ = invoke(str(project(tmp_path, bad)), "--port", "0")

    assert code == 1
    assert "no node is known as 'great'" in told
    assert "'steps' cannot be this" in told
    assert told.rstrip().endswith("2 errors in 1 file.")
    assert not (tmp_path / ".turnline").exists()


def test_data_models_with_mistakes_are_reported_too(tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / "lead.yaml").write_text("kind: ModelDefinition\nmetadata: {name: Lead}\nspec: {feilds: {}}\n")
    code, told, _ = invoke(str(tmp_path), "--port", "0")

    assert code == 1
    assert "feilds" in told


def test_a_port_that_is_taken_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _, _, error = invoke(str(project(tmp_path)), "--port", str(port), "--dev")

    assert isinstance(error, NameTaken)
    assert str(error).startswith(f"the address '127.0.0.1:{port}' is taken.")
    assert not (tmp_path / ".turnline").exists()


@pytest.mark.parametrize("options", [[], ["--dev"]])
def test_f13_a_host_that_others_reach_needs_a_key_of_its_own(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TURNLINE_AUTH_KEY", raising=False)
    monkeypatch.delenv("TURNLINE_AUTH_PUBLIC_KEY", raising=False)
    _, told, error = invoke(str(project(tmp_path)), "--host", "0.0.0.0", "--port", "0", *options)

    assert isinstance(error, BadKey)
    assert "Serving" not in told
    assert not (tmp_path / ".turnline").exists()


def test_a_host_that_is_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLINE_AUTH_KEY", "11" * 32)
    _, _, error = invoke(str(project(tmp_path)), "--host", "no such host", "--port", "0")

    assert isinstance(error, UnknownName)
    assert error.name == "no such host"
