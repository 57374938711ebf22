"""Tools of an agent step ask a group of people: the tasks, their time, and who may answer (N7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.flow.stage import Stage, flows_of, stage
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.messages import Message, ToolMessage
from turnline.agent.tool import tool
from turnline.core import event_types as ev
from turnline.core.channel import ChannelFilter
from turnline.core.claims import Paused
from turnline.core.envelope import Draft
from turnline.core.expectations import GRACE_SECONDS
from turnline.core.state import PERSON
from turnline.errors import BadAnswer, BadDraft, NotAsked, RunNotWaiting, TaskExpired, UnknownName
from turnline.flow.events import event_of
from turnline.flow.work import Services, WorkTimeout
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call

ASK = "{group: ops}"
HOUR = 3600.0


def flow(ask: str = ASK, more: str = "") -> str:
    """A flow of one agent step; without `ask` it asks nobody."""
    asks = f", ask: {ask}" if ask else ""
    return f"steps: [{{id: work, kind: agent, agent: {{name: ada, prompt: go{asks}}}{more}}}]"


class Shop:
    """An agent with tools that ask, and what they did."""

    def __init__(self, *calls: Any) -> None:
        self.done: list[str] = []
        self.before_reply: Callable[[], None] = lambda: None
        self._calls = calls

    @property
    def agent(self) -> Agent:
        @tool(approval=True)
        async def pay(amount: int) -> str:
            self.done.append(f"paid {amount}")
            return f"paid {amount}"

        @tool
        async def sure(context: Context) -> str:
            return await context.input("sure?")

        @tool(restarts=True)
        async def order(context: Context, seconds: float | None = None) -> str:
            return await context.input("which size?", timeout=seconds)

        @tool
        async def wait() -> Paused:
            return Paused(reason="time", seconds=HOUR)

        return Agent("ada", config=ScriptedModel(self._reply), tools=[pay, sure, order, wait])

    def _reply(self, messages: tuple[Message, ...]) -> Any:
        self.before_reply()
        answers = [one.text for one in messages if isinstance(one, ToolMessage)]
        return "; ".join(answers) if answers else list(self._calls)


@asynccontextmanager
async def shop(
    given: Shop, text: str | None = None, *, log: Log | None = None, **more: Any
) -> AsyncIterator[Stage]:
    services = Services(flows=flows_of(text or flow()), agents={"ada": given.agent})
    async with stage(log=log, services=services, **more) as home:
        yield home


async def begin(home: Stage) -> str:
    """Start a run, and return when it is paused."""
    run_id = await home.runs.start("main", {}, run_id="r1")
    await home.paused(run_id)
    return run_id


async def after(seconds: float) -> None:
    """Return after so much real time: what `asyncio.timeout` counts."""
    loop = asyncio.get_running_loop()
    passed = loop.create_future()
    loop.call_later(seconds, passed.set_result, None)
    await passed


# --- the tasks ---


async def test_each_question_of_a_reply_is_a_task_of_its_own() -> None:
    async with shop(Shop(call("pay", amount=5), call("order"))) as home:
        await begin(home)
        first, second = await home.tasks.list()

    assert first.task_id != second.task_id
    assert (first.title, first.description) == ("Allow pay?", "Agent 'ada' waits for approval.")
    assert (first.show, first.group) == ({"tool": "pay", "arguments": {"amount": 5}}, "ops")
    assert (first.flow, first.step, first.run_id, first.expires_at) == ("main", "work", "r1", None)
    assert first.form["answer"]["type"] == "boolean"
    assert (second.title, second.description) == ("Agent 'ada' asks", "which size?")
    assert second.form == {"answer": {"type": "string", "required": True}}


async def test_a_run_with_an_open_question_waits_also_while_a_plain_tool_holds_its_claim() -> None:
    async with shop(Shop(call("sure"))) as home:
        run = await home.run()
        task = await home.task()
        state = await home.hub.state(task.run_id)

        assert run.status == "waiting"
        assert state.claim is not None
        await home.tasks.answer(task.task_id, {"answer": "quite"}, by="ann", groups=["ops"])
        assert (await home.ended(task.run_id)).data["work"] == "quite"


async def test_the_answer_names_who_gave_it_and_only_the_steps_player_sees_it() -> None:
    async with shop(Shop(call("pay", amount=5))) as home:
        run_id = await begin(home)
        await home.tasks.answer((await home.task()).task_id, {"answer": True}, by="ann", groups=["ops"])
        await home.ended(run_id)
        (line,) = [one for one in await home.wal(run_id) if one.event_type == ev.EV_HUMAN_ANSWERED]

        assert (line.sender_id, line.event_data["by"], line.event_data["group"]) == (ev.HUB, "ann", "ops")
        assert line.audience == ["work", home.driver.agent_id]


async def test_a_task_of_another_group_answers_like_a_missing_one_whatever_became_of_it() -> None:
    async with shop(Shop(call("pay", amount=5))) as home:
        run_id = await begin(home)
        task_id = (await home.task()).task_id
        assert await home.tasks.list(groups=["sales"]) == []
        for groups in (["sales"], []):
            with pytest.raises(UnknownName):
                await home.tasks.get(task_id, groups=groups)
            with pytest.raises(UnknownName):
                await home.tasks.answer(task_id, {"answer": True}, by="eve", groups=groups)
        await home.tasks.answer(task_id, {"answer": True}, by="ann", groups=["ops"])
        await home.ended(run_id)

        with pytest.raises(UnknownName):
            await home.tasks.get(task_id, groups=["sales"])


@pytest.mark.parametrize("made_up", ["r1-1q1", "r1-2q5", "r1-1q99", "r2-1q5"])
async def test_a_task_id_that_names_no_question_is_unknown(made_up: str) -> None:
    async with shop(Shop(call("pay", amount=5))) as home:
        await begin(home)

        with pytest.raises(UnknownName):
            await home.tasks.get(made_up)


async def test_a_question_is_answered_once() -> None:
    async with shop(Shop(call("pay", amount=5))) as home:
        run_id = await begin(home)
        task_id = (await home.task()).task_id
        await home.tasks.answer(task_id, {"answer": True}, by="ann")
        with pytest.raises(RunNotWaiting):
            await home.tasks.answer(task_id, {"answer": False}, by="ben")
        await home.ended(run_id)

        with pytest.raises(RunNotWaiting):
            await home.tasks.get(task_id)


@pytest.mark.parametrize("answer", [{}, {"answer": "perhaps"}, {"answer": None}, {"answer": True, "more": 1}])
async def test_an_approval_takes_yes_or_no_and_nothing_else(answer: Any) -> None:
    given = Shop(call("pay", amount=5))
    async with shop(given) as home:
        await begin(home)

        with pytest.raises(BadAnswer):
            await home.tasks.answer((await home.task()).task_id, answer, by="ann")
        assert len(await home.tasks.list()) == 1
    assert given.done == []


@pytest.mark.parametrize("answer", [{}, {"answer": 5}, {"answer": True}])
async def test_a_question_takes_a_text_and_nothing_else(answer: Any) -> None:
    async with shop(Shop(call("order"))) as home:
        await begin(home)

        with pytest.raises(BadAnswer):
            await home.tasks.answer((await home.task()).task_id, answer, by="ann")


async def test_a_yes_in_words_is_not_taken_from_a_question_for_an_approval() -> None:
    """A model that asks with `context.input` gets text; only the form of an approval approves."""
    given = Shop(call("order"), call("pay", amount=5))
    async with shop(given) as home:
        run_id = await begin(home)
        question, approval = await home.tasks.list()
        await home.tasks.answer(question.task_id, {"answer": "yes"}, by="ann")
        await home.paused(run_id)
        assert given.done == []
        await home.tasks.answer(approval.task_id, {"answer": False}, by="ann")
        await home.ended(run_id)
    assert given.done == []


async def test_without_ask_a_tool_that_asks_fails_the_step_and_names_the_setting() -> None:
    async with shop(Shop(call("pay", amount=5)), flow(ask="")) as home:
        run = await home.run()

    assert run.error is not None
    assert "agent.ask" in run.error.message


async def test_cancelling_a_run_ends_its_tasks() -> None:
    async with shop(Shop(call("pay", amount=5))) as home:
        run_id = await begin(home)
        task_id = (await home.task()).task_id
        await home.runs.cancel(run_id)

        assert await home.tasks.list() == []
        with pytest.raises(TaskExpired):
            await home.tasks.get(task_id)


async def test_the_events_of_a_run_tell_a_pause_and_one_resume() -> None:
    async with shop(Shop(call("pay", amount=5))) as home:
        run_id = await begin(home)
        await home.tasks.answer((await home.task()).task_id, {"answer": True}, by="ann")
        await home.ended(run_id)
        events = [event_of(line) for line in await home.wal(run_id)]

    told = [one.type for one in events if one is not None]
    assert told[1:] == ["step_started", "waiting", "resumed", "step_started", "step_ended", "ended"]


async def test_a_conversation_that_a_step_has_opened_has_no_tasks() -> None:
    at_work, text = asyncio.Event(), "steps: [{id: talk, channel: {agents: [ben], message: go}}]"

    @tool
    async def hold() -> str:
        at_work.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with shop(Shop(), text) as home:
        await home.hub.register(Agent("ben", config=ScriptedModel(call("hold")), tools=[hold]))
        await home.runs.start("main", {}, run_id="r1")
        await at_work.wait()

        assert await home.tasks.list() == []


# --- attackers ---


async def test_other_participants_neither_answer_nor_ask_for_a_step() -> None:
    async with shop(Shop(call("pay", amount=5))) as home:
        run_id = await begin(home)
        state = await home.hub.state(run_id)
        (request_id,) = state.questions
        data = {"request_id": request_id, "answer": "yes"}
        for sender in ("work", home.driver.agent_id):
            draft = Draft(
                envelope_id=f"forged-{sender}",
                sender_id=sender,
                event_type=ev.EV_HUMAN_ANSWERED,
                event_data=data,
            )
            with pytest.raises(NotAsked):
                await home.hub.post(run_id, draft)
        for_person = {**data, "by": "eve", "for": "work"}
        with pytest.raises(NotAsked):
            await home.hub.write(run_id, ev.EV_HUMAN_ANSWERED, for_person)
        with pytest.raises(BadDraft):
            await home.hub.write(run_id, ev.EV_HUMAN_ANSWERED, data)

        assert len(await home.tasks.list()) == 1


async def test_an_approval_of_one_attempt_is_not_used_by_the_next() -> None:
    """The model of the second attempt calls the tool with another amount at the same place."""
    paid: list[int] = []

    @tool(approval=True)
    async def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    script = ScriptedModel(call("pay", amount=5), RuntimeError("gone"), call("pay", amount=500), "done")
    agent = Agent("ada", config=script, tools=[pay])
    services = Services(
        flows=flows_of(flow(more=", retry: {attempts: 2, backoff: 1s}")), agents={"ada": agent}
    )
    async with stage(services=services) as home:
        run_id = await begin(home)
        await home.tasks.answer((await home.task()).task_id, {"answer": True}, by="ann")
        await home.paused(run_id, "retry")
        assert await home.tasks.list() == []
        await home.pass_time(1)
        await home.paused(run_id, "person")
        task = await home.task()
        assert (paid, task.show["arguments"]) == ([5], {"amount": 500})
        await home.tasks.answer(task.task_id, {"answer": False}, by="ann")

        assert (await home.ended(run_id)).status == "succeeded"
    assert paid == [5]


# --- time ---


async def test_an_expired_approval_counts_as_declined_and_its_task_is_gone() -> None:
    given = Shop(call("pay", amount=5))
    async with shop(given, flow("{group: ops, expires: 2h}")) as home:
        run_id = await begin(home)
        task = await home.task()
        assert task.expires_at is not None
        assert (task.expires_at - task.created_at).total_seconds() == 2 * HOUR
        await home.pass_time(2 * HOUR)

        assert (await home.ended(run_id)).data["work"] == "no person approved this call of 'pay' in time."
        with pytest.raises(TaskExpired):
            await home.tasks.answer(task.task_id, {"answer": True}, by="ann")
    assert given.done == []


async def test_a_run_does_not_wait_for_an_answer_whose_time_is_over() -> None:
    gave_up, goes_on = asyncio.Event(), asyncio.Event()

    async def hurry(context: Context) -> str:
        with pytest.raises(TimeoutError):
            await context.input("quick?", timeout=60)
        gave_up.set()
        await goes_on.wait()
        return "late"

    ada = Agent("ada", config=ScriptedModel(call("hurry"), "done"), tools=[hurry])
    services = Services(flows=flows_of(flow()), agents={"ada": ada})
    async with stage(services=services) as home:
        run_id = await home.runs.start("main", {}, run_id="r1")
        assert (await home.runs.wait(run_id)).status == "waiting"
        await home.pass_time(60)
        await gave_up.wait()
        with pytest.raises(TimeoutError):
            await home.runs.wait(run_id, timeout=0.01)
        assert (await home.runs.verdict(run_id)).status == "running"
        assert await home.tasks.list() == []
        assert (await home.hub.lines.rows(ChannelFilter(waiting_for=[PERSON]), limit=9)) == []
        goes_on.set()

        assert (await home.ended(run_id)).status == "succeeded"


async def test_a_task_whose_time_is_over_is_refused_before_its_timer_has_fired() -> None:
    async with shop(Shop(call("pay", amount=5)), flow("{group: ops, expires: 2h}")) as home:
        await begin(home)
        task = await home.task()
        home.clock.advance(2 * HOUR)

        with pytest.raises(TaskExpired):
            await home.tasks.answer(task.task_id, {"answer": True}, by="ann")
        assert await home.tasks.list() == []


async def test_expiry_runs_on_while_no_process_runs() -> None:
    log, given = MemoryLog(), Shop(call("order"))
    async with shop(given, flow("{group: ops, expires: 2h}"), log=log) as home:
        await begin(home)
        clock = home.clock
    clock.advance(3 * HOUR)
    async with shop(given, flow("{group: ops, expires: 2h}"), log=log, clock=clock) as home:
        await home.pass_time(GRACE_SECONDS)

        said = (await home.ended("r1")).data["work"]
    assert said == "TimeoutError: no person has answered within 7200 s"


async def test_after_an_outage_people_have_a_moment_to_answer() -> None:
    """As for a human step: they could not answer while nobody served."""
    log, given = MemoryLog(), Shop(call("order"))
    async with shop(given, flow("{group: ops, expires: 2h}"), log=log) as home:
        await begin(home)
        clock = home.clock
    clock.advance(3 * HOUR)
    async with shop(given, flow("{group: ops, expires: 2h}"), log=log, clock=clock) as home:
        await home.tasks.answer((await home.task()).task_id, {"answer": "large"}, by="ann")

        assert (await home.ended("r1")).data["work"] == "large"


async def test_after_an_outage_every_answer_in_time_counts_and_not_only_the_first() -> None:
    log, given = MemoryLog(), Shop(call("order"), call("pay", amount=5))
    async with shop(given, flow("{group: ops, expires: 2h}"), log=log) as home:
        await begin(home)
        clock = home.clock
    clock.advance(3 * HOUR)
    async with shop(given, flow("{group: ops, expires: 2h}"), log=log, clock=clock) as home:
        first, second = await home.tasks.list()
        await home.tasks.answer(first.task_id, {"answer": "large"}, by="ann")
        await home.paused("r1")
        await home.pass_time(GRACE_SECONDS - 1)
        await home.tasks.answer(second.task_id, {"answer": True}, by="ann")

        await home.ended("r1")
    assert given.done == ["paid 5"]


async def test_the_earliest_expiry_ends_the_pause_and_the_others_wait_on() -> None:
    async with shop(
        Shop(call("order", seconds=60), call("pay", amount=5)), flow("{group: ops, expires: 2h}")
    ) as home:
        run_id = await begin(home)
        question, approval = await home.tasks.list()
        assert question.expires_at is not None
        await home.pass_time(60)
        await home.paused(run_id)
        (left,) = await home.tasks.list()
        assert left == approval
        await home.tasks.answer(approval.task_id, {"answer": True}, by="ann")

        said = (await home.ended(run_id)).data["work"]
    assert said == "TimeoutError: no person has answered within 60 s; paid 5"


async def test_the_timeout_of_a_step_does_not_count_the_time_in_which_a_person_is_asked() -> None:
    async with shop(Shop(call("pay", amount=5)), flow(more=", timeout: 60s")) as home:
        run_id = await begin(home)
        await home.pass_time(24 * HOUR)
        assert await home.is_paused(run_id)
        await home.tasks.answer((await home.task()).task_id, {"answer": True}, by="ann")

        assert (await home.ended(run_id)).data["work"] == "paid 5"


async def test_the_timeout_of_a_step_counts_its_other_waits() -> None:
    async with shop(Shop(call("wait")), flow(more=", timeout: 60s")) as home:
        run_id = await begin(home)
        await home.pass_time(60)

        verdict = await home.ended(run_id)
        assert verdict.error is not None
        assert verdict.error.type == "timeout"


async def test_the_timeout_of_a_step_stands_still_while_a_plain_tool_waits_for_a_person() -> None:
    async with shop(Shop(call("sure")), flow(more=", timeout: 50ms")) as home:
        run_id = await home.runs.start("main", {}, run_id="r1")
        task = await home.task()
        await after(0.2)
        await home.tasks.answer(task.task_id, {"answer": "quite"}, by="ann")

        assert (await home.ended(run_id)).data["work"] == "quite"


async def test_a_step_that_resumes_has_what_is_left_of_its_timeout() -> None:
    """Its first reply took all of its 60 seconds, so that nothing is left for the second one."""
    given = Shop(call("pay", amount=5))
    async with shop(given, flow(more=", timeout: 60s")) as home:
        given.before_reply = lambda: home.clock.advance(61)
        run_id = await begin(home)
        await home.tasks.answer((await home.task()).task_id, {"answer": True}, by="ann")

        verdict = await home.ended(run_id)
        assert verdict.error is not None
        assert verdict.error.type == "timeout"


async def test_a_timeout_stands_still_inside_of_a_wait_for_a_person() -> None:
    async with WorkTimeout(0.05) as within:
        with within.stop_clock(), within.stop_clock():
            await after(0.2)

    assert not within.has_expired


async def test_a_timeout_goes_on_after_the_wait_with_what_was_left() -> None:
    within = WorkTimeout(0.05)

    async def work() -> None:
        async with within:
            with within.stop_clock():
                await asyncio.sleep(0)
            await asyncio.get_running_loop().create_future()

    with pytest.raises(TimeoutError):
        await work()
    assert within.has_expired
