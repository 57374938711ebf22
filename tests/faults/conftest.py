"""Servers that fault tests of a log need."""

from __future__ import annotations

from ..postgres import postgres

__all__ = ["postgres"]
