"""Definitions on the log: the copies that runs finish on, whatever happens to the files (F8).

A copy is known by its content, so that it is written once: on a channel of its
own, of one line, named after the digest. `flow.trust` says which copies may read secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from pydantic import ValidationError

from turnline.core.envelope import JsonObject
from turnline.core.json import normalised
from turnline.errors import UnknownName
from turnline.flow.definition.flow import Flow, digest
from turnline.flow.trust import TrustKey
from turnline.hub.timers import Clock, NewId
from turnline.log.base import DEFINITION_PREFIX, Log
from turnline.log.system_channel import SystemChannel, SystemLine

EV_FLOW_DEFINED: Final = "flow.defined"
EV_FLOW_TRUSTED: Final = "flow.trusted"
MAX_SEEN: Final = 1024
"""Flows whose digest is remembered. One that was forgotten is encoded again."""


class Definitions:
    """Digest -> the flow that was pinned under it."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        new_id: NewId,
        *,
        own: Iterable[Flow] = (),
        key: TrustKey | None = None,
    ) -> None:
        """`own` are the flows that this process loaded from the project's files; `key` marks them."""
        self._log = log
        self._clock = clock
        self._new_id = new_id
        self._key = key
        self._own = {digest(flow.pinned()) for flow in own}
        self._known: dict[str, Flow] = {}
        self._seen: dict[int, tuple[Flow, str]] = {}
        """Identity -> a flow that was kept, and its digest: a run of it makes no copy of the definition."""
        self._kept: set[str] = set()
        """Own definitions that are on the log, with their marks."""
        self._trusted: set[str] = set()
        """Definitions whose marks were found. A missing mark is looked for again."""

    async def keep(self, flow: Flow) -> str:
        """Write the flow and its mark to the log, unless they are there, and return its digest.

        The flow is the project's own: it comes from a file or from the program, never from the log.
        """
        seen, name = self._seen.get(id(flow), (None, ""))
        if seen is flow:
            return name
        pinned = flow.pinned()
        name = digest(pinned)
        if name not in self._kept:
            await self._write(DEFINITION_PREFIX + name, EV_FLOW_DEFINED, pinned)
            await self.trust(name)
            self._own.add(name)
            self._kept.add(name)
            self._known[name] = flow
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        self._seen[id(flow)] = flow, name
        return name

    async def get(self, name: str) -> Flow:
        """Return the flow that was kept under this digest. Content of another digest is not it."""
        if name not in self._known:
            async for envelope in self._log.read(DEFINITION_PREFIX + name):
                if digest(envelope.event_data) == name:
                    self._known[name] = Flow.model_validate(envelope.event_data)
                    break
        if name not in self._known:
            raise UnknownName("definition", name, self._known)
        return self._known[name]

    async def trust(self, name: str) -> None:
        """Mark a definition: every process with the same key trusts it then. Does nothing without a key."""
        if self._key is not None:
            await self._write(self._key.mark_of(name), EV_FLOW_TRUSTED, {"digest": name})

    async def trust_channels(self, channel_ids: Iterable[str]) -> list[Flow]:
        """Mark the definitions among some channels and return them. Other content gets no mark."""
        found = list[Flow]()
        for channel_id in channel_ids:
            name = channel_id.removeprefix(DEFINITION_PREFIX)
            if name == channel_id:
                continue
            with suppress(UnknownName, ValidationError):
                flow = await self.get(name)
                await self.trust(name)
                found.append(flow)
        return found

    async def is_trusted(self, name: str) -> bool:
        """Return whether a server of this project loaded the definition from its files, now or earlier."""
        if name in self._own:
            if name not in self._kept:  # It came with an import, and is the project's own all the same.
                await self.trust(name)
                self._kept.add(name)
            return True
        if name in self._trusted:
            return True
        if self._key is None or await self._log.head(self._key.mark_of(name)) is None:
            return False
        self._trusted.add(name)
        return True

    async def _write(self, channel_id: str, event_type: str, data: JsonObject) -> None:
        """Write a channel of one line, unless it is there: another process writes the same content."""
        channel = SystemChannel(self._log, channel_id, self._clock.now, self._new_id)
        line = SystemLine(event_type, normalised(data, field="definition"))
        await channel.catch_up()
        await channel.append(lambda: [] if channel.seq else [line])
