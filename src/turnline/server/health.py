"""How the server is doing: alive, ready, and, for whoever may know, in numbers.

    GET /health     200 for as long as the process answers; `degraded` while the log takes no writes
    GET /ready      200, or 503 while it starts or stops, or while the log takes no writes

Neither needs a token. Addresses, paths and ids are told to nobody; counts to `health.read`.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from turnline.core.envelope import JsonObject
from turnline.errors import AccessError, HubClosed, LogError
from turnline.log.base import Log, Snapshots, TellsOutage
from turnline.server.answers import respond
from turnline.server.house import House
from turnline.server.problems import OK, UNAVAILABLE

PROBE_SECONDS: Final = 5.0
"""How long the log may take to answer; a cluster that is away is given longer by everybody else."""
PROBE_BYTES: Final = 64 * 1024
"""What a log that took no writes has to take before requests are sent here again."""
_PROBED: Final = "_health"
"""A channel that nobody has."""


class HealthRoutes:
    """What a load balancer asks."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def health(self, request: Request) -> Response:
        """The process answers."""
        runtime = self._house.runtime
        is_out = runtime.is_ready and bool(_outage(runtime.hub.log))
        told: JsonObject = {"status": "degraded" if is_out else "ok", "runtime": runtime.status}
        if await self._may_know_more(request):
            told |= self._numbers()
        return respond(told, status=OK)

    async def ready(self, request: Request) -> Response:
        """Whether to send requests here."""
        because = await self._not_ready()
        if because:
            return respond({"status": "not_ready", "because": because}, status=UNAVAILABLE)
        return respond({"status": "ready"}, status=OK)

    async def _not_ready(self) -> str:
        runtime = self._house.runtime
        if not runtime.is_ready:
            return f"the runtime is {runtime.status}"
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await runtime.hub.log.head(_PROBED)
                await _check_writes(runtime.hub.log)
        except (LogError, HubClosed, TimeoutError):
            return "the log cannot be used"
        return ""

    async def _may_know_more(self, request: Request) -> bool:
        try:
            await self._house.access.admit(request, "health.read")
        except (AccessError, HubClosed, LogError):
            return False
        return self._house.runtime.is_ready

    def _numbers(self) -> JsonObject:
        health = self._house.runtime.hub.health()
        requests, streams = self._house.requests, self._house.streams
        return {
            "durability": health.durability,
            "open_channels": health.open_channels,
            "cached_channels": health.cached_channels,
            "quarantined": len(health.quarantined),
            "requests": {"now": requests.taken, "refused": requests.refused},
            "streams": {"now": streams.taken, "refused": streams.refused},
        }


def _outage(log: Log) -> str:
    return log.outage if isinstance(log, TellsOutage) else ""


async def _check_writes(log: Log) -> None:
    """Raise if the log takes no writes. One that took none is tried again: nobody else may, meanwhile."""
    if _outage(log) and isinstance(log, Snapshots):
        # Random bytes: a database compresses what it can, and a nearly full disk has room for little.
        await log.save_snapshot(_PROBED, seq=0, body=os.urandom(PROBE_BYTES))
