"""What tests of Turnwise, of its backends and of programs built on it share."""

from __future__ import annotations

from turnwise.testing.damage import flip_byte, flip_memory, flip_sqlite
from turnwise.testing.durable_log_contract import DurableLogContract
from turnwise.testing.log_contract import LogContract
from turnwise.testing.manual_clock import ManualClock

__all__ = ["DurableLogContract", "LogContract", "ManualClock", "flip_byte", "flip_memory", "flip_sqlite"]
