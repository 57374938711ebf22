"""X9: a WebSocket that is cut at every frame of an exchange, both directions.

The conversation completes and nothing in it is doubled. In the twins the same request is
sent again as another one, or nobody says where it was: both are noticed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.client.ws_proxy import Change, CuttingProxy, Fate, OnFrame, always_pass, cut_at
from tests.faults.counts import SOAK
from turnline.client.backoff import Backoff
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.turn import Turn
from turnline.client.ws_link import WsLink
from turnline.core.envelope import JsonObject
from turnline.core.governance import Passport
from turnline.core.graph import round_robin
from turnline.log.memory import MemoryLog
from turnline.network.workflow_helpers import update_context
from turnline.server.serve_ws import serve_ws

TURNS = 5
CHANNEL = "story"
PATIENCE_SECONDS = 60.0
QUICK = Backoff(first_seconds=0.001, most_seconds=0.05)


async def speak(turn: Turn) -> str:
    """A context write that must count once, an entry of the round, and a packet."""
    await update_context(turn.channel, increment={"turns": 1})
    return f"turn {turn.number}"


@asynccontextmanager
async def exchange(
    on_frame: OnFrame, change: Change | None = None
) -> AsyncIterator[tuple[Hub, CuttingProxy, HubClient]]:
    hub = await Hub.open(MemoryLog(), ttl_sweep_interval=0)
    async with (
        serve_ws(hub) as served,
        CuttingProxy(served.url, on_frame=on_frame, change=change) as proxy,
        WsLink(proxy.url, backoff=QUICK) as link,
    ):
        client = HubClient(link)
        try:
            yield hub, proxy, client
        finally:
            await client.close()
    await hub.close()


async def converse(client: HubClient) -> None:
    """Everybody comes over the one link, and so does the opening."""
    for name in ("ada", "bob"):
        (await client.register(passport=Passport(name=name))).on_turn(speak)
    user = await client.register_human(Passport(name="user", kind="human"))
    graph = round_robin(["ada", "bob"], max_turns=TURNS).to_dict()
    channel = await user.open("workflow", ["ada", "bob"], {"graph": graph}, channel_id=CHANNEL, message="go")
    await channel.interject("one thing")
    await channel.result()


async def problems(hub: Hub) -> list[str]:
    state, lines = await hub.state(CHANNEL), await hub.read_wal(CHANNEL)
    said = [one.event_data["body"] for one in lines if one.event_type == "packet"]
    wrong = [] if said == [f"turn {n}" for n in range(1, TURNS + 1)] else [f"packets: {said}"]
    if state.context_vars != {"turns": TURNS}:
        wrong.append(f"context: {state.context_vars}")
    texts = [one.event_data["text"] for one in lines if one.event_type == "text"]
    if sorted(texts) != ["go", "one thing"]:
        wrong.append(f"texts: {texts}")
    if state.pending_close_reason != "max_turns":
        wrong.append(f"reason: {state.pending_close_reason!r}")
    if len({one.envelope_id for one in lines}) != len(lines):
        wrong.append("an id stands twice")
    return wrong


async def tried(
    on_frame: OnFrame, change: Change | None = None, patience: float = PATIENCE_SECONDS
) -> tuple[list[str], int, int]:
    """What was wrong at the end, how many frames there were, and over how many connections."""
    async with exchange(on_frame, change) as (hub, proxy, client):
        try:
            async with asyncio.timeout(patience):
                await converse(client)
        except TimeoutError:
            return ["it hangs"], proxy.frames, proxy.connections
        return await problems(hub), proxy.frames, proxy.connections


async def test_the_exchange_is_about_100_frames() -> None:
    wrong, frames, connections = await tried(always_pass)

    assert wrong == []
    assert 80 <= frames <= 200
    assert connections == 1


@pytest.mark.parametrize("how", ["lose", "cut"])
async def test_x9_a_cut_at_any_frame_loses_and_doubles_nothing(how: Fate) -> None:
    _, frames, _ = await tried(always_pass)
    cuts = 0
    for _ in range(SOAK):
        for frame in range(1, frames + 1):
            wrong, _, connections = await tried(cut_at(frame, how))
            assert wrong == [], f"at frame {frame} of {frames}"
            cuts += connections - 1

    assert cuts >= (frames - 10) * SOAK, "the cuts came after the end"


@pytest.mark.parametrize("every", [12, 17, 29])
async def test_x9_a_connection_that_lives_for_a_few_frames_gets_there(every: int) -> None:
    wrong, _, connections = await tried(lambda number: "lose" if number % every == 0 else "pass")

    assert wrong == []
    assert connections > 3


def as_another_one(text: str, connection: int, from_client: bool) -> str:
    """The twin: what is sent again after a cut is something new, for whoever gets it."""
    frame: JsonObject = json.loads(text)
    mark = f"-c{connection}"
    if not from_client:
        if frame["kind"] == "answer":
            frame["id"] = frame["id"].removesuffix(mark)
        return json.dumps(frame)
    frame.pop("presence", None)
    if frame["kind"] == "request":
        frame["id"] += mark
        if "draft" in frame["args"]:
            frame["args"]["draft"]["envelope_id"] += mark
    return json.dumps(frame)


async def test_the_harness_notices_requests_that_are_sent_again_as_new_ones() -> None:
    found: list[str] = []
    frame = 20
    while not found and frame < 120:
        frame += 1
        found, _, _ = await tried(cut_at(frame, "lose"), as_another_one, patience=2.0)

    assert found != []


def without_resume(text: str, connection: int, from_client: bool) -> str:
    """The twin: nobody says how far the client had been told."""
    frame: JsonObject = json.loads(text)
    if from_client and frame["kind"] == "request" and frame["op"] == "resume":
        frame["args"]["seats"] = {}
    return json.dumps(frame)


async def test_the_harness_notices_news_that_are_not_told_again() -> None:
    found: list[str] = []
    frame = 20
    while not found and frame < 120:
        frame += 1
        found, _, _ = await tried(cut_at(frame, "lose"), without_resume, patience=2.0)

    assert found != []
