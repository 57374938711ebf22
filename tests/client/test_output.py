"""Structured output on channels: `result.output`, and `into=` a context variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

import turnline
from tests.client.stage import USER_ADA, played, stage
from tests.hub.scenes import A_B, house, refused
from turnline.agent.agent import Agent
from turnline.client.channel import RunResult
from turnline.core.event_types import EV_PACKET
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.transitions import Expr, TerminateTarget
from turnline.errors import BadDraft, BadOutput
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call


class Offer(BaseModel):
    item: str
    total: float


@dataclass(frozen=True)
class Score:
    points: int


def ada(*script: Any, **given: Any) -> Agent:
    return Agent("ada", config=ScriptedModel(*script), **given)


async def test_run_returns_the_last_answer_as_an_object_of_the_agents_type() -> None:
    agent = ada('```json\n{"item": "bread", "total": 6}\n```', response_schema=Offer)
    result = await turnline.run(USER_ADA, agents=[agent], message="go")

    assert result.output == Offer(item="bread", total=6.0)
    assert "bread" in result.text


def test_run_sync_returns_a_dataclass_where_the_agents_type_is_one() -> None:
    result = turnline.run_sync(USER_ADA, agents=[ada('{"points": 3}', response_schema=Score)], message="go")

    assert result.output == Score(points=3)


async def test_the_output_is_none_where_the_last_speaker_has_no_type() -> None:
    agents = [
        ada('{"points": 3}', response_schema=Score),
        Agent("bob", config=ScriptedModel('{"points": 4}')),
    ]
    result = await turnline.run(sequence(["user", "ada", "bob"]), agents=agents, message="go")

    assert result.output is None


async def test_into_makes_the_answer_a_context_variable_that_the_graph_sees_at_once() -> None:
    graph = TransitionGraph(
        initial_speaker="user",
        transitions=[Transition(Expr("offer.total > 5"), TerminateTarget("too_dear"))],
        default_target=TerminateTarget("cheap"),
    )
    graph = TransitionGraph(
        initial_speaker="user",
        transitions=[*sequence(["user", "ada"]).transitions[:1], *graph.transitions],
        default_target=graph.default_target,
    )
    agent = ada('{"item": "bread", "total": 6}', response_schema=Offer, into="offer")
    result = await turnline.run(graph, agents=[agent], message="go")

    assert result.reason == "too_dear"
    assert result.context_vars == {"offer": {"item": "bread", "total": 6.0}}


async def test_into_without_a_type_writes_the_text() -> None:
    result = await turnline.run(USER_ADA, agents=[ada("hello", into="said")], message="go")

    assert result.context_vars == {"said": "hello"}


async def test_an_answer_that_no_context_variable_can_hold_is_repaired_by_the_model() -> None:
    agent = ada(
        '{"item": "bread", "total": NaN}',
        '{"item": "bread", "total": 6}',
        response_schema=Offer,
        into="offer",
    )
    result = await turnline.run(USER_ADA, agents=[agent], message="go")

    assert result.context_vars["offer"]["total"] == 6.0


def test_into_names_no_private_variable() -> None:
    with pytest.raises(BadDraft, match="into"):
        ada(into="_secret")


async def test_a_reader_that_has_not_registered_the_agent_names_the_type() -> None:
    log = MemoryLog()
    agent = ada(call("note"), '{"points": 3}', response_schema=Score, tools=[note])
    async with stage(agent, log=log) as home:
        channel_id = (await played(home)).channel_id
    async with stage(log=log) as home:
        channel = home.people["user"].channel(channel_id)
        plain = await channel.result()
        typed = await channel.result(output_type=Score)
        wrong = await refused(BadOutput, channel.result(output_type=Offer))

    assert (plain.output, plain.text) == ({"points": 3}, '{"points": 3}')
    assert typed.output == Score(points=3)
    assert "item" in str(wrong)


async def test_a_packet_that_only_claims_to_be_json_hides_no_result() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="hello")
        bob = home.handle("bob", channel)
        await bob.send(event_type=EV_PACKET, event_data={"body": "{not json", "format": "json"})
        result = await channel.result()

        assert (result.output, result.text) == (None, "{not json")


async def test_a_packet_has_no_other_format() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="hello")
        data = {"body": "<x/>", "format": "xml"}

        await refused(BadDraft, home.handle("bob", channel).send(event_type=EV_PACKET, event_data=data))


def note() -> str:
    return "noted"


async def test_the_result_of_a_channel_and_of_run_are_one_class() -> None:
    async with stage(ada("hi")) as home:
        result = await (await played(home)).result()

    assert type(result) is RunResult is turnline.RunResult
    assert str(result) == "user: go\nada: hi\n(closed: sequence_complete)"
