"""What tests of Turnline, of its backends and of programs built on it share."""

from __future__ import annotations

from turnline.agent.scripted import RecordingModel, ScriptedModel, call
from turnline.client.fixture import play_channel
from turnline.testing.blob_contract import BlobContract
from turnline.testing.damage import (
    Damage,
    damage_memory,
    damage_sqlite,
    drop_payload,
    flip_byte,
    flip_head,
    flip_payload,
)
from turnline.testing.durable_log_contract import DurableLogContract
from turnline.testing.log_contract import LogContract
from turnline.testing.manual_clock import ManualClock
from turnline.testing.model_server import ModelServer

__all__ = [
    "BlobContract",
    "Damage",
    "DurableLogContract",
    "LogContract",
    "ManualClock",
    "ModelServer",
    "RecordingModel",
    "ScriptedModel",
    "TestConfig",
    "call",
    "damage_memory",
    "damage_sqlite",
    "drop_payload",
    "flip_byte",
    "flip_head",
    "flip_payload",
    "play_channel",
]

TestConfig = ScriptedModel
"""The name under which users of the seeds know it."""
