"""A peer that needs a person: its question goes up to the channel of the turn that waits for it (N2, N7)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.client.stage import stage, told
from tests.client.tooling import actor, ask_ada
from tests.hub.scenes import House, closed, quiet, refused
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.tool import tool
from turnline.client.channel import Channel
from turnline.core import event_types as ev
from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.core.expectations import GRACE_SECONDS
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.state import Question
from turnline.core.step_targets import FanOutTarget
from turnline.core.transitions import FromSpeaker, TerminateTarget
from turnline.errors import NotAsked, QuestionExpired
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call

DONE = Counter[str]


def asks(to: str) -> Any:
    return call("delegate", to=to, task="please")


def payer(name: str, done: DONE, *calls: Any) -> Agent:
    """An agent whose tools need a person: one before it starts, one that runs again, one that waits."""

    @tool(approval=True)
    async def pay(amount: int) -> str:
        done[f"pay {amount}"] += 1
        return f"paid {amount}"

    @tool(restarts=True)
    async def order(context: Context, seconds: float | None = None) -> str:
        return await context.input("Which size?", timeout=seconds)

    @tool
    async def sure(context: Context) -> str:
        done["sure"] += 1
        return await context.input("Sure?")

    def says(messages: Any) -> Any:
        return list(calls) if len(messages) == 1 else " and ".join(one.text for one in messages[2:])

    return Agent(name, config=ScriptedModel(says), tools=[pay, order, sure])


async def below(home: House, channel_id: str) -> list[ChannelRow]:
    return [one for one in await home.hub.list_channels() if one.parent_id == channel_id]


async def open_questions(home: House, channel_id: str) -> list[tuple[Question, Envelope]]:
    """What is asked on a channel and not answered, with the lines that ask."""
    state = await home.hub.state(channel_id)
    lines = {one.seq: one for one in await home.hub.read_wal(channel_id)}
    return [(one, lines[one.seq]) for one in state.questions.values() if not one.answer_seq]


async def answer(home: House, channel: Channel, said: str, *, person: str = "user") -> Envelope:
    """Answer the first open question of the channel."""
    (_, line), *_ = await open_questions(home, channel.channel_id)
    data = {"request_id": line.event_data["request_id"], "answer": said}
    return await home.handle(person, channel).send(event_type=ev.EV_HUMAN_ANSWERED, event_data=data)


@pytest.mark.parametrize("said", ["yes", "no"])
async def test_a_peer_s_approval_is_asked_on_the_channel_of_the_turn_that_delegates(said: str) -> None:
    done = DONE()
    ada, model = actor("ada", asks("bob"), "done")
    async with stage(ada, payer("bob", done, call("pay", amount=5))) as home:
        channel = await ask_ada(home)
        await quiet()
        ((question, line),) = await open_questions(home, channel.channel_id)
        user, sender = home.people["user"].agent_id, home["ada"].agent_id
        assert (question.people, line.audience, line.sender_id) == ([user], [user], sender)
        assert line.event_data["question"] == "bob asks: Allow pay with {'amount': 5}? (yes or no)"
        await answer(home, channel, said)
        await closed(channel)
        (child,) = await below(home, channel.channel_id)
        (copied,) = [
            one for one in await home.hub.read_wal(child.channel_id) if one.event_type == ev.EV_HUMAN_ANSWERED
        ]

    assert done == ({"pay 5": 1} if said == "yes" else {})
    assert told(model) == ["paid 5" if said == "yes" else "a person declined this call of 'pay'."]
    assert copied.event_data["by"] == user
    assert copied.event_data["above"] == channel.channel_id
    assert user not in child.participants


async def test_only_the_asker_sees_the_question_below_and_only_an_asked_person_answers_above() -> None:
    ada, _ = actor("ada", asks("bob"), "done")
    async with stage(ada, payer("bob", DONE(), call("order")), people=("user", "ann")) as home:
        channel = await ask_ada(home)
        await quiet()
        (child,) = await below(home, channel.channel_id)
        ((_, line),) = await open_questions(home, child.channel_id)
        ((_, above),) = await open_questions(home, channel.channel_id)
        read = await home["ada"].seat.read(child.channel_id, 0)
        assert line.audience == []
        assert line.seq not in [one.seq for one in read.envelopes]
        for agent, at, asked in (("ada", child, line), ("bob", child, line), ("ada", channel, above)):
            data = {"request_id": asked.event_data["request_id"], "answer": "large"}
            handle = home[agent].channel(at.channel_id)
            await refused(NotAsked, handle.send(event_type=ev.EV_HUMAN_ANSWERED, event_data=data))
        await answer(home, channel, "small")
        await closed(channel)


async def test_several_levels_and_several_questions_each_get_their_own_answer() -> None:
    done = DONE()
    ada, model = actor("ada", asks("bob"), "done")
    bob, middle = actor("bob", asks("cat"), lambda messages: messages[-1].text)
    cat = payer("cat", done, call("pay", amount=1), call("pay", amount=2), call("order"))
    async with stage(ada, bob, cat) as home:
        channel = await ask_ada(home)
        await quiet()
        for _ in range(3):
            ((_, line), *_) = await open_questions(home, channel.channel_id)
            assert line.event_data["question"].startswith("cat asks: ")
            await answer(
                home, channel, {"1": "yes", "2": "no"}.get(line.event_data["question"][-15:-14], "L")
            )
            await quiet()
        await closed(channel)

    assert done == {"pay 1": 1}
    assert told(middle) == told(model) == ["paid 1 and a person declined this call of 'pay'. and L"]


async def test_while_a_peer_waits_no_line_is_written_and_restarts_ask_nothing_again() -> None:
    log, done = MemoryLog(), DONE()

    def cast() -> tuple[Agent, Agent]:
        says = lambda messages: asks("bob") if len(messages) == 1 else "done"  # noqa: E731
        return actor("ada", says)[0], payer("bob", done, call("pay", amount=5))

    async with stage(*cast(), log=log) as home:
        channel = await ask_ada(home)
        await quiet()
        (child,) = await below(home, channel.channel_id)
        seqs = [(await home.hub.state(one)).seq for one in (channel.channel_id, child.channel_id)]
        states = [await home.hub.state(one) for one in (channel.channel_id, child.channel_id)]
        assert [(one.claim, one.pause is None) for one in states] == [(None, False), (None, False)]
    for _ in range(5):
        async with stage(*cast(), log=log) as home:
            await home.pass_time(86_400)
            await quiet()
            assert [(await home.hub.state(one)).seq for one in (channel.channel_id, child.channel_id)] == seqs
    async with stage(*cast(), log=log) as home:
        await quiet()
        await answer(home, channel, "yes")
        await closed(home.handle("user", channel))

    assert done == {"pay 5": 1}


async def test_a_question_that_expires_above_is_declined_below() -> None:
    ada, model = actor("ada", asks("bob"), "done")
    async with stage(ada, payer("bob", DONE(), call("order", seconds=600))) as home:
        channel = await ask_ada(home)
        await quiet()
        ((_, line),) = await open_questions(home, channel.channel_id)
        await home.pass_time(599)
        assert len(await open_questions(home, channel.channel_id)) == 1
        await home.pass_time(1)
        await closed(channel)

    assert told(model) == ["TimeoutError: no person has answered within 600 s"]
    assert line.event_data["expires"] == 600


async def test_people_who_are_asked_late_still_have_a_moment() -> None:
    """Ada is busy with another call for longer than the question may wait."""
    goes_on = asyncio.Event()

    @tool
    async def work() -> str:
        await goes_on.wait()
        return "worked"

    ada, model = actor("ada", [asks("bob"), call("work")], "done", tools=[work])
    async with stage(ada, payer("bob", DONE(), call("order", seconds=600))) as home:
        channel = await ask_ada(home, expectations=[])
        await quiet()
        await home.pass_time(700)
        assert await open_questions(home, channel.channel_id) == []
        goes_on.set()
        await quiet()
        await home.pass_time(GRACE_SECONDS - 1)
        await answer(home, channel, "small")
        await closed(channel)

    assert told(model) == ["small", "worked"]


async def test_a_plain_tool_of_a_peer_gets_its_answer_too() -> None:
    done = DONE()
    ada, model = actor("ada", asks("bob"), "done")
    async with stage(ada, payer("bob", done, call("sure"))) as home:
        channel = await ask_ada(home)
        await quiet()
        await answer(home, channel, "very")
        await closed(channel)

    assert told(model) == ["very"]
    assert done == {"sure": 1}


async def test_a_question_ends_with_the_channel_below() -> None:
    ada, model = actor("ada", [asks("bob"), asks("cat")], "done")
    peers = payer("bob", DONE(), call("pay", amount=1)), payer("cat", DONE(), call("pay", amount=2))
    async with stage(ada, *peers) as home:
        channel = await ask_ada(home)
        await quiet()
        (asked, line), _ = await open_questions(home, channel.channel_id)
        await home.hub.write(asked.call, ev.EV_CHANNEL_CLOSED, {"reason": "cancelled"})
        await quiet()
        ((left, _),) = await open_questions(home, channel.channel_id)
        data = {"request_id": line.event_data["request_id"], "answer": "yes"}
        late = home.handle("user", channel).send(event_type=ev.EV_HUMAN_ANSWERED, event_data=data)
        await refused(QuestionExpired, late)
        assert left.call != asked.call
        await answer(home, channel, "yes")
        await closed(channel)

    (paid,) = [one for one in told(model) if one.startswith("paid")]
    (cut,) = [one for one in told(model) if one != paid]
    assert "closed with 'cancelled'" in cut


async def test_a_fan_out_and_a_question_of_each_of_its_agents() -> None:
    done = DONE()
    fan = FanOutTarget(["bob", "cat"], "ask", into="said")
    graph = TransitionGraph("dan", [Transition(FromSpeaker("dan"), fan)], TerminateTarget("done"))
    peers = payer("bob", done, call("pay", amount=1)), payer("cat", done, call("pay", amount=2))
    async with stage(*peers, Agent("dan")) as home:
        target = ["user", "bob", "cat"]
        channel = await home["dan"].open("workflow", target, {"graph": graph.to_dict()}, message="go")
        await quiet()
        for _ in range(2):
            await answer(home, channel, "yes")
            await quiet()
        await closed(channel)

    assert done == {"pay 1": 1, "pay 2": 1}


async def test_where_no_channel_above_has_a_person_the_peer_s_turn_fails() -> None:
    ada, model = actor("ada", asks("bob"), "done")
    async with stage(ada, payer("bob", DONE(), call("pay", amount=5)), Agent("dan"), people=()) as home:
        graph = sequence(["dan", "ada"])
        channel = await home["dan"].open("workflow", ["ada"], {"graph": graph.to_dict()}, message="go")
        await closed(channel)

    assert "closed with 'turn_failed' (NobodyToAsk)" in told(model)[0]
