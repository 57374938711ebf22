"""Facts: what a channel was opened with, remembered so that a list need not read it again.

Rule: only what can never change is remembered, the first line of a channel. Where a channel
stands is asked of the log (`Log.channels`, which reads no envelopes) whenever it is needed,
so nothing here can be out of date, whoever writes to the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import aclosing
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from turnline.core.channel import ChannelSpec, Participant
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_INVITE
from turnline.errors import CorruptRecord
from turnline.hub.hub import OWN_PREFIX
from turnline.log.base import Head, Log

MOST_REMEMBERED: Final = 100_000
MESSAGE_CHARACTERS: Final = 200
MOST_READ: Final = 2_000
"""So many channels that nobody has looked at yet are read for one answer; the next one goes on from there."""


class Facts(Struct, frozen=True, kw_only=True):
    """What a list looks at to choose a channel."""

    channel_id: str
    type: str
    created_at: datetime
    participants: list[Participant]
    labels: dict[str, str]
    parent_id: str | None
    message: str
    """The opening words, as far as a list shows them."""
    is_run: bool
    words: str
    """Everything that can be searched, in lower case."""


class KnownFacts:
    """Channel id -> facts, for as many as fit."""

    def __init__(self, log: Callable[[], Log]) -> None:
        self._log = log
        """Asked whenever it is needed: it is not open yet when a server is put together."""
        self._known: dict[str, Facts] = {}

    def __contains__(self, channel_id: object) -> bool:
        return channel_id in self._known

    async def of(self, channel_id: str) -> Facts | None:
        """The channel's facts; None if its first line cannot be read."""
        if channel_id not in self._known:
            facts = await self._read(channel_id)
            if facts is None:
                return None
            if len(self._known) >= MOST_REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[channel_id] = facts
        return self._known[channel_id]

    async def _read(self, channel_id: str) -> Facts | None:
        try:
            async with aclosing(self._log().read(channel_id)) as lines:  # type: ignore[type-var]
                async for line in lines:
                    return _facts(line)
        except (CorruptRecord, msgspec.ValidationError):
            pass
        return None


def latest_first(heads: Iterable[Head]) -> list[Head]:
    """The channels of people and flows, the one that something happened on last first."""
    ours = [head for head in heads if not head.channel_id.startswith(OWN_PREFIX)]
    return sorted(ours, key=lambda head: head.position, reverse=True)


def _facts(line: Envelope) -> Facts | None:
    if line.event_type != EV_CHANNEL_INVITE:
        return None
    spec = msgspec.convert(line.event_data, ChannelSpec)
    names = [one.name for one in spec.participants]
    words = [spec.channel_id, spec.type, *names, *spec.labels.values(), spec.message or ""]
    return Facts(
        channel_id=spec.channel_id,
        type=spec.type,
        created_at=line.created_at,
        participants=spec.participants,
        labels=spec.labels,
        parent_id=spec.parent_id,
        message=(spec.message or "")[:MESSAGE_CHARACTERS],
        is_run="flow" in spec.knobs,
        words="\n".join(words).lower(),
    )
