"""The authenticator of a server, put together: for others to rely on, or for trying things out.

async with open_production(os.environ, folder, log, clock, new_id) as authenticator:
    principal = await authenticator.authenticate(credentials)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from turnline.hub.clock import Clock
from turnline.hub.ids import NewId
from turnline.log.base import Log
from turnline.server.auth.api_keys import API_KEY_PREFIX, API_KEYS_VARIABLE, ApiKeys
from turnline.server.auth.authenticator import Authenticator, ByShape
from turnline.server.auth.biscuit import mint
from turnline.server.auth.keys import RootKey, production_key
from turnline.server.auth.process import ReadingProcess
from turnline.server.auth.revocation import Revocations
from turnline.server.auth.tokens import DevelopmentAuthenticator, GoodTokens, TokenAuthenticator

DEVELOPER: Final = "developer"
DEVELOPMENT_LIFETIME: Final = timedelta(hours=12)


@asynccontextmanager
async def open_production(
    environ: Mapping[str, str], folder: Path, log: Log, clock: Clock, new_id: NewId
) -> AsyncIterator[Authenticator]:
    """Tokens signed by the project's key, and API keys. Raises `BadKey` for a development key, or none."""
    key = production_key(environ, folder)
    api_keys = ApiKeys.from_text(environ.get(API_KEYS_VARIABLE, ""))
    async with _good_tokens(key.public, log, clock, new_id) as good:
        yield ByShape({API_KEY_PREFIX: api_keys}, otherwise=TokenAuthenticator(good))


@asynccontextmanager
async def open_development(
    key: RootKey, log: Log, clock: Clock, new_id: NewId
) -> AsyncIterator[Authenticator]:
    """What `serve --dev` lets in: development tokens signed by `key`, from this machine only (F13)."""
    async with _good_tokens(key.public, log, clock, new_id) as good:
        yield DevelopmentAuthenticator(good)


def development_token(key: RootKey, now: datetime) -> str:
    """Return the token that `serve --dev` prints: it may do everything, for half a day."""
    return mint(key, user_id=DEVELOPER, scopes=["*"], expires_at=now + DEVELOPMENT_LIFETIME, now=now)


@asynccontextmanager
async def _good_tokens(public_key: str, log: Log, clock: Clock, new_id: NewId) -> AsyncIterator[GoodTokens]:
    revocations = Revocations(log, clock, new_id)
    await revocations.hydrate()
    process = ReadingProcess(public_key, clock)
    try:
        await process.start()
        yield GoodTokens(process, revocations, clock)
    finally:
        await process.close()
