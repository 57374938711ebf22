"""N7a: what a turn sees after a pause; forks, why, replay and diff of channels with pauses and children."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.client.stage import begun, heard, stage, told
from tests.hub.scenes import House, closed, die, house, quiet
from tests.waits import WAITS, begin, help_out, join
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.messages import ModelReply
from turnline.agent.tool import tool
from turnline.client.channel import Channel
from turnline.client.replay import replay
from turnline.client.turn import Turn
from turnline.core import event_types as ev
from turnline.core.claims import Paused
from turnline.core.envelope import Envelope
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.step_targets import FanOutTarget
from turnline.core.transitions import FromSpeaker, TerminateTarget
from turnline.hub.texts import TurnText
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call

USER_ADA = sequence(["user", "ada"])


def approving(*script: Any, ran: list[str] | None = None) -> tuple[Agent, ScriptedModel]:
    """An agent whose tool `pay` a person has to approve."""
    model = ScriptedModel(*script)

    @tool(approval=True)
    async def pay(what: str = "it") -> str:
        if ran is not None:
            ran.append(what)
        return f"paid {what}"

    return Agent("ada", config=model, tools=[pay]), model


async def questions(home: House, channel: Channel) -> list[Envelope]:
    """The questions of the channel that nobody has answered, in their order."""
    await quiet()
    state = await home.hub.state(channel.channel_id)
    waiting = {key for key, one in state.questions.items() if not one.answer_seq}
    return [one for one in await home.wal(channel) if one.event_data.get("request_id") in waiting]


async def answer_all(home: House, channel: Channel, answer: str = "yes") -> None:
    for one in await questions(home, channel):
        await home.people["user"].answer(one, answer)


# --- what a turn sees ---


async def test_n7a_what_is_said_while_a_turn_is_paused_is_shown_after_the_unit_it_follows() -> None:
    ada, model = approving(call("pay", what="rent"), call("pay", what="gas"), "done")
    async with stage(ada) as home:
        channel = await begun(home)
        for words in ("be quick", "be careful"):
            await questions(home, channel)
            await channel.interject(words)
            await answer_all(home, channel)
        await closed(channel)

    assert heard(model, 1) == [("user", "go"), ("me", ""), ("", "paid rent"), ("user", "be quick")]
    assert heard(model, 2) == [*heard(model, 1), ("me", ""), ("", "paid gas"), ("user", "be careful")]


async def test_n7a_the_view_of_a_resumed_turn_is_the_same_in_another_process() -> None:
    log, script = MemoryLog(), (call("pay"), "done")
    ada, _ = approving(*script)
    async with stage(ada, log=log) as home:
        channel = await begun(home)
        await questions(home, channel)
        await channel.interject("be quick")
    ada, model = approving("done")
    async with stage(ada, log=log) as home:
        channel = home.handle("user", channel)
        await channel.interject("please")
        await answer_all(home, channel)
        await closed(channel)

    assert heard(model) == [
        ("user", "go"),
        ("me", ""),
        ("", "paid it"),
        ("user", "be quick"),
        ("user", "please"),
    ]


async def test_n7a_an_interjection_that_rides_before_the_claim_is_shown_with_the_rest() -> None:
    """It waited for the packet that gives ada the floor, and lands between that and her claim."""
    ada, model = approving("done")
    interjecting = list[asyncio.Task[Envelope]]()

    async def handler(turn: Turn) -> str:
        here = home.people["user"].channel(turn.channel.channel_id)
        interjecting.append(asyncio.create_task(here.interject("one thing")))
        await quiet()
        return "over to you"

    async with stage(ada) as home:
        (await home.agent("bob")).on_turn(handler)
        channel = await begun(home, sequence(["user", "bob", "ada"]))
        await closed(channel)
        await interjecting[0]

    assert heard(model) == [("user", "go"), ("bob", "over to you"), ("user", "one thing")]


async def test_n7a_what_is_said_to_others_is_not_shown_to_a_paused_turn() -> None:
    """Neither to its model, nor among the lines of a handler's turn."""
    seen = list[str]()

    async def handler(turn: Turn) -> str | Paused:
        seen.extend(str(one.event_data) for one in turn.lines)
        if not any(one.event_type == ev.EV_TIMER_FIRED for one in turn.lines):
            return Paused(reason="time", seconds=60)
        return "done"

    async with house(MemoryLog(), "ada", "bob", people=["user"]) as home:
        home["ada"].on_turn(handler)
        channel = await home.open(USER_ADA, by="user", message="go")
        await quiet()
        await channel.interject("a secret", audience=["bob"])
        await channel.interject("for everybody")
        await home.pass_time(60)
        assert await closed(channel) == "sequence_complete"

    assert [one for one in seen if "for everybody" in one]
    assert not [one for one in seen if "a secret" in one]


