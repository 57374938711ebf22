"""Keys, tokens and readers that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from turnline.errors import Unauthenticated
from turnline.server.auth.biscuit import mint
from turnline.server.auth.keys import RootKey
from turnline.server.auth.library import Biscuit, BiscuitBuilder, BlockBuilder, PublicKey
from turnline.server.auth.reading import Reading, read

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
"""When a `ManualClock` starts."""
HOUR = timedelta(hours=1)
KEY = RootKey.from_text("11" * 32, where="a test")
OTHER_KEY = RootKey.from_text("22" * 32, where="a test")
LOOPBACK = "127.0.0.1"
EXPIRY = "check if time($t), $t < 2030-01-01T13:00:00Z;"


def minted(
    key: RootKey = KEY,
    *,
    user_id: str = "alice",
    groups: Sequence[str] = ("ops",),
    scopes: Sequence[str] = ("runs:start:*", "runs:read"),
    expires_at: datetime = NOW + HOUR,
) -> str:
    return mint(key, user_id=user_id, groups=groups, scopes=scopes, expires_at=expires_at, now=NOW)


def signed(code: str, parameters: Mapping[str, object] | None = None, key: RootKey = KEY) -> str:
    """A token with any first block: what another program that has the key may sign."""
    return key.sign(BiscuitBuilder(code, parameters)).to_base64()


def appended(text: str, code: str, parameters: Mapping[str, object] | None = None) -> str:
    """The token with one more block: what anybody who has it may do."""
    token = Biscuit.from_base64(text, PublicKey(f"ed25519/{KEY.public}"))
    return token.append(BlockBuilder(code, parameters)).to_base64()


def reading(text: str, *, now: datetime = NOW) -> Reading:
    return read(text, public_key=KEY.public, now=now)


def refusal(text: str, *, now: datetime = NOW) -> str:
    """Why the token is refused."""
    with pytest.raises(Unauthenticated) as refused:
        reading(text, now=now)
    return refused.value.because


class InlineReader:
    """See `TokenReader`. Reads in this process, and counts."""

    def __init__(self, key: RootKey = KEY) -> None:
        self.count = 0
        self._public_key = key.public

    async def read(self, token: str, *, now: datetime) -> Reading:
        self.count += 1
        return read(token, public_key=self._public_key, now=now)

    async def close(self) -> None:
        pass
