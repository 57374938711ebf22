from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.hub.scenes import House, begin, house, quiet, refused
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.messages import ToolCall
from turnline.agent.scripted import call
from turnline.agent.tool_result import ToolResult
from turnline.client.channel import set_context, update_context
from turnline.client.injection import ChannelInject
from turnline.client.replay import replay
from turnline.core.governance import Passport
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.step_targets import FanOutTarget, NestedTarget
from turnline.core.transitions import FromSpeaker, TerminateTarget
from turnline.errors import BadSpec, NameTaken, UnknownParticipant
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel

from .stage import heard, stage

TALK = sequence(["user", "ada", "user", "bo"])


async def told(log: Log) -> str:
    """A conversation of a person and two agents, whose process has ended."""
    agents = [Agent("ada", config=ScriptedModel("four")), Agent("bo", config=ScriptedModel("right"))]
    async with stage(*agents, log=log) as home:
        channel = await home.open(TALK, by="user", message="2 + 2?")
        await home.people["user"].wait_for_channel_event(
            channel.channel_id, lambda one: one.event_type == "packet"
        )
        await channel.send("is that so?")
        await channel.result()
        return channel.channel_id


@asynccontextmanager
async def recorded() -> AsyncIterator[tuple[House, str]]:
    log = MemoryLog()
    channel_id = await told(log)
    async with house(log) as home:
        yield home, channel_id


async def said(home: House, channel_id: str) -> list[str]:
    lines = await home.hub.read_wal(channel_id)
    return [
        str(one.event_data.get("body", one.event_data.get("text")))
        for one in lines
        if one.event_type in ("text", "packet")
    ]


def cast(ada: ScriptedModel, bo: ScriptedModel) -> list[Agent]:
    return [Agent("ada", "You add.", config=ada), Agent("bo", "You check.", config=bo)]


async def test_the_whole_conversation_is_held_again_and_people_say_what_they_said() -> None:
    async with recorded() as (home, channel_id):
        again = await replay(home.hub, channel_id, agents=cast(ScriptedModel("5"), ScriptedModel("wrong")))

        assert await said(home, channel_id) == ["2 + 2?", "four", "is that so?", "right"]
        assert await said(home, again) == ["2 + 2?", "5", "is that so?", "wrong"]
        parted = await home.hub.history.diff(channel_id, again)
        assert parted.first_a is not None
        assert parted.first_b is not None
        assert (parted.first_a.text, parted.first_b.text) == ("four", "5")
        assert parted.b.reason == "sequence_complete"


async def test_from_a_line_on_only_what_follows_is_said_anew() -> None:
    async with recorded() as (home, channel_id):
        ada, bo = ScriptedModel(), ScriptedModel("wrong")
        lines = await home.hub.read_wal(channel_id)
        second = [one.seq for one in lines if one.event_type == "text"][1]
        again = await replay(home.hub, channel_id, agents=cast(ada, bo), from_seq=second)

        assert await said(home, again) == ["2 + 2?", "four", "is that so?", "wrong"]
        assert (len(ada.requests), len(bo.requests)) == (0, 1)


async def test_a_turn_in_progress_at_that_line_is_begun_anew_with_the_other_model() -> None:
    async with recorded() as (home, channel_id):
        claimed = next(
            one.seq for one in await home.hub.read_wal(channel_id) if one.event_type == "turn.claimed"
        )
        agents = cast(ScriptedModel("5"), ScriptedModel("wrong"))
        again = await replay(home.hub, channel_id, agents=agents, from_seq=claimed)

        assert (await said(home, again))[1] == "5"


async def test_a_recorded_reply_of_the_model_that_is_replaced_is_not_taken_over() -> None:
    log = MemoryLog()

    def looking(model: ScriptedModel) -> Agent:
        ada = Agent("ada", config=model)

        @ada.tool
        def look() -> str:
            return "a lamp"

        return ada

    async with stage(looking(ScriptedModel(call("look"), "I looked")), log=log) as home:
        channel = await home.open(sequence(["user", "ada"]), by="user", message="go")
        await channel.result()
        looked = next(one.seq for one in await home.wal(channel) if one.event_type == "turn.tool")
    async with house(log) as home:
        model = ScriptedModel("I guessed")
        again = await replay(home.hub, channel.channel_id, agents=[looking(model)], from_seq=looked)

        assert (await said(home, again))[-1] == "I guessed"
        assert heard(model) == [("user", "go")]


