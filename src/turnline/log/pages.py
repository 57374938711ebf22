"""A channel's records, a page at a time -> its envelopes, each checked against the one before.

    in_order("c", ask, after=0)      ask("c", 0) -> Page, ask("c", 500) -> Page, ...

Rule: whoever reads on to the end has read all there is. A record that is missing at the end is
known by the channel's head (E5).

A page of more than `threads.BIG_BYTES` is checked and decoded in a thread, so that a long channel does not
stop the loop. Its first lines are not: many readers stop after them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from turnline.core.codec import NO_HASH, Record, unseal
from turnline.core.envelope import Envelope
from turnline.errors import CorruptRecord
from turnline.log.base import Erasures
from turnline.threads import off_the_loop

READ_FIRST: Final = 4
"""Lines of a page that are decoded before the others."""


class Page(Struct, frozen=True, kw_only=True):
    """Some consecutive records of a channel."""

    records: list[Record]
    more: bool
    """Whether to ask again behind the last of them."""
    end: int
    """What the channel's head said before they were read: at least so many there have to be."""
    previous: bytes
    """The hash of the record before the first."""


NOTHING: Final = Page(records=[], more=False, end=0, previous=NO_HASH)
"""Of a channel that is not there."""


async def in_order(
    channel_id: str, ask: Callable[[str, int], Awaitable[Page]], *, after: int
) -> AsyncIterator[Envelope]:
    """Yield the envelopes behind `after`. Raises `CorruptRecord` where one is not what was written."""
    more, end = True, 0
    erasures = Erasures(channel_id)
    while more:
        page = await ask(channel_id, after)
        previous = page.previous
        for records in (page.records[:READ_FIRST], page.records[READ_FIRST:]):
            unseal_all = partial(_unseal_all, channel_id, after, previous)
            found, damage = await off_the_loop(unseal_all, records, size=sum(one.size for one in records))
            for envelope in found:
                erasures.add(envelope)
                yield envelope
            if damage is not None:
                raise damage
            previous, after = records[-1].hash if records else previous, after + len(found)
        more, end = page.more, page.end
    if after < end:
        because = f"it is missing, though the channel goes on to {end}"
        raise CorruptRecord(channel_id, seq=after + 1, because=because)
    erasures.check()


def _unseal_all(
    channel_id: str, after: int, previous: bytes, records: Sequence[Record]
) -> tuple[list[Envelope], CorruptRecord | None]:
    """Return the envelopes up to the first record that is not what was written, and what is wrong with it."""
    found = list[Envelope]()
    for seq, record in enumerate(records, after + 1):
        try:
            found.append(unseal(channel_id, record, previous=previous, seq=seq))
        except CorruptRecord as damage:
            return found, damage
        previous = record.hash
    return found, None
