"""The principal: who is asking, and what they were granted. Holds no secret, so it may be shown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal

from msgspec import Struct

NEVER: Final = datetime.max.replace(tzinfo=UTC)
"""When an API key expires."""


class Bound(Struct, frozen=True):
    """What a token was narrowed to: the operation or the resource is one of these."""

    kind: Literal["operation", "resource"]
    allowed: tuple[str, ...]


class Principal(Struct, frozen=True, kw_only=True):
    """Whoever sent a request."""

    user_id: str
    """Empty for the anonymous principal, and only for it."""
    groups: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    bounds: tuple[Bound, ...] = ()
    """All of them hold."""
    token_id: str = ""
    """By which an audit knows the token, and an operator revokes it. Not a secret."""
    expires_at: datetime = NEVER

    @property
    def is_anonymous(self) -> bool:
        return not self.user_id


ANONYMOUS: Final = Principal(user_id="")
"""Whoever calls a public trigger without a token. Every operation is refused to it."""