async def test_n7a_no_summary_is_made_after_the_first_unit() -> None:
    class Model(ScriptedModel):
        summaries = 0

        async def reply(self, request: Any, on_text: Any = None) -> ModelReply:
            if not request.tools:
                self.summaries += 1
                return ModelReply(text="in short")
            return await super().reply(request, on_text)

    @tool(approval=True)
    async def pay() -> str:
        return "paid"

    model = Model(call("pay"), "done")
    ada = Agent("ada", config=model, tools=[pay], summarise=True)
    async with stage(ada) as home:
        channel = await begun(home)
        await questions(home, channel)
        for number in range(60):
            await channel.interject(f"and {number}")
        await answer_all(home, channel)
        await closed(channel)

    assert model.summaries == 0
    assert len(heard(model)) == 3 + 60


async def listen(channel: Channel, words: list[str]) -> None:
    """Collect the words of the turns in flight."""
    async for one in channel.stream_with_text():
        if isinstance(one, TurnText):
            words.append(one.text)


@pytest.mark.parametrize("restarts", [False, True])
async def test_n7a_words_that_were_streamed_are_not_repeated_after_a_resume(*, restarts: bool) -> None:
    log, words = MemoryLog(), list[str]()
    first = ModelReply(text="Let me pay.", calls=[call("pay")])
    ada, _ = approving(first, "All paid.")
    async with stage(ada, log=log) as home:
        channel = await home.open(USER_ADA, by="user")
        listening = asyncio.create_task(listen(channel, words))
        await quiet()
        await channel.send("go")
        await questions(home, channel)
        if not restarts:
            await answer_all(home, channel)
            await closed(channel)
        await quiet()
        listening.cancel()
    if restarts:
        ada, _ = approving("All paid.")
        async with stage(ada, log=log) as home:
            channel = home.handle("user", channel)
            listening = asyncio.create_task(listen(channel, words))
            await answer_all(home, channel)
            await listening

    assert "".join(words) == "Let me pay.All paid."


# --- forks ---


async def test_n7a_a_fork_of_a_paused_turn_keeps_its_units_and_asks_again_under_new_ids() -> None:
    ran = list[str]()

    @tool
    async def look() -> str:
        ran.append("look")
        return "a lamp"

    ada, model = approving([call("pay"), call("look")], "done", "done again", ran=ran)
    ada = Agent("ada", config=model, tools=[*ada.tools, look])
    async with stage(ada) as home:
        channel = await begun(home)
        [asked] = await questions(home, channel)
        at = (await home.hub.state(channel.channel_id)).seq
        fork = home.people["user"].channel(await home.hub.fork(channel.channel_id, at=at))
        [again] = await questions(home, fork)
        assert asked.event_data["request_id"] != again.event_data["request_id"]
        assert (await home.hub.state(fork.channel_id)).claim is None
        await home.people["user"].answer(again, "no")
        assert (await fork.result(timeout=10)).text == "done"
        assert told(model) == ["a person declined this call of 'pay'.", "a lamp"]
        await home.people["user"].answer(asked, "yes")
        assert (await channel.result(timeout=10)).text == "done again"

    assert sorted(told(model)) == ["a lamp", "paid it"]
    assert (sorted(ran), len(model.requests)) == (["it", "look"], 3)


@pytest.mark.parametrize("kind", WAITS)
async def test_n7a_a_fork_of_any_wait_waits_by_itself_and_ends_by_itself(kind: str) -> None:
    noted = Counter[str]()
    async with house(MemoryLog()) as home:
        home.people |= await join(home.door, kind, lambda _, what: noted.update([what]))
        channel = await begin(home.people["user"], kind, "c1")
        await quiet()
        paused = await home.hub.state(channel.channel_id)
        before = len(await home.hub.list_channels())
        fork = home.people["user"].channel(await home.hub.fork(channel.channel_id, at=paused.seq))
        await quiet()
        state = await home.hub.state(fork.channel_id)
        children = len(await home.hub.list_channels()) - before - 1

        assert state.pause is not None
        assert state.claim is None
        assert not {*state.pause.children} & {*(paused.pause.children if paused.pause else ())}
        assert children == (before - 1)
        assert not {*state.questions} & {*paused.questions}
        if kind == "time":
            await home.pass_time(30 * 86_400)
        while await help_out(home.hub, home.people.values()):
            await quiet()
        results = [await one.result(timeout=10) for one in (channel, fork)]

    assert [(one.reason, one.text) for one in results] == [(WAITS[kind].reason, WAITS[kind].text)] * 2


