"""X15: consumers that stop reading: the others do not notice, and what they do not take is not kept."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack

from websockets.asyncio.client import connect

from tests.faults.counts import SOAK
from tests.hub.scenes import until
from tests.server.ws_raw import Raw, served
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.ws_link import WsLink
from turnline.core.governance import Passport
from turnline.server.serve_ws import ServedWs
from turnline.server.ws_settings import WsSettings

CONSUMERS = 10 * SOAK
READS = 60
"""Of half a megabyte each: more than any socket buffer holds."""
SMALL = WsSettings(stuck_seconds=0.3, room_bytes=64 * 1024, unsent_bytes=4 * 1024 * 1024)
PATIENT = WsSettings(stuck_seconds=600.0)


async def stuck(stack: AsyncExitStack, serving: ServedWs, hub: Hub, number: int) -> Raw:
    """Somebody who takes part, asks for a great deal, and reads nothing of it."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listening.setblocking(False)
    await asyncio.get_running_loop().sock_connect(listening, ("127.0.0.1", serving.port))
    connection = await stack.enter_async_context(
        connect(serving.url, sock=listening, proxy=None, compression=None, max_queue=1, close_timeout=0.1)
    )
    client = Raw(connection)
    await client.hello()
    agent_id = await client.join(f"stuck{number}")
    opener = await hub.register(None, Passport(name=f"opener{number}"))
    opening = asyncio.create_task(opener.open("conversation", agent_id, channel_id=f"big{number}"))
    while (await client.receive())["kind"] != "wake":
        pass
    await client.ask("answer_invite", seat=agent_id, channel_id=f"big{number}")
    channel = await opening
    said = await channel.send("x" * 500_000)
    for read in range(READS):
        args = {"channel_id": f"big{number}", "after": said.seq - 1}
        frame = {"kind": "request", "id": f"read{read}", "op": "read", "seat": agent_id, "args": args}
        await client.send(frame)
    return client


async def chatter(serving: ServedWs) -> int:
    """Two that talk meanwhile; return how much they heard of each other."""
    async with WsLink(serving.url) as one, WsLink(serving.url) as two:
        alice = await HubClient(one).register(None, Passport(name="alice"))
        bob = await HubClient(two).register_human(Passport(name="bob", kind="human"))
        channel = await alice.open("conversation", "bob")
        heard = 0
        for number in range(100):
            await channel.send(str(number))
        while heard < 100:
            heard += (await bob.next_envelope(timeout=20)).event_type == "text"
        return heard


async def with_consumers(settings: WsSettings) -> tuple[int, ServedWs]:
    async with AsyncExitStack() as stack, asyncio.timeout(60 * SOAK):
        hub, serving = await stack.enter_async_context(served(settings=settings))
        for number in range(CONSUMERS):
            await stuck(stack, serving, hub, number)
        heard = await chatter(serving)
        if settings is SMALL:
            await until(lambda: serving.counters.connections == 0)
        return heard, serving


async def test_x15_the_others_do_not_notice_and_whoever_does_not_read_is_sent_away() -> None:
    heard, serving = await with_consumers(SMALL)

    assert heard == 100
    assert serving.counters.slow == CONSUMERS


async def test_the_harness_notices_a_server_that_waits_for_them() -> None:
    """The twin: it has all the time in the world, so nobody is sent away."""
    _, serving = await with_consumers(PATIENT)

    assert serving.counters.slow == 0
