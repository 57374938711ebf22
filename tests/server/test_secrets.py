"""F2, F9: secrets and private keys reach no response, stream, document, fixture or line of logging.

A secret sent in a header is not on the log either, also when the other side echoes it; a private key is on
the log, where the run keeps it, and leaves the server nowhere.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from tests.flow.http_server import Answer, HttpServer
from tests.flow.stage import flows_of
from tests.server.stage import KnownTokens
from turnline.agent.agent import Agent
from turnline.agent.scripted import RecordingModel, ScriptedModel
from turnline.flow.testing.fixture import export_run
from turnline.flow.work import Services
from turnline.log.sqlite import SqliteLog
from turnline.server.app import create_app
from turnline.server.runtime import Runtime

SECRET = "canary-5f0c2e-header"
PRIVATE = "canary-5f0c2e-private"

FLOW = """
metadata: {name: main}
trigger: {path: /go, input: {url: string, fail: boolean}}
steps:
  - {id: mark, runner: mark}
  - {id: ask, kind: agent, agent: {prompt: "Say it of {{ url }}", output: {key: said}}}
  - id: call
    api_call:
      url: "{{ url }}/echo"
      method: POST
      headers: {Authorization: "Bearer {{ secret.API_TOKEN }}"}
      json: {said: "{{ said }}"}
      allow_private: true
      output: {key: echoed}
  - {id: wait, human: {title: ok?, form: {ok: boolean}}}
  - {id: end, runner: end}
"""


def mark(ctx: dict[str, Any]) -> dict[str, Any]:
    ctx["_token"] = PRIVATE
    return ctx


def end(ctx: dict[str, Any]) -> dict[str, Any]:
    assert ctx["_token"] == PRIVATE
    if ctx.get("fail"):
        raise KeyError("_token")
    return {"length": len(ctx["_token"])}


def bytes_in(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.iterdir())


@pytest.mark.parametrize("fail", [False, True])
async def test_f2_f9_a_canary_is_found_nowhere_outside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fail: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "log.db"
    model = RecordingModel(ScriptedModel("hello"))
    services = Services(
        flows=flows_of(FLOW),
        nodes={"mark": mark, "end": end},
        agents={"ask": Agent("ask", config=model)},
        model=model,
        secret={"API_TOKEN": SECRET}.get,
    )
    runtime = Runtime(services, open_log=lambda: SqliteLog(path))
    app = create_app(runtime, authenticator=KnownTokens())
    heard: list[bytes] = []
    headers = {"Authorization": "Bearer root"}
    transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 4711))
    echo = Answer(json={"you_sent": f"Bearer {SECRET}", "_token": SECRET})
    with HttpServer({"/echo": echo}) as other:
        async with (
            asyncio.timeout(60),
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://server", headers=headers) as client,
        ):

            async def ask(method: str, address: str, body: object = None) -> Any:
                answer = await client.request(method, address, json=body)
                heard.append(answer.content + repr(answer.headers).encode())
                return answer.json() if "json" in answer.headers["content-type"] else None

            run_id = (await ask("POST", "/go", {"url": other.url, "fail": fail}))["data"]["run_id"]
            [task] = (await ask("GET", "/tasks"))["data"]["tasks"]
            await ask("POST", f"/tasks/{task['task_id']}/answer", {"answer": {"ok": True}})
            await ask("GET", f"/runs/{run_id}/events")
            run = (await ask("GET", f"/runs/{run_id}"))["data"]
            for address in ("/runs", "/flows", "/openapi.json", "/health"):
                await ask("GET", address)
            fixture = msgspec.json.encode(await export_run(runtime.runs, run_id))
            requests = repr(model.exchanges).encode()
        sent = other.received[0].headers["authorization"]

    on_disk = bytes_in(tmp_path)
    assert run["status"] == ("failed" if fail else "succeeded")
    assert sent == f"Bearer {SECRET}"
    assert PRIVATE.encode() in on_disk, "the run keeps it; else this test would prove nothing"
    for place in (*heard, fixture, requests, caplog.text.encode()):
        assert b"canary-5f0c2e" not in place
    assert SECRET.encode() not in on_disk
