"""T4, K2, W8: what an agent's tools mean for the floor."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.stage import packets, played, speakers, stage, told
from tests.hub.scenes import closed
from turnline.agent.agent import Agent
from turnline.agent.tool_result import ToolResult
from turnline.client.injection import ChannelInject
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.routing import Finish, Handoff
from turnline.core.transitions import AgentTarget, FromSpeaker, TerminateTarget, ToolCalled
from turnline.testing import ScriptedModel, call


def graph(*transitions: Transition) -> TransitionGraph:
    """The user, then ada; then `transitions` decide, else it is over."""
    first = Transition(FromSpeaker("user"), AgentTarget("ada"))
    return TransitionGraph("user", [first, *transitions], TerminateTarget("over"), max_turns=10)


def resolve(reason: str = "") -> str:
    return "resolved"


def escalate(reason: str = "") -> str:
    return "escalated"


def fails(reason: str = "") -> str:
    raise LookupError("no such ticket")


def hand_over(to: str, reason: str = "") -> Handoff:
    return Handoff(to, reason)


def stop(reason: str = "enough") -> Finish:
    return Finish(reason, "all of it")


def fails_to_hand_over() -> Handoff:
    raise LookupError("nobody there")


TOOLS = (resolve, escalate, fails, hand_over, stop, fails_to_hand_over)
BOTH = graph(
    Transition(ToolCalled("resolve"), TerminateTarget("resolved")),
    Transition(ToolCalled("escalate"), AgentTarget("bob")),
    Transition(ToolCalled("fails"), TerminateTarget("failed")),
)


async def routed(of: TransitionGraph, *script: Any) -> tuple[str, list[str], JsonObject]:
    """Let ada follow the script; return the reason of the close, who spoke, and ada's routing."""
    ada = Agent("ada", config=ScriptedModel(*script), tools=TOOLS)
    bob = Agent("bob", config=ScriptedModel(lambda messages: "bob's word"))
    async with stage(ada, bob) as home:
        channel = await played(home, of)
        first: Envelope = (await packets(home, channel))[0]
        return (await channel.result()).reason, await speakers(home, channel), first.event_data["routing"]


# --- T4: ToolCalled ---


async def test_t4_the_tool_a_transition_waits_for_is_on_the_packet_with_its_reason() -> None:
    reason, spoke, routing = await routed(BOTH, call("escalate", reason="too hard"), "over to bob")

    assert (reason, spoke) == ("over", ["user", "ada", "bob"])
    assert routing == {"kind": "text", "tool": "escalate", "reason": "too hard"}


