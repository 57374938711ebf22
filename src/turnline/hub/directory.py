"""The hub's directory: registrations, on a channel of their own."""

from __future__ import annotations

import asyncio

import msgspec

from turnline.core.directory import (
    DIRECTORY_CHANNEL,
    EV_PARTICIPANT_REGISTERED,
    EV_PARTICIPANT_REMOVED,
    Directory,
    fold_directory,
    readable_id,
)
from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.core.event_types import HUB
from turnline.core.governance import Passport, Registration, Resume, Rule, check_passport
from turnline.core.json import normalised
from turnline.core.state import LONG_AGO
from turnline.errors import BadDraft, ChannelQuarantined, CorruptRecord, LogConflict, NameTaken
from turnline.hub.clock import Clock
from turnline.hub.ids import NewId
from turnline.log.base import Log


class HubDirectory:
    """Who is registered on this log."""

    def __init__(self, log: Log, clock: Clock, new_id: NewId) -> None:
        self.known = Directory()
        self.damage: CorruptRecord | None = None
        self._last_at = LONG_AGO
        self._log = log
        self._clock = clock
        self._new_id = new_id
        self._lock = asyncio.Lock()

    async def hydrate(self) -> None:
        """Read what has been registered since. Damage costs the lines behind it, never the hub (E5)."""
        self.damage = None
        try:
            async for envelope in self._log.read(DIRECTORY_CHANNEL, after=self.known.seq):
                self._take_over(envelope)
        except CorruptRecord as error:
            self.damage = error

    async def register(self, passport: Passport, resume: Resume | None, rule: Rule | None) -> Registration:
        """Return the registration of this name: the one on the log, brought up to date, or a new one (L6).

        What is not given stays as it was registered before.
        """
        check_passport(passport)
        async with self._lock:
            while True:
                known = self.known.named(passport.name)
                wanted = self._wanted(known, passport, resume, rule)
                data = msgspec.to_builtins(wanted)
                if wanted == known or await self._append(EV_PARTICIPANT_REGISTERED, data):
                    return wanted

    async def remove(self, agent_id: str) -> None:
        """Forget a participant. Channels it took part in keep its name."""
        async with self._lock:
            while agent_id in self.known.by_id:
                await self._append(EV_PARTICIPANT_REMOVED, {"agent_id": agent_id})

    def _wanted(
        self, known: Registration | None, passport: Passport, resume: Resume | None, rule: Rule | None
    ) -> Registration:
        if known is None:
            agent_id = readable_id(passport.name, self._new_id()[-8:])
            known = Registration(agent_id=agent_id, passport=passport)
        elif known.passport.kind != passport.kind:
            do = f"It is registered as a {known.passport.kind!r}; a {passport.kind!r} needs another name."
            raise NameTaken("participant", passport.name, do=do)
        return Registration(
            agent_id=known.agent_id, passport=passport, resume=resume or known.resume, rule=rule or known.rule
        )

    async def _append(self, event_type: str, data: JsonObject) -> bool:
        """Append one line; False if somebody else did first, which has then been read."""
        if self.damage is not None:
            raise ChannelQuarantined(DIRECTORY_CHANNEL, cause=self.damage)
        envelope = Envelope(
            schema_version=SCHEMA_VERSION,
            envelope_id=self._new_id(),
            channel_id=DIRECTORY_CHANNEL,
            seq=self.known.seq + 1,
            sender_id=HUB,
            event_type=event_type,
            event_data=normalised(data, field="registration"),
            audience=[],
            created_at=max(self._clock.now(), self._last_at),
        )
        _check_reads_back(self.known, envelope)
        try:
            await self._log.append(DIRECTORY_CHANNEL, [envelope], after=self.known.seq)
        except LogConflict:
            await self.hydrate()
            return False
        self._take_over(envelope)
        return True

    def _take_over(self, envelope: Envelope) -> None:
        self.known = fold_directory(self.known, envelope)
        self._last_at = envelope.created_at


def _check_reads_back(known: Directory, envelope: Envelope) -> None:
    """Refuse a registration that could not be read again: it would cost the hub, not its participant (E2)."""
    try:
        fold_directory(known, envelope)
    except msgspec.ValidationError as error:
        raise BadDraft("registration", found=f"wrong: {error}", expected="the types it names") from error
