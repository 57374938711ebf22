"""The hub's directory: registrations, on a channel of their own.

A registration is a compare-and-append: decide on what is known, append after that line. Where another hub
was faster, its lines are read and the registration is decided again. `core.directory` has the rules.

The users of a server are on the same channel: the id of a user whom one server has seen is refused as a
name of others by every hub of the log, after a restart too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from turnline.core.directory import (
    DIRECTORY_CHANNEL,
    EV_PARTICIPANT_REMOVED,
    EV_USER_SEEN,
    Directory,
    RegistrationPlan,
    fold_directory,
    plan_registration,
    readable_id,
    skeleton,
)
from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.core.event_types import HUB
from turnline.core.governance import Passport, Registrar, Registration, Resume, Rule
from turnline.core.json import normalised
from turnline.core.state import LONG_AGO
from turnline.errors import BadDraft, ChannelQuarantined, CorruptRecord, LogConflict, TurnlineError
from turnline.hub.clock import Clock
from turnline.hub.ids import NewId
from turnline.log.base import Log

logger = logging.getLogger(__name__)

USERS_REMEMBERED: Final = 10_000
"""The latest users whose ids a hub refuses as names of others. A user beyond them can reclaim their name."""


class HubDirectory:
    """Who is registered on this log."""

    def __init__(self, log: Log, clock: Clock, new_id: NewId) -> None:
        self.known = Directory()
        self.damage: CorruptRecord | None = None
        self.last_at = LONG_AGO
        self._log = log
        self._clock = clock
        self._new_id = new_id
        self._lock = asyncio.Lock()
        self._users: OrderedDict[str, str] = OrderedDict()
        """User id -> its skeleton. The user seen last is the last."""

    async def hydrate(self) -> None:
        """Read what has been registered since. Damage costs the lines behind it, never the hub (E5)."""
        self.damage = None
        try:
            async for envelope in self._log.read(DIRECTORY_CHANNEL, after=self.known.seq):
                self._take_over(envelope)
        except CorruptRecord as error:
            self.damage = error

    async def register(
        self,
        passport: Passport,
        resume: Resume | None,
        rule: Rule | None,
        *,
        by: Registrar | None = None,
        check_change: Callable[[Registration], None] | None = None,
    ) -> RegistrationPlan:
        """Carry out a registration and return its plan. See `plan_registration`.

        `check_change` gets a registration before it is changed, and may raise: then nothing was written.
        """
        async with self._lock:
            await self.hydrate()  # Another hub may have registered or removed the name.
            while True:
                new_agent_id = readable_id(str(passport.name), self._new_id()[-8:])
                plan = plan_registration(
                    self.known, passport, resume, rule, new_agent_id=new_agent_id, by=by, users=self._users
                )
                if not plan.is_change:
                    return plan
                if plan.known is not None and check_change is not None:
                    check_change(plan.known)
                if await self._append(plan.lines()):
                    _report_squatters(plan)
                    return plan

    async def remove(self, agent_id: str) -> None:
        """Remove a participant and free its name. Channels it took part in keep both."""
        async with self._lock:
            while agent_id in self.known.by_id:
                await self._append([(EV_PARTICIPANT_REMOVED, {"agent_id": agent_id})])

    async def note_user(self, user: str) -> None:
        """Remember a user of the server, here and on the log: their id is no other user's name.

        A log that cannot be written to costs nobody their request: then only this hub remembers the user.
        """
        if user in self._users:
            self._users.move_to_end(user)
            return
        try:
            async with self._lock:
                await self.hydrate()  # Another hub may have seen the user.
                while user not in self._users:
                    await self._append([(EV_USER_SEEN, {"user": user})])
        except TurnlineError as error:
            logger.warning("the user %r is not noted on the log: %s", user, error)
            self._remember(user)

    def _remember(self, user: str) -> None:
        self._users[user] = skeleton(user)
        self._users.move_to_end(user)
        if len(self._users) > USERS_REMEMBERED:
            self._users.popitem(last=False)

    async def learn(self, names: Iterable[str]) -> None:
        """Read the log if one of these ids or names is not known: another hub may have registered it."""
        if any(isinstance(name, str) and self.known.find(name) is None for name in names):
            await self.hydrate()

    async def _append(self, lines: Sequence[tuple[str, JsonObject]]) -> bool:
        """Append these lines together; False if another hub was faster. Then its lines have been read."""
        if self.damage is not None:
            raise ChannelQuarantined(DIRECTORY_CHANNEL, cause=self.damage)
        envelopes, after = list[Envelope](), self.known
        for event_type, data in lines:
            envelope = Envelope(
                schema_version=SCHEMA_VERSION,
                envelope_id=self._new_id(),
                channel_id=DIRECTORY_CHANNEL,
                seq=after.seq + 1,
                sender_id=HUB,
                event_type=event_type,
                event_data=normalised(data, field="registration"),
                audience=[],
                created_at=max(self._clock.now(), self.last_at),
            )
            after = _read_back(after, envelope)
            envelopes.append(envelope)
        try:
            await self._log.append(DIRECTORY_CHANNEL, envelopes, after=envelopes[0].seq - 1)
        except LogConflict:
            await self.hydrate()
            return False
        for envelope in envelopes:
            self._take_over(envelope)
        return True

    def _take_over(self, envelope: Envelope) -> None:
        if envelope.seq <= self.known.seq:
            return  # Two readings overlapped. An old line must not bring back what a later one removed.
        self.known = fold_directory(self.known, envelope)
        self.last_at = envelope.created_at
        if envelope.event_type == EV_USER_SEEN:
            self._remember(str(envelope.event_data.get("user", "")))


def _report_squatters(plan: RegistrationPlan) -> None:
    for one in plan.squatters:
        logger.warning(
            "%r takes its name from %r, which the user %r had registered; that participant was removed",
            plan.registration.name,
            one.name,
            one.user,
        )


def _read_back(known: Directory, envelope: Envelope) -> Directory:
    """Refuse a registration that could not be read again: it would cost the hub, not its participant (E2)."""
    try:
        return fold_directory(known, envelope)
    except msgspec.ValidationError as error:
        raise BadDraft("registration", found=f"wrong: {error}", expected="the types it names") from error
