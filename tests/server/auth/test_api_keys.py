"""API keys: a table of names and hashes behind the same door."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest
from hypothesis import given, strategies as st

from turnline.errors import BadToken, Unauthenticated
from turnline.server.auth.api_keys import MAX_API_KEYS, ApiKey, ApiKeys
from turnline.server.auth.credentials import Credentials
from turnline.server.auth.principal import NEVER

SECRET = "tlk_" + "a1B2" * 8
OTHER = "tlk_" + "zzzz" * 8


def hashed(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def table(**fields: object) -> str:
    return json.dumps(
        {"ci": {"sha256": hashed(SECRET), "scopes": ["runs:start:*"], "groups": ["ops"]} | fields}
    )


async def test_a_key_stands_for_its_name_with_the_scopes_of_the_table() -> None:
    principal = await ApiKeys.from_text(table()).authenticate(Credentials(SECRET))

    assert (principal.user_id, *principal.groups, *principal.scopes) == ("ci", "ops", "runs:start:*")
    assert (principal.token_id, principal.expires_at) == ("api-key:ci", NEVER)


async def test_a_key_without_scopes_may_do_nothing() -> None:
    keys = ApiKeys({"ci": ApiKey(sha256=hashed(SECRET))})

    assert (await keys.authenticate(Credentials(SECRET))).scopes == frozenset()


async def test_each_of_several_keys_is_found() -> None:
    keys = ApiKeys({"a": ApiKey(sha256=hashed(OTHER)), "b": ApiKey(sha256=hashed(SECRET))})

    assert (await keys.authenticate(Credentials(SECRET))).user_id == "b"
    assert (await keys.authenticate(Credentials(OTHER))).user_id == "a"


@pytest.mark.parametrize("token", [OTHER, SECRET[:-1], SECRET + "x", hashed(SECRET), "tlk_short", "", "ci"])
async def test_any_other_key_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        await ApiKeys.from_text(table()).authenticate(Credentials(token))

    assert not token or token not in str(refused.value)


@given(st.text())
async def test_any_text_is_refused_with_the_typed_error(token: str) -> None:
    with pytest.raises(Unauthenticated):
        await ApiKeys.from_text(table()).authenticate(Credentials(token))


async def test_no_table_is_no_keys() -> None:
    with pytest.raises(Unauthenticated):
        await ApiKeys.from_text("").authenticate(Credentials(SECRET))


@pytest.mark.parametrize(
    "text",
    [
        "not json: canary",
        '["canary"]',
        '{"ci": "canary"}',
        '{"ci": {"sha256": "canary"}}',
        '{"ci": {"key": "canary"}}',
        table(sha256="canary"),
        table(sha256=hashed(SECRET).upper()),
        table(secret="canary"),
        table(groups=["a\nb"]),
        json.dumps({"": {"sha256": hashed(SECRET)}}),
    ],
)
def test_a_table_that_is_none_is_an_error_that_shows_nothing_of_it(text: str) -> None:
    with pytest.raises(BadToken) as refused:
        ApiKeys.from_text(text)

    assert "TURNLINE_API_KEYS" in str(refused.value)
    assert "canary" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_scope_that_grants_nothing_is_a_mistake() -> None:
    with pytest.raises(BadToken, match="did you mean 'runs:read'"):
        ApiKeys.from_text(table(scopes=["runs:raed"]))


def test_a_table_has_an_end() -> None:
    one = ApiKey(sha256=hashed(SECRET))

    ApiKeys({str(index): one for index in range(MAX_API_KEYS)})
    with pytest.raises(BadToken, match="or fewer"):
        ApiKeys({str(index): one for index in range(MAX_API_KEYS + 1)})