async def test_n7a_the_timeout_of_a_fan_out_counts_from_the_fork() -> None:
    target = FanOutTarget(["ann"], step="ask", timeout_seconds=60, into="answers")
    graph = TransitionGraph("user", [Transition(FromSpeaker("user"), target)], TerminateTarget("done"))
    async with house(MemoryLog(), people=["user", "ann"]) as home:
        channel = await home.open(graph, by="user", message="sure?")
        await quiet()
        at = (await home.hub.state(channel.channel_id)).seq
        await home.pass_time(3600)
        assert await closed(channel) == "done"
        fork = home.people["user"].channel(await home.hub.fork(channel.channel_id, at=at))
        await quiet()
        await home.pass_time(30)
        await quiet()
        while await help_out(home.hub, home.people.values()):
            await quiet()
        assert await closed(fork) == "done"

        assert (await fork.state()).context_vars["answers"] == [
            {"agent": "ann", "text": "yes", "failed": False}
        ]


async def test_a_question_of_a_fork_times_out_by_its_own_time() -> None:
    @tool(restarts=True)
    async def hurry(context: Context) -> str:
        return await context.input("quick?", timeout=60)

    model = ScriptedModel(call("hurry"), "done", "done")
    async with stage(Agent("ada", config=model, tools=[hurry])) as home:
        channel = await begun(home)
        await questions(home, channel)
        at = (await home.hub.state(channel.channel_id)).seq
        await home.pass_time(3600)
        await closed(channel)
        fork = home.people["user"].channel(await home.hub.fork(channel.channel_id, at=at))
        await questions(home, fork)
        await home.pass_time(30)
        await answer_all(home, fork, "here")
        await closed(fork)

    assert told(model) == ["here"]


async def stick(log: MemoryLog) -> str:
    """Leave a channel on the log whose first turn, ada's, is stuck."""
    async with house(log, "ada", people=["user"]) as home:
        channel = await home.open(sequence(["ada", "user"]), by="user")
        ada = home["ada"].agent_id
    await die(log, channel.channel_id, ada, is_found=True)
    return channel.channel_id


async def test_n3_a_fork_of_a_stuck_turn_runs_and_the_original_stays_stuck() -> None:
    log = MemoryLog()
    channel_id = await stick(log)
    async with stage(approving("done")[0], log=log) as home:
        stuck = await home.hub.state(channel_id)
        assert stuck.is_stuck
        fork = home.people["user"].channel(await home.hub.fork(channel_id, at=stuck.seq))
        await quiet()

        assert (await fork.state()).turn_count == 1
        assert (await home.hub.state(channel_id)).seq == stuck.seq
        assert "ada is stuck" in str(await home.hub.why(channel_id, stuck.seq))
        difference = await home.hub.history.diff(channel_id, fork.channel_id)
        assert difference.first_a is None
        assert difference.first_b is not None
        assert difference.first_b.text == "done"
        await home.hub.turns.retry(channel_id)
        resumed = (await home.hub.state(channel_id)).floor_line
        assert "an operator retries it" in str(await home.hub.why(channel_id, resumed))


async def test_n3_a_stuck_turn_is_replayed_from_its_beginning() -> None:
    log = MemoryLog()
    channel_id = await stick(log)
    async with house(log, people=["user"]) as home:
        stuck = await home.hub.state(channel_id)
        again = await replay(
            home.hub, channel_id, agents=[approving("done")[0]], from_seq=stuck.seq, timeout=10
        )

        assert (await home.hub.state(again)).turn_count == 1


# --- why, diff, replay ---


