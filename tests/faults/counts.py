"""How often each fault is tried: in CI as written, in `./run soak` times TURNLINE_SOAK.

`./run soak --minutes N` goes round after round instead, each with seeds of its own.
"""

from __future__ import annotations

import os
from typing import Final

SOAK: Final = int(os.environ.get("TURNLINE_SOAK", "1"))
ROUND: Final = int(os.environ.get("TURNLINE_ROUND", "0"))


def seed(number: int) -> int:
    """Return the seed that a trial has in this round; in CI there is one round, and it is `number`."""
    return number + 1_000 * ROUND


KILLS: Final = 300 * SOAK
KILLS_OF_THE_TWIN: Final = 10
"""The twin loses something nearly every time."""

FLIPS_IN_THE_FILE: Final = 600 * SOAK
FLIPS_IN_THE_WAL: Final = 300 * SOAK
CHANGED_ROWS: Final = 300 * SOAK
TAMPERINGS: Final = 200 * SOAK
"""Changes of sealed lines by a person with rights on the database; TURNLINE_SOAK=50 makes 10,000."""
REPAIRED_BITS: Final = 60 * SOAK
"""Flipped bits in system channels."""
REPAIRED_PAGES: Final = 10 * SOAK
"""Pages of a file that are zeroed or cut off."""
TORN: Final = 800 * SOAK
"""Cuts of the write-ahead file; never more than it has bytes."""

CONVERSATION_KILLS: Final = 50 * SOAK
CONVERSATION_KILLS_OF_THE_TWIN: Final = 16

AGENT_KILLS: Final = 40 * SOAK
AGENT_KILLS_OF_THE_TWIN: Final = 12

ONCE_KILLS: Final = 40 * SOAK
ONCE_KILLS_OF_THE_TWIN: Final = 12

WAIT_KILLS: Final = 50 * SOAK
WAIT_KILLS_ON_SERVERS: Final = 50 * SOAK
WAIT_KILLS_OF_THE_TWIN: Final = 8

RANDOM_HISTORIES: Final = 500 * SOAK
STEPS_OF_A_HISTORY: Final = 50

RACES: Final = 1000 * SOAK
RACES_OF_THE_TWIN: Final = 50

DRAINS: Final = 10 * SOAK
DRAINS_OF_THE_TWIN: Final = 1

FILE_KILLS: Final = SOAK
"""At each point between a file and its line, on each log."""

POSTGRES_STOPS: Final = 5 * SOAK
POSTGRES_CUTS: Final = 100 * SOAK
"""Backends terminated; and as many connections cut behind the commit."""

NATS_BLOWS: Final = 3 * SOAK
"""To the leader: killed, paused, cut off from the others, in turn."""

CLUSTER_CONVERSATIONS: Final = 300 * SOAK
CLUSTER_CONVERSATIONS_ON_NATS: Final = 300 * SOAK
LEADER_KILLS: Final = 3 * SOAK
CLUSTER_CONVERSATIONS_OF_A_TWIN: Final = 900
"""It is stopped as soon as it is caught, after a few dozen of them."""

ROUNDS_OF_CALLS: Final = SOAK
"""In each, a log is killed at every call by which it changes a file, and each of them fails."""
SMALL_DISKS: Final = SOAK
FILLED: Final = 5
"""So often each of them."""
POWER_CUTS: Final = 500 * SOAK
POWER_CUTS_OF_THE_LOOP: Final = 150 * SOAK
"""While the event loop commits."""
POWER_CUTS_AFTER_A_LOST_SYNC: Final = 10 * SOAK
"""For each of the syncs."""
POWER_CUTS_OF_A_TWIN: Final = 100

CHANNELS_AT_ONCE: Final = 2_000 * SOAK
CHANNELS_IN_WAVES: Final = 100
WAVES_OF_CHANNELS: Final = 15 * SOAK
CHANNELS_LEFT: Final = 50
"""Of the last wave: live ones among many that are closed."""

SEEDS: Final = 200 * SOAK
SEEDS_TWICE: Final = 12 * SOAK
SEEDS_OF_A_TWIN: Final = 200
"""It is stopped as soon as it is caught, which takes most of them a few seeds."""
