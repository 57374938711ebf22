"""A link over WebSocket keeps what every link promises."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tests.client.link_contract import LinkContract, NewLink
from tests.client.link_turns_contract import LinkTurnsContract
from tests.client.ws_proxy import CuttingProxy
from tests.hub.scenes import A_B, SAFETY_SECONDS, until
from tests.server.ws_raw import served
from tests.turn_lines import claim_own
from turnline.client.backoff import Backoff
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.link import Link
from turnline.client.turn import Turn
from turnline.client.ws_link import WsLink
from turnline.core.event_types import EV_TURN_RENEWED
from turnline.core.governance import Passport
from turnline.log.memory import MemoryLog
from turnline.server.serve_ws import serve_ws


class TestWsLink(LinkContract, LinkTurnsContract):
    @asynccontextmanager
    async def served(self, hub: Hub) -> AsyncIterator[NewLink]:
        async with serve_ws(hub) as served, AsyncExitStack() as stack:

            def new_link() -> Link:
                link = WsLink(served.url, clock=hub.clock)
                stack.push_async_callback(link.close)
                return link

            yield new_link


NEEDS = """
import sys
sys.modules["websockets"] = None
from turnline.errors import MissingExtra
from turnline.network import WsLink
try:
    WsLink("ws://127.0.0.1:1")
except MissingExtra as error:
    print(error.extra)
"""


def test_without_the_library_a_link_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", NEEDS], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "remote"


async def test_words_are_heard_after_a_cut_as_well() -> None:
    async with served() as (hub, serving), CuttingProxy(serving.url) as proxy:
        bob = await hub.register(None, Passport(name="bob"))
        async with WsLink(proxy.url, backoff=Backoff(first_seconds=0.001)) as link:
            alice = await HubClient(link).register(None, Passport(name="alice"))
            channel = await alice.open("workflow", "bob", {"graph": A_B.to_dict()}, message="count")
            await claim_own(bob.seat, channel.channel_id, 2)
            with alice.seat.listen(channel.channel_id) as listening:
                proxy.cut_all()
                await until(lambda: link.connections == 2 and hub.texts.is_heard(channel.channel_id))
                heard: list[str] = []
                while not heard:
                    bob.seat.tell_text(channel.channel_id, "one")
                    await asyncio.sleep(0)
                    heard += [one.text for one in listening.take()]

            assert set(heard) == {"one"}
            await until(lambda: not hub.texts.is_heard(channel.channel_id))


async def test_closing_a_client_does_not_wait_for_a_dead_server() -> None:
    working = asyncio.Event()

    async def handler(turn: Turn) -> str:
        working.set()
        await asyncio.Event().wait()
        return "never"

    async with served() as (hub, serving), CuttingProxy(serving.url) as proxy:
        alice = await hub.register(None, Passport(name="alice"))
        async with WsLink(proxy.url) as link:
            client = HubClient(link)
            (await client.register(None, Passport(name="bob"))).on_turn(handler)
            await alice.open("workflow", "bob", {"graph": A_B.to_dict()}, message="hello")
            await working.wait()
            proxy.on_frame = lambda number: "lose"
            proxy.cut_all()
            async with asyncio.timeout(60):
                await client.close()


async def test_t1_a_worker_elsewhere_that_is_silent_for_long_is_heard_of() -> None:
    """The heart beats on the client's side of the link."""
    hub = await Hub.open(MemoryLog(), follow=True, lease_seconds=0.03)
    async with asyncio.timeout(SAFETY_SECONDS), serve_ws(hub) as served:
        client = HubClient(WsLink(served.url))
        alice, bob = [await client.register(passport=Passport(name=name)) for name in ("alice", "bob")]

        async def slow(turn: Turn) -> str:
            await turn_renewed.wait()
            return "done"

        turn_renewed = asyncio.Event()
        hub.add_listener(lambda line: turn_renewed.set() if line.event_type == EV_TURN_RENEWED else None)
        bob.on_turn(slow)
        channel = await alice.open("consulting", "bob", message="hello")
        result = await channel.result()
        await client.close()
    await hub.close()

    assert result.text == "done"


async def test_words_that_are_no_text_are_dropped_and_cost_nobody_the_link() -> None:
    hub = await Hub.open(MemoryLog())
    async with asyncio.timeout(SAFETY_SECONDS), serve_ws(hub) as served, WsLink(served.url) as link:
        client = HubClient(link)
        alice = await client.register(None, Passport(name="alice"))
        await client.register(None, Passport(name="bob"))
        channel = await alice.open("conversation", "bob")
        for words in ("\ud800", "a\0b"):
            alice.seat.tell_text(channel.channel_id, words)
            await channel.send("still here")

        assert (link.connections, served.counters.refused_frames) == (1, 0)
        await client.close()
    await hub.close()
