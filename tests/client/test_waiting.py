"""N1: a turn that waits holds nothing, whatever it waits for; restarts and time change nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.client.stage import begun, stage, told
from tests.hub.scenes import House, closed, house, quiet
from tests.logs import OpenLog
from tests.waits import PAUSE_SECONDS, WAITS, begin, help_out, join
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.tool import ToolRetry, tool
from turnline.client.turn import Turn
from turnline.core import claims, event_types as ev
from turnline.core.claims import Paused
from turnline.core.governance import Passport
from turnline.core.state import State
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call
from turnline.testing.manual_clock import ManualClock

RESTARTS = 50
DAY = 86_400.0


@asynccontextmanager
async def running(log: Log, kind: str, noted: Counter[str], clock: ManualClock) -> AsyncIterator[House]:
    """A process with everybody on it, once nothing more happens by itself."""
    async with house(log, clock=clock) as home:
        home.people |= await join(home.door, kind, lambda _, what: noted.update([what]))
        await quiet()
        yield home


async def states(home: House) -> dict[str, State]:
    """Every open channel."""
    found = [await home.hub.state(one.channel_id) for one in await home.hub.list_channels()]
    return {one.channel_id: one for one in found if not one.is_over}


def tasks() -> Counter[str]:
    """What runs now, by name."""
    return Counter(one.get_coro().__qualname__ for one in asyncio.all_tasks())  # type: ignore[union-attr]


async def finish(home: House, kind: str) -> None:
    """Do what the channels wait for until nothing waits any more."""
    if kind == "time":
        await home.pass_time(PAUSE_SECONDS)
    await quiet()
    while await help_out(home.hub, home.people.values()):
        await quiet()


@pytest.mark.parametrize("kind", WAITS)
async def test_n1_a_wait_survives_fifty_restarts_and_then_ends(kind: str) -> None:
    log, clock, noted = MemoryLog(), ManualClock(), Counter[str]()
    async with running(MemoryLog(), kind, Counter(), clock):
        nothing_open = tasks()
    async with running(log, kind, noted, clock) as home:
        channel = await begin(home.people["user"], kind, "c1")
        await quiet()
        waiting, done = await states(home), Counter(noted)
        assert tasks() == nothing_open
    for number in range(RESTARTS):
        async with running(log, kind, noted, clock) as home:
            found = await states(home)
            assert {key: one.seq for key, one in found.items()} == {
                key: one.seq for key, one in waiting.items()
            }
            assert [one.claim for one in found.values()] == [None] * len(waiting)
            assert tasks() == nothing_open
            assert noted == done
            if kind == "two approvals" and number == RESTARTS // 2:
                assert await help_out(home.hub, home.people.values(), most=1) == 1
                await quiet()
                waiting, done = await states(home), done + Counter({"pay 5": 1})
                assert noted == done
    async with running(log, kind, noted, clock) as home:
        await finish(home, kind)
        channel = home.handle("user", channel)
        result = await channel.result(timeout=10)

    assert (result.reason, result.text) == (WAITS[kind].reason, WAITS[kind].text)
    assert noted == WAITS[kind].done


def engine_tasks() -> list[str]:
    """Return the tasks of this process that take turns or renew claims."""
    names = (getattr(one.get_coro(), "__qualname__", "") for one in asyncio.all_tasks())
    return [name for name in names if name.startswith("Engine.")]


async def test_n1_fifty_restarts_write_no_line_on_any_log(open_log: OpenLog) -> None:
    noted = Counter[str]()

    @asynccontextmanager
    async def process() -> AsyncIterator[House]:
        async with house(open_log(), follow=True) as home:
            home.people |= await join(home.door, "approval", lambda _, what: noted.update([what]))
            yield home

    async with process() as home:
        channel = await begin(home.people["user"], "approval", "c1")
        while (state := await home.hub.state("c1")).pause is None:
            await home.hub.wait_beyond("c1", state.seq)
    for _ in range(RESTARTS):
        async with process() as home:
            await quiet()
            assert (await home.hub.state("c1")).claim is None
            assert engine_tasks() == []
    async with process() as home:
        assert await help_out(home.hub, home.people.values()) == 1
        await closed(home.handle("user", channel))
        lines = await home.types(channel)

    waited = [ev.EV_TURN_MODEL, ev.EV_HUMAN_REQUESTED, ev.EV_TURN_PAUSED]
    resumed = [ev.EV_HUMAN_ANSWERED, ev.EV_TURN_RESUMED, ev.EV_TURN_CLAIMED, ev.EV_TURN_TOOL, ev.EV_PACKET]
    assert lines[lines.index(ev.EV_TURN_CLAIMED) + 1 :] == [*waited, *resumed, ev.EV_CHANNEL_CLOSED]
    assert noted == WAITS["approval"].done


@pytest.mark.parametrize("kind", WAITS)
async def test_n1a_days_of_waiting_close_nothing_and_write_nothing(kind: str) -> None:
    log, clock, noted = MemoryLog(), ManualClock(), Counter[str]()
    async with running(log, kind, noted, clock) as home:
        channel = await begin(home.people["user"], kind, "c1")
        await quiet()
        before = {key: one.seq for key, one in (await states(home)).items()}
        for _ in range(10):
            await home.pass_time(DAY)
            await quiet()

        assert {key: one.seq for key, one in (await states(home)).items()} == before
        assert [one.claim for one in (await states(home)).values() if one.claim is not None] == []
        assert engine_tasks() == []
        await finish(home, kind)
        assert await closed(channel) == WAITS[kind].reason
    assert noted == WAITS[kind].done


def asking_twice(noted: Counter[str]) -> Agent:
    """An agent whose tool asks two questions, and fails once between them."""

    @tool(restarts=True, retry=ToolRetry(attempts=2, backoff_seconds=0))
    async def book(context: Context) -> str:
        noted["began"] += 1
        where = await context.input("Where?")
        held = await context.once("hold", partial(hold, where))
        if noted["failed"] == 0:
            noted["failed"] += 1
            raise OSError("try again")
        return f"{held} {await context.input('When?')}"

    async def hold(where: str) -> str:
        noted["held"] += 1
        return where

    model = ScriptedModel(lambda messages: call("book") if len(messages) == 1 else messages[-1].text)
    return Agent("ada", config=model, tools=[book])


async def test_n2_a_restarting_tool_gets_each_answer_once_asked_over_restarts_and_retries() -> None:
    log, noted, answers = MemoryLog(), Counter[str](), {"Where?": "Rome", "When?": "today"}
    async with stage(asking_twice(noted), log=log) as home:
        channel = await begun(home)
        await quiet()
    for _ in answers:
        async with stage(asking_twice(noted), log=log) as home:
            await quiet()
            state = await home.hub.state(channel.channel_id)
            [(request_id, question)] = [one for one in state.questions.items() if not one[1].answer_seq]
            asked = next(one for one in await home.wal(channel) if one.seq == question.seq)
            answer = answers[asked.event_data["question"]]
            data = {"request_id": request_id, "answer": answer}
            await home.handle("user", channel).send(event_type="human.answered", event_data=data)
            await quiet()
            home.clock.advance(1)
            await quiet()
    async with stage(log=log) as home:
        result = await home.handle("user", channel).result(timeout=10)
        types = await home.types(channel)

    assert result.text == "Rome today"
    assert (noted["held"], noted["failed"], types.count("human.requested")) == (1, 1, 2)


@pytest.mark.parametrize("restarts", [True, False])
async def test_n2_an_answer_is_not_used_for_another_question(restarts: bool) -> None:
    log, files = MemoryLog(), iter(["a.txt", "b.txt"])

    @tool(restarts=restarts)
    async def delete(context: Context) -> str:
        return await context.input(f"Delete {next(files)}?")

    model = ScriptedModel(lambda messages: call("delete") if len(messages) == 1 else messages[-1].text)
    ada = Agent("ada", config=model, tools=[delete])
    async with stage(ada, log=log) as home:
        channel = await begun(home)
        await quiet()
    async with stage(log=log) as home:
        await help_out(home.hub, home.people.values())
    async with stage(ada, log=log) as home:
        result = await home.handle("user", channel).result(timeout=10)

    assert result.text.startswith("QuestionChanged: Tool 'delete' ran again and asks 'Delete b.txt?'")


async def test_n2_a_tool_that_returns_paused_is_called_again_with_the_same_key() -> None:
    keys = list[str]()

    @tool
    async def later(context: Context) -> str | Paused:
        keys.append(context.idempotency_key)
        return Paused(reason="time", seconds=60) if len(keys) < 3 else "now"

    model = ScriptedModel(call("later"), "done")
    async with stage(Agent("ada", config=model, tools=[later])) as home:
        channel = await begun(home)
        for _ in range(2):
            await quiet()
            assert (await home.hub.state(channel.channel_id)).claim is None
            await home.pass_time(60)
        await closed(channel)

    assert told(model) == ["now"]
    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.parametrize("retry", [None, ToolRetry(attempts=3)])
@pytest.mark.parametrize("swallows", ["gather", "except"])
async def test_n2_a_tool_that_swallows_the_pause_of_its_questions_waits_for_them_all(
    swallows: str, retry: Any
) -> None:
    runs = Counter[str]()

    @tool(restarts=True, retry=retry)
    async def order(context: Context) -> str:
        runs["begun"] += 1
        if swallows == "gather":
            found = await asyncio.gather(
                context.input("Size?"), context.input("Colour?"), return_exceptions=True
            )
            return " ".join(map(str, found))
        try:
            return await context.input("Size?")
        except BaseException:
            raise ValueError("none") from None

    model = ScriptedModel(call("order"), "done")
    async with stage(Agent("ada", config=model, tools=[order])) as home:
        channel = await begun(home)
        await quiet()
        state = await home.hub.state(channel.channel_id)
        assert state.pause is not None
        assert set(state.pause.questions) == set(state.questions)
        await help_out(home.hub, home.people.values())
        await closed(channel)

    assert told(model) == ["yes yes" if swallows == "gather" else "yes"]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("swallows", ["return", "raise"])
async def test_n2_a_function_of_once_that_swallows_the_pause_of_its_question_runs_again_with_the_answer(
    swallows: str, depth: int
) -> None:
    @tool(restarts=True)
    async def order(context: Context) -> str:
        async def choose() -> str:
            try:
                return await context.input("Size?")
            except BaseException:
                if swallows == "raise":
                    raise ValueError("none") from None
                return "none"

        async def choose_below() -> str:
            try:
                return str(await context.once("inner", choose))
            except BaseException:
                return "none"

        return str(await context.once("outer", choose if depth == 1 else choose_below))

    model = ScriptedModel(call("order"), "done")
    async with stage(Agent("ada", config=model, tools=[order])) as home:
        channel = await begun(home)
        await quiet()
        assert (await home.hub.state(channel.channel_id)).once_units == 0
        await help_out(home.hub, home.people.values())
        await closed(channel)
        kept = [one for one in await home.wal(channel) if one.event_type == ev.EV_TURN_ONCE]

    assert told(model) == ["yes"]
    assert [one.event_data["result"] for one in kept] == ["yes"] * depth


async def test_n2_a_function_of_once_beside_one_that_waits_is_recorded_and_not_run_again() -> None:
    runs = Counter[str]()

    @tool(restarts=True)
    async def order(context: Context) -> str:
        asked = asyncio.Event()

        async def choose() -> str:
            asked.set()
            return await context.input("Size?")

        async def charge() -> str:
            runs["charged"] += 1
            await asked.wait()
            await quiet()  # Until the question beside it waits.
            return "charged"

        both = context.once("charge", charge), context.once("choose", choose)
        return " ".join(map(str, await asyncio.gather(*both, return_exceptions=True)))

    model = ScriptedModel(call("order"), "done")
    async with stage(Agent("ada", config=model, tools=[order])) as home:
        channel = await begun(home)
        for _ in range(4):
            await quiet()
        await help_out(home.hub, home.people.values())
        await closed(channel)

    assert told(model) == ["charged yes"]
    assert runs["charged"] == 1


async def test_a_turn_that_only_pauses_fails_with_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "MAX_PAUSES", 20)

    @tool
    async def later() -> Paused:
        return Paused(reason="time", seconds=0)

    model = ScriptedModel(call("later"), "done")
    async with stage(Agent("ada", config=model, tools=[later])) as home:
        channel = await begun(home)
        for _ in range(21):
            await quiet()
            await home.hub.tick()
        await closed(channel)
        result, types = await channel.result(), await home.types(channel)

    assert types.count("turn.paused") == 20
    assert "has paused 20 times and recorded nothing in between" in (result.error or "")


@pytest.mark.parametrize(
    "waits",
    [{"reason": "time"}, {"reason": "children"}, {"reason": "person"}, {"reason": "event", "key": "x"}],
)
async def test_n2_a_pause_that_nothing_can_end_fails_the_turn(waits: dict[str, Any]) -> None:
    async def handler(turn: Turn) -> Paused:
        return Paused(**waits)

    async with stage() as home:
        home.agents["ada"] = await home.door.register(passport=Passport(name="ada"))
        home.agents["ada"].on_turn(handler)
        channel = await begun(home)
        await closed(channel)
        result = await channel.result()

    assert "Paused is a pause that nothing ends; expected one with `seconds`" in (result.error or "")


async def test_n2_a_tool_waits_for_no_task_and_no_event_of_a_flow() -> None:
    async def later() -> Paused:
        return Paused(reason="person", key="task", data={"title": "Sign here."})

    model = ScriptedModel(call("later"), "done")
    async with stage(Agent("ada", config=model, tools=[later])) as home:
        await closed(await begun(home))

    assert told(model) == ["the tool returned Paused with a key, which only a step may"]


async def test_a_sync_tool_that_asks_is_told_to_be_async() -> None:
    def sure(context: Context) -> str:
        return f"{context.input('sure?')}"

    model = ScriptedModel(call("sure"), "done")
    async with stage(Agent("ada", config=model, tools=[sure])) as home:
        await closed(await begun(home))

    [answer] = told(model)
    assert answer.startswith("TypeError: a sync tool called context.input; expected an async one.")


async def test_n2_a_plain_tool_that_asks_is_not_repeated_because_it_asked() -> None:
    """It waits in its process, under its claim."""
    began = list[str]()

    async def sure(context: Context) -> str:
        began.append("sure")
        return await context.input("sure?")

    model = ScriptedModel(call("sure"), "done")
    async with stage(Agent("ada", config=model, tools=[sure])) as home:
        channel = await begun(home)
        await quiet()
        state = await home.hub.state(channel.channel_id)
        assert (state.claim is None, state.pause) == (False, None)
        for _ in range(10):
            await home.pass_time(DAY)
        assert await help_out(home.hub, home.people.values()) == 1
        await closed(channel)

    assert began == ["sure"]


async def test_n1b_an_approval_waits_while_its_siblings_run_and_are_recorded() -> None:
    ran = list[str]()

    @tool(approval=True)
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    async def look() -> str:
        ran.append("look")
        return "a lamp"

    log = MemoryLog()
    calls = [call("pay"), call("look"), call("pay")]
    async with stage(Agent("ada", config=ScriptedModel(calls), tools=[pay, look]), log=log) as home:
        channel = await begun(home)
        await quiet()
        types = await home.types(channel)
        assert (types.count("human.requested"), types.count("turn.tool"), types[-1]) == (2, 1, "turn.paused")
    model = ScriptedModel("done")
    async with stage(Agent("ada", config=model, tools=[pay, look]), log=log) as home:
        while await help_out(home.hub, home.people.values()):
            await quiet()
        assert await closed(home.handle("user", channel)) == "sequence_complete"

    assert told(model) == ["paid", "a lamp", "paid"]
    assert sorted(ran) == ["look", "pay", "pay"]


# --- N7b: nobody waits in a circle ---


async def test_n7b_a_circle_is_refused_while_everybody_in_it_is_paused() -> None:
    """Ada waits for bob, bob for a person. In another process bob asks ada: she waits for him."""
    log = MemoryLog()

    def asks(*lines: Any) -> Agent:
        name, *script = lines
        return Agent(name, config=ScriptedModel(*script))

    to_bob, to_ann, to_ada = (call("delegate", to=name, task="sure?") for name in ("bob", "ann", "ada"))
    people = ("user", "ann")
    async with stage(asks("ada", to_bob), asks("bob", to_ann), log=log, people=people) as home:
        channel = await begun(home, target=["ada"])
        await quiet()
    ada, bob = asks("ada", "done"), asks("bob", to_ada, "then no")
    async with stage(ada, bob, log=log, people=people) as home:
        await quiet()
        while await help_out(home.hub, home.people.values()):
            await quiet()
        assert await closed(home.handle("user", channel)) == "sequence_complete"
        told_bob = told(home_model(bob))

    assert told_bob[0] == "yes"
    assert "bob -> ada" in told_bob[1] or "ada -> bob" in told_bob[1]


def home_model(agent: Agent) -> ScriptedModel:
    model = agent.config
    assert isinstance(model, ScriptedModel)
    return model
