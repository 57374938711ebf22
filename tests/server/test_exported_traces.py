"""Traces leave a real server for a real collector: one tree, over a killed server, without a secret."""

from __future__ import annotations

import asyncio
import gzip
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.server.test_serve import WITHIN_SECONDS, project, serving

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ABOVE = f"00-{TRACE}-00f067aa0ba902b7-01"
CANARY = "canary-3b9"
FLOWS = """
kind: Workflow
metadata: {name: hello}
spec:
  trigger: {path: /hello, input: {name: {type: string}}}
  steps:
    - {id: greet, runner: greet}
    - {id: ask, kind: human, human: {title: "Sure?", group: sales, form: {note: {type: string}}}}
    - {id: again, runner: greet}
---
kind: Workflow
metadata: {name: ask}
spec: {steps: [{id: ask, kind: human, human: {title: "Sure?", group: sales}}]}
"""


class Collector:
    """An OTLP collector that keeps what it is sent."""

    def __init__(self) -> None:
        self.port = 0
        self.bodies: list[bytes] = []
        self._more = asyncio.Condition()

    async def heard(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
                body = await reader.readexactly(int(fields[b"content-length"]))
                is_packed = fields.get(b"content-encoding") == b"gzip"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
                async with self._more:
                    self.bodies.append(gzip.decompress(body) if is_packed else body)
                    self._more.notify_all()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def spans(self) -> list[Any]:
        told = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            span
            for one in told
            for resource in one.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    async def until(self, name: str) -> Any:
        async with asyncio.timeout(WITHIN_SECONDS), self._more:
            while not (found := [one for one in self.spans() if one.name == name]):
                await self._more.wait()
        return found[0]


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    async with await asyncio.start_server(collector.heard, "127.0.0.1", 0) as server:
        collector.port = server.sockets[0].getsockname()[1]
        yield collector


def exporting(collector: Collector) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "SHOP_KEY": CANARY,
    }


async def waiting(client: Any) -> str:
    async with asyncio.timeout(WITHIN_SECONDS):
        while True:
            tasks = (await client.get("/tasks")).json()["data"]["tasks"]
            if tasks:
                return str(tasks[0]["task_id"])


async def test_one_trace_from_the_request_to_the_last_step_also_over_a_killed_server(tmp_path: Path) -> None:
    folder = project(tmp_path, FLOWS)
    async with collecting() as collector:
        async with serving(folder, "--dev", environ=exporting(collector)) as first:
            headers = {"Authorization": f"Bearer {first.key}"}
            async with first.client(**headers) as client:
                body = {"name": f"Ann {CANARY}"}
                asked = {"Prefer": "respond-async", "traceparent": ABOVE}
                answer = await client.post("/hello", json=body, headers=asked)
                assert answer.status_code == 202, answer.text
                await waiting(client)
            await collector.until("step ask")
            first.process.send_signal(signal.SIGKILL)
            await first.process.wait()
        async with serving(folder, "--dev", environ=exporting(collector)) as second:
            headers = {"Authorization": f"Bearer {second.key}"}
            async with second.client(**headers) as client:
                task = await waiting(client)
                said = {"answer": {"note": f"yes {CANARY}"}}
                answer = await client.post(f"/tasks/{task}/answer", json=said)
                assert answer.status_code == 200, answer.text
            last = await collector.until("step again")
            second.process.terminate()
            assert (await second.ended())[0] == 0

    run = [one for one in collector.spans() if one.trace_id.hex() == TRACE]
    opened = next(one for one in run if one.name == "open_channel workflow")
    request = next(one for one in run if one.name == "POST /hello")
    assert opened.parent_span_id == request.span_id
    steps = [one for one in run if one.name.startswith("step ")]
    assert {one.name for one in steps} == {"step greet", "step ask", "step again"}
    assert {one.parent_span_id for one in steps} == {opened.span_id}
    assert last.trace_id.hex() == TRACE
    assert CANARY.encode() not in b"".join(collector.bodies)


async def test_a_server_whose_environment_names_no_collector_sends_nothing(tmp_path: Path) -> None:
    folder, environ = project(tmp_path, FLOWS), {"OTEL_SERVICE_NAME": "shop"}
    async with collecting() as collector, serving(folder, "--dev", environ=environ) as server:
        async with server.client(Authorization=f"Bearer {server.key}") as client:
            await client.get("/runs")
        server.process.terminate()
        assert (await server.ended())[0] == 0

    assert collector.bodies == []
