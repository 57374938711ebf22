"""What every route of a server works with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from turnline.core.channel import ID_PATTERN
from turnline.errors import HubClosed, UnknownRun
from turnline.server.access import Access
from turnline.server.channels.facts import KnownFacts
from turnline.server.limits import Addresses, Place, Places
from turnline.server.operation import Handler
from turnline.server.runtime import Runtime
from turnline.server.settings import ServerSettings

PAGES_AT_ONCE: Final = 4
"""Streams of a server that read and encode a page at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """A runtime behind a door."""

    runtime: Runtime
    access: Access
    settings: ServerSettings
    requests: Places
    streams: Places
    addresses: Addresses
    facts: KnownFacts
    pages: asyncio.Semaphore
    """Held by a stream while it reads and encodes a page: many streams that wake together must not
    keep the others waiting."""

    @contextmanager
    def request(self) -> Iterator[Place]:
        """Take a place for one request. Raises what says that none is to be had, or no longer."""
        if not self.runtime.is_ready:
            raise HubClosed
        with self.requests.one() as place:
            yield place


def house_of(runtime: Runtime, access: Access, settings: ServerSettings) -> House:
    seconds = settings.retry_after_seconds
    return House(
        runtime=runtime,
        access=access,
        settings=settings,
        requests=Places(
            settings.requests,
            "requests",
            retry_after_seconds=seconds,
            per_user=("requests_per_user", settings.requests_per_user),
        ),
        streams=Places(
            settings.streams,
            "streams",
            retry_after_seconds=seconds,
            per_user=("streams_per_user", settings.streams_per_user),
        ),
        addresses=Addresses(settings.connections_per_address),
        facts=KnownFacts(lambda: runtime.hub.lines),
        pages=asyncio.Semaphore(PAGES_AT_ONCE),
    )


def run_id_of(text: str) -> str:
    """Return what can be the id of a run. Raises `UnknownRun` for anything else."""
    if ID_PATTERN.fullmatch(text) is None:
        raise UnknownRun(text[:80])
    return text


def placed(house: House, handler: Handler) -> Handler:
    """The handler, for as many requests at once as the server takes."""

    async def answer(request: Request) -> Response:
        with house.request() as place, house.addresses.one(request, place):
            return await handler(request)

    return answer
