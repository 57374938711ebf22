"""N4: `ctx["_once"]` in nodes and `context.once` in the tools of agent steps."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.flow.stage import Stage, flows_of, stage
from turnline import Agent, Context, tool
from turnline.flow.work import Services
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call
from turnline.threads import MAX_THREADS

Ctx = dict[str, Any]
ONE = "steps: [{id: only, runner: work}]"
RETRIED = "steps: [{id: only, runner: work, retry: {attempts: 3, backoff: 1s}}]"


class Effects:
    """Functions that note when they run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def sync(self, name: str, result: Any = None) -> Callable[[], Any]:
        def run() -> Any:
            self.ran.append(name)
            return result

        return run

    def on_loop(self, name: str, result: Any = None) -> Callable[[], Any]:
        async def run() -> Any:
            await asyncio.sleep(0)
            self.ran.append(name)
            return result

        return run


async def results_of(house: Stage, run_id: str) -> dict[str, Any]:
    """The recorded results of a run, by key."""
    lines = [one.event_data for one in await house.wal(run_id) if one.event_type == "turn.once"]
    assert len({one["key"] for one in lines}) == len(lines)
    return {one["key"]: one["result"] for one in lines}


async def test_an_async_node_awaits_once_and_the_result_is_on_the_log() -> None:
    effects = Effects()

    async def work(ctx: Ctx) -> Ctx:
        a = await ctx["_once"]("a", effects.sync("a", 1))
        b = await ctx["_once"]("b", effects.on_loop("b", {"n": 2}))
        return {"sum": a + b["n"]}

    async with stage(ONE, work=work) as house:
        run_id = await house.runs.start("main", {})
        done = await house.runs.wait(run_id)

        assert done.data == {"sum": 3}
        assert await results_of(house, run_id) == {"a": 1, "b": {"n": 2}}


async def test_a_sync_node_gets_the_result_itself_and_its_function_runs_in_its_thread() -> None:
    effects, threads = Effects(), list[int]()

    def work(ctx: Ctx) -> Ctx:
        threads.append(threading.get_ident())
        threads.append(ctx["_once"]("where", threading.get_ident))
        return {"b": ctx["_once"]("b", effects.on_loop("b", 2)), "a": ctx["_once"]("a", effects.sync("a", 1))}

    async with stage(ONE, work=work) as house:
        done = await house.run()

    assert (done.status, done.data) == ("succeeded", {"a": 1, "b": 2})
    assert threads[0] == threads[1]


async def test_sync_nodes_in_every_thread_do_not_wait_for_each_other() -> None:
    """Each holds a thread while its function runs. With a further thread for each function none would end."""
    meet = threading.Barrier(MAX_THREADS)

    def work(ctx: Ctx) -> Ctx:
        meet.wait(60)
        return {"n": ctx["_once"]("n", lambda: 1)}

    async with stage(ONE, work=work) as house:
        done = await asyncio.gather(*(house.run() for _ in range(MAX_THREADS)))

    assert {one.status for one in done} == {"succeeded"}


async def test_what_a_sync_function_raises_reaches_its_sync_node() -> None:
    def work(ctx: Ctx) -> Ctx:
        try:
            ctx["_once"]("k", lambda: dict[str, int]()["missing"])
        except KeyError as error:
            return {"caught": str(error)}
        return {}

    async with stage(ONE, work=work) as house:
        assert (await house.run()).data == {"caught": "'missing'"}


@pytest.mark.parametrize("is_async", [True, False])
async def test_f5_the_next_attempt_of_a_step_gets_the_recorded_result(is_async: bool) -> None:
    effects, attempts = Effects(), list[int]()

    async def on_loop(ctx: Ctx) -> Ctx:
        n = await ctx["_once"]("n", effects.sync("n", 7))
        return later(n)

    def in_thread(ctx: Ctx) -> Ctx:
        return later(ctx["_once"]("n", effects.sync("n", 7)))

    def later(n: int) -> Ctx:
        attempts.append(n)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return {"n": n}

    async with stage(RETRIED, work=on_loop if is_async else in_thread) as house:
        run_id = await house.runs.start("main", {})
        for seconds in (1, 2):
            await house.paused(run_id, "retry")
            await house.pass_time(seconds)
        done = await house.ended(run_id)

    assert (done.data, effects.ran, attempts) == ({"n": 7}, ["n"], [7, 7, 7])


