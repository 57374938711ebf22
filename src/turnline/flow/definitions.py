"""Definitions on the log: the copies that runs finish on, whatever happens to the files (F8).

A copy is known by its content, so that it is written once: on a channel of its
own, of one line, named after the digest.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from turnline.core.envelope import SCHEMA_VERSION, Envelope
from turnline.core.event_types import HUB
from turnline.core.json import normalised
from turnline.errors import LogConflict, UnknownName
from turnline.flow.definition.flow import Flow, digest
from turnline.hub.clock import Clock
from turnline.hub.ids import NewId
from turnline.log.base import Log

EV_FLOW_DEFINED: Final = "flow.defined"
_PREFIX: Final = "_flow-"


class Definitions:
    """Digest -> the flow that was pinned under it."""

    def __init__(self, log: Log, clock: Clock, new_id: NewId) -> None:
        self._log = log
        self._clock = clock
        self._new_id = new_id
        self._known: dict[str, Flow] = {}

    async def keep(self, flow: Flow) -> str:
        """Write the flow down, unless it is there already, and return its digest."""
        pinned = flow.pinned()
        name = digest(pinned)
        if name in self._known:
            return name
        channel_id = _PREFIX + name
        envelope = Envelope(
            schema_version=SCHEMA_VERSION,
            envelope_id=self._new_id(),
            channel_id=channel_id,
            seq=1,
            sender_id=HUB,
            event_type=EV_FLOW_DEFINED,
            event_data=normalised(pinned, field="definition"),
            audience=[],
            created_at=self._clock.now(),
        )
        if await self._log.head(channel_id) is None:
            with suppress(LogConflict):  # Another process was faster, with the same content.
                await self._log.append(channel_id, [envelope], after=0)
        self._known[name] = flow
        return name

    async def get(self, name: str) -> Flow:
        """Return the flow that was kept under this digest."""
        if name not in self._known:
            async for envelope in self._log.read(_PREFIX + name):
                self._known[name] = Flow.model_validate(envelope.event_data)
        if name not in self._known:
            raise UnknownName("definition", name, self._known)
        return self._known[name]
