"""F1-F5, F7, F8: a run from its request to its verdict, on the real hub."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from tests.hub.scenes import CountingLog, FailingLog, Wrapped, die, quiet
from tests.logs import FullLog, OpenLog, new_log
from turnline.core.channel import ChannelFilter, ChannelRow, child_id
from turnline.core.claims import MAX_CLAIMS
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_CLOSED
from turnline.core.views import Notice
from turnline.errors import (
    DataUnavailable,
    LogUnavailable,
    ParseFailed,
    RunConflict,
    RunNotWaiting,
    TaskExpired,
    UnknownName,
    UnknownRun,
)
from turnline.flow.events import event_of
from turnline.flow.runs import RunPage
from turnline.flow.verdict import RunError
from turnline.hub.hub import Hub
from turnline.hub.opening import first_of
from turnline.hub.retry import RETRY_SECONDS
from turnline.log.base import Head, Log

from .stage import Stage, stage

pytestmark = pytest.mark.four_logs

Ctx = dict[str, Any]

ONE = "steps: [{id: only, runner: work}]"
RESCUED = "steps: [{id: only, runner: work, routes: {error: rescue}}, {id: rescue, runner: rescue}]"


def ids(page: RunPage) -> list[str]:
    return [one.row.channel_id for one in page.runs]


def noop(ctx: Ctx) -> None:
    """Change nothing."""


def fails(ctx: Ctx) -> None:
    raise ValueError("the disk is on fire")


# --- F1: what a run begins with ---


async def test_f1_a_run_begins_with_the_body_over_the_defaults() -> None:
    flow = "{context: {defaults: {priority: normal, tier: basic}}, steps: [{id: only, runner: work}]}"
    async with stage(flow, work=lambda ctx: None) as house:
        done = await house.run(tier="gold")

    assert done.data == {"priority": "normal", "tier": "gold"}


async def test_f1_reserved_keys_of_a_body_have_no_effect_and_are_audited() -> None:
    seen: list[Ctx] = []
    body = {"_user_id": "root", "_response": {"x": 1}, "_last_error": "e", "name": "Ann", "deep": {"_id": 7}}
    async with stage(ONE, work=lambda ctx: seen.append(dict(ctx))) as house:
        run_id = await house.runs.start("main", body, user_id="ann")
        done = await house.runs.wait(run_id)
        audited = await house.audited("reserved_keys_dropped")

    assert seen[0]["_user_id"] == "ann"
    assert "_response" not in seen[0]
    assert done.data == {"name": "Ann", "deep": {"_id": 7}}
    assert audited == [
        {"channel_id": run_id, "source": "body", "keys": ["_last_error", "_response", "_user_id"]}
    ]


# --- F2, F3: the context between steps ---


async def test_f3_what_is_stored_is_the_difference() -> None:
    def work(ctx: Ctx) -> Ctx:
        ctx["new"] = [1, 2]
        del ctx["old"]
        return ctx

    async with stage(ONE, work=work) as house:
        run_id = await house.runs.start("main", {"old": 1, "same": {"a": 1}})
        done = await house.runs.wait(run_id)
        [packet] = [line for line in await house.wal(run_id) if line.event_type == "packet"]

    assert done.data == {"same": {"a": 1}, "new": [1, 2]}
    assert packet.event_data["context_updates"] == {"new": [1, 2]}
    assert packet.event_data["context_deletes"] == ["old"]


async def test_f2_private_keys_live_for_the_run_and_never_leave_it() -> None:
    def first(ctx: Ctx) -> Ctx:
        ctx["_token"] = "canary"
        return ctx

    def second(ctx: Ctx) -> Ctx:
        return {"length": len(ctx.pop("_token"))}

    flow = "steps: [{id: a, runner: first}, {id: b, runner: second}, {id: c, runner: third}]"
    seen: list[Ctx] = []
    async with stage(flow, first=first, second=second, third=lambda ctx: seen.append(dict(ctx))) as house:
        run_id = await house.runs.start("main", {})
        done = await house.runs.wait(run_id)
        told = [event_of(line) for line in await house.wal(run_id)]

    assert done.data == {"length": 6}
    assert "_token" not in seen[0]
    assert "canary" not in str(told)


async def test_f3_each_run_has_a_context_of_its_own() -> None:
    async def work(ctx: Ctx) -> Ctx:
        mine = ctx["n"]
        await asyncio.sleep(0)
        ctx["seen"] = [mine, ctx["n"]]
        return ctx

    async with stage(ONE, work=work) as house:
        done = await asyncio.gather(*(house.run(n=n) for n in range(100)))

    assert [one.data["seen"] for one in done] == [[n, n] for n in range(100)]


# --- F4: signals ---


async def test_f4_a_signal_leads_where_its_route_says_and_the_verdict_says_how_it_ended() -> None:
    flow = """
    steps:
      - {id: a, runner: work, routes: {big: c, none: END, bad: FAIL}}
      - {id: b, runner: rest}
      - {id: c, runner: rest}
    """
    async with stage(flow, work=lambda ctx: ctx["signal"], rest=lambda ctx: None) as house:

        async def path(signal: str | None) -> tuple[list[str], str]:
            run_id = await house.runs.start("main", {"signal": signal})
            done = await house.runs.wait(run_id)
            return await house.path(run_id), done.error.type if done.error else done.status

        assert await path("big") == (["a", "c"], "succeeded")
        assert await path("none") == (["a"], "succeeded")
        assert await path("bad") == (["a"], "failed")
        assert await path("default") == (["a", "b", "c"], "succeeded")
        assert await path("unheard-of") == (["a"], "unrouted_signal")


async def test_f4_a_loop_is_legal_and_max_steps_ends_it() -> None:
    flow = "{limits: {max_steps: 7}, steps: [{id: a, runner: work, routes: {again: a}}]}"
    async with stage(flow, work=lambda ctx: ({"n": ctx.get("n", 0) + 1}, "again")) as house:
        done = await house.run()

    assert (done.status, done.data) == ("failed", {"n": 7})
    assert done.error is not None
    assert done.error.type == "max_steps"


# --- F5: errors ---


async def test_f5_an_exception_that_is_handled_lets_the_run_succeed() -> None:
    seen: list[Ctx] = []
    flow = "steps: [{id: a, runner: work, routes: {error: c}}, {id: b, runner: never}, {id: c, runner: note}]"

    async with stage(flow, work=fails, note=lambda ctx: seen.append(dict(ctx))) as house:
        run_id = await house.runs.start("main", {})
        done = await house.runs.wait(run_id)
        path = await house.path(run_id)

    assert (done.status, path) == ("succeeded", ["a", "c"])
    assert (seen[0]["_last_error"], seen[0]["_last_error_type"]) == ("the disk is on fire", "error")


async def test_f5_an_exception_that_is_not_handled_fails_the_run_and_keeps_nothing_of_the_step() -> None:
    def work(ctx: Ctx) -> Ctx:
        ctx["half"] = "written"
        raise ValueError("the disk is on fire")

    async with stage(ONE, work=work) as house:
        done = await house.run(a=1)

    assert (done.status, done.data) == ("failed", {"a": 1})
    assert done.error == RunError(type="error", message="the disk is on fire", step="only")


async def test_f5_a_step_that_takes_too_long_gives_the_signal_timeout() -> None:
    flow = "steps: [{id: a, runner: work, timeout: 10ms, routes: {timeout: b}}, {id: b, runner: note}]"
    seen: list[Ctx] = []

    async def work(ctx: Ctx) -> None:
        await asyncio.Event().wait()

    async with stage(flow, work=work, note=lambda ctx: seen.append(dict(ctx))) as house:
        done = await house.run()

    assert done.status == "succeeded"
    assert seen[0]["_last_error_type"] == "timeout"
    assert seen[0]["_last_error"] == "the step took longer than its timeout of 0.01 s"


async def test_f3_a_public_value_that_is_not_json_is_a_step_error_that_names_the_key() -> None:
    async with stage(ONE, work=lambda ctx: {"when": object()}) as house:
        done = await house.run()

    assert done.error is not None
    assert "ctx.when" in done.error.message


async def test_f5_a_missing_runner_is_an_error_that_names_the_nearest() -> None:
    async with stage("steps: [{id: a, runner: sav_lead}]", save_lead=lambda ctx: None) as house:
        done = await house.run()

    assert done.error is not None
    assert "save_lead" in done.error.message


# --- F7: retries, waits and restarts ---


async def test_f7_a_step_whose_database_is_away_is_performed_again_and_has_not_failed() -> None:
    calls = list[int]()

    def work(ctx: Ctx) -> Ctx:
        calls.append(1)
        if len(calls) == 1:
            raise DataUnavailable("here", because="it is away")
        return {"stored": True}

    async with stage(ONE, work=work) as house:
        run_id = await house.runs.start("main", {})
        while not (state := await house.runs.state(run_id)).is_over:
            await first_of(house.hub.wait_beyond(run_id, state.seq), asyncio.sleep(0))
            house.clock.advance(RETRY_SECONDS)
        done = await house.ended(run_id)

    assert (done.status, done.data, len(calls)) == ("succeeded", {"stored": True}, 2)


async def test_f7_a_retry_is_a_timer_on_the_log_with_a_pause_that_doubles() -> None:
    flow = "steps: [{id: only, runner: work, retry: {attempts: 3, backoff: 2}}]"
    calls: list[int] = []

    def work(ctx: Ctx) -> None:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError("not yet")

    async with stage(flow, work=work) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)
        await house.pass_time(1.9)
        assert await house.is_paused(run_id)
        await house.pass_time(0.1)
        await house.paused(run_id)
        await house.pass_time(3.9)
        assert await house.is_paused(run_id)
        await house.pass_time(0.1)
        done = await house.runs.wait(run_id)

    assert (done.status, len(calls)) == ("succeeded", 3)


async def test_f7_after_the_last_attempt_the_error_is_routed() -> None:
    flow = "steps: [{id: a, runner: work, retry: {attempts: 2, backoff: 1}, routes: {error: END}}]"
    async with stage(flow, work=fails) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)
        await house.pass_time(1)
        done = await house.runs.wait(run_id)

    assert done.status == "succeeded"


async def test_f7_a_signal_that_retry_does_not_name_is_not_tried_again() -> None:
    flow = "steps: [{id: a, runner: work, retry: {attempts: 5, on: [timeout]}}]"
    async with stage(flow, work=fails) as house:
        done = await house.run()

    assert done.status == "failed"


async def test_f7_a_run_that_was_stopped_in_a_step_goes_on_after_its_last_packet(open_log: OpenLog) -> None:
    flow = "steps: [{id: a, runner: first}, {id: b, runner: second}]"
    firsts: list[int] = []
    entered = asyncio.Event()

    async def stuck(ctx: Ctx) -> None:
        entered.set()
        await asyncio.Event().wait()

    def first(ctx: Ctx) -> Ctx:
        firsts.append(1)
        return {"n": 1}

    async with stage(flow, log=open_log(), first=first, second=stuck) as house:
        run_id = await house.runs.start("main", {})
        await entered.wait()
    async with stage(flow, log=open_log(), first=first, second=lambda ctx: {"m": ctx["n"] + 1}) as house:
        done = await house.runs.wait(run_id)

    assert (done.data, firsts) == ({"n": 1, "m": 2}, [1])


async def test_f8_a_run_finishes_on_the_definition_it_started_with(open_log: OpenLog) -> None:
    flow = "steps: [{id: ask, kind: human, human: {title: ok?}}, {id: b, runner: old}]"
    async with stage(flow, log=open_log()) as house:
        run_id = await house.runs.start("main", {})
        await house.task()
    async with stage(
        "steps: [{id: other, runner: new}]", log=open_log(), old=lambda ctx: {"by": "old"}
    ) as house:
        await house.tasks.answer((await house.task()).task_id, {}, by="ann")
        done = await house.runs.wait(run_id)
        assert await house.path(run_id) == ["ask", "b"]

    assert done.data == {"by": "old"}


# --- People, events, time ---

APPROVE = """
steps:
  - id: approve
    kind: human
    human:
      title: Escalate {{ name }}?
      show: [name]
      form: {approved: {type: boolean, required: true}}
      group: ops
      expires: 1h
  - {id: done, runner: note}
