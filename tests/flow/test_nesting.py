"""Nested runs end: by depth, by their number, and with the run above them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.logs import OpenLog
from turnline.client.embedded import Hub
from turnline.core.channel import MAX_DEPTH, MAX_RUNS, child_id
from turnline.core.envelope import Draft
from turnline.core.event_types import EV_CHANNEL_CHILD, EV_CHANNEL_CLOSED, EV_CHANNEL_INVITE_ACK, EV_TEXT
from turnline.core.governance import Passport
from turnline.flow.driver import Driver
from turnline.flow.runs import Runs
from turnline.flow.steps.for_each import MAX_ITEMS
from turnline.flow.work import Services
from turnline.hub.request import OpenRequest
from turnline.log.sqlite import SqliteLog

from .stage import Stage, flows_of, stage

ITSELF = """
metadata: {name: main}
spec: {steps: [{id: again, workflow: {name: main}}]}
"""
CIRCLE = (
    "{metadata: {name: main}, spec: {steps: [{id: go, workflow: {name: other}}]}}",
    "{metadata: {name: other}, spec: {steps: [{id: back, workflow: {name: main}}]}}",
)
TWICE = """
metadata: {name: main}
spec:
  limits: {max_runs: 20}
  steps:
    - id: both
      parallel:
        branches:
          left: [{id: l, workflow: {name: main}}]
          right: [{id: r, workflow: {name: main}}]
"""
WAITING = """
metadata: {name: main}
spec:
  steps:
    - id: both
      parallel:
        branches:
          left: [{id: l, workflow: {name: asks}}]
          right: [{id: r, for_each: {items: '[1, 2]', steps: [{id: each, workflow: {name: asks}}]}}]
