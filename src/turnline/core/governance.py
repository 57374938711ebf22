"""Who somebody is, what it can do, and what it may do.

A `Passport` says who; a `Resume` what it is good at; a `Rule` what it may do.
Every field of a rule is enforced: when a channel is opened (`check_open`,
`check_invited`) or when a draft is posted (`Allowance`). A field left at None
allows everything. Who may have which name is decided in `core.directory`.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from turnline.core.channel import ChannelSpec
from turnline.core.envelope import JsonObject
from turnline.errors import BadDraft, Denied, NestedTooDeep

KINDS: Final = ("agent", "human", "remote_agent")
NAMES_PER_USER: Final = 1_000
"""Names that one user of a server may have registered. A program that opens the log has no quota."""
OPEN_CHANNELS_PER_USER: Final = 1_000
"""Open channels of the participants of one user of a server. A program that opens the log has no quota."""
REGISTRATION_BYTES: Final = 64 * 1024
"""Passport, resume and rule of a user's registration together, as JSON. Every hub keeps them in memory."""
_NAME_CHARACTERS: Final = 128


class Passport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who a participant is. The name is unique on a hub."""

    name: str
    owner: str = ""
    """The user who may register the name again, beside the project. Over a link: the authenticated user."""
    kind: str = "agent"
    auth: JsonObject = {}
    """What an authenticator needs to recognise it; never shown to other participants."""


class Resume(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a participant is good at."""

    capabilities: list[str] = []
    summary: str = ""
    observed: JsonObject = {}
    """What was seen of its work. `hub.resume` fills in what the log says of it."""


class Rule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a participant may do. None allows everything."""

    may_address: list[str] | None = None
    """Whom it may invite: names, or patterns such as `team-*` (`*`, `?` and `[abc]`, case matters)."""
    addressable_by: list[str] | None = None
    """Who may invite it: names or patterns."""
    channel_types: list[str] | None = None
    """The types of channel it may open."""
    posts_per_minute: int | None = None
    inbox: int | None = None
    """In how many channels it may be waited for at once; a further invitation is refused."""
    ttl_seconds: float | None = None
    """The longest life of a channel it opens. A channel opened without one gets this."""
    delegation_depth: int | None = None
    """How deep below another channel it may open one; 0 forbids it."""


class Registration(Struct, frozen=True, kw_only=True):
    """A participant as the directory knows it."""

    agent_id: str
    passport: Passport
    resume: Resume = Resume()
    rule: Rule = Rule()
    user: str = ""
    """The user who registered it first, over a link; empty: the project, a program that opened the log."""

    @property
    def name(self) -> str:
        return self.passport.name


class Registrar(Struct, frozen=True):
    """A user who registers over a link, as the server has authenticated them."""

    user: str
    is_admin: bool = False
    """Whether they may register people, and names that are user ids, for others."""
    quota: int = NAMES_PER_USER


class Allowance(Struct, frozen=True):
    """What is left of a rate of posts: refilled by time, spent one by one."""

    left: float
    at: float
    """Monotonic seconds."""

    def spent(self, per_minute: int, now: float) -> Allowance | None:
        """Return what is left after one more post at `now`; None if there is nothing left."""
        refilled = min(float(per_minute), self.left + (now - self.at) * per_minute / 60)
        return Allowance(refilled - 1, now) if refilled >= 1 else None


def check_passport(passport: Passport) -> None:
    """Refuse a passport nobody could be addressed by."""
    name = passport.name
    if (
        not isinstance(name, str)
        or not name.strip()
        or len(name) > _NAME_CHARACTERS
        or not name.isprintable()
    ):
        wanted = f"1 to {_NAME_CHARACTERS} printable characters"
        raise BadDraft("passport.name", found=repr(name)[:80], expected=wanted)
    if passport.kind not in KINDS:
        raise BadDraft("passport.kind", found=repr(passport.kind)[:80], expected=f"one of {', '.join(KINDS)}")


def may_address(opener: Registration, other: Registration) -> bool:
    """Whether the rules of the two let `opener` invite `other`."""
    return _allows(opener.rule.may_address, other.name) and _allows(other.rule.addressable_by, opener.name)


def check_open(opener: Registration, spec: ChannelSpec) -> None:
    """Refuse a channel its opener's rule does not allow."""
    rule, who = opener.rule, opener.name
    what = f"open a {spec.type!r} channel"
    if rule.channel_types is not None and spec.type not in rule.channel_types:
        raise Denied(who, what=what, because=f"its rule allows only {_listed(rule.channel_types)}")
    is_own = spec.creator_id == opener.agent_id  # A fork has the creator and the knobs of its origin.
    if opener.user and is_own and "flow" in spec.knobs:
        because = "only a server starts runs, and they count against the limits of its users"
        raise Denied(who, what="open a run of a flow", because=because)
    others = [one.name for one in spec.participants if one.agent_id != opener.agent_id]
    strangers = [name for name in others if not _allows(rule.may_address, name)]
    if strangers:
        raise Denied(
            who,
            what=f"address {_listed(strangers)}",
            because=f"its rule allows only {_listed(rule.may_address or [])}",
        )
    if rule.ttl_seconds is not None and (spec.ttl_seconds is None or spec.ttl_seconds > rule.ttl_seconds):
        raise Denied(who, what=f"{what} for longer", because=f"its rule allows {rule.ttl_seconds:g} s")
    if spec.depth > spec.max_depth:
        raise NestedTooDeep(spec.channel_id, depth=spec.depth, limit=spec.max_depth)
    if rule.delegation_depth is not None and spec.depth > rule.delegation_depth:
        raise Denied(
            who, what=f"delegate {spec.depth} deep", because=f"its rule allows {rule.delegation_depth}"
        )


def check_open_channels(opener: Registration, count: int, most: int) -> None:
    """Refuse one more channel of a user who has `count` open ones, if `most` are allowed."""
    if opener.user and count >= most:
        because = (
            f"the user {opener.user!r} has {count} open channels, and the hub allows {most} per user "
            f"(open_channels_per_user). Close some first, or let the operator raise it"
        )
        raise Denied(opener.name, what="open another channel", because=because)


def check_invited(invitee: Registration, opener: Registration, waited_for: int) -> None:
    """Refuse an invitation the invitee's rule does not allow."""
    rule = invitee.rule
    if not _allows(rule.addressable_by, opener.name):
        # The names that the rule does allow may be hidden from the opener.
        because = f"the rule of {invitee.name!r} does not allow it"
        raise Denied(opener.name, what=f"address {invitee.name!r}", because=because)
    if rule.inbox is not None and waited_for >= rule.inbox:
        because = f"it is waited for in {waited_for} channels, and its rule allows {rule.inbox}"
        raise Denied(opener.name, what=f"address {invitee.name!r}", because=because)


def _allows(patterns: list[str] | None, name: str) -> bool:
    return patterns is None or any(name == one or fnmatchcase(name, one) for one in patterns)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
