"""How a hub is doing, for people and for probes."""

from __future__ import annotations

from msgspec import Struct


class Health(Struct, frozen=True, kw_only=True):
    """How a hub is doing."""

    log: str
    durability: str
    """What an acknowledgement survives: `power`, `process` or `none`."""
    open_channels: int
    cached_channels: int
    quarantined: dict[str, str]
    clock_behind_seconds: float
    """By how much the clock was behind the newest line when the hub opened; 0 up to an hour."""
