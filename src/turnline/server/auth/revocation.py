"""Revoked tokens: on a channel of their own, so that every server of one log knows them.

token.revoked   {revocation_ids: [...], reason, by}

Every block of a token has an id, and a token made from another begins with that one's blocks. A token is
revoked if the id of any of its blocks is; to revoke a token and all made from it, revoke its last id.

Rule: a list that cannot be read allows nothing. `is_revoked` raises, and whoever asked is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from turnline.core.envelope import Envelope
from turnline.core.json import normalised
from turnline.errors import BadToken
from turnline.hub.timers import Clock, NewId
from turnline.log.base import Log
from turnline.log.system_channel import SystemChannel, SystemLine

REVOCATIONS_CHANNEL: Final = "_revocations"
EV_TOKEN_REVOKED: Final = "token.revoked"
REFRESH_SECONDS: Final = 2.0
"""How long a server may not know what another process revoked.

With `RECHECK_SECONDS`, an open stream or connection ends within five seconds.
"""
MAX_IDS: Final = 100
"""In one line."""
MAX_REASON_CHARACTERS: Final = 500
_ID: Final = re.compile(r"[0-9a-f]{128}")


class Revocations:
    """Which tokens were taken back, on this log."""

    def __init__(
        self, log: Log, clock: Clock, new_id: NewId, *, refresh_seconds: float = REFRESH_SECONDS
    ) -> None:
        self._clock = clock
        self._channel = SystemChannel(log, REVOCATIONS_CHANNEL, clock.now, new_id, apply=self._apply)
        self._refresh_seconds = refresh_seconds
        self._ids: set[bytes] = set()
        self._fresh_until = float("-inf")

    async def hydrate(self) -> None:
        """Read what has been revoked since. Raises `ChannelQuarantined` if the list is damaged."""
        await self._channel.catch_up()
        self._fresh_until = self._clock.monotonic() + self._refresh_seconds

    async def is_revoked(self, revocation_ids: Iterable[str]) -> bool:
        """Whether one of them was revoked, by this process or, `REFRESH_SECONDS` ago, by another."""
        if self._clock.monotonic() >= self._fresh_until:
            await self.hydrate()
        return any(bytes.fromhex(one) in self._ids for one in revocation_ids)

    async def revoke(self, revocation_ids: Sequence[str], *, reason: str, by: str) -> None:
        """Revoke every token that has one of these ids. Revoking again writes nothing."""
        wanted = {_id(one) for one in revocation_ids}
        if len(wanted) > MAX_IDS or len(reason) > MAX_REASON_CHARACTERS:
            found, expected = "too long", f"{MAX_IDS} ids and {MAX_REASON_CHARACTERS} characters at most"
            raise BadToken("the revocation", found=found, expected=expected)

        def decide() -> list[SystemLine]:
            ids = sorted(one.hex() for one in wanted - self._ids)
            data = normalised({"revocation_ids": ids, "reason": reason, "by": by}, field="revocation")
            return [SystemLine(EV_TOKEN_REVOKED, data)] if ids else []

        await self._channel.append(decide)

    def _apply(self, line: Envelope) -> None:
        ids = line.event_data.get("revocation_ids")
        if line.event_type == EV_TOKEN_REVOKED and isinstance(ids, list):
            self._ids.update(bytes.fromhex(one) for one in ids if is_revocation_id(one))


def is_revocation_id(value: object) -> bool:
    """Whether `value` is the id of a token's block: a signature, in hexadecimal digits."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _id(text: str) -> bytes:
    if not is_revocation_id(text):
        raise BadToken("a revocation id", found="something else", expected="128 hexadecimal digits")
    return bytes.fromhex(text)
