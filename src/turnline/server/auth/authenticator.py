"""The one door for everybody: credentials in, a principal out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from turnline.errors import Unauthenticated
from turnline.server.auth.credentials import Credentials, is_loopback
from turnline.server.auth.principal import ANONYMOUS, Principal

AUTHENTICATE_WITHIN_SECONDS: Final = 5.0
"""A connection that has not said who it is by then is closed."""


class Authenticator(Protocol):
    """Knows who is asking."""

    async def authenticate(self, credentials: Credentials) -> Principal:
        """Return who sent `credentials`.

        Raises `Unauthenticated` if they do not tell, whatever is wrong with them; `AccessBusy`
        if none can be looked at now; and what the log raises, if it cannot say what was revoked.
        """
        ...


class ByShape:
    """Several kinds of credentials: the beginning of a token says whose it is."""

    def __init__(self, prefixes: Mapping[str, Authenticator], *, otherwise: Authenticator) -> None:
        self._prefixes = dict(prefixes)
        self._otherwise = otherwise

    async def authenticate(self, credentials: Credentials) -> Principal:
        """See `Authenticator`."""
        if not credentials.token:
            raise Unauthenticated("no token was sent")
        for prefix, authenticator in self._prefixes.items():
            if credentials.token.startswith(prefix):
                return await authenticator.authenticate(credentials)
        return await self._otherwise.authenticate(credentials)


class OnlyLoopback:
    """No tokens at all, for whoever sits at this machine. Everybody else is refused."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    async def authenticate(self, credentials: Credentials) -> Principal:
        """See `Authenticator`."""
        if not is_loopback(credentials.peer):
            raise Unauthenticated("without tokens, only this machine itself is served")
        return self._principal


async def authenticate_public(authenticator: Authenticator, credentials: Credentials) -> Principal:
    """Return who calls a public trigger: anonymous without a token; with a bad one, nobody (F13)."""
    if not credentials.token:
        return ANONYMOUS
    return await authenticator.authenticate(credentials)
