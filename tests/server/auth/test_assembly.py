"""The authenticator of a server, with its process, its log and its key."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from turnline.errors import BadKey, Unauthenticated
from turnline.hub.timers import sortable_ids
from turnline.log.memory import MemoryLog
from turnline.server.auth.api_keys import new_api_key
from turnline.server.auth.assembly import open_development, open_production
from turnline.server.auth.authenticator import Authenticator
from turnline.server.auth.credentials import Credentials
from turnline.server.auth.keys import ensure_root_key
from turnline.server.auth.operations import OPERATIONS, authorise
from turnline.server.auth.revocation import REFRESH_SECONDS, Revocations
from turnline.testing import ManualClock

from .scenes import KEY, LOOPBACK, NOW, OTHER_KEY, minted, reading

API_KEY = "tlk_" + "c4naryKey" * 4
DEVELOPMENT_KEY = new_api_key()


async def test_f13_a_production_server_lets_in_tokens_and_api_keys(tmp_path: Path) -> None:
    log, clock = MemoryLog(), ManualClock()
    new_id, text = sortable_ids(clock), minted()
    keys = json.dumps({"ci": {"sha256": sha256(API_KEY.encode()).hexdigest(), "scopes": ["runs:read"]}})
    environ = {"TURNLINE_AUTH_PUBLIC_KEY": KEY.public, "TURNLINE_API_KEYS": keys}
    async with open_production(environ, tmp_path, log, clock, new_id) as authenticator:
        assert (await authenticator.authenticate(Credentials(text))).user_id == "alice"
        assert (await authenticator.authenticate(Credentials(API_KEY))).user_id == "ci"
        for bad in ("", "garbage", minted(OTHER_KEY), "tlk_" + "x" * 40):
            with pytest.raises(Unauthenticated):
                await authenticator.authenticate(Credentials(bad, peer=LOOPBACK))

        await Revocations(log, clock, new_id).revoke([reading(text).revocation_ids[-1]], reason="", by="root")
        clock.advance(REFRESH_SECONDS)
        with pytest.raises(Unauthenticated, match="revoked"):
            await authenticator.authenticate(Credentials(text))


async def test_f13_a_production_start_refuses_to_be_without_a_key(tmp_path: Path) -> None:
    clock = ManualClock()
    opening = open_production({}, tmp_path, MemoryLog(), clock, sortable_ids(clock))

    with pytest.raises(BadKey):
        await opening.__aenter__()


@asynccontextmanager
async def developing(folder: Path, environ: Mapping[str, str] | None = None) -> AsyncIterator[Authenticator]:
    log, clock = MemoryLog(), ManualClock()
    opening = open_development(
        environ or {}, folder, log, clock, sortable_ids(clock), key=DEVELOPMENT_KEY, groups=["sales"]
    )
    async with opening as authenticator:
        yield authenticator


@pytest.mark.parametrize("peer", [LOOPBACK, "::1", "::ffff:127.0.0.1"])
async def test_f13_a_development_server_lets_in_the_key_it_prints(peer: str, tmp_path: Path) -> None:
    async with developing(tmp_path) as authenticator:
        principal = await authenticator.authenticate(Credentials(DEVELOPMENT_KEY, peer=peer))

    assert (principal.user_id, principal.groups) == ("developer", frozenset({"sales"}))
    for operation in OPERATIONS:
        authorise(principal, operation, resource="leads", now=NOW)


@pytest.mark.parametrize("peer", ["", "10.0.0.1", "localhost", "fe80::1", "::ffff:10.0.0.1"])
async def test_f13_a_development_server_refuses_everything_from_elsewhere(peer: str, tmp_path: Path) -> None:
    async with developing(tmp_path, {"TURNLINE_AUTH_PUBLIC_KEY": KEY.public}) as authenticator:
        for token in (DEVELOPMENT_KEY, minted(), ""):
            with pytest.raises(Unauthenticated, match="this machine"):
                await authenticator.authenticate(Credentials(token, peer=peer))


async def test_f13_production_refuses_the_key_of_a_development_server(tmp_path: Path) -> None:
    clock = ManualClock()
    environ = {"TURNLINE_AUTH_PUBLIC_KEY": KEY.public}
    async with open_production(environ, tmp_path, MemoryLog(), clock, sortable_ids(clock)) as authenticator:
        with pytest.raises(Unauthenticated):
            await authenticator.authenticate(Credentials(DEVELOPMENT_KEY, peer=LOOPBACK))


async def test_a_development_server_accepts_tokens_and_api_keys_of_the_project(tmp_path: Path) -> None:
    keys = json.dumps({"ci": {"sha256": sha256(API_KEY.encode()).hexdigest(), "scopes": ["runs:read"]}})
    environ = {"TURNLINE_AUTH_PUBLIC_KEY": KEY.public, "TURNLINE_API_KEYS": keys}
    async with developing(tmp_path, environ) as authenticator:
        found = [
            (await authenticator.authenticate(Credentials(token, peer=LOOPBACK))).user_id
            for token in (minted(), API_KEY, DEVELOPMENT_KEY)
        ]
        with pytest.raises(Unauthenticated):
            await authenticator.authenticate(Credentials(minted(OTHER_KEY), peer=LOOPBACK))

    assert found == ["alice", "ci", "developer"]


async def test_a_development_server_accepts_tokens_of_a_key_that_is_made_while_it_runs(
    tmp_path: Path,
) -> None:
    async with developing(tmp_path) as authenticator:
        with pytest.raises(Unauthenticated, match="there is no key"):
            await authenticator.authenticate(Credentials(minted(), peer=LOOPBACK))
        token = minted(ensure_root_key({}, tmp_path))
        principal = await authenticator.authenticate(Credentials(token, peer=LOOPBACK))

    assert principal.user_id == "alice"


async def test_no_secret_is_in_an_error_a_log_line_or_on_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A canary in the key, in the token and in an API key."""
    log, clock = MemoryLog(), ManualClock()
    private, token = "ca" * 32, minted()
    environ = {"TURNLINE_AUTH_KEY": private, "TURNLINE_API_KEYS": "{}"}
    told = []
    with caplog.at_level(logging.DEBUG):
        async with open_production(environ, tmp_path, log, clock, sortable_ids(clock)) as authenticator:
            for secret in (token, token[:-10], API_KEY, "tlk_short", "Bearer x"):
                with pytest.raises(Unauthenticated) as refused:
                    await authenticator.authenticate(Credentials(secret, peer=LOOPBACK))
                told.append(f"{refused.value!r} {refused.value.__dict__} {refused.value.__context__!r}")
        await Revocations(log, clock, sortable_ids(clock)).revoke(
            [reading(token).revocation_ids[-1]], reason="", by="root"
        )

    shown = " ".join((*told, caplog.text, repr(log.records), repr(authenticator)))
    for secret in (private, token, token[:40], API_KEY):
        assert secret not in shown
