"""Limits on how much at once: what is beyond them is refused, and what ends makes room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.requests import HTTPConnection

from tests.flow.stage import flows_of
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.link import LocalLink
from turnline.core.claims import MAX_CLAIMS
from turnline.core.fold import SUSPECT_CLAIMS
from turnline.core.governance import Passport
from turnline.core.graph import TransitionGraph
from turnline.core.transitions import TerminateTarget
from turnline.flow.work import Services
from turnline.hub.worker import this_host
from turnline.log.memory import MemoryLog
from turnline.server.limits import Addresses, Places, note_token
from turnline.server.problems import RequestRefused
from turnline.server.runtime import Runtime
from turnline.testing.manual_clock import ManualClock

from .stage import Ctx, served

ASK = "steps: [{id: ask, kind: human, human: {title: 'Sure?'}}]"
EACH = """
name: each
steps: [{id: all, for_each: {items: '[1, 2, 3]', steps: [{id: ask, human: {title: 'Sure?'}}]}}]
"""


@asynccontextmanager
async def limited(runs_at_once: int, log: MemoryLog | None = None) -> AsyncIterator[Runtime]:
    services, log = Services(flows=flows_of(ASK, EACH)), log or MemoryLog()
    runtime = Runtime(
        services, open_log=lambda: log, clock=ManualClock(), runs_at_once=runs_at_once, grace_seconds=0
    )
    async with runtime:
        yield runtime


async def begun(runtime: Runtime, flow: str) -> str:
    with runtime.open_runs.starting(flow):
        run_id = await runtime.runs.start(flow, {})
    await runtime.runs.wait(run_id)
    return run_id


async def test_a_project_limits_the_runs_of_all_flows_together_and_not_what_is_below_them() -> None:
    async with limited(2) as runtime:
        first = await begun(runtime, "each")
        await begun(runtime, "main")
        for flow in ("each", "main"):
            with pytest.raises(RequestRefused, match="2 runs are open already"):
                await begun(runtime, flow)
        await runtime.runs.cancel(first)
        await begun(runtime, "main")


async def test_a_clients_channel_takes_no_place_of_a_flow_whatever_its_labels_and_knobs_say() -> None:
    log = MemoryLog()
    graph = TransitionGraph(initial_speaker="bob", transitions=[], default_target=TerminateTarget("done"))
    knobs = {"graph": graph.to_dict(), "flow": {"name": "main", "digest": "0"}}
    async with limited(1, log) as runtime:
        client = HubClient(LocalLink(runtime.hub))
        await client.register(None, Passport(name="bob"))
        user = await client.register_human(Passport(name="user", kind="human"))
        for _ in range(3):
            await user.open("workflow", "bob", labels={"flow": "main"}, knobs=knobs)
        await begun(runtime, "main")
    async with limited(2, log) as runtime:  # A second server counts the same.
        await begun(runtime, "each")
        with pytest.raises(RequestRefused, match="2 runs are open already"):
            await begun(runtime, "each")


async def test_a_label_does_not_move_a_run_to_another_flow() -> None:
    async with limited(5) as runtime:
        run_id = await runtime.runs.start("main", {}, labels={"flow": "each", "team": "a"})

        assert (await runtime.runs.state(run_id)).spec.labels == {"flow": "main", "team": "a"}


async def test_a_start_that_fails_gives_its_place_back() -> None:
    async with limited(1) as runtime:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError), runtime.open_runs.starting("main"):
                _ = 1 / 0
        await begun(runtime, "main")


def test_two_starts_at_once_do_not_share_the_last_place() -> None:
    places = Places(1, "requests", retry_after_seconds=7)
    with places.one(), pytest.raises(RequestRefused) as caught, places.one():
        pass
    with places.one():
        pass

    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "7"})
    assert (places.taken, places.refused) == (0, 1)


async def test_a_user_has_a_limit_of_open_runs_and_one_that_ends_makes_room() -> None:
    quotas = {"open_runs_per_user": 2, "open_runs_of_strangers": 1}
    services = Services(flows=flows_of(ASK))
    runtime = Runtime(
        services, open_log=MemoryLog, clock=ManualClock(), quotas=quotas, sweep_seconds=0, grace_seconds=0
    )

    async def start(user: str) -> str:
        with runtime.open_runs.starting("main", user):
            return await runtime.runs.start("main", {}, user_id=user or None)

    async with runtime:
        first = await start("ann")
        await start("ann")
        with pytest.raises(RequestRefused, match=r"2 open runs already \(open_runs_per_user\)") as caught:
            await start("ann")
        await start("ben")
        await start("")
        with pytest.raises(RequestRefused, match="open_runs_of_strangers"):
            await start("")
        await runtime.runs.cancel(first)
        await start("ann")

    assert caught.value.status == 429


async def test_a_retry_and_a_fork_count_for_their_caller_and_not_for_strangers() -> None:
    quotas = {"open_runs_per_user": 1, "open_runs_of_strangers": 1}
    public = "trigger: {path: /ask, public: true}\n" + ASK
    async with served(public, quotas=quotas) as server:
        run_id = (await server.post("/ask", {}, token="root")).headers["x-run-id"]
        await server.post(f"/runs/{run_id}/cancel", {}, token="root")
        stranger = await server.post("/ask", {}, token="")
        retried = await server.post(f"/runs/{run_id}/retry", {}, token="root")
        again = await server.post(f"/runs/{run_id}/retry", {}, token="root")
        fork = await server.post(f"/channels/{run_id}/fork", {"at": 2}, token="root")

    assert [stranger.status_code, retried.status_code] == [202, 201]
    assert [again.status_code, fork.status_code] == [429, 429]
    assert "(open_runs_per_user)" in again.json()["error"]["message"]


async def test_a_stuck_run_resumes_without_a_further_place() -> None:
    log, entered = MemoryLog(), asyncio.Event()
    flow = "steps: [{id: only, runner: work}]"
    quotas = {"open_runs_per_user": 1}

    async def never(ctx: Ctx) -> None:
        entered.set()
        await asyncio.Event().wait()

    async with served(flow, log=lambda: log, work=never) as server:
        given = {"Prefer": "respond-async"}
        run_id = (await server.post("/flows/main/runs", {"input": {}}, **given)).headers["x-run-id"]
        await entered.wait()
    hub = await Hub.open(log, ttl_sweep_interval=0)
    for place in range(MAX_CLAIMS):
        dead = f"{this_host()}:999999999:1/agent"
        await hub.turns.claim(run_id, "only", worker=dead, turn=1, alone=place >= SUSPECT_CLAIMS)
    await hub.close()

    async with served(flow, log=lambda: log, quotas=quotas, work=lambda ctx: {"worked": True}) as server:
        assert (await server.runtime.runs.wait(run_id)).status == "stuck"
        retried = await server.post(f"/runs/{run_id}/retry", {})
        assert retried.status_code == 201
        done = await server.ended(run_id)

    assert done["data"] == {"worked": True}


async def test_a_server_that_starts_again_counts_the_open_runs_of_its_users() -> None:
    log = MemoryLog()

    def runtime() -> Runtime:
        services = Services(flows=flows_of(ASK))
        quotas = {"open_runs_per_user": 1}
        return Runtime(services, open_log=lambda: log, clock=ManualClock(), quotas=quotas, grace_seconds=0)

    async with runtime() as first:
        await first.runs.start("main", {}, user_id="ann")
    async with runtime() as second:
        with (
            pytest.raises(RequestRefused, match="open_runs_per_user"),
            second.open_runs.starting("main", "ann"),
        ):
            pass


def test_requests_without_a_token_are_counted_by_address_until_they_show_one() -> None:
    addresses = Addresses(1)

    def request(address: str) -> HTTPConnection:
        return HTTPConnection({"type": "http", "client": (address, 1)})

    first = request("1.1.1.1")
    with addresses.one(first):
        with addresses.one(request("2.2.2.2")):
            pass
        with (
            pytest.raises(RequestRefused, match="connections_per_address"),
            addresses.one(request("1.1.1.1")),
        ):
            pass
        note_token(first.scope)
        with addresses.one(request("1.1.1.1")):
            pass
    with addresses.one(request("1.1.1.1")):
        pass
