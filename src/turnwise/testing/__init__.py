"""What tests of Turnwise, of its backends and of programs built on it share."""

from __future__ import annotations

from turnwise.agent.scripted import RecordingModel, ScriptedModel, call
from turnwise.client.fixture import play_channel
from turnwise.testing.damage import flip_byte, flip_memory, flip_sqlite
from turnwise.testing.durable_log_contract import DurableLogContract
from turnwise.testing.log_contract import LogContract
from turnwise.testing.manual_clock import ManualClock
from turnwise.testing.model_server import ModelServer

__all__ = [
    "DurableLogContract",
    "LogContract",
    "ManualClock",
    "ModelServer",
    "RecordingModel",
    "ScriptedModel",
    "TestConfig",
    "call",
    "flip_byte",
    "flip_memory",
    "flip_sqlite",
    "play_channel",
]

TestConfig = ScriptedModel
"""The name under which users of the seeds know it."""