---
metadata: {name: asks}
spec: {steps: [{id: ask, human: {title: ok?}}]}
"""


async def count(hub: Hub) -> int:
    return len(await hub.list_channels())


async def open_channels(hub: Hub) -> list[str]:
    return [one.channel_id for one in await hub.list_channels() if one.status in ("active", "pending")]


async def waiting(house: Stage, people: int) -> None:
    """Wait until so many people are asked."""
    while len(await house.tasks.list()) < people:  # noqa: ASYNC110  Nobody is told of a new task.
        await asyncio.sleep(0)


def test_the_limits_of_nested_runs_are_these_unless_a_flow_says_otherwise() -> None:
    """The other tests take the constants as they are."""
    assert (MAX_DEPTH, MAX_RUNS, MAX_ITEMS) == (16, 1_000, 10_000)


async def test_a_flow_that_calls_itself_fails_at_the_depth_limit() -> None:
    async with stage(ITSELF) as house:
        ended = await house.run()

        assert (ended.status, await count(house.hub)) == ("failed", MAX_DEPTH + 1)
        assert f"the limit is {MAX_DEPTH}" in str(ended.error)
        assert await open_channels(house.hub) == []


async def test_flows_that_call_each_other_fail_at_the_depth_limit() -> None:
    async with stage(*CIRCLE) as house:
        ended = await house.run()

        assert (ended.status, await count(house.hub)) == ("failed", MAX_DEPTH + 1)


async def test_the_first_flow_sets_the_depth_of_its_whole_tree() -> None:
    first = ITSELF.replace("spec: {", "spec: {limits: {max_depth: 3}, ").replace(
        "{name: main}}]", "{name: deep}}]"
    )
    deep = (
        "{metadata: {name: deep}, spec: {limits: {max_depth: 60}, steps: [{id: a, workflow: {name: deep}}]}}"
    )
    async with stage(first, deep) as house:
        ended = await house.run()

        assert (ended.status, await count(house.hub)) == ("failed", 4)


async def test_a_flow_that_calls_itself_on_two_branches_ends_at_the_limit_of_runs() -> None:
    async with stage(TWICE) as house:
        run_id = await house.runs.start("main", {})
        ended = await house.ended(run_id)
        runs = [one for one in await house.hub.list_channels() if one.parent_id and one.flow]

        assert ended.status == "failed"
        assert len(runs) == (await house.hub.state(run_id)).nested_runs == 20
        assert await open_channels(house.hub) == []


async def test_a_run_may_start_a_thousand_runs_of_other_flows_and_no_more() -> None:
    """`for_each` keeps its own limit: the items are no runs of another flow."""
    block = "items: numbers, concurrency: 100, on_error: collect, into: out"
    main = "steps: [{id: all, for_each: {" + block + ", steps: [{id: one, workflow: {name: small}}]}}]"
    small = "{metadata: {name: small}, spec: {steps: [{id: end, response: {mapping: {ok: true}}}]}}"
    async with stage(main, small) as house:
        run_id = await house.runs.start("main", {"numbers": list(range(MAX_RUNS + 3))})
        results = (await house.ended(run_id)).data["out"]
        failed = [place for place, one in enumerate(results) if "error" in one]
        error = (await house.runs.verdict(child_id(run_id, 1, str(failed[0])))).error

    assert len(failed) == 3
    assert error is not None
    assert f"{MAX_RUNS} runs" in error.message


async def test_the_count_of_runs_survives_a_restart(tmp_path: Path) -> None:
    flows = (
        "{metadata: {name: main}, spec: {limits: {max_runs: 2}, steps: ["
        "{id: one, workflow: {name: small}}, {id: ask, human: {title: ok?}},"
        "{id: two, workflow: {name: small}}, {id: three, workflow: {name: small}}]}}",
        "{metadata: {name: small}, spec: {steps: [{id: end, response: {mapping: {ok: true}}}]}}",
    )
    async with stage(*flows, log=SqliteLog(tmp_path / "log.db")) as house:
        run_id = await house.runs.start("main", {})
        await house.task()
    async with stage(*flows, log=SqliteLog(tmp_path / "log.db")) as house:
        await house.tasks.answer((await house.task()).task_id, {}, by="ann")
        ended = await house.ended(run_id)

    assert ended.error is not None
    assert (ended.error.step, "2 runs" in ended.error.message) == ("three", True)


async def test_opening_a_child_again_counts_it_once() -> None:
    """A crash between the parent's line and the child's is a crash before the child was opened."""
    flows = ("steps: [{id: one, workflow: {name: asks}}]", WAITING.split("---")[1])
    async with stage(*flows) as house:
        run_id = await house.runs.start("main", {})
        await house.task()
        spec = (await house.hub.state((await house.hub.tree.children(run_id))[0])).spec
        await house.hub.tree.note_child(spec)

        assert (await house.hub.state(run_id)).nested_runs == 1
        assert (await house.types(run_id)).count(EV_CHANNEL_CHILD) == 1


async def test_two_processes_count_the_runs_of_one_tree_together(open_log: OpenLog) -> None:
    flows = flows_of(TWICE)
    hubs = [await Hub.open(open_log(), ttl_sweep_interval=0, follow=True) for _ in range(2)]
    drivers = [Driver(hub, Services(flows=flows)) for hub in hubs]
    for one in drivers:
        await one.start()
    try:
        async with asyncio.timeout(60):
            run_id = await Runs(drivers[0]).start("main", {})
            while not (state := await hubs[1].state(run_id)).is_over:
                await hubs[1].wait_beyond(run_id, state.seq)
        assert state.nested_runs == 20
    finally:
        for one, hub in zip(drivers, hubs, strict=True):
            await one.stop(grace_seconds=1)
            await hub.close()


async def test_cancelling_a_run_cancels_its_whole_tree_at_once() -> None:
    async with stage(WAITING) as house:
        run_id = await house.runs.start("main", {})
        await waiting(house, 3)

        await house.runs.cancel(run_id)

        assert await open_channels(house.hub) == []
        assert await house.tasks.list() == []


async def test_cancelling_stops_a_run_that_grows() -> None:
    """The top closes first, and nothing is opened below what has closed."""
    grows = TWICE.replace("max_runs: 20", "max_runs: 100000, max_depth: 64")
    async with stage(grows) as house:
        run_id = await house.runs.start("main", {})
        while await count(house.hub) < 30:  # noqa: ASYNC110
            await asyncio.sleep(0)

        await house.runs.cancel(run_id)
        for channel_id in await open_channels(house.hub):  # Those that were on their way.
            while not (state := await house.hub.state(channel_id)).is_over:
                await house.hub.wait_beyond(channel_id, state.seq)
        ended = await count(house.hub)
        for _ in range(200):
            await asyncio.sleep(0)

        assert await count(house.hub) == ended


async def test_a_child_below_a_closed_run_is_closed_after_a_crash(tmp_path: Path) -> None:
    """The run closed, and the process died before it closed what is below."""
    path = tmp_path / "log.db"
    async with stage(WAITING, log=SqliteLog(path)) as house:
        run_id = await house.runs.start("main", {})
        await waiting(house, 3)
    hub = await Hub.open(SqliteLog(path), ttl_sweep_interval=0)
    left = [one for one in await open_channels(hub) if one != run_id]  # The hub closes them at once, too.
    await hub.write(run_id, EV_CHANNEL_CLOSED, {"reason": "cancelled"})
    await hub.close()

    async with stage(WAITING, log=SqliteLog(path)) as house:
        for channel_id in left:
            while not (state := await house.hub.state(channel_id)).is_over:
                await house.hub.wait_beyond(channel_id, state.seq)

    assert len(left) == 7


async def test_the_driver_has_started_before_runs_are_resumed(tmp_path: Path) -> None:
    """`/ready` answers while runs resume."""
    path, entered = tmp_path / "log.db", asyncio.Event()
    flow = "steps: [{id: slow, runner: work}]"

    async def never(ctx: object) -> None:
        entered.set()
        await asyncio.Event().wait()

    async with stage(flow, log=SqliteLog(path), work=never) as house:
        run_id = await house.runs.start("main", {})
        await entered.wait()

    hub = await Hub.open(SqliteLog(path), ttl_sweep_interval=0)
    before = (await hub.state(run_id)).seq
    driver = Driver(hub, Services(flows=flows_of(flow), nodes={"work": lambda ctx: None}))
    await driver.start()
    at_start = (await hub.state(run_id)).seq
    resumed = await hub.wait_beyond(run_id, before)
    await driver.stop(grace_seconds=1)
    await hub.close()

    assert (at_start, resumed) == (before, True)


async def test_runs_that_wait_write_nothing_when_a_process_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with stage(WAITING, log=SqliteLog(path)) as house:
        run_id = await house.runs.start("main", {})
        await waiting(house, 3)
    seqs = []
    for _ in range(5):
        async with stage(WAITING, log=SqliteLog(path)) as house:
            await waiting(house, 3)
            seqs.append((await house.hub.state(run_id)).seq)

    assert len(set(seqs)) == 1


async def test_a_conversation_below_a_closed_run_is_closed_after_a_crash(tmp_path: Path) -> None:
    """Nobody wakes the driver for it: an agent has its floor."""
    path = tmp_path / "log.db"
    async with stage(WAITING, log=SqliteLog(path)) as house:
        run_id = await house.runs.start("main", {})
        await waiting(house, 3)
        bob = await house.hub.enrol(Passport(name="bob"), None, None)
        request = OpenRequest(type="conversation", target=["bob"], channel_id="talk", parent_id=run_id)
        opening = asyncio.create_task(house.driver.open(request))
        while "talk" not in await open_channels(house.hub):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await house.hub.write("talk", EV_CHANNEL_INVITE_ACK, {"agent_id": bob.agent_id})
        await opening
        me, data = house.driver.agent_id, {"text": "hello"}
        said = Draft(envelope_id="hello", sender_id=me, event_type=EV_TEXT, event_data=data)
        await house.hub.post("talk", said)
    hub = await Hub.open(SqliteLog(path), ttl_sweep_interval=0)
    await hub.write(run_id, EV_CHANNEL_CLOSED, {"reason": "cancelled"})
    await hub.close()

    async with stage(WAITING, log=SqliteLog(path)) as house:
        while not (state := await house.hub.state("talk")).is_over:
            await house.hub.wait_beyond("talk", state.seq)

    assert state.pending_close_reason == "cancelled"