"""


async def test_f6_a_run_waits_for_a_person_and_takes_one_answer() -> None:
    async with stage(APPROVE, note=lambda ctx: {"was": ctx["approved"]}) as house:
        run_id = await house.runs.start("main", {"name": "Ann"})
        assert (await house.runs.wait(run_id)).status == "waiting"
        task = await house.task()
        assert (task.title, task.show, task.group) == ("Escalate Ann?", {"name": "Ann"}, "ops")
        await house.tasks.answer(task.task_id, {"approved": True, "_session": "mine"}, by="ann")
        done = await house.runs.wait(run_id)
        with pytest.raises(RunNotWaiting):
            await house.tasks.answer(task.task_id, {"approved": False}, by="bob")
        audited = await house.audited("reserved_keys_dropped")

    assert done.data == {"name": "Ann", "approved": True, "was": True}
    assert audited == [{"channel_id": run_id, "source": "human", "keys": ["_session"]}]


async def test_f6_a_task_that_nobody_answered_in_time_is_gone() -> None:
    async with stage(APPROVE, note=lambda ctx: None) as house:
        run_id = await house.runs.start("main", {"name": "Ann"})
        task = await house.task()
        await house.pass_time(3600)
        done = await house.runs.wait(run_id)
        with pytest.raises(TaskExpired):
            await house.tasks.answer(task.task_id, {"approved": True}, by="ann")
        with pytest.raises(UnknownName):
            await house.tasks.get("nothing-1")

    assert done.error is not None
    assert done.error.type == "timeout"


async def test_f7_a_wait_is_a_timer_and_an_event_wakes_the_run_once() -> None:
    flow = "steps: [{id: pause, wait: {for: 1d}}, {id: paid, wait: {event: payment}}]"
    async with stage(flow) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id, "time")
        await house.pass_time(86_400)
        await house.paused(run_id, "event")
        with pytest.raises(RunNotWaiting):
            await house.runs.post_event(run_id, "refund", {})
        await house.runs.post_event(run_id, "payment", {"amount": 5, "_db": "mine"})
        done = await house.runs.wait(run_id)
        with pytest.raises(RunNotWaiting):
            await house.runs.post_event(run_id, "payment", {"amount": 6})

    assert done.data == {"amount": 5}


# --- Children ---


async def test_p1_for_each_runs_its_steps_for_every_item_on_channels_below() -> None:
    flow = """
    steps:
      - id: all
        for_each: {items: numbers, as: n, concurrency: 2, steps: [{id: it, runner: square}], into: squares}
    """
    async with stage(flow, square=lambda ctx: {"square": ctx["n"] ** 2}) as house:
        done = await house.run(numbers=[1, 2, 3, 4, 5])

    assert done.data["squares"] == [{"square": n * n} for n in (1, 2, 3, 4, 5)]


async def test_p1_a_person_inside_for_each_is_asked_for_every_item_and_the_caller_need_not_wait() -> None:
    flow = """
    steps:
      - id: all
        for_each:
          items: names
          as: name
          into: answers
          steps: [{id: ask, human: {title: "{{ name }}?", form: {ok: boolean}}}]
    """
    async with stage(flow) as house:
        run_id = await house.runs.start("main", {"names": ["ann", "bob"]})
        assert (await house.runs.wait(run_id)).status == "waiting"
        for task in await house.tasks.list():
            await house.tasks.answer(task.task_id, {"ok": task.title == "ann?"}, by="me")
        done = await house.runs.wait(run_id)

    assert done.data["answers"] == [{"ok": True}, {"ok": False}]


async def test_p1_branches_run_at_once_and_a_workflow_is_a_step() -> None:
    main = """
    steps:
      - id: both
        parallel: {branches: {left: [{id: a, runner: left}], right: [{id: b, runner: right}]}}
      - id: sub
        workflow: {name: other, input: {n: "{{ left + right }}"}, into: other}
    """
    other = "{metadata: {name: other}, steps: [{id: twice, runner: twice}]}"
    together = asyncio.Barrier(2)

    async def left(ctx: Ctx) -> Ctx:
        await together.wait()
        return {"left": 1}

    async def right(ctx: Ctx) -> Ctx:
        await together.wait()
        return {"right": 2}

    async with stage(main, other, left=left, right=right, twice=lambda ctx: {"twice": ctx["n"] * 2}) as house:
        done = await house.run()

    assert done.data == {"left": 1, "right": 2, "other": {"n": 3, "twice": 6}}


async def test_l3_cancelling_a_run_cancels_what_is_below_it() -> None:
    flow = "steps: [{id: all, for_each: {items: '[1, 2]', steps: [{id: ask, human: {title: ok?}}]}}]"
    async with stage(flow) as house:
        run_id = await house.runs.start("main", {})
        await house.runs.wait(run_id)
        tasks = await house.tasks.list()
        await house.runs.cancel(run_id, by="ann")
        done = await house.runs.wait(run_id)
        ends = [await house.ended(task.run_id) for task in tasks]
        with pytest.raises(RunConflict):
            await house.runs.cancel(run_id)

    assert done.error is not None
    assert done.error.type == "cancelled"
    assert [one.status for one in ends] == ["failed", "failed"]


# --- Asking again ---


async def test_f6_the_same_id_and_body_is_the_same_run_and_another_body_a_conflict() -> None:
    calls: list[int] = []
    async with stage(ONE, work=lambda ctx: calls.append(1)) as house:
        for _ in range(3):
            await house.runs.start("main", {"a": 1}, run_id="r1")
        await house.runs.wait("r1")
        await house.runs.start("main", {"a": 1}, run_id="r1")
        with pytest.raises(RunConflict):
            await house.runs.start("main", {"a": 2}, run_id="r1")

    assert calls == [1]


async def test_f6_retry_goes_on_from_a_step_with_what_it_was_given() -> None:
    broken = [True]

    def second(ctx: Ctx) -> Ctx:
        if broken[0]:
            raise ValueError("broken")
        return {"m": ctx["n"] + ctx["_secret"]}

    flow = "steps: [{id: a, runner: first}, {id: b, runner: second}, {id: c, runner: third}]"
    async with stage(
        flow, first=lambda ctx: {"n": 1, "_secret": 2}, second=second, third=lambda ctx: None
    ) as house:
        run_id = await house.runs.start("main", {})
        assert (await house.runs.wait(run_id)).status == "failed"
        broken[0] = False
        again = await house.runs.retry(run_id)
        done = await house.runs.wait(again)
        path = await house.path(again)
        with pytest.raises(UnknownName):
            await house.runs.retry(run_id, step="c")
        from_a = await house.runs.retry(run_id, step="a")
        await house.runs.wait(from_a)

        assert await house.path(from_a) == ["a", "b", "c"]
    assert (done.status, done.data, path) == ("succeeded", {"n": 1, "m": 3}, ["b", "c"])


@pytest.mark.parametrize("user", ["bob", None])
async def test_a_retry_is_of_the_user_who_retries(user: str | None) -> None:
    users: list[object] = []

    def work(ctx: Ctx) -> None:
        users.append(ctx.get("_user_id"))

    async with stage(ONE, work=work) as house:
        run_id = await house.runs.start("main", {}, user_id="ann")
        await house.runs.wait(run_id)
        await house.runs.wait(await house.runs.retry(run_id, user_id=user))

    assert users == ["ann", user]


async def test_a_channel_that_is_no_run_is_an_unknown_run() -> None:
    async with stage(ONE, work=lambda ctx: None) as house:
        with pytest.raises(UnknownRun):
            await house.runs.state("nothing")


async def test_runs_are_listed_by_flow_in_pages_the_newest_first() -> None:
    other = "{metadata: {name: other}, steps: [{id: x, runner: work}]}"
    async with stage(ONE, other, work=lambda ctx: None) as house:
        started = [await house.runs.start(name, {}) for name in ("main", "other", "main")]
        for one in started:
            await house.runs.wait(one)
        everything = await house.runs.page()
        first = await house.runs.page(ChannelFilter(flow="main"), limit=1)
        second = await house.runs.page(ChannelFilter(flow="main"), after=first.next or "", limit=1)

    assert ids(everything) == started[::-1]
    assert (ids(first), ids(second), second.next) == ([started[2]], [started[0]], None)


# --- What a restart finds ---


async def test_f7_a_child_that_closed_while_nobody_was_told_is_found_at_the_next_start(
    open_log: OpenLog,
) -> None:
    flow = """
    steps:
      - id: all
        for_each: {items: '[1, 2]', into: got, steps: [{id: it, human: {title: ok?, form: {ok: boolean}}}]}
    """
    async with stage(flow, log=open_log()) as house:
        run_id = await house.runs.start("main", {})
        await house.runs.wait(run_id)
        tasks = await house.tasks.list()
    async with stage(flow, log=open_log()) as house:
        for task in tasks:
            await house.tasks.answer(task.task_id, {"ok": True}, by="ann")
        for task in tasks:
            await house.ended(task.run_id)
    async with stage(flow, log=open_log()) as house:
        done = await house.ended(run_id)

    assert done.data == {"got": [{"ok": True}, {"ok": True}]}


ASKS_BELOW = "steps: [{id: all, for_each: {items: '[1]', steps: [{id: ask, human: {title: ok?}}]}}]"


async def close_run_without_driver(open_log: OpenLog) -> str:
    """Leave a run on the log that has closed, and return the run below it, which has not."""
    async with stage(ASKS_BELOW, log=open_log()) as house:
        run_id = await house.runs.start("main", {})
        await house.runs.wait(run_id)
        [task] = await house.tasks.list()
    hub = await Hub.open(open_log(), ttl_sweep_interval=0)
    await hub.write(run_id, EV_CHANNEL_CLOSED, {"reason": "cancelled"})
    assert not (await hub.state(task.run_id)).is_over
    await hub.close()
    return task.run_id


async def test_l3_children_of_a_run_that_ended_are_closed_at_the_next_start(open_log: OpenLog) -> None:
    child = await close_run_without_driver(open_log)
    async with stage(ASKS_BELOW, log=open_log()) as house:
        done = await house.ended(child)

    assert done.error is not None
    assert done.error.type == "cancelled"


class AwayLog(Wrapped):
    """Is away once, when a driver lists the open channels: the first list is for the hub."""

    lists = 0

    async def channels(
        self, *, closed: bool | None = None, after: str = "", limit: int | None = None
    ) -> list[Head]:
        self.lists += 1
        if self.lists == 2:
            raise LogUnavailable("here", because="it is away")
        return await super().channels(closed=closed, after=after, limit=limit)


async def test_l3_children_of_a_run_that_ended_are_closed_once_the_log_can_be_used(open_log: OpenLog) -> None:
    child = await close_run_without_driver(open_log)
    async with stage(ASKS_BELOW, log=AwayLog(open_log())) as house:
        while not (state := await house.runs.state(child)).is_over:
            await first_of(house.hub.wait_beyond(child, state.seq), asyncio.sleep(0))
            house.clock.advance(RETRY_SECONDS)

    assert state.pending_close_reason == "cancelled"


class AwayAtPauseLog(FailingLog):
    """Is away for the next read of the channel `fails_on`, once a turn has paused for a person."""

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        await super().append(channel_id, envelopes, after=after, row=row)
        if envelopes[-1].event_data.get("reason") == "person":
            self.fail_read = LogUnavailable("here", because="it is away")


async def test_f6_a_caller_is_told_that_a_run_rests_once_the_channels_above_can_be_read() -> None:
    asks = "[{id: rest, wait: {for: 5s}}, {id: ask, human: {title: ok?}}]"
    inner = f"[{{id: inner, for_each: {{items: '[1]', steps: {asks}}}}}]"
    flow = f"steps: [{{id: outer, for_each: {{items: '[1]', steps: {inner}}}}}]"
    log = AwayAtPauseLog()
    async with stage(flow, log=log, cache_bytes=1) as house:
        run_id = await house.runs.start("main", {})
        log.fails_on = middle = child_id(run_id, 1, "0")
        lowest = child_id(middle, 1, "0")
        waiting = asyncio.create_task(house.runs.wait(run_id))
        for channel_id, reason in ((run_id, "children"), (middle, "children"), (lowest, "time")):
            await house.paused(channel_id, reason)
        await quiet()
        await house.pass_time(5)
        await house.paused(lowest, "person")
        await quiet()
        assert (log.fail_read, waiting.done()) == (None, False)
        house.clock.advance(RETRY_SECONDS)
        await quiet()

        assert waiting.done()
        assert (await waiting).status == "waiting"


async def test_f7_a_step_that_is_tried_again_opens_its_children_anew() -> None:
    flow = """
    steps:
      - id: all
        retry: {attempts: 2, backoff: 1}
        for_each: {items: '[1, 2]', into: squares, steps: [{id: it, runner: square}]}
    """
    calls: list[int] = []

    def square(ctx: Ctx) -> Ctx:
        calls.append(ctx["item"])
        if len(calls) == 1:
            raise ValueError("not yet")
        return {"square": ctx["item"] ** 2}

    async with stage(flow, square=square) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id, "retry")
        await house.pass_time(1)
        done = await house.runs.wait(run_id)

    assert done.data["squares"] == [{"square": 1}, {"square": 4}]
    assert sorted(calls) == [1, 1, 2, 2]


async def test_f7_a_step_that_waits_too_long_for_its_children_times_out_and_closes_them() -> None:
    flow = """
    steps:
      - {id: sub, timeout: 60, workflow: {name: other}, routes: {timeout: rest}}
      - {id: rest, wait: {event: never}}
    """
    other = "{metadata: {name: other}, steps: [{id: ask, human: {title: ok?}}]}"
    async with stage(flow, other) as house:
        run_id = await house.runs.start("main", {})
        await house.runs.wait(run_id)
        [task] = await house.tasks.list()
        await house.pass_time(60)
        await house.paused(run_id, "event")
        below = await house.ended(task.run_id)

    assert below.error is not None
    assert below.error.type == "cancelled"


async def test_f2_what_a_run_says_of_itself_is_not_handed_down_to_its_children() -> None:
    flow = """
    steps:
      - {id: say, kind: response, response: {mapping: {mine: '1'}}, routes: {default: all}}
      - {id: all, for_each: {items: '[1]', into: got, steps: [{id: it, runner: work}]}}
      - {id: show, kind: response, response: {mapping: {got: got}}}
    """
    async with stage(flow, work=lambda ctx: {"theirs": 2}) as house:
        done = await house.run()

    assert done.data == {"got": [{"theirs": 2}]}


async def test_n3_a_long_step_survives_any_number_of_orderly_restarts(open_log: OpenLog) -> None:
    entered: asyncio.Queue[int] = asyncio.Queue()

    async def never(ctx: Ctx) -> None:
        entered.put_nowait(1)
        await asyncio.Event().wait()

    async with stage(ONE, log=open_log(), work=never) as house:
        run_id = await house.runs.start("main", {})
        await entered.get()
    for _ in range(2 * MAX_CLAIMS):
        async with stage(ONE, log=open_log(), work=never):
            await entered.get()
    async with stage(ONE, log=open_log(), work=lambda ctx: {"worked": True}) as house:
        done = await house.ended(run_id)

    assert done.data == {"worked": True}


async def interrupted(log: Log, flow: str) -> str:
    """Start a run whose first step never ends; return its id."""
    entered = asyncio.Event()

    async def never(ctx: Ctx) -> None:
        entered.set()
        await asyncio.Event().wait()

    async with stage(flow, log=log, work=never, rescue=lambda ctx: {}) as house:
        run_id = await house.runs.start("main", {})
        await entered.wait()
    return run_id


async def test_n3_a_step_that_ends_its_process_again_and_again_is_stuck_and_can_be_retried(
    open_log: OpenLog,
) -> None:
    run_id = await interrupted(open_log(), ONE)
    await die(open_log(), run_id, "only")

    async with stage(ONE, log=open_log(), work=lambda ctx: {"worked": True}) as house:
        stuck = await house.runs.wait(run_id)
        again = await house.runs.retry(run_id)
        done = await house.ended(run_id)

    assert (stuck.status, stuck.error.type if stuck.error else "") == ("stuck", "turn_stuck")
    assert (again, done.data) == (run_id, {"worked": True})


async def test_a_nested_run_that_is_over_is_retried_with_the_run_at_the_top() -> None:
    flows = [
        "steps: [{id: sub, workflow: {name: other}}]",
        "{metadata: {name: other}, steps: [{id: sub, workflow: {name: third}}]}",
        "{metadata: {name: third}, steps: [{id: only, runner: work}]}",
    ]
    async with stage(*flows, work=lambda ctx: ctx["nothing"]) as house:
        run_id = await house.runs.start("main", {})
        await house.ended(run_id)
        [child] = await house.hub.tree.children(run_id)
        [deepest] = await house.hub.tree.children(child)
        with pytest.raises(RunConflict, match=f"is part of the run '{run_id}'; retry that one"):
            await house.runs.retry(deepest)


@pytest.mark.parametrize(
    "middle", [[], ["{metadata: {name: middle}, steps: [{id: in, workflow: {name: other}}]}"]]
)
async def test_n3_a_run_that_waits_for_a_stuck_run_below_it_is_stuck_and_a_retry_resumes_both(
    open_log: OpenLog, middle: list[str]
) -> None:
    flow = f"steps: [{{id: sub, workflow: {{name: {'middle' if middle else 'other'}}}}}]"
    other = "{metadata: {name: other}, steps: [{id: only, runner: work}]}"
    entered = asyncio.Event()

    async def never(ctx: Ctx) -> None:
        entered.set()
        await asyncio.Event().wait()

    async with stage(flow, *middle, other, log=open_log(), work=never) as house:
        run_id = await house.runs.start("main", {})
        await entered.wait()
        child = run_id
        for _ in range(1 + len(middle)):
            await house.paused(child)
            pause = (await house.hub.state(child)).pause
            assert pause is not None
            [child] = pause.children
    await die(open_log(), child, "only")

    async with stage(flow, *middle, other, log=open_log(), work=lambda ctx: {"worked": True}) as house:
        stuck = await house.runs.wait(run_id)
        listed = ids(await house.runs.page(status="stuck"))
        waiting = ids(await house.runs.page(status="waiting"))
        again = await house.runs.retry(run_id)
        done = await house.ended(run_id)

    assert (stuck.status, stuck.error.type if stuck.error else "") == ("stuck", "turn_stuck")
    assert child in (stuck.error.message if stuck.error else "")
    assert (listed, waiting) == ([run_id], [])
    assert (again, done.status) == (run_id, "succeeded")


async def test_n3_routes_error_takes_a_step_that_ends_its_process(open_log: OpenLog) -> None:
    run_id = await interrupted(open_log(), RESCUED)
    await die(open_log(), run_id, "only")

    async with stage(RESCUED, log=open_log(), work=lambda ctx: {}, rescue=rescue) as house:
        done = await house.ended(run_id)

    assert done.status == "succeeded"
    assert done.data == {"rescued": "error"}


def rescue(ctx: Ctx) -> Ctx:
    return {"rescued": ctx["_last_error_type"]}


async def test_f7_a_packet_that_could_not_be_written_is_written_later_and_its_step_runs_once() -> None:
    calls: list[int] = []
    log = FailingLog(new_log())
    houses: list[Stage] = []

    async def work(ctx: Ctx) -> Ctx:
        calls.append(1)
        if len(calls) == 1:
            await houses[0].hub.audit_log.flush()
            log.fail_append = LogUnavailable("here", because="the disk is full")
        return {"n": len(calls)}

    async with stage(ONE, log=log, work=work) as house:
        houses.append(house)
        run_id = await house.runs.start("main", {})
        while not (state := await house.runs.state(run_id)).is_over:
            await first_of(house.hub.wait_beyond(run_id, state.seq), asyncio.sleep(0))
            house.clock.advance(1)  # It tries again after a while.
        done = await house.runs.verdict(run_id)

    assert (done.status, done.data) == ("succeeded", {"n": 1})


class LateLog(Wrapped):
    """Lets something happen just before a run's first pause for its children is written."""

    def __init__(self, inner: FullLog) -> None:
        super().__init__(inner)
        self.before_pause: Callable[[str], Awaitable[None]] | None = None

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        is_pause = envelopes[0].event_data.get("reason") == "children"
        if is_pause and self.before_pause is not None:
            happen, self.before_pause = self.before_pause, None
            await happen(channel_id)
        await super().append(channel_id, envelopes, after=after, row=row)