async def test_a_model_or_a_prompt_is_replaced_for_all_or_for_some() -> None:
    async with recorded() as (home, channel_id):
        own, other = ScriptedModel("own"), ScriptedModel("other", "both", "both")
        agents = cast(own, ScriptedModel())
        await replay(home.hub, channel_id, agents=agents, model={"bo": other}, prompt={"ada": "You guess."})
        again = await replay(home.hub, channel_id, agents=agents, model=other, prompt="Be brief.")

        assert own.requests[0].instructions == "You guess."
        assert [one.instructions for one in other.requests] == ["You check.", "Be brief.", "Be brief."]
        assert (await said(home, again))[1::2] == ["both", "both"]
        assert heard(other, 0)[0] == ("user", "2 + 2?")


async def test_where_a_person_said_no_more_the_replay_is_left_open() -> None:
    async with recorded() as (home, channel_id):
        agents = cast(ScriptedModel("5"), ScriptedModel())
        lines = await home.hub.read_wal(channel_id)
        only_one = [one for one in lines if one.event_type == "text"][1].seq - 1
        first = await home.hub.fork(channel_id, at=only_one)
        again = await replay(home.hub, first, agents=agents)
        state = await home.hub.state(again)

        assert await said(home, again) == ["2 + 2?", "5"]
        assert state.expected_next_speaker == home.hub.participant("user").agent_id


async def test_h1_a_question_of_a_tool_is_answered_as_it_was() -> None:
    log = MemoryLog()

    def asking(model: ScriptedModel) -> Agent:
        ada = Agent("ada", config=model)

        @ada.tool
        async def sure(context: Context) -> str:
            return await context.input("Are you sure?")

        return ada

    async with stage(asking(ScriptedModel(call("sure"), "then yes")), log=log) as home:
        channel = await home.open(sequence(["user", "ada"]), by="user", message="go")
        person = home.people["user"]
        asked = await person.wait_for_channel_event(
            channel.channel_id, lambda one: one.event_type == "human.requested"
        )
        await person.answer(asked, "quite")
        await channel.result()
    async with house(log) as home:
        model = ScriptedModel(call("sure"), "then no")
        again = await replay(home.hub, channel.channel_id, agents=[asking(model)], timeout=60)

        assert (await said(home, again))[-1] == "then no"
        assert heard(model)[-1] == ("", "quite")


async def test_an_agent_of_the_channel_that_is_not_given_is_named() -> None:
    async with recorded() as (home, channel_id):
        error = await refused(UnknownParticipant, replay(home.hub, channel_id, agents=[Agent("ada")]))
        assert error.name == "bo"
        agents = cast(ScriptedModel(), ScriptedModel())
        await refused(UnknownParticipant, replay(home.hub, channel_id, agents=agents, model={"cy": "x:y"}))


async def test_whoever_is_attached_keeps_its_seat_and_other_channels_are_left_alone() -> None:
    log = MemoryLog()
    channel_id = await told(log)
    async with house(log, "ada") as home:
        agents = cast(ScriptedModel("5"), ScriptedModel("wrong"))
        before = len(await home.hub.list_channels())
        await refused(NameTaken, replay(home.hub, channel_id, agents=agents))
        assert len(await home.hub.list_channels()) == before
    async with house(log, "eve") as home:
        asked = await home.door.register_human(Passport(name="user", kind="human"))
        waiting = begin(asked.open("consulting", "ada", message="anybody there?"))
        await quiet()
        again = await replay(home.hub, channel_id, agents=agents)

        assert await said(home, again) == ["2 + 2?", "5", "is that so?", "wrong"]
        assert not waiting.done()
        waiting.cancel()


async def test_w9_what_people_said_and_set_in_between_comes_after_as_many_turns_again() -> None:
    log = MemoryLog()
    graph = sequence(["user", "ada", "bo"])
    agents = [Agent("ada", config=ScriptedModel("four")), Agent("bo", config=ScriptedModel("right"))]
    async with stage(agents[0], log=log) as home:
        await home.agent("bo")
        channel = await home.open(graph, by="user", message="2 + 2?")
        await channel.wait_for(lambda one: one.event_type == "packet")
        await channel.send("in base three", audience=None)
        await set_context(channel, "base", 3)
        await home.handle("bo", channel).send("right")
        await channel.result()
    async with house(log) as home:
        bo = ScriptedModel("wrong")
        again = await replay(home.hub, channel.channel_id, agents=cast(ScriptedModel("11"), bo))

        assert await said(home, again) == ["2 + 2?", "11", "in base three", "wrong"]
        assert heard(bo)[-1] == ("user", "in base three")
        assert (await home.hub.state(again)).context_vars == {"base": 3}
        assert (await home.hub.state(again)).turn_count == 3


