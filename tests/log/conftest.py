"""Servers that tests of a log need."""

from __future__ import annotations

from ..nats_servers import nats_cluster, nats_server
from ..postgres import postgres

__all__ = ["nats_cluster", "nats_server", "postgres"]
