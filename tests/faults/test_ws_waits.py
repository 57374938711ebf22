"""A remote agent whose link is cut, or whose process is gone, in each state of a turn that waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tests.client.ws_proxy import CuttingProxy, Fate, OnFrame, always_pass, cut_at
from tests.waits import WAITS, begin, help_out, join
from turnline.agent.agent import Agent
from turnline.agent.messages import Message, ToolCall
from turnline.agent.tool import tool
from turnline.client.backoff import Backoff
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.human_client import HumanClient
from turnline.client.link import LocalLink
from turnline.client.ws_link import WsLink
from turnline.core import event_types as ev
from turnline.core.envelope import Envelope
from turnline.core.governance import Passport
from turnline.core.graph import sequence
from turnline.errors import NameTaken
from turnline.log.memory import MemoryLog
from turnline.server.serve_ws import serve_ws
from turnline.server.ws_settings import WsSettings
from turnline.testing import ScriptedModel, call

PATIENCE_SECONDS: Final = 60.0
QUICK: Final = Backoff(first_seconds=0.001, most_seconds=0.05)


class Scene:
    """A hub that is served, and what was noted by the agents at the other end of links."""

    def __init__(self, hub: Hub, url: str) -> None:
        self.hub = hub
        self.url = url
        self.noted: Counter[str] = Counter()

    def note(self, channel_id: str, what: str) -> None:
        self.noted[what] += 1

    async def finish(self, client: HubClient, kind: str) -> None:
        """Answer as a person until the channel has closed."""
        people = await join(client, kind, self.note)
        await begin(people["user"], kind, "c1")
        has_moved = asyncio.Event()
        self.hub.add_listener(lambda _: has_moved.set())
        while not (await self.hub.state("c1")).is_over:
            has_moved.clear()
            if not await help_out(self.hub, people.values()):
                await has_moved.wait()


@asynccontextmanager
async def scene(grace_seconds: float = 30.0) -> AsyncIterator[Scene]:
    hub = await Hub.open(MemoryLog(), ttl_sweep_interval=0)
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        serve_ws(hub, settings=WsSettings(grace_seconds=grace_seconds)) as serving,
    ):
        yield Scene(hub, serving.url)
    await hub.close()


async def try_with(kind: str, on_frame: OnFrame) -> tuple[Counter[str], Counter[str], int, int]:
    """Return what was noted, the lines of the channel, how many frames and connections there were."""
    async with scene() as here, CuttingProxy(here.url, on_frame=on_frame) as proxy:
        async with WsLink(proxy.url, backoff=QUICK) as link:
            client = HubClient(link)
            await here.finish(client, kind)
            lines = Counter(one.event_type for one in await here.hub.read_wal("c1"))
            found = here.noted, lines, proxy.frames, proxy.connections
            await client.close()
        assert (await here.hub.state("c1")).pending_close_reason == WAITS[kind].reason
    return found


@pytest.mark.parametrize("how", ["lose", "cut"])
@pytest.mark.parametrize("kind", ["approval", "question"])
async def test_x9_a_cut_at_any_frame_of_a_turn_that_waits_repeats_nothing(kind: str, how: Fate) -> None:
    _, lines, frames, _ = await try_with(kind, always_pass)
    once = (ev.EV_HUMAN_REQUESTED, ev.EV_HUMAN_ANSWERED, ev.EV_TURN_MODEL, ev.EV_TURN_TOOL, ev.EV_PACKET)
    cuts = 0
    for frame in range(1, frames + 1):
        noted, lines, _, connections = await try_with(kind, cut_at(frame, how))
        cuts += connections - 1

        assert noted == WAITS[kind].done, f"at frame {frame} of {frames}"
        assert [lines[one] for one in once] == [1] * len(once), f"at frame {frame} of {frames}"
    assert cuts >= frames - 10, "the cuts came after the end"


def paying(noted: Counter[str]) -> Agent:
    """An agent that pays once a person has approved it."""

    @tool(approval=True)
    async def pay() -> str:
        noted["pay"] += 1
        return "paid"

    def reply(messages: tuple[Message, ...]) -> str | ToolCall:
        noted[f"model {len(messages)}"] += 1
        return call("pay") if len(messages) == 1 else "done"

    return Agent("ada", config=ScriptedModel(reply), tools=[pay])


@pytest.mark.parametrize(
    ("after", "unrecorded"),
    [
        (ev.EV_TEXT, {"model 1"}),
        (ev.EV_TURN_CLAIMED, {"model 1"}),
        (ev.EV_TURN_MODEL, set[str]()),
        (ev.EV_HUMAN_REQUESTED, set[str]()),
        (ev.EV_TURN_PAUSED, set[str]()),
        (ev.EV_TURN_RESUMED, {"pay"}),
        (ev.EV_TURN_TOOL, {"model 3"}),
    ],
)
async def test_a_remote_worker_that_is_gone_in_any_state_is_replaced_and_nothing_recorded_is_repeated(
    after: str, unrecorded: set[str]
) -> None:
    noted, gone = Counter[str](), asyncio.Event()
    async with scene(grace_seconds=0.02) as here, CuttingProxy(here.url) as proxy:

        def leave(line: Envelope) -> None:
            if line.event_type == after and line.channel_id == "c1" and not gone.is_set():
                gone.set()
                proxy.on_frame = lambda _: "lose"
                proxy.cut_all()

        here.hub.add_listener(leave)
        user = await HubClient(LocalLink(here.hub)).register_human(Passport(name="user", kind="human"))
        first, second = WsLink(proxy.url, backoff=QUICK), WsLink(here.url, backoff=QUICK)
        await HubClient(first).register(paying(noted))
        graph = sequence(["user", "ada"]).to_dict()
        channel = await user.open("workflow", ["ada"], {"graph": graph}, message="go", channel_id="c1")
        answering = asyncio.create_task(answer(here.hub, user))
        await gone.wait()
        closing = asyncio.create_task(first.close())
        taker = HubClient(second)
        while True:
            try:
                await taker.register(paying(noted))
                break
            except NameTaken:  # The server keeps the seat for a moment.
                await asyncio.sleep(0)
        result = await channel.result()
        answering.cancel()
        await closing
        await taker.close()
        await second.close()
        lines = Counter(one.event_type for one in await here.hub.read_wal("c1"))

    assert result.text == "done"
    assert lines[ev.EV_HUMAN_REQUESTED] == lines[ev.EV_TURN_TOOL] == lines[ev.EV_PACKET] == 1
    assert {what for what, n in noted.items() if n > 1} <= unrecorded


async def answer(hub: Hub, user: HumanClient) -> None:
    """Say yes to every question."""
    async for line in user.envelopes():
        if line.event_type == ev.EV_HUMAN_REQUESTED:
            while (state := await hub.state(line.channel_id)).pause is None:
                await hub.wait_beyond(line.channel_id, state.seq)
            await user.answer(line, "yes")
