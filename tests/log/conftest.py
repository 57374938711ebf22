"""Servers that tests of a log need."""

from __future__ import annotations

from ..nats_servers import nats_cluster, nats_server
from ..postgres import postgres
from .backends import make_place, place

__all__ = ["make_place", "nats_cluster", "nats_server", "place", "postgres"]
