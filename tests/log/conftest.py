"""Logs of each kind, for tests of what looks at any of them."""

from __future__ import annotations

from .backends import make_place, place

__all__ = ["make_place", "place"]