async def test_p1_a_step_asks_anew_and_the_agents_answer_with_the_other_model() -> None:
    log = MemoryLog()
    graph = TransitionGraph(
        "user", [Transition(FromSpeaker("user"), FanOutTarget(["ada", "bo"]))], TerminateTarget("done")
    )
    async with stage(*cast(ScriptedModel("four"), ScriptedModel("4")), log=log) as home:
        channel = await home.open(graph, by="user", message="2 + 2?")
        await channel.result()
    async with house(log) as home:
        agents = cast(ScriptedModel("5"), ScriptedModel("six"))
        again = await replay(home.hub, channel.channel_id, agents=agents, timeout=10)

        assert (await said(home, again))[-1] == "ada: 5\n\nbo: six"
        assert (await home.hub.state(again)).pending_close_reason == "done"
        await home.agent("ada")  # The seats are free again.


async def test_p1_a_nested_graph_of_an_agent_that_opened_the_channel_is_run_anew() -> None:
    log = MemoryLog()
    graph = TransitionGraph(
        "ada", [Transition(FromSpeaker("ada"), NestedTarget(sequence(["bo"])))], TerminateTarget("done")
    )
    async with stage(*cast(ScriptedModel(), ScriptedModel("right")), log=log) as home:
        channel = await home.open(graph, by="ada", message="2 + 2 is 4")
        await channel.result()
    async with house(log) as home:
        agents = cast(ScriptedModel(), ScriptedModel("wrong"))
        again = await replay(home.hub, channel.channel_id, agents=agents, timeout=10)

        assert await said(home, again) == ["2 + 2 is 4", "wrong"]


async def test_l5_a_colleague_is_asked_anew_below_the_fork() -> None:
    log = MemoryLog()
    asks = call("delegate", to="bo", task="is it four?")
    async with stage(*cast(ScriptedModel(asks, "four"), ScriptedModel("yes")), log=log) as home:
        channel = await home.open(sequence(["user", "ada"]), by="user", message="2 + 2?")
        await channel.result()
    async with house(log) as home:
        ada = ScriptedModel(asks, "not four")
        agents = cast(ada, ScriptedModel("no"))
        again = await replay(home.hub, channel.channel_id, agents=agents, timeout=10)

        assert (await said(home, again))[-1] == "not four"
        assert heard(ada)[-1] == ("", "no")


async def test_a_run_of_a_flow_is_refused() -> None:
    async with stage(Agent("ada", config=ScriptedModel("hi"))) as home:
        channel = await home.open(sequence(["user", "ada"]), by="user", knobs={"flow": {"name": "lead"}})
        error = await refused(BadSpec, replay(home.hub, channel.channel_id, agents=[Agent("ada")]))

        assert "a run of a flow" in error.found


# --- tools ---


class Shop:
    """A shop whose orders can be counted."""

    def __init__(self) -> None:
        self.orders: list[str] = []

    def agent(self, name: str, model: ScriptedModel, *, approval: bool = False) -> Agent:
        seller = Agent(name, config=model)

        @seller.tool(approval=approval)
        async def order(item: str, channel: ChannelInject) -> ToolResult:
            assert channel is not None
            self.orders.append(item)
            await update_context(channel, increment={"orders": 1})
            return ToolResult(f"{item} number {len(self.orders)}", context={"last": item})

        return seller


async def sold(log: Log, shop: Shop, *steps: str | ToolCall, graph: TransitionGraph | None = None) -> str:
    """A conversation in which Ada orders; return its channel once it has closed."""
    async with stage(
        shop.agent("ada", ScriptedModel(*steps)), Agent("bo", config=ScriptedModel("yes")), log=log
    ) as home:
        channel = await home.open(graph or sequence(["user", "ada"]), by="user", message="go")
        await channel.result()
        return channel.channel_id


def answers_to(model: ScriptedModel) -> list[str]:
    """What the model was told by tools."""
    return [text for who, text in heard(model) if who == ""]


async def test_replay_answers_tool_calls_from_the_record_and_runs_no_tool() -> None:
    log, shop = MemoryLog(), Shop()
    channel_id = await sold(log, shop, call("order", item="lamp"), call("order", item="lamp"), "done")
    async with house(log) as home:
        model = ScriptedModel(*[call("order", item="lamp")] * 3, "done differently")
        again = await replay(home.hub, channel_id, agents=[shop.agent("ada", model), Agent("bo")])

        assert shop.orders == ["lamp", "lamp"]
        assert answers_to(model) == ["lamp number 1", "lamp number 2", "lamp number 2"]
        assert (await home.hub.state(again)).context_vars == {"orders": 3, "last": "lamp"}