ONE_CHILD = (
    "steps: [{id: all, for_each: {items: '[1]', on_error: collect, steps: [{id: ask, human: {title: ok?}}]}}]"
)
CANCELLED = [{"error": {"type": "cancelled", "message": "the run was cancelled", "step": None}}]


async def test_f7_a_child_that_closes_while_its_parent_goes_to_rest_is_not_missed() -> None:
    log = LateLog(new_log())
    async with stage(ONE_CHILD, log=log) as house:

        async def close_child(run_id: str) -> None:
            child = child_id(run_id, 1, "0")
            await house.runs.cancel(child)
            await house.ended(child)

        log.before_pause = close_child
        done = await house.ended(await house.runs.start("main", {}))

    assert done.data["results"] == CANCELLED


async def test_f7_a_child_that_closed_while_no_driver_was_there_is_found_at_the_next_start(
    open_log: OpenLog,
) -> None:
    async with stage(ONE_CHILD, log=open_log()) as house:
        run_id = await house.runs.start("main", {})
        await house.runs.wait(run_id)
        await house.driver.stop()
        await house.runs.cancel(child_id(run_id, 1, "0"))
    async with stage(ONE_CHILD, log=open_log()) as house:
        done = await house.ended(run_id)

    assert done.data["results"] == CANCELLED


