"""Conversations of agents come to rest, and go on when a person or a program says something."""

from __future__ import annotations

import pytest

from tests.client.stage import stage
from turnline.agent.agent import Agent
from turnline.core.adapters import MAX_AGENT_TURNS
from turnline.core.state import RESTING
from turnline.testing import ScriptedModel


def silent(name: str) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(lambda messages: "")
    return Agent(name, config=model), model


@pytest.mark.parametrize("kind", ["conversation", "discussion"])
async def test_agents_that_say_nothing_cost_one_model_call(kind: str) -> None:
    (ada, first), (bob, second) = silent("ada"), silent("bob")
    async with stage(ada, bob) as home:
        channel = await home["ada"].open(kind, "bob", message="go")
        rests = await channel.result(timeout=30)
        calls = len(first.requests) + len(second.requests)

        assert (rests.reason, calls) == (RESTING, 1)

        await channel.send("go on")
        await channel.result(timeout=30)

        assert len(first.requests) + len(second.requests) == 2


@pytest.mark.parametrize("kind", ["conversation", "discussion"])
async def test_agents_that_talk_without_end_rest_after_fifty_turns(kind: str) -> None:
    agents = [Agent(name, config=ScriptedModel(lambda messages: "well")) for name in ("ada", "bob")]
    async with stage(*agents) as home:
        channel = await home["ada"].open(kind, "bob", message="go")
        rests = await channel.result(timeout=60)

        assert (rests.reason, rests.turns) == (RESTING, MAX_AGENT_TURNS + 1)
        assert (await channel.info()).waiting_for == "message"


async def test_a_person_asks_again_after_a_turn_that_failed() -> None:
    ada = Agent("ada", config=ScriptedModel(ValueError("no key"), "here I am"))
    async with stage(ada) as home:
        channel = await home.people["user"].open("conversation", "ada", message="hello")
        failed = await channel.result(timeout=30)
        sent = await channel.send("hello?")
        answer = await channel.wait_for(lambda one: one.event_type == "packet", since=sent.seq, timeout=30)

    assert (failed.reason, "no key" in failed.error) == (RESTING, True)
    assert str(failed).splitlines()[-1] == f"(resting; {failed.error})"
    assert answer.event_data["body"] == "here I am"