@pytest.mark.parametrize(
    ("first", "second", "expected"), [("resolve", "escalate", "resolved"), ("escalate", "resolve", "over")]
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_t4_the_first_routing_tool_in_call_order_wins(
    first: str, second: str, expected: str, at_once: bool
) -> None:
    calls = [call(first), call(second)]
    reason, _, routing = await routed(BOTH, *([calls] if at_once else calls), "done")

    assert (reason, routing["tool"]) == (expected, first)


async def test_t4_call_order_counts_not_which_tool_was_faster() -> None:
    done = asyncio.Event()

    async def slow() -> str:
        await done.wait()
        return "slow"

    async def fast() -> str:
        done.set()
        return "fast"

    of = graph(
        Transition(ToolCalled("fast"), TerminateTarget("fast")),
        Transition(ToolCalled("slow"), TerminateTarget("slow")),
    )
    ada = Agent("ada", config=ScriptedModel([call("slow"), call("fast")], "done"), tools=[slow, fast])
    async with stage(ada) as home:
        assert (await (await played(home, of)).result()).reason == "slow"


async def test_t4_a_tool_that_failed_does_not_route() -> None:
    reason, _, routing = await routed(BOTH, call("fails", reason="x"), "hm")
    assert (reason, routing) == ("over", {"kind": "text"})

    reason, _, routing = await routed(BOTH, call("fails"), call("resolve"), "ok")
    assert (reason, routing["tool"]) == ("resolved", "resolve")


async def test_t4_a_tool_no_transition_waits_for_does_not_route() -> None:
    of = graph(Transition(ToolCalled("resolve"), TerminateTarget("resolved")))
    reason, _, routing = await routed(of, [call("escalate"), call("resolve")], "ok")

    assert (reason, routing["tool"]) == ("resolved", "resolve")


@pytest.mark.parametrize(
    ("when", "tool", "expected"),
    [
        (FromSpeaker("ada") & ToolCalled("resolve"), "resolve", "matched"),
        (FromSpeaker("bob") & ToolCalled("resolve"), "resolve", "over"),
        (FromSpeaker("bob") | (FromSpeaker("ada") & ToolCalled("resolve")), "resolve", "matched"),
        (FromSpeaker("ada") & ~ToolCalled("resolve"), "resolve", "over"),
        (FromSpeaker("ada") & ~ToolCalled("resolve"), "escalate", "matched"),
    ],
)
async def test_t4_a_tool_is_looked_for_inside_other_conditions_too(
    when: Any, tool: str, expected: str
) -> None:
    reason, _, _ = await routed(graph(Transition(when, TerminateTarget("matched"))), call(tool), "done")

    assert reason == expected


# --- K2: typed returns ---


async def test_k2_a_handoff_by_name_moves_the_floor_and_its_reason_travels() -> None:
    reason, spoke, routing = await routed(graph(), call("hand_over", to="bob", reason="yours"), "bob, please")

    assert (reason, spoke) == ("over", ["user", "ada", "bob"])
    assert routing == {"kind": "handoff", "target": "bob", "tool": "hand_over", "reason": "yours"}


async def test_k2_a_handoff_by_id_moves_the_floor() -> None:
    ids: list[str] = []

    def to_bob() -> Handoff:
        return Handoff(target=ids[0])

    ada = Agent("ada", config=ScriptedModel(call("to_bob"), "bob, please"), tools=[to_bob])
    bob = Agent("bob", config=ScriptedModel("here"))
    async with stage(ada, bob) as home:
        ids.append(home["bob"].agent_id)
        channel = await played(home, graph())

        assert await speakers(home, channel) == ["user", "ada", "bob"]


async def test_k2_a_typed_handoff_goes_before_the_transition_of_the_same_tool() -> None:
    of = graph(Transition(ToolCalled("hand_over"), TerminateTarget("by the rule")))
    reason, spoke, _ = await routed(of, call("hand_over", to="bob"), "bob, please")

    assert (reason, spoke) == ("over", ["user", "ada", "bob"])


async def test_w8_a_handoff_to_nobody_is_told_to_the_model_which_chooses_again() -> None:
    model = ScriptedModel(call("hand_over", to="bobby"), call("hand_over", to="bob"), "bob, please")
    ada, bob = Agent("ada", config=model, tools=TOOLS), Agent("bob", config=ScriptedModel("here"))
    async with stage(ada, bob) as home:
        channel = await played(home, graph())

        assert await speakers(home, channel) == ["user", "ada", "bob"]
    assert told(model)[0].startswith("nobody here is called 'bobby'; the participants are ")
    assert "ada, bob" in told(model)[0]


async def test_w8_a_model_that_insists_on_nobody_leaves_it_to_the_graph() -> None:
    reason, _, routing = await routed(graph(), call("hand_over", to="bobby"), "I give up")

    assert (reason, routing) == ("over", {"kind": "text"})


async def test_k2_a_handoff_that_was_not_returned_does_not_route() -> None:
    reason, _, routing = await routed(graph(), call("fails_to_hand_over"), "hm")

    assert (reason, routing) == ("over", {"kind": "text"})


async def test_k2_finish_closes_the_channel_with_its_reason() -> None:
    reason, spoke, routing = await routed(BOTH, [call("stop", reason="solved"), call("escalate")], "bye")

    assert (reason, spoke) == ("solved", ["user", "ada"])
    assert routing == {"kind": "finish", "reason": "solved", "summary": "all of it", "tool": "stop"}


@pytest.mark.parametrize(
    ("handoff", "reason", "spoke"),
    [
        (None, "over", ["user", "ada"]),
        ("bob", "over", ["user", "ada", "bob"]),
        (Handoff("bob", "yours"), "over", ["user", "ada", "bob"]),
        (Finish("solved"), "solved", ["user", "ada"]),
    ],
)
async def test_k2_a_tool_result_is_message_context_and_routing_in_one(
    handoff: Any, reason: str, spoke: list[str]
) -> None:
    def classify(message: str) -> ToolResult:
        return ToolResult(message, context={"category": "billing"}, handoff=handoff)

    model = ScriptedModel(call("classify", message="noted"), "done")
    ada, bob = Agent("ada", config=model, tools=[classify]), Agent("bob", config=ScriptedModel("here"))
    async with stage(ada, bob) as home:
        channel = await played(home, graph())
        result = await channel.result()

        assert (result.reason, await speakers(home, channel)) == (reason, spoke)
        assert result.context_vars == {"category": "billing"}
    assert told(model) == ["noted"]


async def test_k2_a_tool_results_context_is_on_the_log_before_its_answer() -> None:
    def classify() -> ToolResult:
        return ToolResult("noted", context={"category": "billing"})

    ada = Agent("ada", config=ScriptedModel(call("classify"), "done"), tools=[classify])
    async with stage(ada) as home:
        channel = await played(home, graph())
        types = await home.types(channel)

        assert types[-5:] == ["turn.model", "context.set", "turn.tool", "packet", "channel.closed"]


async def test_a_tool_that_closes_the_channel_ends_it() -> None:
    async def hang_up(channel: ChannelInject) -> str:
        assert channel is not None
        await channel.close("hung up")
        return "too late"

    ada = Agent("ada", config=ScriptedModel(call("hang_up"), "never"), tools=[hang_up])
    async with stage(ada) as home:
        channel = await home.open(graph(), by="user", message="go")

        assert await closed(channel) == "hung up"
        assert await packets(home, channel) == []
