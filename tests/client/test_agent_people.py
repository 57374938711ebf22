"""H1: a tool of an agent on a channel asks a person: durably, and for exactly one call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.stage import begun, played, stage, told
from tests.hub.scenes import House, closed, refused
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.messages import Message, ToolCall
from turnline.agent.tool import Tool, tool
from turnline.client.channel import Channel
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_HUMAN_REQUESTED
from turnline.core.graph import sequence
from turnline.errors import AlreadyAnswered, ChannelClosed, NotAsked, UnknownQuestion
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call


async def sure(context: Context) -> str:
    return await context.input("sure?")


def is_question(envelope: Envelope) -> bool:
    return envelope.event_type == EV_HUMAN_REQUESTED


def asking(*script: Any, tools: Any = (sure,), **given: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(*(script or (lambda messages: call("sure") if len(messages) == 1 else "ok",)))
    return Agent("ada", config=model, tools=tools, **given), model


async def question(channel: Channel, *, since: int = 0) -> Envelope:
    return await channel.wait_for(is_question, since=since)


async def questions(home: House, channel: Channel) -> list[Envelope]:
    return [one for one in await home.wal(channel) if is_question(one)]


async def test_a_person_who_comes_back_is_told_of_the_open_question_and_not_of_an_answered_one() -> None:
    """The agent's turn does not ask again, so nobody else would tell the person."""
    log = MemoryLog()
    for answers in ("quite", ""):
        agent, _ = asking()
        async with stage(agent, log=log) as home:
            channel = await begun(home)
            asked = await question(channel)
            if answers:
                await home.people["user"].answer(asked, answers)
                await closed(channel)
    async with stage(asking()[0], log=log) as home:
        user = home.people["user"]
        found = await user.next_envelope(timeout=10)

        assert found.envelope_id == asked.envelope_id
        await user.answer(found, "quite")
        assert await closed(home.handle("user", channel)) == "sequence_complete"


async def test_h1_a_question_goes_to_the_people_and_the_answer_to_the_tool() -> None:
    agent, model = asking()
    async with stage(agent, Agent("bob")) as home:
        channel = await begun(home)
        user = home.people["user"]
        asked = await user.next_envelope()
        while not is_question(asked):
            asked = await user.next_envelope()
        assert asked.event_data["question"] == "sure?"
        assert asked.audience == [user.agent_id]
        await user.answer(asked, "quite")
        await closed(channel)

        assert told(model) == ["quite"]
        types = await home.types(channel)
        assert types[types.index("human.requested") :] == [
            "human.requested",
            "human.answered",
            "turn.tool",
            "packet",
            "channel.closed",
        ]


async def test_n1a_an_open_question_closes_no_channel_however_long_it_waits() -> None:
    """A workflow channel has ten minutes for a turn, unless a person is asked or has the floor."""
    agent, model = asking()
    async with stage(agent, Agent("bob")) as home:
        channel = await begun(home)
        asked = await question(channel)
        for _ in range(48):
            await home.pass_time(3600)
        assert "expectation.violated" not in await home.types(channel)
        await home.people["user"].answer(asked, "quite")

        assert await closed(channel) == "sequence_complete"
    assert told(model) == ["quite"]


async def test_h1_any_of_the_people_may_answer_and_the_first_answer_counts() -> None:
    agent, model = asking()
    async with stage(agent, people=("user", "boss")) as home:
        channel = await begun(home)
        asked = await question(channel)
        await home.people["boss"].answer(asked, "the boss's")
        await closed(channel)

    assert told(model) == ["the boss's"]


async def test_h1_an_answer_to_another_question_is_not_taken() -> None:
    agent, model = asking()
    async with stage(agent) as home:
        channel = await begun(home)
        asked = await question(channel)
        data = {"request_id": "another", "answer": "wrong"}
        await refused(UnknownQuestion, channel.send(event_type="human.answered", event_data=data))
        await home.people["user"].answer(asked, "right")
        await closed(channel)

    assert told(model) == ["right"]


async def test_h1_a_restart_does_not_lose_the_question_and_does_not_ask_twice() -> None:
    log = MemoryLog()
    agent, _ = asking()
    async with stage(agent, log=log) as home:
        await question(await begun(home, channel_id="story"))
    agent, model = asking()
    async with stage(agent, log=log) as home:
        channel = home.people["user"].channel("story")
        await home.people["user"].answer(await question(channel), "still sure")
        await closed(channel)

        assert len(await questions(home, channel)) == 1
    assert told(model) == ["still sure"]


async def test_h1_an_answer_given_while_the_agent_was_away_is_found() -> None:
    log = MemoryLog()
    agent, _ = asking()
    async with stage(agent, log=log) as home:
        await question(await begun(home, channel_id="story"))
    async with stage(log=log) as home:
        user = home.people["user"]
        await user.answer(await question(user.channel("story")), "while you were out")
    agent, model = asking()
    async with stage(agent, log=log) as home:
        await closed(home.people["user"].channel("story"))

    assert told(model) == ["while you were out"]


async def test_h1_the_same_question_asked_again_is_another_question() -> None:
    async def until_a_number(context: Context) -> str:
        while not (answer := await context.input("how many?")).isdigit():
            pass
        return answer

    agent, model = asking(call("until_a_number"), "ok", tools=[until_a_number])
    async with stage(agent) as home:
        channel, user = await begun(home), home.people["user"]
        first = await question(channel)
        await user.answer(first, "a few")
        await user.answer(await question(channel, since=first.seq), "3")
        await closed(channel)

    assert told(model) == ["3"]