async def test_a_key_belongs_to_one_turn_of_one_step() -> None:
    two = "steps: [{id: a, runner: work, routes: {default: b}}, {id: b, runner: work}]"
    seen = list[int]()

    async def work(ctx: Ctx) -> None:
        seen.append(await ctx["_once"]("n", lambda: len(seen)))

    async with stage(two, work=work) as house:
        await house.run()

    assert seen == [0, 1]


async def test_a_key_used_twice_is_an_error_of_the_step() -> None:
    async def work(ctx: Ctx) -> None:
        await ctx["_once"]("n", lambda: 1)
        await ctx["_once"]("n", lambda: 2)

    async with stage(ONE, work=work) as house:
        done = await house.run()

    assert done.error is not None
    assert "once('n'): the key is used a second time" in done.error.message


async def test_f2_the_handle_is_in_every_context_and_never_stored() -> None:
    seen = list[bool]()

    def work(ctx: Ctx) -> Ctx:
        seen.extend(("_once" in ctx, callable(ctx.get("_once")), "_once" in json.dumps(ctx)))
        return dict(ctx)

    async with stage(ONE, work=work) as house:
        run_id = await house.runs.start("main", {"_once": "mine"})
        done = await house.runs.wait(run_id)

        assert (seen, done.data) == ([True, True, False], {})
        assert "_once" not in (await house.hub.state(run_id)).private_vars


async def test_a_restarted_driver_resumes_after_the_recorded_results() -> None:
    log, effects, entered = MemoryLog(), Effects(), asyncio.Event()

    async def hang() -> None:
        entered.set()
        await asyncio.Event().wait()

    async def work(ctx: Ctx) -> Ctx:
        a = await ctx["_once"]("a", effects.sync("a", 1))
        b = await ctx["_once"]("b", hang if not entered.is_set() else effects.sync("b", 2))
        return {"sum": a + b}

    services = Services(flows=flows_of(ONE), nodes={"work": work})
    async with stage(log=log, services=services) as house:
        run_id = await house.runs.start("main", {})
        await entered.wait()
    async with stage(log=log, services=services) as house:
        done = await house.ended(run_id)

    assert (done.data, effects.ran) == ({"sum": 3}, ["a", "b"])


# --- forks ---


async def test_a_fork_in_the_middle_of_a_step_keeps_the_results_that_were_recorded_then() -> None:
    effects = Effects()

    async def work(ctx: Ctx) -> Ctx:
        return {key: await ctx["_once"](key, effects.sync(key, key)) for key in "abc"}

    async with stage(ONE, work=work) as house:
        run_id = await house.runs.start("main", {})
        await house.ended(run_id)
        lines = [one.seq for one in await house.wal(run_id) if one.event_type == "turn.once"]
        for kept, seq in enumerate(lines, start=1):
            effects.ran.clear()
            fork_id = await house.hub.fork(run_id, at=seq)

            assert (await house.ended(fork_id)).data == {"a": "a", "b": "b", "c": "c"}
            assert effects.ran == list("abc")[kept:]


async def test_a_fork_of_a_step_that_waits_for_its_retry_keeps_the_results() -> None:
    effects, fails = Effects(), [True]

    async def work(ctx: Ctx) -> Ctx:
        n = await ctx["_once"]("n", effects.sync("n", 7))
        if fails:
            raise ValueError("not yet")
        return {"n": n}

    async with stage(RETRIED, work=work) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id, "retry")
        fails.clear()
        fork_id = await house.hub.fork(run_id, at=(await house.hub.state(run_id)).seq)

        assert (await house.ended(fork_id)).data == {"n": 7}
        assert effects.ran == ["n"]


async def test_a_fork_of_a_step_with_results_has_all_its_attempts_again() -> None:
    attempts = list[str]()

    async def work(ctx: Ctx) -> None:
        await ctx["_once"]("n", lambda: 7)
        attempts.append("made")
        raise ValueError("no luck")

    async with stage(RETRIED, work=work) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id, "retry")
        attempts.clear()
        fork_id = await house.hub.fork(run_id, at=(await house.hub.state(run_id)).seq)
        for seconds in (1, 2):
            await house.paused(fork_id, "retry")
            await house.pass_time(seconds)
        await house.ended(fork_id)
        made = [one for one in await house.wal(fork_id) if one.event_type == "turn.paused"]

    assert [one.event_data["data"]["attempt"] for one in made] == [1, 1, 2]