async def test_f7_a_run_of_two_steps_is_three_appends() -> None:
    log = CountingLog(new_log())
    async with stage("steps: [{id: a, runner: work}, {id: b, runner: work}]", log=log, work=noop) as house:
        run_id = await house.runs.start("main", {})
        await house.ended(run_id)

    assert log.appends[run_id] == 3


async def test_f10_a_step_is_passed_over_where_its_when_does_not_hold() -> None:
    flow = "steps: [{id: a, runner: work, when: n > 1}, {id: b, runner: rest}]"
    async with stage(flow, work=lambda ctx: {"worked": True}, rest=noop) as house:
        small, large = await house.run(n=1), await house.run(n=2)

    assert (small.data, large.data) == ({"n": 1}, {"n": 2, "worked": True})


async def test_f5_an_answer_that_does_not_parse_has_a_signal_of_its_own() -> None:
    def work(ctx: Ctx) -> None:
        raise ParseFailed("a", found="a poem", expected="JSON")

    flow = "steps: [{id: a, runner: work, routes: {parse_error: END, error: FAIL}}]"
    async with stage(flow, work=work) as house:
        done = await house.run()

    assert done.status == "succeeded"


async def test_f7_whoever_attaches_is_not_told_of_a_turn_that_waits() -> None:
    woken: list[str] = []

    class Listening:
        def wake(self, notice: Notice) -> None:
            woken.append(notice.channel_id)

    async with stage(APPROVE, note=noop) as house:
        await house.run(name="Ann")
        await house.driver.stop()
        house.hub.attach(house.driver.agent_id, Listening())

    assert woken == []


