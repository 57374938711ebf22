"""O1: a graph, some agents, a message; back comes how it ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import turnline
from turnline import Agent, Handoff, ToolResult
from turnline.agent.messages import Message, ModelReply, Usage
from turnline.client.embedded import Hub
from turnline.client.run import run, run_sync
from turnline.core.claims import MAX_CLAIMS
from turnline.core.envelope import Basis
from turnline.core.fold import SUSPECT_CLAIMS
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.transitions import (
    AgentTarget,
    Always,
    ContextEquals,
    FromSpeaker,
    RoundRobinTarget,
    TerminateTarget,
    TurnFailed,
)
from turnline.errors import BadSpec, ModelError, TurnlineError, TurnStuck
from turnline.hub.worker import this_host
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call

from .stage import stage

STORY = sequence(["user", "writer", "editor"])


def says(name: str, *script: Any, tools: Any = ()) -> Agent:
    return Agent(name, config=ScriptedModel(*script), tools=tools)


def said(result: turnline.RunResult) -> list[tuple[str, str]]:
    return [(line.speaker, line.text) for line in result.transcript]


async def test_o1_names_in_the_graph_are_the_agents_names_and_user() -> None:
    result = await run(STORY, agents=[says("writer", "a draft"), says("editor", "a text")], message="HTTPS")

    assert said(result) == [("user", "HTTPS"), ("writer", "a draft"), ("editor", "a text")]
    assert (result.reason, result.text, result.turns) == ("sequence_complete", "a text", 3)
    assert str(result) == "user: HTTPS\nwriter: a draft\neditor: a text\n(closed: sequence_complete)"


async def test_o1_a_graph_need_not_name_the_user() -> None:
    """W6: the message is recorded with the opening, and the initial speaker is asked at once."""
    result = await run(sequence(["writer"]), agents=[says("writer", "a draft")], message="HTTPS")

    assert (said(result), result.turns) == ([("user", "HTTPS"), ("writer", "a draft")], 1)


@pytest.mark.parametrize(
    ("graph", "message", "told"),
    [
        (STORY.to_dict(), "HTTPS", "graph is a dict; expected a TransitionGraph; `TransitionGraph.loads`"),
        (STORY, None, "message is a NoneType; expected the text that 'user' says"),
    ],
)
async def test_o1_what_is_no_graph_or_no_message_is_told_before_anybody_waits(
    graph: Any, message: Any, told: str
) -> None:
    with pytest.raises(BadSpec, match=told):
        await run(graph, agents=[says("writer"), says("editor")], message=message)


async def test_w7_each_line_says_why_the_floor_moved() -> None:
    graph = TransitionGraph(
        "user",
        [
            Transition(FromSpeaker("user"), AgentTarget("triage")),
            Transition(ContextEquals("done", True), TerminateTarget("solved")),
        ],
        TerminateTarget("unsolved"),
    )

    def route() -> Handoff:
        return Handoff("expert")

    def solve() -> ToolResult:
        return ToolResult("solved", context={"done": True})

    triage = says("triage", call("route"), "expert, please", tools=[route])
    expert = says("expert", call("solve"), "that is it", tools=[solve])
    result = await run(graph, agents=[triage, expert], message="help")

    whys = [line.why for line in result.transcript if line.why is not None]
    assert [(why.kind, why.index) for why in whys] == [
        ("transition", 0),
        ("handoff", None),
        ("transition", 1),
    ]
    assert whys[1] == Basis(kind="handoff", condition="route", target="expert")
    assert "ContextEquals" in whys[2].condition
    assert (result.reason, result.context_vars) == ("solved", {"done": True})


async def test_o1_context_vars_are_given_and_come_back() -> None:
    given = {"n": 1, "kept": [1]}

    def count() -> ToolResult:
        return ToolResult("counted", context={"n": 2})

    writer = says("writer", call("count"), "a draft", tools=[count])
    result = await run(sequence(["writer"]), agents=[writer], message="go", context_vars=given)

    assert result.context_vars == {"n": 2, "kept": [1]}
    assert given == {"n": 1, "kept": [1]}


async def test_o1_usage_adds_up_over_all_turns() -> None:
    used = Usage(requests=1, input_tokens=10, output_tokens=2, cost=0.5)
    writer, editor = (says(name, ModelReply(text="x", usage=used)) for name in ("writer", "editor"))
    result = await run(STORY, agents=[writer, editor], message="go")

    assert result.usage == Usage(requests=2, input_tokens=20, output_tokens=4, cost=1.0)


async def test_o1_a_turn_that_fails_is_a_reason() -> None:
    down = ModelError("m", because="the key is wrong", transient=False)
    result = await run(sequence(["writer"]), agents=[says("writer", down)], message="go")

    assert (result.reason, said(result)) == ("turn_failed", [("user", "go")])
    assert result.error == "writer could not take its turn: ModelError: model 'm' failed: the key is wrong."
    assert str(result).endswith(f"(closed: turn_failed; {result.error})")


async def test_o1_a_failure_that_a_transition_takes_is_no_error_of_the_run() -> None:
    graph = TransitionGraph(
        "writer", [Transition(TurnFailed("writer"), AgentTarget("editor"))], TerminateTarget("done")
    )
    agents = [says("writer", ValueError("lost")), says("editor", "instead")]
    result = await run(graph, agents=agents, message="go")

    assert (result.reason, result.error) == ("done", "")


async def test_l2_a_name_nobody_has_is_an_error_that_lists_the_names() -> None:
    with pytest.raises(TurnlineError, match=r"'writter'.*writer"):
        await run(sequence(["writter"]), agents=[says("writer", "x")], message="go")


def test_o1_run_sync_needs_no_event_loop() -> None:
    result = run_sync(sequence(["writer"]), agents=[says("writer", "a draft")], message="go")

    assert result.text == "a draft"


async def test_o1_run_sync_in_an_event_loop_says_what_to_use_there() -> None:
    with pytest.raises(
        RuntimeError, match=r"an async function or a notebook.*Use `await run\(\.\.\.\)` there"
    ):
        run_sync(sequence(["writer"]), agents=[says("writer", "a draft")], message="go")


def test_o1_the_short_way_in_is_at_the_top() -> None:
    assert (turnline.run, turnline.run_sync) == (run, run_sync)


def test_a_bare_round_robin_alternates_the_agents() -> None:
    """N8: the `user` only passes the message, so its turn does not come round."""
    graph = TransitionGraph(
        "ann", [Transition(Always(), RoundRobinTarget())], TerminateTarget("done"), max_turns=4
    )
    agents = [says("ann", "a1", "a2"), says("bob", "b1", "b2")]
    result = run_sync(graph, agents=agents, message="go", timeout=30)

    assert said(result) == [("user", "go"), ("ann", "a1"), ("bob", "b1"), ("ann", "a2"), ("bob", "b2")]


def test_a_bare_round_robin_that_begins_with_the_user_alternates_the_agents() -> None:
    graph = TransitionGraph(
        "user", [Transition(Always(), RoundRobinTarget())], TerminateTarget("done"), max_turns=4
    )
    agents = [says("ann", "a1", "a2"), says("bob", "b1")]
    result = run_sync(graph, agents=agents, message="go", timeout=30)

    assert [line.speaker for line in result.transcript] == ["user", "ann", "bob", "ann"]


# --- going on ---


class Desk:
    """A tool that is stopped in its middle, the first time."""

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.stopped = asyncio.Event()

    async def look(self, where: str) -> str:
        self.looked.append(where)
        if where == "drawer" and not self.stopped.is_set():
            self.stopped.set()
            await asyncio.Event().wait()
        return f"nothing in the {where}"


def searching(messages: tuple[Message, ...]) -> Any:
    places = [call("look", where="shelf"), call("look", where="drawer"), "nothing found"]
    return places[sum(isinstance(one, ModelReply) for one in messages)]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_l6_with_a_log_and_an_id_starting_again_goes_on_where_it_stopped(
    kind: str, tmp_path: Path
) -> None:
    desk, memory = Desk(), MemoryLog()
    models: list[ScriptedModel] = []

    def start() -> Any:
        models.append(ScriptedModel(searching))
        return run(
            sequence(["user", "clerk"]),
            agents=[Agent("clerk", config=models[-1], tools=[desk.look])],
            message="where is it?",
            log=memory if kind == "memory" else f"sqlite:///{tmp_path}/story.db",
            channel_id="search",
        )

    first = asyncio.create_task(start())
    await desk.stopped.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    result = await start()

    assert desk.looked == ["shelf", "drawer", "drawer"]
    assert [len(model.requests) for model in models] == [2, 1]
    assert said(result) == [("user", "where is it?"), ("clerk", "nothing found")]
    assert (result.channel_id, result.usage) == ("search", Usage(requests=3))


async def test_l6_a_conversation_that_has_ended_is_told_again_and_not_had_again() -> None:
    log = MemoryLog()

    async def once(*script: str) -> turnline.RunResult:
        agents = [says("writer", *script)]
        return await run(sequence(["writer"]), agents=agents, message="go", log=log, channel_id="story")

    assert await once("a draft") == await once()


async def test_l6_something_new_under_an_old_id_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """The answer would be taken for one to the new message."""
    log = MemoryLog()
    for message in ("one", "one", "two"):
        assert not caplog.messages
        agents = [says("writer", f"answer to {message}")]
        result = await run(sequence(["writer"]), agents=agents, message=message, log=log, channel_id="story")

    assert result.text == "answer to one"
    assert [one.partition(",")[0] for one in caplog.messages] == [
        "channel 'story' began with another message"
    ]


async def test_l6_without_an_id_every_run_is_a_conversation_of_its_own() -> None:
    log = MemoryLog()
    results = [
        await run(sequence(["writer"]), agents=[says("writer", text)], message="go", log=log)
        for text in ("one", "two")
    ]

    assert [result.text for result in results] == ["one", "two"]


async def test_o1_a_run_that_takes_too_long_is_left_as_it_is_and_can_be_gone_on_with() -> None:
    desk, log = Desk(), MemoryLog()

    def start(timeout: float | None) -> Any:
        clerk = Agent("clerk", config=ScriptedModel(searching), tools=[desk.look])
        graph = sequence(["user", "clerk"])
        return run(graph, agents=[clerk], message="?", log=log, channel_id="search", timeout=timeout)

    async with asyncio.timeout(60) as stuck:
        with pytest.raises(
            TimeoutError, match=r"'search' has not closed within 0.01 s; run it again with the same log"
        ):
            await start(0.01)
    assert not stuck.expired()
    desk.stopped.set()

    assert (await start(60)).text == "nothing found"


async def test_what_a_failed_turn_spent_is_counted_too() -> None:
    """It is in no packet; its recorded replies say it."""
    spent = ModelReply(calls=[call("look")], usage=Usage(requests=1, output_tokens=7))
    ada = Agent("ada", config=ScriptedModel(spent, ValueError("lost")), tools=[look])
    result = await run(sequence(["user", "ada"]), agents=[ada], message="go", timeout=60)

    assert result.reason == "turn_failed"
    assert result.usage == Usage(requests=1, output_tokens=7)


def look() -> str:
    return "a lamp"


async def test_another_graph_under_an_old_channel_id_is_refused_before_an_agent_acts() -> None:
    desk, log = Desk(), MemoryLog()

    def start(graph: TransitionGraph, model: ScriptedModel, timeout: float | None = None) -> Any:
        clerk = Agent("clerk", config=model, tools=[desk.look])
        return run(graph, agents=[clerk], message="?", log=log, channel_id="search", timeout=timeout)

    first = sequence(["user", "clerk"])
    with pytest.raises(TimeoutError):
        await start(first, ScriptedModel(searching), 0.01)
    unasked = ScriptedModel()
    with pytest.raises(BadSpec) as refused:
        await start(sequence(["user", "clerk", "clerk"]), unasked)
    desk.stopped.set()

    assert str(refused.value) == (
        "graph is another one than that of channel 'search', which is on the log (different: transitions); "
        "expected the graph of the channel, or a new channel_id. The channel was not opened."
    )
    assert unasked.requests == []
    assert (await start(first, ScriptedModel(searching))).text == "nothing found"


async def test_a_channel_of_another_kind_is_not_continued_as_a_run() -> None:
    log = MemoryLog()
    async with stage(says("writer", "hi"), log=log) as home:
        await home.people["user"].open("conversation", ["writer"], channel_id="chat")
    writer = says("writer", "hi")
    with pytest.raises(BadSpec, match="channel_id is 'chat', a conversation channel; expected a new id"):
        await run(sequence(["user", "writer"]), agents=[writer], message="go", log=log, channel_id="chat")


async def test_a_run_that_is_stuck_says_how_to_retry_it_on_its_own_log(tmp_path: Path) -> None:
    address, desk = f"sqlite:///{tmp_path / 'run.db'}", Desk()

    def start(timeout: float | None) -> Any:
        clerk = Agent("clerk", config=ScriptedModel(searching), tools=[desk.look])
        graph = sequence(["user", "clerk"])
        return run(graph, agents=[clerk], message="?", log=address, channel_id="search", timeout=timeout)

    with pytest.raises(TimeoutError):
        await start(0.5)
    desk.stopped.set()
    hub = await Hub.open(address, ttl_sweep_interval=0)
    clerk_id = hub.participant("clerk").agent_id
    turn = (await hub.state("search")).turn
    for place in range(MAX_CLAIMS):
        dead = f"{this_host()}:999999999:1/agent"
        await hub.turns.claim("search", clerk_id, worker=dead, turn=turn, alone=place >= SUSPECT_CLAIMS)
    await hub.close()

    with pytest.raises(TurnStuck) as stuck:
        await start(60)
    assert str(stuck.value).endswith(f"turnline channels retry search --log {address}")


async def test_a_run_without_agents_is_told_that_agents_is_empty() -> None:
    with pytest.raises(BadSpec, match="agents is none; expected the agents that the graph names"):
        await run(sequence(["user", "ada"]), agents=[], message="hello")