async def test_a_retry_of_a_run_begins_a_new_one_without_results() -> None:
    effects, fails = Effects(), [True]

    async def work(ctx: Ctx) -> Ctx:
        n = await ctx["_once"]("n", effects.sync("n", len(effects.ran)))
        if fails:
            raise ValueError("no luck")
        return {"n": n}

    async with stage(ONE, work=work) as house:
        run_id = await house.runs.start("main", {})
        await house.ended(run_id)
        fails.clear()
        again = await house.runs.retry(run_id)

        assert (await house.ended(again)).data == {"n": 1}


async def test_a_retry_of_a_fork_has_the_private_keys_that_the_fork_was_given() -> None:
    seen = list[str]()

    async def work(ctx: Ctx) -> None:
        await ctx["_once"]("n", lambda: 1)
        seen.append(ctx.get("_tenant", "nobody"))
        raise ValueError("no luck")

    async with stage(ONE, work=work) as house:
        run_id = await house.runs.start("main", {})
        await house.ended(run_id)
        [at] = [one.seq for one in await house.wal(run_id) if one.event_type == "turn.once"]
        fork_id = await house.hub.history.fork(run_id, at=at, private={"_tenant": "ann"})
        await house.ended(fork_id)
        await house.ended(await house.runs.retry(fork_id))

    assert seen == ["nobody", "ann", "ann"]


# --- tools of an agent step ---

AGENT = "steps: [{id: ask, agent: {name: clerk, prompt: go}, retry: {attempts: 2, backoff: 1s}}]"


def clerk(model: ScriptedModel, *tools: Any) -> Services:
    return Services(flows=flows_of(AGENT), agents={"clerk": Agent("clerk", config=model, tools=tools)})


async def test_a_tool_that_runs_again_after_a_restart_gets_its_recorded_result() -> None:
    log, effects, entered = MemoryLog(), Effects(), asyncio.Event()

    @tool
    async def charge(amount: int, context: Context) -> str:
        receipt = await context.once("charge", effects.sync("charge", f"paid {amount}"))
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()
        return str(receipt)

    model = ScriptedModel(call("charge", amount=5))
    async with stage(log=log, services=clerk(model, charge)) as house:
        run_id = await house.runs.start("main", {})
        await entered.wait()
    async with stage(log=log, services=clerk(ScriptedModel("done"), charge)) as house:
        await house.ended(run_id)
        results = await results_of(house, run_id)

    assert effects.ran == ["charge"]
    assert list(results.values()) == ["paid 5"]


@pytest.mark.parametrize(("amount", "ran"), [(5, ["charge"]), (7, ["charge", "charge"])])
async def test_the_next_attempt_of_the_step_finds_the_result_of_the_same_call_only(
    amount: int, ran: list[str]
) -> None:
    """Model replies do not survive a retry, so the model may make another call at the same place."""
    effects = Effects()

    @tool
    async def charge(amount: int, context: Context) -> str:
        return str(await context.once("charge", effects.sync("charge", f"paid {amount}")))

    model = ScriptedModel(
        call("charge", amount=5), ValueError("no luck"), call("charge", amount=amount), "done"
    )
    async with stage(services=clerk(model, charge)) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id, "retry")
        await house.pass_time(1)
        await house.ended(run_id)
        results = await results_of(house, run_id)

    assert effects.ran == ran
    assert list(results.values()) == list(dict.fromkeys(["paid 5", f"paid {amount}"]))


async def test_a_sync_tool_gets_the_result_itself() -> None:
    effects = Effects()

    @tool
    def charge(context: Context) -> str:
        return str(context.once("charge", effects.on_loop("charge", "paid")))

    model = ScriptedModel(call("charge"), "done")
    async with stage(services=clerk(model, charge)) as house:
        run_id = await house.runs.start("main", {})
        await house.ended(run_id)

        assert list((await results_of(house, run_id)).values()) == ["paid"]