def paying(paid: list[int]) -> Tool[..., Any]:
    @tool(approval=True)
    async def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    return pay


async def test_h1_a_yes_to_one_call_is_no_yes_to_the_next_one_like_it() -> None:
    paid: list[int] = []
    agent, model = asking([call("pay", amount=5), call("pay", amount=5)], "ok", tools=[paying(paid)])
    async with stage(agent) as home:
        channel, user = await begun(home), home.people["user"]
        first = await question(channel)
        second = await question(channel, since=first.seq)
        await user.answer(first, "yes")
        await user.answer(second, "no")
        await closed(channel)

        assert first.event_data["question"] == "Allow pay with {'amount': 5}? (yes or no)"
    assert paid == [5]
    assert sorted(told(model)) == ["a person declined this call of 'pay'.", "paid"]


@pytest.mark.parametrize("has_one_id", [False, True])
async def test_h1_nor_is_it_after_a_restart(*, has_one_id: bool) -> None:
    """The first call is recorded and not made again, so the second is the first that asks.

    A call is known by its place in the turn, not by the id the model gave it: models repeat them.
    """
    again = ToolCall(call_id="call-1", tool="pay", arguments={"amount": 5})

    def twice(messages: tuple[Message, ...]) -> Any:
        return (again if has_one_id else call("pay", amount=5)) if len(messages) < 5 else "ok"

    paid: list[int] = []
    log = MemoryLog()
    async with stage(asking(twice, tools=[paying(paid)])[0], log=log) as home:
        channel = await begun(home, channel_id="story")
        first = await question(channel)
        await home.people["user"].answer(first, "yes")
        second = await question(channel, since=first.seq)
    async with stage(asking(twice, tools=[paying(paid)])[0], log=log) as home:
        await home.people["user"].answer(second, "no")
        channel = home.people["user"].channel("story")
        await closed(channel)

        assert [one.event_data["call"] for one in await questions(home, channel)] == ["1.1", "2.1"]
    assert paid == [5]


async def test_an_agent_cannot_approve_its_own_call_or_that_of_another() -> None:
    paid: list[int] = []
    agent, model = asking(call("pay", amount=5), "ok", tools=[paying(paid)])
    async with stage(agent, Agent("bob")) as home:
        channel = await begun(home)
        asked = await question(channel)
        data = {"request_id": asked.event_data["request_id"], "answer": "yes"}
        for name in ("ada", "bob"):
            handle = home[name].channel(channel.channel_id)
            await refused(NotAsked, handle.send(event_type="human.answered", event_data=data))
        await home.people["user"].answer(asked, "no")
        await refused(AlreadyAnswered, home.people["user"].answer(asked, "yes"))
        await closed(channel)

    assert paid == []
    assert told(model) == ["a person declined this call of 'pay'."]


async def test_request_ids_of_equal_questions_have_nothing_in_common() -> None:
    """Two turns that ask the same at the same place: whoever knows one id cannot compute the other."""
    agent, _ = asking(call("sure"), "one", call("sure"), "two")
    async with stage(agent) as home:
        channel, user = await begun(home, sequence(["user", "ada", "ada"])), home.people["user"]
        first = await question(channel)
        await user.answer(first, "yes")
        second = await question(channel, since=first.seq)
        await user.answer(second, "yes")
        await closed(channel)

    ids = [one.event_data["request_id"] for one in (first, second)]
    assert len({one[start : start + 8] for one in ids for start in (0, 8, 16, 24)}) == 8
    assert all(one.envelope_id not in ids for one in (first, second))


async def test_h1_the_agents_hook_goes_before_the_people_of_the_channel() -> None:
    agent, model = asking(hitl_hook=lambda prompt: "the hook's")
    async with stage(agent) as home:
        channel = await played(home)

        assert await questions(home, channel) == []
    assert told(model) == ["the hook's"]


async def test_h1_a_question_nobody_answers_in_time_is_told_to_the_model() -> None:
    async def hurry(context: Context) -> str:
        return await context.input("sure?", timeout=30)

    agent, model = asking(call("hurry"), "ok", tools=[hurry])
    async with stage(agent) as home:
        channel = await begun(home)
        asked = await question(channel)
        await home.pass_time(29)
        assert [one for one in await home.wal(channel) if one.event_type == "timer.fired"] == []
        await home.pass_time(1)
        await closed(channel)

        with pytest.raises(ChannelClosed):
            await home.people["user"].answer(asked, "late")
    assert told(model) == ["TimeoutError: no person has answered within 30 s"]


async def test_h1_on_a_channel_without_people_the_turn_fails_and_says_why() -> None:
    agent, _ = asking()
    async with stage(agent, Agent("bob"), people=()) as home:
        channel = await home["bob"].open(
            "workflow", ["ada"], {"graph": sequence(["bob", "ada"]).to_dict()}, message="go"
        )
        await asyncio.wait_for(channel.result(), 60)
        (failed,) = [one for one in await home.wal(channel) if one.event_type == "turn.failed"]

        assert failed.event_data["error"]["type"] == "NobodyToAsk"
