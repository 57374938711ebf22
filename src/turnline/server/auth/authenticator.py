"""The one door for everybody: credentials in, a principal out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from turnline.errors import AccessBusy, BadKey, LogError, MissingExtra, TurnlineError, Unauthenticated
from turnline.hub.timers import Clock
from turnline.server.auth.credentials import Credentials, is_loopback
from turnline.server.auth.principal import ANONYMOUS, Principal

AUTHENTICATE_WITHIN_SECONDS: Final = 5.0
"""A connection that has not said who it is by then is closed."""
RECHECK_SECONDS: Final = 1.0
"""This often the holder of an open stream or connection is authenticated again: a token may be revoked."""


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


class Refusing:
    """See `Authenticator`. Refuses every token, and says why."""

    def __init__(self, because: str) -> None:
        self._because = because

    async def authenticate(self, credentials: Credentials) -> Principal:
        """See `Authenticator`."""
        raise Unauthenticated(self._because)


class OnDemand:
    """See `Authenticator`. Opens another one when a token first needs it.

    Until that succeeds, each token tries again: its key may be made while the server runs.
    """

    def __init__(self, open_authenticator: Callable[[], Awaitable[Authenticator]]) -> None:
        self._open = open_authenticator
        self._opened: Authenticator | None = None
        self._lock = asyncio.Lock()

    async def authenticate(self, credentials: Credentials) -> Principal:
        """See `Authenticator`."""
        async with self._lock:
            if self._opened is None:
                try:
                    self._opened = await self._open()
                except BadKey as error:
                    raise Unauthenticated(f"no token can be verified here: {error.because}") from None
                except MissingExtra as error:
                    because = f"this server reads no tokens: {error}".rstrip(".")
                    raise Unauthenticated(because) from None
        return await self._opened.authenticate(credentials)


class DevelopmentAuthenticator:
    """See `Authenticator`. For `serve --dev`: its own key first, and this machine itself only (F13)."""

    def __init__(self, own: Authenticator, *, otherwise: Authenticator) -> None:
        self._own = own
        self._otherwise = otherwise

    async def authenticate(self, credentials: Credentials) -> Principal:
        """See `Authenticator`."""
        if not is_loopback(credentials.peer):
            raise Unauthenticated("a server started with --dev serves this machine itself only")
        with suppress(Unauthenticated):
            return await self._own.authenticate(credentials)
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


async def until_refused(
    admit: Callable[[], Awaitable[object]], clock: Clock, *, every_seconds: float = RECHECK_SECONDS
) -> TurnlineError:
    """Wait until `admit`, which let a caller in before, refuses them. Return what it raised.

    While nothing can be known, because the log or the reader of tokens is out of order, they stay.
    """
    while True:
        await clock.sleep(every_seconds)
        try:
            await admit()
        except (AccessBusy, LogError):
            continue
        except TurnlineError as error:
            return error


async def authenticate_public(authenticator: Authenticator, credentials: Credentials) -> Principal:
    """Return who calls a public trigger: anonymous without a token; with a bad one, nobody (F13)."""
    if not credentials.token:
        return ANONYMOUS
    return await authenticator.authenticate(credentials)
