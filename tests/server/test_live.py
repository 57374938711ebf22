"""`turnline serve --dev` in a process of its own: it reloads what changes, and keeps its key and its runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from turnline.server.live import fingerprint

FLOWS = """
kind: Workflow
metadata: {name: order}
spec:
  trigger: {path: /order, public: true}
  steps:
    - {id: rest, kind: wait, wait: {event: paid}}
    - {id: say, runner: say}
---
kind: Workflow
metadata: {name: hello}
spec: {trigger: {path: /hello, method: GET, input: {name: string}}, steps: [{id: say, runner: say}]}
"""
NODES = """
from helper import WORD
from turnline.flow.node import node


@node("say")
async def say(ctx):
    return {"said": WORD, "by": ctx.get("_user_id")}
"""
WITHIN_SECONDS = 60.0


class Live:
    """A server process, and what it prints."""

    def __init__(self, folder: Path, process: Process) -> None:
        self.folder = folder
        self.process = process
        self.lines: list[str] = []

    async def until(self, text: str) -> str:
        """Read what it prints until a line has `text`; return that line."""
        assert self.process.stdout is not None
        async with asyncio.timeout(WITHIN_SECONDS):
            while text not in (line := (await self.process.stdout.readline()).decode()):
                assert line, f"it ended, having said {self.lines}"
                self.lines.append(line.rstrip())
        self.lines.append(line.rstrip())
        return line.rstrip()

    async def started(self) -> None:
        self.address = (await self.until("Serving")).split(" on ")[1].split(";")[0]
        await self.until("Development key")
        assert self.process.stdout is not None
        self.key = (await self.process.stdout.readline()).decode().strip()
        await self.until("curl")

    def write(self, path: str, text: str) -> None:
        """Write a file as an editor does: all of it at once."""
        draft = self.folder / f"{path}.draft"
        draft.parent.mkdir(exist_ok=True)
        draft.write_text(text)
        draft.rename(self.folder / path)

    def client(self, token: str = "") -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {token or self.key}"}
        return httpx2.AsyncClient(base_url=self.address, headers=headers, timeout=WITHIN_SECONDS)


@asynccontextmanager
async def live(folder: Path, *options: str, environ: Mapping[str, str] | None = None) -> AsyncIterator[Live]:
    for path, text in {
        "workflows/all.yaml": FLOWS,
        "nodes/all.py": NODES,
        "helper.py": "WORD = 'one'\n",
    }.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnline", "serve", str(folder), "--dev", "--port", "0", *options),
        stdout=PIPE,
        stderr=STDOUT,
        env={"PATH": os.defpath, **(environ or {})},
    )
    try:
        found = Live(folder, process)
        await found.started()
        yield found
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def command(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "turnline", *words, stdout=PIPE, env={"PATH": os.defpath}
    )
    told, _ = await process.communicate()
    assert process.returncode == 0
    return told.decode().strip()


@pytest.mark.parametrize("log", [[], ["--log", "memory:"]], ids=["a file", "memory"])
async def test_a_development_server_reloads_files_and_keeps_its_key_and_its_runs(
    log: list[str], tmp_path: Path
) -> None:
    async with live(tmp_path, *log) as server, server.client() as client:
        waiting = await client.post("/order", json={})
        before = await client.get("/hello")
        server.write("helper.py", "WORD = 'two'\n")
        await server.until("Reloaded: 2 flows.")
        after = await client.get("/hello")
        server.write("workflows/more.yaml", FLOWS.split("---")[1].replace("hello", "ahoy"))
        await server.until("Reloaded: 3 flows.")
        new = await client.get("/ahoy")
        run = f"/runs/{waiting.headers['x-run-id']}"
        await client.post(f"{run}/events/paid", json={})
        await client.get(f"{run}/events", headers={"Accept": "text/event-stream"})
        ended = await client.get(run)
        server.process.send_signal(signal.SIGTERM)
        await server.until("stopped.")
        code = await server.process.wait()

    assert waiting.status_code == 202
    assert [one.json()["data"]["said"] for one in (before, after, new)] == ["one", "two", "two"]
    assert new.json()["data"]["by"] == "developer"
    assert ended.json()["data"]["status"] == "succeeded"
    assert ended.json()["data"]["data"]["said"] == "two"
    assert code == 0


async def test_a_development_server_without_the_extra_says_at_its_start_that_it_refuses_tokens(
    tmp_path: Path,
) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "biscuit_auth.py").write_text("raise ImportError")
    (tmp_path / "project").mkdir()
    environ = {"PYTHONPATH": str(tmp_path / "packages")}
    async with live(tmp_path / "project", environ=environ) as server:
        without_a_key = list(server.lines)
    await command("token", "key", "--dir", str(tmp_path / "project"))
    async with live(tmp_path / "project", environ=environ) as server:
        with_a_key = list(server.lines)

    assert not [line for line in without_a_key if "tokens" in line]
    (line,) = [line for line in with_a_key if "tokens" in line]
    assert line.startswith("The project has a key for tokens, but this server refuses tokens: ")
    assert "[biscuit]" in line


async def test_a_stream_that_is_open_over_a_reload_can_be_taken_up_again(tmp_path: Path) -> None:
    async with live(tmp_path) as server, server.client() as client:
        run = f"/runs/{(await client.post('/order', json={})).headers['x-run-id']}"
        async with client.stream("GET", f"{run}/events") as stream:
            server.write("helper.py", "WORD = 'two'\n")
            await server.until("Reloaded")
            first = b"".join([piece async for piece in stream.aiter_bytes()])
        await client.post(f"{run}/events/paid", json={})
        rest = await client.get(f"{run}/events", headers={"Last-Event-ID": "1"})

    assert b"event: started" in first
    assert b"event: ended" not in first
    assert "event: ended" in rest.text


async def test_files_with_mistakes_are_reported_and_the_ones_before_are_served(tmp_path: Path) -> None:
    async with live(tmp_path) as server, server.client() as client:
        server.write("workflows/all.yaml", FLOWS.replace("runner: say", "runner: sya"))
        await server.until("Not reloaded")
        during = await client.get("/hello")
        server.write("workflows/all.yaml", FLOWS.replace("path: /hello", "path: /runs"))
        await server.until("The server itself answers it")
        await server.until("Not reloaded")
        clash = await client.get("/hello")
        server.write("workflows/all.yaml", FLOWS.replace("/hello", "/ahoy"))
        await server.until("Reloaded")
        after = [(await client.get(path)).status_code for path in ("/ahoy", "/hello")]

    assert "'sya'" in "\n".join(server.lines)
    assert [during.status_code, clash.status_code] == [200, 200]
    assert after == [200, 404]


async def test_rows_in_memory_are_not_lost_by_a_reload(tmp_path: Path) -> None:
    model = "kind: ModelDefinition\nmetadata: {name: Lead}\nspec: {fields: {email: {type: string}}}\n"
    (tmp_path / "lead.yaml").write_text(model)
    async with live(tmp_path, "--log", "memory:") as server:
        server.write("helper.py", "WORD = 'two'\n")
        await server.until("would be lost")
        async with server.client() as client:
            kept = await client.get("/hello")

    assert kept.json()["data"]["said"] == "one"


async def test_without_reload_files_are_served_as_they_were(tmp_path: Path) -> None:
    async with live(tmp_path, "--no-reload", "--access-log") as server, server.client() as client:
        server.write("helper.py", "WORD = 'two'\n")
        os.sync()
        for _ in range(3):
            found = await client.get("/hello")
            await server.until("GET /hello 200")

    assert found.json()["data"]["said"] == "one"
    assert not [line for line in server.lines if "Reloaded" in line]


async def test_a_development_server_accepts_tokens_that_are_minted_for_the_project(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        given = ("--dir", str(tmp_path), "--user", "ann", "--scope", "runs:start:*", "--expires", "1h")
        token = await command("token", "mint", *given)
        async with server.client(token) as client, asyncio.timeout(WITHIN_SECONDS):
            accepted = await client.get("/hello")
            denied = await client.get("/runs")
            waiting = await client.post("/order", json={})
            async with client.stream("GET", f"{waiting.headers['location']}/events") as stream:
                await command("token", "revoke", token, "--dir", str(tmp_path))
                async for piece in stream.aiter_bytes():  # It ends, although the run does not.
                    assert b"event: ended" not in piece
            revoked = await client.get("/hello")

    assert accepted.json()["data"]["by"] == "ann"
    assert (denied.status_code, stream.status_code, revoked.status_code) == (403, 200, 401)


async def test_the_access_log_prints_each_request_without_its_query(tmp_path: Path) -> None:
    async with live(tmp_path, "--access-log") as server, server.client() as client:
        await client.get("/hello?name=canary")
        line = await server.until("/hello")
        await client.post("/nothing", json={})
        other = await server.until("/nothing")

    assert line.endswith("GET /hello 200")
    assert "127.0.0.1" in line
    assert "canary" not in json.dumps(server.lines)
    assert other.endswith("POST /nothing 404")


async def test_workers_share_the_key_and_reload_too(tmp_path: Path) -> None:
    async with live(tmp_path, "--workers", "2") as server, server.client() as client:
        server.write("helper.py", "WORD = 'two'\n")
        found = ["one"]
        async with asyncio.timeout(WITHIN_SECONDS):
            while set(found[-10:]) != {"two"}:
                found.append((await client.get("/hello")).json()["data"]["said"])

    assert set(found) == {"one", "two"}


def test_the_files_of_a_project_are_watched_and_no_others(tmp_path: Path) -> None:
    (tmp_path / ".turnline").mkdir()
    before = fingerprint(tmp_path)
    for name in (".turnline/log.yaml", "notes.txt", "__pycache__/x.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    same = fingerprint(tmp_path)
    (tmp_path / "a.yaml").write_text("x")
    more = fingerprint(tmp_path)
    (tmp_path / "a.yaml").unlink()

    assert before == same != more
    assert fingerprint(tmp_path) == before
    assert fingerprint(tmp_path / "gone") == frozenset()
