"""The link within a process keeps what every link promises."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.client.link_contract import LinkContract, NewLink
from tests.client.link_turns_contract import LinkTurnsContract
from turnline.client.embedded import Hub
from turnline.client.link import LocalLink


class TestLocalLink(LinkContract, LinkTurnsContract):
    @asynccontextmanager
    async def served(self, hub: Hub) -> AsyncIterator[NewLink]:
        yield lambda: LocalLink(hub)
