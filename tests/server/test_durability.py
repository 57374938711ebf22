"""A trigger of a flow with `durability: end`: what is on the log when a caller gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.errors import LogUnavailable
from turnline.flow.node import node
from turnline.log.memory import MemoryLog

from .stage import Server, served

FLOW = """
metadata: {name: sum}
spec:
  durability: end
  limits: {concurrency: 1}
  trigger: {path: /sum, timeout: TIMEOUT}
  steps: [{id: first, runner: first}, {id: second, runner: second}]
"""


class SwitchedLog(MemoryLog):
    """Counts the appends to runs, and refuses them while it is away."""

    def __init__(self) -> None:
        super().__init__()
        self.appends = 0
        self.is_away = False

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        is_run = not channel_id.startswith("_")
        if is_run and self.is_away:
            raise LogUnavailable(self.address, because="the disk is full")
        self.appends += is_run
        await super().append(channel_id, envelopes, after=after, row=row)


class Gate:
    """Two pure nodes; the second waits until the gate is opened."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        if is_open:
            self.opened.set()

    @property
    def nodes(self) -> dict[str, Any]:
        @node(pure=True)
        def first(ctx: dict[str, Any]) -> dict[str, Any]:
            return {"first": 1}

        @node(pure=True)
        async def second(ctx: dict[str, Any]) -> dict[str, Any]:
            self.reached.set()
            await self.opened.wait()
            return {"second": 2}

        return {"first": first, "second": second}


def flow(timeout: str = "60s") -> str:
    return FLOW.replace("TIMEOUT", timeout)


async def lines(log: MemoryLog, run_id: str) -> int:
    return len([line async for line in log.read(run_id)])


async def status_of(server: Server, run_id: str) -> str:
    return str((await server.get(f"/runs/{run_id}")).json()["data"]["status"])


async def test_an_answer_costs_one_append_and_comes_after_it() -> None:
    log = SwitchedLog()
    async with served(flow(), log=lambda: log, **Gate(is_open=True).nodes) as server:
        answer = await server.post("/sum", {})
        found = await lines(log, answer.headers["x-run-id"])

    assert (answer.status_code, answer.json()["data"]) == (200, {"first": 1, "second": 2})
    assert (log.appends, found) == (1, 7)


@pytest.mark.parametrize("headers", [{"prefer": "respond-async"}, {"idempotency_key": "k1"}])
async def test_a_run_that_a_caller_can_name_is_on_the_log_before_its_first_step(
    headers: dict[str, str],
) -> None:
    log, gate = SwitchedLog(), Gate()
    async with served(flow(), log=lambda: log, **gate.nodes) as server:
        asking = asyncio.ensure_future(server.post("/sum", {}, **headers))
        await gate.reached.wait()
        appends = log.appends
        gate.opened.set()
        answer = await asking

    assert (appends, answer.status_code) == (1, 202 if "prefer" in headers else 200)


async def test_a_caller_that_waits_too_long_is_told_of_a_run_that_is_on_the_log() -> None:
    log, gate = SwitchedLog(), Gate()
    async with served(flow("10ms"), log=lambda: log, **gate.nodes) as server:
        answer = await server.post("/sum", {})
        found = await lines(log, answer.headers["x-run-id"])
        gate.opened.set()

    assert (answer.status_code, found) == (504, 5)


async def test_a_caller_is_told_of_no_run_that_the_log_does_not_take() -> None:
    log, gate = SwitchedLog(), Gate()
    async with served(flow("10ms"), log=lambda: log, **gate.nodes) as server:
        log.is_away = True
        answer = await server.post("/sum", {})
        log.is_away = False
        gate.opened.set()

    assert answer.status_code == 503
    assert "x-run-id" not in answer.headers
    assert "may go on" in answer.json()["error"]["message"]


async def test_a_run_that_is_not_recorded_yet_counts_for_the_concurrency_of_its_flow() -> None:
    log, gate = SwitchedLog(), Gate()
    async with served(flow(), log=lambda: log, **gate.nodes) as server:
        asking = asyncio.ensure_future(server.post("/sum", {}))
        await gate.reached.wait()
        appends, second = log.appends, await server.post("/sum", {})
        gate.opened.set()
        first = await asking
        third = await server.post("/sum", {})

    assert (appends, second.status_code, first.status_code, third.status_code) == (0, 503, 200, 200)


async def test_a_run_can_be_read_while_it_is_not_recorded_yet() -> None:
    log, gate = SwitchedLog(), Gate()
    async with served(flow("10ms"), log=lambda: log, **gate.nodes) as server:
        run_id = (await server.post("/sum", {})).headers["x-run-id"]
        before = await status_of(server, run_id)
        gate.opened.set()
        await server.runtime.runs.wait(run_id)
        after = await status_of(server, run_id)

    assert (before, after) == ("running", "succeeded")
