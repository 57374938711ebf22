"""The authenticator of a server, put together: for others to rely on, or for trying things out.

async with open_production(os.environ, folder, log, clock, new_id) as authenticator:
    principal = await authenticator.authenticate(credentials)

Rule: without the extra `biscuit` everything here works but tokens. What needs the library is imported when a
token is used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from turnline.errors import install_line
from turnline.hub.timers import Clock, NewId
from turnline.log.base import Log
from turnline.server.auth.api_keys import API_KEY_PREFIX, API_KEYS_VARIABLE, ApiKey, ApiKeys
from turnline.server.auth.authenticator import (
    Authenticator,
    ByShape,
    DevelopmentAuthenticator,
    OnDemand,
    Refusing,
)
from turnline.server.auth.keys import verifying_key

DEVELOPER: Final = "developer"
_NO_LIBRARY: Final = f"this server reads no tokens without the extra [biscuit]: {install_line('biscuit')}"
_NO_KEY: Final = "this server has no key that verifies tokens; send an API key"


@asynccontextmanager
async def open_production(
    environ: Mapping[str, str], folder: Path, log: Log, clock: Clock, new_id: NewId
) -> AsyncIterator[Authenticator]:
    """Accept tokens signed by the project's key, and API keys. Raises `BadKey` without a key."""
    async with open_tokens(environ, folder, log, clock, new_id) as tokens:
        yield _with_api_keys(environ, tokens)


@asynccontextmanager
async def open_development(
    environ: Mapping[str, str],
    folder: Path,
    log: Log,
    clock: Clock,
    new_id: NewId,
    *,
    key: str,
    groups: Iterable[str],
) -> AsyncIterator[Authenticator]:
    """Accept, from this machine only, the key that `serve --dev` prints and what production accepts (F13).

    The project may get its signing key while the server runs: `token mint` makes it.
    """
    own = ApiKeys({DEVELOPER: ApiKey.of(key, scopes=["*"], groups=groups)})
    async with AsyncExitStack() as stack:

        async def opened() -> Authenticator:
            return await stack.enter_async_context(open_tokens(environ, folder, log, clock, new_id))

        yield DevelopmentAuthenticator(own, otherwise=_with_api_keys(environ, OnDemand(opened)))


def api_keys_alone(environ: Mapping[str, str]) -> Authenticator:
    """Accept API keys, on a server without a signing key. A token is refused with the reason."""
    has_library = find_spec("biscuit_auth") is not None
    return _with_api_keys(environ, Refusing(_NO_KEY if has_library else _NO_LIBRARY))


@asynccontextmanager
async def open_tokens(
    environ: Mapping[str, str], folder: Path, log: Log, clock: Clock, new_id: NewId
) -> AsyncIterator[Authenticator]:
    """Accept tokens signed by the project's key. Raises `BadKey` without one, or `MissingExtra`."""
    from turnline.server.auth.process import ReadingProcess  # noqa: PLC0415
    from turnline.server.auth.revocation import Revocations  # noqa: PLC0415
    from turnline.server.auth.tokens import TokenAuthenticator  # noqa: PLC0415

    public_key = verifying_key(environ, folder)
    revocations = Revocations(log, clock, new_id)
    await revocations.hydrate()
    process = ReadingProcess(public_key, clock)
    try:
        await process.start()
        yield TokenAuthenticator(process, revocations, clock)
    finally:
        await process.close()


def _with_api_keys(environ: Mapping[str, str], otherwise: Authenticator) -> Authenticator:
    api_keys = ApiKeys.from_text(environ.get(API_KEYS_VARIABLE, ""))
    return ByShape({API_KEY_PREFIX: api_keys}, otherwise=otherwise)
