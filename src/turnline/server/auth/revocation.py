"""Revoked tokens: on a channel of their own, so that every server of one log knows them.

token.revoked   {revocation_ids: [...], reason, by}

Every block of a token has an id, and a token made from another begins with that one's blocks. A token is
revoked if the id of any of its blocks is; to revoke a token and all made from it, revoke its last id.

Rule: a list that cannot be read allows nothing. `is_revoked` raises, and whoever asked is refused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Final

from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.core.event_types import HUB
from turnline.core.json import normalised
from turnline.core.state import LONG_AGO
from turnline.errors import BadToken, ChannelQuarantined, CorruptRecord, LogConflict
from turnline.hub.clock import Clock
from turnline.hub.ids import NewId
from turnline.log.base import Log

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
        self._log = log
        self._clock = clock
        self._new_id = new_id
        self._refresh_seconds = refresh_seconds
        self._ids: set[bytes] = set()
        self._seq = 0
        self._last_at = LONG_AGO
        self._fresh_until = float("-inf")
        self._lock = asyncio.Lock()

    async def hydrate(self) -> None:
        """Read what has been revoked since. Raises `ChannelQuarantined` if the list is damaged."""
        async with self._lock:
            await self._read()

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
        async with self._lock:
            while missing := wanted - self._ids:
                ids = sorted(one.hex() for one in missing)
                await self._append({"revocation_ids": ids, "reason": reason, "by": by})

    async def _read(self) -> None:
        try:
            async for envelope in self._log.read(REVOCATIONS_CHANNEL, after=self._seq):
                self._take_over(envelope)
        except CorruptRecord as error:
            raise ChannelQuarantined(REVOCATIONS_CHANNEL, cause=error) from error
        self._fresh_until = self._clock.monotonic() + self._refresh_seconds

    async def _append(self, data: JsonObject) -> None:
        """Append one line, or read what somebody else appended first."""
        envelope = Envelope(
            schema_version=SCHEMA_VERSION,
            envelope_id=self._new_id(),
            channel_id=REVOCATIONS_CHANNEL,
            seq=self._seq + 1,
            sender_id=HUB,
            event_type=EV_TOKEN_REVOKED,
            event_data=normalised(data, field="revocation"),
            audience=[],
            created_at=max(self._clock.now(), self._last_at),
        )
        try:
            await self._log.append(REVOCATIONS_CHANNEL, [envelope], after=self._seq)
        except LogConflict:
            await self._read()
            return
        self._take_over(envelope)

    def _take_over(self, envelope: Envelope) -> None:
        self._seq, self._last_at = envelope.seq, envelope.created_at
        ids = envelope.event_data.get("revocation_ids")
        if envelope.event_type == EV_TOKEN_REVOKED and isinstance(ids, list):
            self._ids.update(bytes.fromhex(one) for one in ids if is_revocation_id(one))


def is_revocation_id(value: object) -> bool:
    """Whether `value` is the id of a token's block: a signature, in hexadecimal digits."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _id(text: str) -> bytes:
    if not is_revocation_id(text):
        raise BadToken("a revocation id", found="something else", expected="128 hexadecimal digits")
    return bytes.fromhex(text)
