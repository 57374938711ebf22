"""Tokens as credentials: read, not revoked, not expired; then a principal.

What a token says never changes, so it is read once and remembered by its hash. Whether it has expired or
was revoked is asked every time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from hashlib import sha256
from typing import Final, Protocol

from turnline.errors import Unauthenticated
from turnline.hub.timers import Clock
from turnline.server.auth.credentials import Credentials
from turnline.server.auth.principal import Principal
from turnline.server.auth.process import TokenReader
from turnline.server.auth.reading import Reading, check_text

MAX_REMEMBERED: Final = 1_024


class RevocationList(Protocol):
    """What is needed of `Revocations`."""

    async def is_revoked(self, revocation_ids: Iterable[str]) -> bool: ...


class TokenAuthenticator:
    """See `Authenticator`. Accepts tokens that are neither forged, nor expired, nor revoked."""

    def __init__(self, tokens: TokenReader, revocations: RevocationList, clock: Clock) -> None:
        self._tokens = tokens
        self._revocations = revocations
        self._clock = clock
        self._remembered: OrderedDict[bytes, Reading] = OrderedDict()

    async def authenticate(self, credentials: Credentials) -> Principal:
        """See `Authenticator`."""
        token = credentials.token
        check_text(token)
        reading = await self._known(token)
        if self._clock.now() >= reading.grant.expires_at:
            raise Unauthenticated("the token has expired")
        if await self._revocations.is_revoked(reading.revocation_ids):
            raise Unauthenticated("the token was revoked")
        return _principal(reading)

    async def _known(self, token: str) -> Reading:
        digest = sha256(token.encode()).digest()
        if digest in self._remembered:
            self._remembered.move_to_end(digest)
            return self._remembered[digest]
        reading = await self._tokens.read(token, now=self._clock.now())
        self._remembered[digest] = reading
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
        return reading


def _principal(reading: Reading) -> Principal:
    grant = reading.grant
    return Principal(
        user_id=grant.user_id,
        groups=frozenset(grant.groups),
        scopes=frozenset(grant.scopes),
        bounds=grant.bounds,
        token_id=reading.revocation_ids[-1],
        expires_at=grant.expires_at,
    )
