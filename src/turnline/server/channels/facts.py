"""Facts: what a channel was opened with, remembered so that a list need not read it again.

Rule: only the first line of a channel is remembered. It changes once, when its content is erased, which
adds a line to a channel that is closed: facts of a closed channel count for the seq at which they were read.
The first line of a fork is its origin's, and changes when that is erased: nothing of a fork is remembered.
Where a channel stands is asked of the index whenever it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import msgspec
from msgspec import Struct

from turnline.core.channel import ChannelSpec, Participant
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_INVITE
from turnline.errors import CorruptRecord
from turnline.log.base import Log

MOST_REMEMBERED: Final = 100_000
MESSAGE_CHARACTERS: Final = 200


class Facts(Struct, frozen=True, kw_only=True):
    """What a list looks at to choose a channel."""

    channel_id: str
    type: str
    participants: list[Participant]
    labels: dict[str, str]
    message: str
    """The opening words, as far as a list shows them."""
    is_run: bool
    is_fork: bool
    words: str
    """Everything that can be searched, in lower case."""


class KnownFacts:
    """Channel id -> facts, for as many as fit."""

    def __init__(self, log: Callable[[], Log]) -> None:
        self._log = log
        """Asked whenever it is needed: it is not open yet when a server is put together."""
        self._known: dict[str, tuple[int, Facts]] = {}
        """Channel -> the seq at which it was closed, or 0, and its facts."""

    async def of(self, channel_id: str, *, closed_at: int) -> Facts | None:
        """Return the channel's facts; None if its first line cannot be read.

        `closed_at` is the last seq of a channel that is closed; 0 for an open one.
        """
        seq, facts = self._known.get(channel_id, (0, None))
        if facts is None or (closed_at and closed_at != seq):
            facts = await self._read(channel_id)
            if facts is None or facts.is_fork:
                return facts
            if len(self._known) >= MOST_REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[channel_id] = closed_at, facts
        return facts

    async def _read(self, channel_id: str) -> Facts | None:
        try:
            async with aclosing(self._log().read(channel_id)) as lines:  # type: ignore[type-var]
                async for line in lines:
                    return _facts(line)
        except (CorruptRecord, msgspec.ValidationError):
            pass
        return None


def _facts(line: Envelope) -> Facts | None:
    if line.event_type != EV_CHANNEL_INVITE:
        return None
    spec = msgspec.convert(line.event_data, ChannelSpec)
    names = [one.name for one in spec.participants]
    words = [spec.channel_id, spec.type, *names, *spec.labels.values(), spec.message or ""]
    return Facts(
        channel_id=spec.channel_id,
        type=spec.type,
        participants=spec.participants,
        labels=spec.labels,
        message=(spec.message or "")[:MESSAGE_CHARACTERS],
        is_run="flow" in spec.knobs,
        is_fork=spec.forked_from is not None,
        words="\n".join(words).lower(),
    )
