"""What a WebSocket door allows and how long it waits: every limit has a name, and what it cost a counter."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from turnline.client.frames import FRAME_BYTES, PAYLOAD_BYTES
from turnline.core.governance import NAMES_PER_USER
from turnline.server.auth.authenticator import AUTHENTICATE_WITHIN_SECONDS, RECHECK_SECONDS

PRESENCES_PER_USER: Final = 100


class WsSettings(Struct, frozen=True, kw_only=True):
    """The limits of one door."""

    frame_bytes: int = FRAME_BYTES
    """Of a message that a client sends; `payload_bytes`, of all parts of one frame."""
    payload_bytes: int = PAYLOAD_BYTES // 4
    hello_seconds: float = AUTHENTICATE_WITHIN_SECONDS
    """Whoever has not said who it is by then is sent away."""
    connections: int = 1_000
    presences: int = 2_000
    """Clients that are held: connected, or gone for less than the grace."""
    presences_per_user: int = PRESENCES_PER_USER
    """Of them, those of one user."""
    grace_seconds: float = 30.0
    """For so long a client that is gone keeps its seats, and what it claimed."""
    requests: int = 4_000
    """Of one client, that wait for their answers."""
    seats: int = 1_000
    """Of one client."""
    names_per_user: int = NAMES_PER_USER
    """Names that one user may have registered. Unregistering one makes room."""
    listening: int = 1_000
    """Channels whose words one client listens to."""
    kept_answers: int = 4_000
    """Answers of one client that it has not acknowledged; older ones are worked out again if asked for."""
    kept_bytes: int = 8 * 1024 * 1024
    room_bytes: int = 1024 * 1024
    """While more waits to be sent, nothing further is read from the client."""
    unsent_bytes: int = 32 * 1024 * 1024
    """A connection for which more waits is closed."""
    unsent_channels: int = 10_000
    """The same for the channels with news."""
    unsent_words: int = 1_000
    """Words of turns in flight that wait; older ones are dropped."""
    stuck_seconds: float = 20.0
    """A connection that takes nothing for so long is closed."""
    bad_frames: int = 16
    """So many frames of one connection may be refused; then it is closed."""
    reading_bytes: int = 256 * 1024
    """Of the lines in one answer; at least one line is given."""
    recheck_seconds: float = RECHECK_SECONDS
    """This often a connection's token is looked at again, for it may have been revoked."""


class WsCounters(Struct, kw_only=True):
    """What has happened at one door since it opened."""

    connections: int = 0
    """Now."""
    presences: int = 0
    """Now."""
    turned_away: int = 0
    """Not let in: no token, a bad one, no place, another version."""
    refused_frames: int = 0
    refused_requests: int = 0
    """Beyond what a client may have waiting."""
    slow: int = 0
    """Connections closed because nobody read them."""
    dropped_words: int = 0
    dropped_answers: int = 0
    given_up: int = 0
    """Clients that did not come back in time."""