async def test_replay_refuses_a_call_that_was_not_recorded_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, shop = MemoryLog(), Shop()
    channel_id = await sold(log, shop, call("order", item="lamp"), "done")
    async with house(log) as home:
        model = ScriptedModel(call("order", item="sofa"), "I could not")
        again = await replay(home.hub, channel_id, agents=[shop.agent("ada", model), Agent("bo")])

        assert shop.orders == ["lamp"]
        assert answers_to(model) == [
            "this is a replay, and 'order' was not run: no call of it was recorded with these arguments."
        ]
        assert (await said(home, again))[-1] == "I could not"
        assert "A replay refused a call of 'order' by 'ada'" in caplog.text


async def test_live_tools_of_a_replay_run_for_real() -> None:
    log, shop = MemoryLog(), Shop()
    channel_id = await sold(log, shop, call("order", item="lamp"), "done")
    async with house(log) as home:
        model = ScriptedModel(call("order", item="sofa"), "done")
        agents = [shop.agent("ada", model), Agent("bo")]
        await replay(home.hub, channel_id, agents=agents, tools="live")
        error = await refused(BadSpec, replay(home.hub, channel_id, agents=agents, tools="real"))  # type: ignore[arg-type]

        assert shop.orders == ["lamp", "sofa"]
        assert (error.found, error.expected) == ("'real'", "'recorded' or 'live'")


async def test_replay_asks_no_person_to_approve_a_call_that_is_not_run() -> None:
    log, shop = MemoryLog(), Shop()
    channel_id = await sold(log, shop, call("order", item="lamp"), "done")
    async with house(log) as home:
        model = ScriptedModel(call("order", item="lamp"), call("order", item="sofa"), "done")
        agents = [shop.agent("ada", model, approval=True), Agent("bo")]
        again = await replay(home.hub, channel_id, agents=agents, timeout=10)

        assert "human.requested" not in [one.event_type for one in await home.hub.read_wal(again)]
        assert shop.orders == ["lamp"]


async def test_the_tools_of_agents_below_a_step_answer_from_the_record_too() -> None:
    log, shop = MemoryLog(), Shop()
    graph = TransitionGraph(
        "user",
        [Transition(FromSpeaker("user"), FanOutTarget(["bo", "ada"]))],
        TerminateTarget("done"),
    )
    channel_id = await sold(log, shop, call("order", item="lamp"), "done", graph=graph)
    async with house(log) as home:
        model = ScriptedModel(call("order", item="lamp"), "done again")
        agents = [shop.agent("ada", model), Agent("bo", config=ScriptedModel("no"))]
        again = await replay(home.hub, channel_id, agents=agents, timeout=10)

        assert (await said(home, again))[-1] == "bo: no\n\nada: done again"
        assert shop.orders == ["lamp"]
        assert answers_to(model) == ["lamp number 1"]


async def test_the_tools_of_a_colleague_answer_from_the_record_too() -> None:
    log, shop = MemoryLog(), Shop()
    asks = call("delegate", to="bo", task="buy a lamp")
    orders = call("order", item="lamp")
    async with stage(
        Agent("ada", config=ScriptedModel(asks, "bought")),
        shop.agent("bo", ScriptedModel(orders, "it is bought")),
        log=log,
    ) as home:
        channel = await home.open(sequence(["user", "ada"]), by="user", message="go")
        await channel.result()
    async with house(log) as home:
        bo = ScriptedModel(orders, "it was bought")
        agents = [Agent("ada", config=ScriptedModel(asks, "bought again")), shop.agent("bo", bo)]
        again = await replay(home.hub, channel.channel_id, agents=agents, timeout=10)

        assert (await said(home, again))[-1] == "bought again"
        assert (shop.orders, answers_to(bo)) == (["lamp"], ["lamp number 1"])


async def test_a_replay_asks_no_agent_outside_of_it_and_writes_on_no_other_channel() -> None:
    log = MemoryLog()
    async with stage(Agent("ada", config=ScriptedModel("hello")), log=log) as home:
        other = await home.open(sequence(["user", "ada", "user"]), by="user", message="one")
        channel = await home.open(sequence(["user", "ada"]), by="user", message="go")
        await channel.result()
    async with house(log) as home:
        eve = ScriptedModel("I was asked")
        await home.door.register(Agent("eve", config=eve))
        model = ScriptedModel(
            call("delegate", to="eve", task="pay"),
            call("context", action="set", key="paid", value=True, channel_id=other.channel_id),
            call("context", action="set", key="seen", value=True),
            "done",
        )
        again = await replay(home.hub, channel.channel_id, agents=[Agent("ada", config=model)], timeout=10)

        assert eve.requests == []
        assert (await home.hub.state(other.channel_id)).context_vars == {}
        assert (await home.hub.state(again)).context_vars == {"seen": True}
        assert ["was not run" in one for one in answers_to(model)] == [True, True, False]