@pytest.mark.parametrize("kind", WAITS)
async def test_a_channel_that_waited_is_explained_and_says_the_same_as_its_fork(kind: str) -> None:
    noted = Counter[str]()
    async with house(MemoryLog()) as home:
        home.people |= await join(home.door, kind, lambda _, what: noted.update([what]))
        channel = await begin(home.people["user"], kind, "c1")
        await quiet()
        paused = await home.hub.state("c1")
        assert paused.pause is not None
        fork = await home.hub.fork("c1", at=paused.seq)
        await quiet()
        if kind == "time":
            await home.pass_time(30 * 86_400)
        while await help_out(home.hub, home.people.values()):
            await quiet()
        await closed(channel)
        explained = [str(await home.hub.why("c1", line.seq)) for line in await home.wal(channel)]
        difference = await home.hub.history.diff("c1", fork)

    assert "is paused: it waits" in explained[paused.pause.seq - 1]
    assert [one for one in explained if "resumes: what it waited for is there" in one]
    assert difference.is_same, str(difference)


def script(*lines: Any) -> Any:
    """A model that says its next line, whatever it said before."""
    return lambda messages: lines[sum(isinstance(one, ModelReply) for one in messages)]


@pytest.mark.parametrize("tools", ["recorded", "live"])
async def test_a_channel_that_waited_for_approvals_is_replayed_with_the_same_answers(tools: Any) -> None:
    log, ran = MemoryLog(), list[str]()
    calls = [call("pay", what="rent"), call("pay", what="gas")]
    async with stage(approving(script(calls, "first"), ran=ran)[0], log=log) as home:
        channel = await begun(home, channel_id="c1")
        asked = await questions(home, channel)
        for one, answer in zip(asked, ("yes", "no"), strict=True):
            await home.people["user"].answer(one, answer)
        await closed(channel)
    async with house(log, people=["user"]) as home:
        ada, model = approving(script(calls, "second"), ran=ran)
        again = await replay(home.hub, "c1", agents=[ada], tools=tools, timeout=10)
        result = await home.people["user"].channel(again).result(timeout=10)
        difference = await home.hub.history.diff("c1", again)

    assert result.text == "second"
    assert told(model) == ["paid rent", "a person declined this call of 'pay'."]
    assert ran == ["rent"] * (2 if tools == "live" else 1)
    if tools == "live":
        assert difference.first_b is not None
        assert difference.first_b.text == "second"


async def test_a_replay_from_a_pause_begins_the_paused_turn_again_with_the_other_model() -> None:
    log = MemoryLog()
    async with stage(approving(script(call("pay"), "first"))[0], log=log) as home:
        channel = await begun(home, channel_id="c1")
        await questions(home, channel)
        at = (await home.hub.state("c1")).seq
        await answer_all(home, channel)
        await closed(channel)
    for from_seq in (at - 1, at, at + 1, at + 2):
        async with house(log, people=["user"]) as home:
            ada, model = approving(script("no need to pay"))
            again = await replay(home.hub, "c1", agents=[ada], from_seq=from_seq, timeout=10)

            assert (await home.people["user"].channel(again).result(timeout=10)).text == "no need to pay"
        assert [heard(model, number) for number in range(len(model.requests))] == [[("user", "go")]]


@pytest.mark.parametrize("kind", ["nested", "delegation", "fan-out"])
async def test_a_channel_that_waited_for_children_is_replayed_until_a_person_is_asked(kind: str) -> None:
    """A person below a step is waited for until the timeout; here somebody answers meanwhile."""
    log, noted = MemoryLog(), Counter[str]()
    async with house(log) as home:
        home.people |= await join(home.door, kind, lambda _, what: noted.update([what]))
        channel = await begin(home.people["user"], kind, "c1")
        await quiet()
        while await help_out(home.hub, home.people.values()):
            await quiet()
        await closed(channel)
    async with house(log, people=["user", "ann"]) as home:
        cast = {name: Agent(name, config=ScriptedModel(one)) for name, one in models(kind).items()}
        if (bob := cast.pop("bob", None)) is not None:  # Not on the channel, so not one of the replay's.
            await home.door.register(bob)
        agents = cast.values()
        replaying = asyncio.create_task(replay(home.hub, "c1", agents=agents, tools="live", timeout=10))
        while not replaying.done():
            await quiet()
            await help_out(home.hub, home.people.values())
        again = await replaying
        difference = await home.hub.history.diff("c1", again)

    assert difference.is_same, str(difference)


def models(kind: str) -> dict[str, Any]:
    """The models of the agents of a kind of wait, as they were."""
    match kind:
        case "nested":
            return {"ada": lambda _: "over to you"}
        case "delegation":
            asks = {"ada": "bob", "bob": "ann"}
            return {name: script(call("delegate", to=peer, task="c1"), "yes") for name, peer in asks.items()}
    return {}
