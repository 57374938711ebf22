"""What is asked before, and told after.

An arbiter is asked before anything is decided and may say no. A rule of a
participant is enforced here where it needs the hub's memory (rates, inboxes);
`core.governance` says what it means. A listener is told after the fact and can
change nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

from turnline.core.channel import ChannelMetadata, ChannelSpec
from turnline.core.directory import Directory
from turnline.core.envelope import Draft, Envelope
from turnline.core.governance import (
    Allowance,
    Registration,
    check_invited,
    check_open,
    check_open_channels,
)
from turnline.core.state import metadata_of
from turnline.errors import Denied
from turnline.hub.audit import AuditLog
from turnline.hub.channels import Entry

logger = logging.getLogger(__name__)

Listener = Callable[[Envelope], None]
"""Called with every envelope after it is on the log. What it raises is logged and goes no further."""


class Arbiter(Protocol):
    """Asked before. Raise `Denied`, or return."""

    async def may_open(self, opener: Registration, spec: ChannelSpec) -> None: ...

    async def may_post(self, sender: Registration, draft: Draft, channel: ChannelMetadata) -> None: ...


class Counts(Counter[str]):
    """Counts by user or address. A key whose count is zero is forgotten, because users come and go."""

    def __setitem__(self, key: str, count: int) -> None:
        if count:
            super().__setitem__(key, count)
        else:
            self.pop(key, None)


class OpenChannels:
    """How many open channels each user of a server has. Channels that are being opened count."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._users: dict[str, str] = {}
        """Open channel -> the user whose participant opened it."""
        self._counts = Counts()

    def note_open(self, channel_id: str, user: str) -> None:
        """Count an open channel for a user; empty: it counts for none."""
        if user and channel_id not in self._users:
            self._users[channel_id] = user
            self._counts[user] += 1

    def note_closed(self, channel_id: str) -> None:
        """Count a channel no more."""
        user = self._users.pop(channel_id, "")
        self._counts[user] -= bool(user)

    def check(self, opener: Registration) -> None:
        """Raise `Denied` if the opener's user has all the channels they may have."""
        check_open_channels(opener, self._counts[opener.user], self._most)

    @contextmanager
    def opening(self, opener: Registration) -> Iterator[None]:
        """Keep a place for a channel that is being opened. Raises `Denied` if there is none left."""
        self.check(opener)
        self._counts[opener.user] += 1
        try:
            yield
        finally:  # Once it is open it is counted as that.
            self._counts[opener.user] -= 1


class Rates:
    """How much of its rate each participant has left."""

    def __init__(self) -> None:
        self._left: dict[str, Allowance] = {}

    def spend(self, who: Registration, now: float) -> None:
        """Count one post, or raise `Denied`."""
        per_minute = who.rule.posts_per_minute
        if per_minute is None:
            return
        left = self._left.get(who.agent_id, Allowance(float(per_minute), now)).spent(per_minute, now)
        if left is None:
            because = f"its rule allows {per_minute} posts a minute"
            raise Denied(who.name, what="post so often", because=because)
        self._left[who.agent_id] = left

    def forget(self, agent_id: str) -> None:
        """Forget a participant that was removed. Its id is never used again."""
        self._left.pop(agent_id, None)


class Gate:
    """Where rules and the arbiter are asked before anything is decided. A no is audited."""

    def __init__(self, arbiter: Arbiter | None, audit: AuditLog, *, open_channels_per_user: int) -> None:
        self._arbiter = arbiter
        self._audit = audit
        self.rates = Rates()
        self.open_channels = OpenChannels(open_channels_per_user)

    @contextmanager
    def opening(self, opener: Registration) -> Iterator[None]:
        """Keep a place among the user's open channels. Raises `Denied` if there is none left."""
        with ExitStack() as place:
            with self._audited(None):
                place.enter_context(self.open_channels.opening(opener))
            yield

    async def may_open(
        self, opener: Registration, spec: ChannelSpec, directory: Directory, waited_for: Callable[[str], int]
    ) -> None:
        """Raise `Denied` if the opener's rule, an invitee's or the arbiter says no."""
        with self._audited(None):
            self.open_channels.check(opener)
            check_open(opener, spec)
            for agent_id in spec.invited:
                invitee = directory.by_id.get(agent_id)
                if invitee is not None:  # A fork keeps members that have been unregistered since.
                    check_invited(invitee, opener, waited_for(agent_id))
            if self._arbiter is not None:
                await self._arbiter.may_open(opener, spec)

    async def may_post(self, sender: Registration, draft: Draft, entry: Entry, now: float) -> None:
        """Raise `Denied` if the sender's rate is used up or the arbiter says no."""
        with self._audited(entry.channel_id):
            self.rates.spend(sender, now)
            if self._arbiter is not None:
                await self._arbiter.may_post(sender, draft, metadata_of(entry.state))

    @contextmanager
    def _audited(self, channel_id: str | None) -> Iterator[None]:
        try:
            yield
        except Denied as denied:
            facts = {"who": denied.who, "may_not": denied.what, "because": denied.because}
            self._audit.note("denied", channel_id=channel_id, **facts)
            raise


def tell(listeners: Sequence[Listener], envelopes: Sequence[Envelope]) -> None:
    for listener in listeners:
        for envelope in envelopes:
            try:
                listener(envelope)
            except Exception:
                logger.exception(
                    "a listener raised on %s of channel %s", envelope.event_type, envelope.channel_id
                )
