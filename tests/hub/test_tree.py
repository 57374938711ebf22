"""What a channel used, with fan-out, nesting and delegation; and which channels are below it."""

from __future__ import annotations

from typing import Any

from tests.client.stage import stage as agents_stage
from tests.core.scenes import line
from tests.flow.stage import flows_of, stage
from turnline import run
from turnline.agent.agent import Agent
from turnline.agent.messages import ModelReply, Usage
from turnline.agent.scripted import ScriptItem
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import JsonObject
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.step_targets import FanOutTarget, NestedTarget
from turnline.core.study.spent import Spent, spent
from turnline.core.transitions import FromSpeaker, TerminateTarget
from turnline.flow.work import Services
from turnline.testing import ScriptedModel, call

ONE = Usage(requests=1, input_tokens=10, output_tokens=5, cost=0.5)


def paid(item: ScriptItem) -> ModelReply:
    """A reply that costs half a dollar."""
    calls = [] if isinstance(item, str) else [item]
    text = item if isinstance(item, str) else ""
    return ModelReply(text=text, calls=calls, usage=ONE)  # type: ignore[arg-type]


def agent(name: str, *script: ScriptItem) -> Agent:
    return Agent(name, config=ScriptedModel(*map(paid, script)))


def asks(to: str) -> Any:
    return call("delegate", to=to, task="please")


async def test_a_result_includes_what_delegation_used_at_every_depth() -> None:
    team = [
        agent("ada", asks("bob"), "done"),
        agent("bob", asks("carol"), "done"),
        agent("carol", "done"),
    ]
    result = await run(sequence(["user", "ada"]), agents=team, message="go", attach_plugin=True)

    assert (result.usage.requests, result.usage.cost) == (5, 2.5)


async def test_a_result_includes_what_fan_out_and_nested_graphs_used() -> None:
    nested = TransitionGraph(
        "dora", [Transition(FromSpeaker("dora"), TerminateTarget("done"))], TerminateTarget("done")
    )
    graph = TransitionGraph(
        "ada",
        [
            Transition(FromSpeaker("ada"), FanOutTarget(["bob", "carol"], step="ask")),
            Transition(FromSpeaker("ask"), NestedTarget(nested)),
        ],
        TerminateTarget("done"),
    )
    team = [agent(name, "well") for name in ("ada", "bob", "carol", "dora")]
    result = await run(graph, agents=team, message="go")

    assert (result.reason, result.usage.requests, result.cost) == ("done", 4, 2.0)


async def test_the_cost_of_a_channel_includes_delegation() -> None:
    async with agents_stage(agent("ada", asks("bob"), "done"), agent("bob", "done")) as home:
        channel = await home.open(sequence(["user", "ada"]), by="user", message="go")

        assert (await channel.result(timeout=30)).cost == 1.5


FLOWS = (
    """
metadata: {name: main}
spec:
  steps:
    - {id: each, for_each: {items: '[1, 2, 3]', into: out, steps: [{id: say, agent: {prompt: hi}}]}}
    - {id: nested, workflow: {name: other}}
    - {id: own, agent: {prompt: hi}}
""",
    """
metadata: {name: other}
spec:
  steps:
    - id: both
      parallel: {branches: {l: [{id: a, agent: {prompt: hi}}], r: [{id: b, agent: {prompt: hi}}]}}
""",
)


def services() -> Services:
    return Services(flows=flows_of(*FLOWS), model=ScriptedModel(lambda messages: paid("well")))


async def test_a_run_includes_what_fan_out_and_nested_runs_used() -> None:
    async with stage(services=services()) as house:
        run_id = await house.runs.start("main", {})
        await house.ended(run_id)
        own, below = await house.hub.tree.spent(await house.hub.state(run_id))

    assert (own.requests, below.spent.requests, below.channels) == (1, 5, 6)
    assert below.is_complete
    assert (own + below.spent).cost == 3.0


async def test_a_fork_counts_what_it_used_itself() -> None:
    async with stage(services=services()) as house:
        run_id = await house.runs.start("main", {})
        await house.ended(run_id)
        closed = (await house.hub.state(run_id)).seq
        fork_id = await house.hub.fork(run_id, at=closed)
        own, below = await house.hub.tree.spent(await house.hub.state(fork_id))

    assert (own, below.spent, below.channels) == (Spent(), Spent(), 0)


async def test_a_difference_includes_the_channels_below() -> None:
    async with stage(services=services()) as house:
        first, second = [await house.runs.start("main", {}) for _ in range(2)]
        for run_id in (first, second):
            await house.ended(run_id)
        told = await house.hub.history.diff(first, second)

    assert "6 requests" in str(told)
    assert told.cost == 0


def test_an_attempt_that_failed_is_counted() -> None:
    """The packet of the next attempt says nothing of it."""
    reply: JsonObject = {"entry": {"usage": {"requests": 1, "cost": 0.5}}}
    retry: JsonObject = {"reason": "retry"}
    packet: JsonObject = {"usage": {"requests": 1, "cost": 0.5}}
    lines = [
        line("hub", "turn.model", reply),
        line("hub", "turn.paused", retry),
        line("hub", "turn.model", reply),
        line("ask", "packet", packet),
    ]

    assert spent(lines) == Spent(requests=2, cost=1.0)


async def test_more_channels_than_the_limit_are_said_to_be_missing() -> None:
    async with stage(services=services()) as house:
        run_id = await house.runs.start("main", {})
        await house.ended(run_id)
        tree = house.hub.tree
        below = await tree.below(await tree.children(run_id), most=2)

    assert (below.channels, below.is_complete) == (2, False)


async def test_the_children_of_a_run_are_on_its_own_log() -> None:
    async with stage(services=services()) as house:
        run_id = await house.runs.start("main", {})
        await house.ended(run_id)
        children = await house.hub.tree.children(run_id)
        parents = [(await house.hub.state(one)).spec.parent_id for one in children]

    assert parents == [run_id] * 4


def test_only_a_run_of_a_whole_flow_counts_as_a_run() -> None:
    kinds: list[dict[str, Any]] = [{"name": "a"}, {"name": "a", "at": [["s", "each"]]}]

    assert [ChannelSpec(knobs={"flow": one}).is_flow_run for one in kinds] == [True, False]
    assert not ChannelSpec().is_flow_run
