"""Origins: on which log a channel was opened, and which channels of other logs count here.

    _mark-log        {"log", "mark"}         the names of this log; the newest is in use
    _mark-runs-0f    {"channels", "mark"}    channels of other logs that an operator trusts

The driver of flows writes the name of its log into the first line of each channel that it opens, and a
fork has a name in its own first line. `flow.trusted_runs` says which runs read secrets because of it.

Rule 1: a name is random, and no export holds the channels above (`log.transfer`). A copied database file
holds them: it is the same log.

Rule 2: an import adds nothing to a channel that names this log, or that is trusted here, unless the
operator trusts the file. So a file cannot continue a run of this log, or bring another one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import blake2b
from typing import Final, Protocol

from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_FORKED
from turnline.log.base import MARK_PREFIX

LOG_NAMES: Final = f"{MARK_PREFIX}log"
"""The channel that holds the names of this log."""
TRUSTED_RUNS: Final = f"{MARK_PREFIX}runs-"
"""Ids of the channels that list trusted channels; two hexadecimal digits follow."""


class Reads(Protocol):
    """The part of a log that is needed here."""

    def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]: ...


async def names_of(log: Reads) -> frozenset[str]:
    """Return every name that this log has had."""
    return frozenset([str(line.event_data.get("log")) async for line in log.read(LOG_NAMES)])


async def newest_name(log: Reads) -> str:
    """Return the name that is in use; empty for a log on which no driver has worked."""
    name = ""
    async for line in log.read(LOG_NAMES):
        name = str(line.event_data.get("log"))
    return name


def names_in(first: Envelope) -> set[str]:
    """Return the names of logs that a channel's first line holds, wherever a reader would look for one."""
    origin = first.event_data.get("forked_from")
    found = [first.event_data.get("log"), origin.get("log") if isinstance(origin, dict) else None]
    return {name for name in found if isinstance(name, str) and name}


def is_of_a_run(first: Envelope) -> bool:
    """Return whether a channel can be a run of a flow, a channel below one, or a fork."""
    knobs, data = first.event_data.get("knobs"), first.event_data
    is_run = isinstance(knobs, dict) and "flow" in knobs
    return is_run or bool(data.get("parent_id")) or first.event_type == EV_CHANNEL_FORKED


def list_of(channel_id: str) -> str:
    """Return the id of the channel that lists this one if it is trusted: one of 256."""
    return TRUSTED_RUNS + blake2b(channel_id.encode(), digest_size=1).hexdigest()


async def lists_with(log: Reads, channel_id: str) -> list[Envelope]:
    """Return the lines that list a channel as trusted. Only a holder of the key can check their marks."""
    return [line async for line in log.read(list_of(channel_id)) if channel_id in listed(line)]


def listed(line: Envelope) -> list[str]:
    """Return the channels that a line lists."""
    found = line.event_data.get("channels")
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
