"""Agents of a conversation ask the group of its step, and so do the peers that they delegate to (N7)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.flow.stage import Stage, stage
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.tool import tool
from turnline.client.turn import Turn
from turnline.core import event_types as ev
from turnline.core.claims import Paused
from turnline.core.governance import Passport
from turnline.errors import UnknownName
from turnline.flow.task import Task
from turnline.hub.timers import secret_id
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call

HOUR = 3600.0


def flow(ask: str = "{group: ops}") -> str:
    asks = f", ask: {ask}" if ask else ""
    return f"steps: [{{id: talk, channel: {{agents: [ada], message: go{asks}}}}}]"


class Shop:
    """Agents with tools that ask, and what the tools did."""

    def __init__(self, *calls: Any, by: str = "ada") -> None:
        self.done: list[str] = []
        self.by = by
        self._calls = calls

    def agents(self) -> list[Agent]:
        """Return ada, who asks herself or delegates to bob, and bob."""

        @tool(approval=True)
        async def pay(amount: int) -> str:
            self.done.append(f"paid {amount}")
            return f"paid {amount}"

        @tool(restarts=True)
        async def order(context: Context) -> str:
            return await context.input("which size?")

        def says(messages: Any) -> Any:
            return list(self._calls) if len(messages) == 1 else messages[-1].text

        asking = Agent(self.by, config=ScriptedModel(says), tools=[pay, order])
        if self.by == "ada":
            return [asking]
        delegating = ScriptedModel(
            lambda messages: (
                [call("delegate", to=self.by, task="please")] if len(messages) == 1 else messages[-1].text
            )
        )
        return [Agent("ada", config=delegating), asking]


@asynccontextmanager
async def shop(goods: Shop, text: str = "", *, log: Log | None = None) -> AsyncIterator[Stage]:
    async with stage(text or flow(), log=log or MemoryLog()) as home:
        for agent in goods.agents():
            await home.hub.register(agent)
        yield home


async def begin(home: Stage) -> Task:
    """Start the run; return its task."""
    await home.runs.start("main", {}, run_id="r1")
    return await home.task()


@pytest.mark.parametrize("by", ["ada", "bob"])
async def test_a_question_below_a_step_is_a_task_of_its_group(by: str) -> None:
    async with shop(Shop(call("order"), by=by)) as home:
        task = await begin(home)
        waits = await home.runs.wait("r1")
        await home.tasks.answer(task.task_id, {"answer": "large"}, by="ann", groups=["ops"])
        ended = await home.ended("r1")

    assert (task.group, task.title, task.step) == ("ops", f"Agent {by!r} asks", "talk")
    assert task.description == f"{by} asks: which size?"
    assert waits.status == "waiting"
    assert (ended.status, ended.data["talk"]) == ("succeeded", "large")


@pytest.mark.parametrize("by", ["ada", "bob"])
async def test_a_run_waits_for_a_question_below_from_its_task_until_its_answer(by: str) -> None:
    async with shop(Shop(call("order"), by=by)) as home:
        await home.runs.start("main", {}, run_id="r1")
        waits = await home.runs.wait("r1")
        [task] = await home.tasks.list()
        await home.tasks.answer(task.task_id, {"answer": "large"}, by="ann", groups=["ops"])
        ended = await home.runs.wait("r1")

    assert (waits.status, ended.status) == ("waiting", "succeeded")


@pytest.mark.parametrize("by", ["ada", "bob"])
@pytest.mark.parametrize("is_allowed", [True, False])
async def test_an_approval_below_a_step_is_answered_with_yes_or_no(by: str, *, is_allowed: bool) -> None:
    goods = Shop(call("pay", amount=5), by=by)
    async with shop(goods) as home:
        task = await begin(home)
        await home.tasks.answer(task.task_id, {"answer": is_allowed}, by="ann", groups=["ops"])
        await home.ended("r1")

    assert (task.title, task.show) == ("Allow pay?", {"tool": "pay", "arguments": {"amount": 5}})
    assert task.form["answer"]["type"] == "boolean"
    assert goods.done == (["paid 5"] if is_allowed else [])


@pytest.mark.parametrize("by", ["ada", "bob"])
async def test_a_question_below_a_step_survives_restarts_and_is_asked_once(by: str) -> None:
    goods, log = Shop(call("pay", amount=5), by=by), MemoryLog()
    async with shop(goods, log=log) as home:
        first = await begin(home)
    for _ in range(3):
        async with shop(goods, log=log) as home:
            task = await home.task()
            assert task.task_id == first.task_id
            state = await home.hub.state("r1")
            assert state.claim is None
    async with shop(goods, log=log) as home:
        await home.tasks.answer(first.task_id, {"answer": True}, by="ann", groups=["ops"])
        await home.ended("r1")
        asked = [one for one in await home.types("r1") if one == ev.EV_HUMAN_REQUESTED]

    assert (goods.done, len(asked)) == (["paid 5"], 1)


async def test_only_members_of_the_group_see_and_answer_a_question_below_a_step() -> None:
    goods = Shop(call("pay", amount=5), by="bob")
    async with shop(goods) as home:
        task = await begin(home)

        assert await home.tasks.list(groups=["sales"]) == []
        with pytest.raises(UnknownName):
            await home.tasks.answer(task.task_id, {"answer": True}, by="eve", groups=["sales"])
    assert goods.done == []


async def test_an_approval_below_a_step_counts_as_declined_after_the_time_of_the_step() -> None:
    goods = Shop(call("pay", amount=5), by="bob")
    async with shop(goods, flow("{group: ops, expires: 1h}")) as home:
        task = await begin(home)
        await home.pass_time(HOUR)
        ended = await home.ended("r1")

    assert task.expires_at is not None
    assert (ended.status, goods.done) == ("succeeded", [])


@pytest.mark.parametrize("by", ["ada", "bob"])
async def test_a_question_below_a_step_that_names_no_group_fails(by: str) -> None:
    async with shop(Shop(call("order"), by=by), flow("")) as home:
        await home.runs.start("main", {}, run_id="r1")
        ended = await home.ended("r1")
        children = [one.channel_id for one in await home.hub.list_channels() if one.channel_id != "r1"]
        lines = [line for child in children for line in await home.wal(child)]
        failed = [one.event_data["error"] for one in lines if one.event_type == ev.EV_TURN_FAILED]

    assert [one["type"] for one in failed] == ["NobodyToAsk"]
    assert "channel.ask: {group: ops}" in failed[0]["message"]
    assert ended.status == ("failed" if by == "ada" else "succeeded")


async def test_an_agent_cannot_ask_a_group_in_the_name_of_another() -> None:
    async def forges(turn: Turn) -> Paused:
        data = {"request_id": secret_id(), "question": "well?", "turn": turn.number, "call": "1.1"}
        about = {"agent": "boss", "tool": "nothing", "approval": False}
        await turn.channel.send(
            event_type=ev.EV_HUMAN_REQUESTED, event_data={**data, "position": 1, "about": about}, audience=[]
        )
        return Paused(reason="person", questions=[str(data["request_id"])])

    async with stage(flow(), log=MemoryLog()) as home:
        ada = await home.hub.register(None, Passport(name="ada"))
        ada.on_turn(forges)
        task = await begin(home)

    assert task.title == "Agent 'ada' asks"
