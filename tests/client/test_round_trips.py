"""N5: how often a remote agent asks the hub during one turn, also if the turn pauses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.client.ws_proxy import CuttingProxy
from tests.hub.scenes import closed
from tests.server.ws_raw import served
from turnline.agent.agent import Agent
from turnline.agent.tool import tool
from turnline.client.channel import Channel
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.human_client import HumanClient
from turnline.client.link import LocalLink
from turnline.client.ws_link import WsLink
from turnline.core import event_types as ev
from turnline.core.governance import Passport
from turnline.core.graph import sequence
from turnline.testing import ScriptedModel, call

_BESIDE = frozenset({"sleep", "answer_invite"})
"""Requests that no turn waits for: the pause of its heartbeat, and the answer to the invitation."""


class Asked:
    """The requests of a link, in order: the operation, and of a written line its type."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def note(self, text: str, connection: int, from_client: bool) -> str:
        frame = json.loads(text)
        if from_client and frame["kind"] == "request" and frame["op"] not in _BESIDE:
            self.requests.append(frame.get("args", {}).get("event_type") or frame["op"])
        return text


@asynccontextmanager
async def remote(agent: Agent) -> AsyncIterator[tuple[Hub, HumanClient, Asked]]:
    """A hub with the person `user`, and the agent at the other end of a link."""
    asked = Asked()
    async with (
        served() as (hub, serving),
        CuttingProxy(serving.url, change=asked.note) as proxy,
        WsLink(proxy.url) as link,
    ):
        user = await HubClient(LocalLink(hub)).register_human(Passport(name="user", kind="human"))
        client = HubClient(link)
        await client.register(agent)
        asked.requests.clear()
        yield hub, user, asked
        await client.close()


async def begin(user: HumanClient) -> Channel:
    return await user.open("workflow", ["ada"], {"graph": sequence(["user", "ada"]).to_dict()}, message="go")


@tool
async def look() -> str:
    return "a lamp"


@tool(approval=True)
async def pay() -> str:
    return "paid"


@pytest.mark.parametrize(
    ("script", "requests"),
    [
        (["done"], ["claim", ev.EV_PACKET]),
        ([call("look"), "done"], ["claim", ev.EV_TURN_MODEL, ev.EV_TURN_TOOL, ev.EV_PACKET]),
    ],
)
async def test_n5_a_remote_turn_asks_twice_and_twice_more_for_a_tool(
    script: list[object], requests: list[str]
) -> None:
    ada = Agent("ada", config=ScriptedModel(*script), tools=[look])  # type: ignore[arg-type]
    async with remote(ada) as (_, user, asked):
        await closed(await begin(user))

        assert asked.requests == requests


async def test_n5_a_remote_turn_that_pauses_asks_for_its_question_its_pause_and_a_second_claim() -> None:
    ada = Agent("ada", config=ScriptedModel(call("pay"), "done"), tools=[pay])
    async with remote(ada) as (hub, user, asked):
        channel = await begin(user)
        question = await channel.wait_for(lambda one: one.event_type == ev.EV_HUMAN_REQUESTED)
        while (state := await hub.state(channel.channel_id)).pause is None:
            await hub.wait_beyond(channel.channel_id, state.seq)
        before = list(asked.requests)
        await user.answer(question, "yes")
        await closed(channel)

        assert before == ["claim", ev.EV_TURN_MODEL, ev.EV_HUMAN_REQUESTED, ev.EV_TURN_PAUSED]
        assert asked.requests[len(before) :] == ["claim", ev.EV_TURN_TOOL, ev.EV_PACKET]
