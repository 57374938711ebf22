"""The hub's directory: registrations, on a channel of their own.

`core.directory` has the rules. If another hub appends first, its lines are read and the registration is
decided again (`log.system_channel`).

The users of a server are on the same channel: the id of a user whom one server has seen is refused as a
name of others by every hub of the log, after a restart too. The id of such a line says nothing of the user,
because it stays when the user is forgotten (Y2).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from typing import Final

import msgspec

from turnline.core.codec import erased_lines
from turnline.core.directory import (
    DIRECTORY_CHANNEL,
    EV_PARTICIPANT_REGISTERED,
    EV_PARTICIPANT_REMOVED,
    EV_USER_SEEN,
    UNREGISTERED,
    Directory,
    RegistrationPlan,
    fold_directory,
    participant_id,
    plan_registration,
    skeleton,
)
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_PAYLOAD_ERASED
from turnline.core.governance import Passport, Registrar, Registration, Resume, Rule
from turnline.core.json import normalised
from turnline.errors import BadDraft, ChannelQuarantined, CorruptRecord, TurnlineError
from turnline.hub.timers import Clock, NewId
from turnline.log.base import Log
from turnline.log.system_channel import SystemChannel, SystemLine

logger = logging.getLogger(__name__)

USERS_REMEMBERED: Final = 10_000
"""The latest users whose ids a hub refuses as names of others. A user beyond them can reclaim their name."""
USERS_NOTED: Final = 100_000
"""The latest users of whom a hub knows that the log has a line. A user beyond them may get a second one."""


class HubDirectory:
    """Who is registered on this log."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        new_id: NewId,
        on_removed: Callable[[str], None] | None = None,
        *,
        users_remembered: int = USERS_REMEMBERED,
    ) -> None:
        """`on_removed` gets the id of each participant that was removed, by this hub or by another one."""
        self.known = Directory()
        self._channel = SystemChannel(log, DIRECTORY_CHANNEL, clock.now, new_id, apply=self._apply)
        self._new_id = new_id
        self._on_removed = on_removed
        self._users: OrderedDict[str, str] = OrderedDict()
        """User id -> its skeleton. The user seen last is the last."""
        self._user_lines: OrderedDict[bytes, int] = OrderedDict()
        """Digest of a user id -> the line that names it."""
        self._users_remembered = users_remembered

    @property
    def damage(self) -> CorruptRecord | None:
        """Return what hides the rest of the directory; None if all of it was read."""
        return self._channel.damage

    @property
    def last_at(self) -> datetime:
        """Return the time of the last known line."""
        return self._channel.last_at

    async def hydrate(self) -> None:
        """Read what has been registered since. Damage costs the lines after it, never the hub (E5)."""
        with suppress(ChannelQuarantined):
            await self._channel.catch_up()

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
        plans = list[RegistrationPlan]()

        def decide() -> list[SystemLine]:
            new_agent_id = participant_id(passport, self._new_id()[-8:])
            plan = plan_registration(
                self.known, passport, resume, rule, new_agent_id=new_agent_id, by=by, users=self._users
            )
            plans.append(plan)
            if not plan.is_change:
                return []
            if plan.known is not None and check_change is not None:
                check_change(plan.known)
            return [
                SystemLine(event_type, _check_readable(event_type, data)) for event_type, data in plan.lines()
            ]

        await self.hydrate()  # Another hub may have registered or removed the name.
        written = await self._channel.append(decide)
        _report_squatters(plans[-1])
        return msgspec.structs.replace(plans[-1], seq=written[-1].seq if written else 0)

    async def remove(self, agent_id: str, *, reason: str = UNREGISTERED) -> None:
        """Remove a participant and free its name. Channels it took part in keep both."""
        line = SystemLine(EV_PARTICIPANT_REMOVED, {"agent_id": agent_id, "reason": reason})
        await self._channel.append(lambda: [line] if agent_id in self.known.by_id else [])

    async def note_user(self, user: str) -> None:
        """Remember a user of the server, here and on the log: their id is no other user's name.

        If the log cannot be written, the request goes on, and only this hub remembers the user.
        """
        if user in self._users:
            self._users.move_to_end(user)
            return
        try:
            line = SystemLine(EV_USER_SEEN, normalised({"user": user}, field="user"))
            await self.hydrate()  # Another hub may have seen the user.
            await self._channel.append(lambda: [] if _digest(user) in self._user_lines else [line])
        except TurnlineError as error:
            logger.warning("the user %r is not noted on the log: %s", user, error)
        self._remember(user)

    def _remember(self, user: str) -> None:
        self._users[user] = skeleton(user)
        self._users.move_to_end(user)
        if len(self._users) > self._users_remembered:
            self._users.popitem(last=False)

    async def learn(self, names: Iterable[str]) -> None:
        """Read the log if one of these ids or names is not known: another hub may have registered it."""
        if any(isinstance(name, str) and self.known.find(name) is None for name in names):
            await self.hydrate()

    def _apply(self, line: Envelope) -> None:
        self.known = fold_directory(self.known, line)
        if line.event_type == EV_PARTICIPANT_REMOVED and self._on_removed is not None:
            self._on_removed(str(line.event_data.get("agent_id")))
        elif line.event_type == EV_USER_SEEN and not line.is_erased:
            user = str(line.event_data.get("user", ""))
            self._remember(user)
            self._user_lines[_digest(user)] = line.seq
            if len(self._user_lines) > USERS_NOTED:
                self._user_lines.popitem(last=False)
        elif line.event_type == EV_PAYLOAD_ERASED:
            self._forget_users(erased_lines(line))

    def _forget_users(self, ranges: Sequence[tuple[int, int]]) -> None:
        erased = [
            digest
            for digest, seq in self._user_lines.items()
            if any(first <= seq <= last for first, last in ranges)
        ]
        for digest in erased:
            del self._user_lines[digest]
        for user in [user for user in self._users if _digest(user) in erased]:
            del self._users[user]


def _digest(user: str) -> bytes:
    return blake2b(user.encode(errors="surrogatepass"), digest_size=8).digest()


def _report_squatters(plan: RegistrationPlan) -> None:
    for one in plan.squatters:
        logger.warning(
            "%r takes its name from %r, which the user %r had registered; that participant was removed",
            plan.registration.name,
            one.name,
            one.user,
        )


def _check_readable(event_type: str, data: JsonObject) -> JsonObject:
    """Refuse a registration that could not be read again: it would cost the hub, not its participant (E2)."""
    found = normalised(data, field="registration")
    try:
        if event_type == EV_PARTICIPANT_REGISTERED:
            msgspec.convert(found, Registration)
    except msgspec.ValidationError as error:
        raise BadDraft("registration", found=f"wrong: {error}", expected="the types it names") from error
    return found
