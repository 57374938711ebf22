"""The authenticator of a server, with its process, its log and its key."""

from __future__ import annotations

import json
import logging
from hashlib import sha256
from pathlib import Path

import pytest

from turnline.errors import BadKey, Unauthenticated
from turnline.hub.ids import sortable_ids
from turnline.log.memory import MemoryLog
from turnline.server.auth.assembly import development_token, open_development, open_production
from turnline.server.auth.credentials import Credentials
from turnline.server.auth.keys import development_key
from turnline.server.auth.operations import OPERATIONS, authorise
from turnline.server.auth.revocation import REFRESH_SECONDS, Revocations
from turnline.testing import ManualClock

from .scenes import KEY, LOOPBACK, NOW, OTHER_KEY, minted, reading

API_KEY = "twk_" + "c4naryKey" * 4


async def test_f13_a_production_server_lets_in_tokens_and_api_keys(tmp_path: Path) -> None:
    log, clock = MemoryLog(), ManualClock()
    new_id, text = sortable_ids(clock), minted()
    keys = json.dumps({"ci": {"sha256": sha256(API_KEY.encode()).hexdigest(), "scopes": ["runs:read"]}})
    environ = {"TURNLINE_AUTH_PUBLIC_KEY": KEY.public, "TURNLINE_API_KEYS": keys}
    async with open_production(environ, tmp_path, log, clock, new_id) as authenticator:
        assert (await authenticator.authenticate(Credentials(text))).user_id == "alice"
        assert (await authenticator.authenticate(Credentials(API_KEY))).user_id == "ci"
        for bad in ("", "garbage", minted(OTHER_KEY), "twk_" + "x" * 40):
            with pytest.raises(Unauthenticated):
                await authenticator.authenticate(Credentials(bad, peer=LOOPBACK))

        await Revocations(log, clock, new_id).revoke([reading(text).revocation_ids[-1]], reason="", by="root")
        clock.advance(REFRESH_SECONDS)
        with pytest.raises(Unauthenticated, match="revoked"):
            await authenticator.authenticate(Credentials(text))


async def test_f13_a_production_start_refuses_a_development_key_or_none(tmp_path: Path) -> None:
    clock = ManualClock()
    for environ in ({}, {"TURNLINE_AUTH_KEY": "development:" + "11" * 32}):
        opening = open_production(environ, tmp_path, MemoryLog(), clock, sortable_ids(clock))
        with pytest.raises(BadKey):
            await opening.__aenter__()


async def test_f13_a_development_server_lets_in_the_token_it_prints_from_this_machine(tmp_path: Path) -> None:
    log, clock, key = MemoryLog(), ManualClock(), development_key()
    token = development_token(key, NOW)
    async with open_development(key, log, clock, sortable_ids(clock)) as authenticator:
        principal = await authenticator.authenticate(Credentials(token, peer=LOOPBACK))
        with pytest.raises(Unauthenticated):
            await authenticator.authenticate(Credentials(token, peer="10.0.0.1"))
        with pytest.raises(Unauthenticated):
            await authenticator.authenticate(Credentials(peer=LOOPBACK))
        clock.advance(12 * 3600)
        with pytest.raises(Unauthenticated, match="expired"):
            await authenticator.authenticate(Credentials(token, peer=LOOPBACK))

    for operation in OPERATIONS:
        authorise(principal, operation, resource="leads", now=NOW)


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
            for secret in (token, token[:-10], API_KEY, "twk_short", "Bearer x"):
                with pytest.raises(Unauthenticated) as refused:
                    await authenticator.authenticate(Credentials(secret, peer=LOOPBACK))
                told.append(f"{refused.value!r} {refused.value.__dict__} {refused.value.__context__!r}")
        await Revocations(log, clock, sortable_ids(clock)).revoke(
            [reading(token).revocation_ids[-1]], reason="", by="root"
        )

    shown = " ".join((*told, caplog.text, repr(log.records), repr(authenticator)))
    for secret in (private, token, token[:40], API_KEY):
        assert secret not in shown