async def test_f6_a_run_waits_for_somebody_only_when_everything_below_it_does() -> None:
    flow = """
    steps:
      - id: both
        parallel:
          branches:
            person: [{id: ask, human: {title: ok?}}]
            code: [{id: work, runner: work}]
    """
    let = asyncio.Event()

    async def work(ctx: Ctx) -> None:
        await let.wait()

    async with stage(flow, work=work) as house:
        run_id = await house.runs.start("main", {})
        waiting = asyncio.create_task(house.runs.wait(run_id))
        await house.task()
        await house.paused(run_id, "children")
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        let.set()

        assert (await waiting).status == "waiting"


async def test_f6_a_task_of_a_group_is_listed_for_that_group() -> None:
    async with stage(APPROVE, note=noop) as house:
        await house.run(name="Ann")
        listed = [len(await house.tasks.list(groups=groups)) for groups in (["ops"], ["sales"], [], None)]

    assert listed == [1, 0, 0, 1]


async def test_a_run_of_too_many_steps_says_its_limit() -> None:
    loop = "{limits: {max_steps: 3}, steps: [{id: a, runner: work, routes: {default: a}}]}"
    async with stage(loop, work=lambda ctx: None) as house:
        done = await house.run()

    assert done.error is not None
    assert done.error.message == "the run took more steps than its limit of 3"


async def test_a_step_that_waits_too_long_says_its_limit() -> None:
    flow = "steps: [{id: a, timeout: 60, human: {title: ok?}}]"
    async with stage(flow) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)
        await house.pass_time(60)
        done = await house.ended(run_id)

    assert done.error is not None
    assert "in 60 s" in done.error.message


async def test_a_timeout_of_the_nodes_own_is_not_told_as_the_steps() -> None:
    def work(ctx: Ctx) -> None:
        raise TimeoutError("the printer did not answer in 3 s")

    async with stage("steps: [{id: a, runner: work, timeout: 60}]", work=work) as house:
        done = await house.run()

    assert done.error is not None
    assert (done.error.type, done.error.message) == ("timeout", "the printer did not answer in 3 s")


async def test_a_driver_whose_hub_closes_first_leaves_no_unhandled_error() -> None:
    errors = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with stage(ONE, work=noop) as house:
        run_id = await house.runs.start("main", {})
        await house.ended(run_id)
        closed = (await house.wal(run_id))[-1]
        await house.hub.close()
        house.driver._heard(closed)
        await quiet()
    gc.collect()

    assert errors == []
