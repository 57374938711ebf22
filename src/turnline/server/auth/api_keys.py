"""API keys: a fixed table of names and hashes, for callers that cannot get tokens.

    TURNLINE_API_KEYS='{"ci": {"sha256": "9f86d0...", "scopes": ["runs:start:*"], "groups": ["ops"]}}'

A key is `tlk_` and at least 32 characters of chance; the table holds its SHA-256, never the key. It needs
no salt: nobody guesses that much chance. A key is known by its name, has no expiry, and ends when the
table no longer lists it.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, Self

import msgspec
from msgspec import Struct

from turnline.core.event_types import is_name
from turnline.errors import BadToken, Unauthenticated
from turnline.server.auth.credentials import Credentials
from turnline.server.auth.operations import check_scope
from turnline.server.auth.principal import Principal

API_KEYS_VARIABLE: Final = "TURNLINE_API_KEYS"
API_KEY_PREFIX: Final = "tlk_"
MAX_API_KEYS: Final = 1_000
_KEY_BYTES: Final = 32
"""Of chance, in a key that is made here."""
_KEY: Final = re.compile(r"tlk_[A-Za-z0-9_-]{32,128}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")


class ApiKey(Struct, frozen=True, forbid_unknown_fields=True):
    """What the table says about one key."""

    sha256: str
    scopes: list[str] = []
    groups: list[str] = []

    @classmethod
    def of(cls, key: str, *, scopes: Iterable[str], groups: Iterable[str] = ()) -> Self:
        """Return the row for `key`."""
        return cls(sha256=sha256(key.encode()).hexdigest(), scopes=[*scopes], groups=[*groups])


def new_api_key() -> str:
    """Return an API key that no table lists yet."""
    return API_KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


class ApiKeys:
    """See `Authenticator`. Takes the same time for every key, the right ones included."""

    def __init__(self, table: Mapping[str, ApiKey]) -> None:
        for name, key in table.items():
            _check(name, key)
        if len(table) > MAX_API_KEYS:
            raise BadToken(
                API_KEYS_VARIABLE, found=f"of {len(table)} keys", expected=f"{MAX_API_KEYS} or fewer"
            )
        self._known = [(bytes.fromhex(key.sha256), _principal(name, key)) for name, key in table.items()]

    @classmethod
    def from_text(cls, text: str) -> ApiKeys:
        """Return the keys that the environment lists; an empty text lists none."""
        try:
            return cls(msgspec.json.decode(text, type=dict[str, ApiKey]) if text else {})
        except msgspec.DecodeError:
            # Its words may hold a piece of the text, and somebody may have put a key there.
            expected = 'an object of {"NAME": {"sha256": HASH, "scopes": [...], "groups": [...]}}'
            raise BadToken(API_KEYS_VARIABLE, found="not a table of keys", expected=expected) from None

    async def authenticate(self, credentials: Credentials) -> Principal:
        """See `Authenticator`."""
        if _KEY.fullmatch(credentials.token) is None:
            raise Unauthenticated("this is not an API key")
        digest = sha256(credentials.token.encode()).digest()
        found = [who for known, who in self._known if hmac.compare_digest(known, digest)]
        if not found:
            raise Unauthenticated("the API key is not known")
        return found[0]


def _principal(name: str, key: ApiKey) -> Principal:
    return Principal(
        user_id=name,
        groups=frozenset(key.groups),
        scopes=frozenset(key.scopes),
        token_id=f"api-key:{name}",
    )


def _check(name: str, key: ApiKey) -> None:
    if not is_name(name):
        raise BadToken(
            f"a name in {API_KEYS_VARIABLE}", found="not one", expected="printable text of one line"
        )
    if _HASH.fullmatch(key.sha256) is None:
        expected = "the key's SHA-256, as 64 hexadecimal digits in lower case"
        raise BadToken(f"{API_KEYS_VARIABLE}.{name}.sha256", found="something else", expected=expected)
    for scope in key.scopes:
        check_scope(scope)
    if not all(map(is_name, key.groups)):
        raise BadToken(f"{API_KEYS_VARIABLE}.{name}.groups", found="not names", expected="printable texts")
