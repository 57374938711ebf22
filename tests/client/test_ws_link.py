"""A link over WebSocket keeps what every link promises."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tests.client.link_contract import LinkContract, NewLink
from tests.client.link_turns_contract import LinkTurnsContract
from turnwise.client.embedded import Hub
from turnwise.client.link import Link
from turnwise.client.ws_link import WsLink
from turnwise.server.serve_ws import serve_ws


class TestWsLink(LinkContract, LinkTurnsContract):
    @asynccontextmanager
    async def served(self, hub: Hub) -> AsyncIterator[NewLink]:
        async with serve_ws(hub) as served, AsyncExitStack() as stack:

            def new_link() -> Link:
                link = WsLink(served.url)
                stack.push_async_callback(link.close)
                return link

            yield new_link
