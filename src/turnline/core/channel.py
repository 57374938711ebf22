"""What a channel is before anything has been said on it.

A `ChannelSpec` is the data of a channel's first envelope, `channel.invite`:
who takes part, under which rules, with which options. It never changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from turnline.core.envelope import JsonObject
from turnline.core.parts import FilePart
from turnline.errors import BadDraft, UnknownParticipant

ACK_TIMEOUT_SECONDS: Final = 30.0
MAX_DEPTH: Final = 16
"""Channels above one another: nested runs, channels of steps, delegations. A flow may set its own."""
MAX_RUNS: Final = 1_000
"""Runs of other flows below one run, at any depth. A flow may set its own."""
MOST_DEPTH: Final = 64
"""The deepest `max_depth` that a channel may be opened with."""
MOST_RUNS: Final = 100_000
"""The highest `max_runs` that a channel may be opened with."""
ID_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What an id looks like: safe in a path, an address and a subject name."""
CHILD_MARK: Final = "--"
"""Stands in the ids that `child_id` makes, and in no id that a participant chooses."""
_DIGEST_BYTES: Final = 12
_TURN: Final = re.compile(r"[1-9][0-9]{0,17}")


class ChannelState(StrEnum):
    """A channel's status. (The name is the public one; what a log adds up to is a `State`.)"""

    PENDING = "pending"
    ACTIVE = "active"
    CLOSING = "closing"
    CLOSED = "closed"
    EXPIRED = "expired"


class Participant(Struct, gc=False, frozen=True, omit_defaults=True):
    """A member of a channel."""

    agent_id: str
    name: str = ""
    """Empty: it was erased."""
    kind: str = "agent"
    """`agent`, `human`, `remote_agent` or `step`. For display; rules ask `is_person` and `played_by`."""
    takes_turns: bool = True
    """False for a participant that only passes the first message, such as the `user` of `run` (N8)."""
    played_by: str = ""
    """The id of the participant that takes the turns of this one, such as a step; empty: itself."""
    asks: str = ""
    """The group of people that a step of a flow may ask (N7); empty: none."""
    asks_seconds: float | None = None
    """How long a question that goes up to the group waits for an answer; None: for ever."""

    @property
    def player(self) -> str:
        """The id of the participant that takes the turns of this one."""
        return self.played_by or self.agent_id

    @property
    def is_person(self) -> bool:
        """Whether a person takes its turns: one who can be asked, and may interject."""
        return self.kind == "human"


class Expectation(Struct, gc=False, frozen=True):
    """A deadline on a channel, and what to do when it passes."""

    name: str
    """`turn_within`, `reply_within`, `max_silence` or `acks_within`."""
    seconds: float
    handler: str = "warn"
    """`warn` or `auto_close`."""


class ForkedFrom(Struct, gc=False, frozen=True, omit_defaults=True):
    """Whose past a fork has, and up to which line."""

    channel: str
    seq: int
    log: str = ""
    """The name of the log on which the fork was made (`log.origin`)."""


class ChannelSpec(Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True):
    """Everything `open` was given, with names looked up."""

    channel_id: str = ""
    type: str = ""
    creator_id: str = ""
    participants: list[Participant] = []
    """In the order of turns: the creator first."""
    invited: list[str] = []
    """Who has to accept before the channel opens. Steps of a flow are not asked."""
    knobs: JsonObject = {}
    expectations: list[Expectation] | None = None
    """None: the channel type's own."""
    labels: dict[str, str] = {}
    ttl_seconds: float | None = None
    ack_timeout_seconds: float = ACK_TIMEOUT_SECONDS
    message: str | None = None
    """Said by the creator as the channel opens."""
    files: list[FilePart] = []
    """What the channel begins with (Y6): the creator uploaded them, or the parent begins with them."""
    parent_id: str | None = None
    """The channel this one was opened from, if it was."""
    depth: int = 0
    """How many channels are above this one."""
    max_depth: int = MAX_DEPTH
    """The depth that no channel of this tree may exceed. A channel has the limit of its parent."""
    max_runs: int = MAX_RUNS
    """Runs of flows that may be opened below this channel, if it is the top of a tree."""
    asks_above: bool = False
    """Whether questions of its turns go up, to people or to the group of a step: it has no people."""
    forked_from: ForkedFrom | None = None
    traceparent: str | None = None
    """The span it was opened in; whoever works on it goes on in that trace."""
    log: str = ""
    """The name of the log on which the driver of flows opened it (`log.origin`); empty for other channels."""

    @property
    def opened_on(self) -> str:
        """Return the name of the log on which the channel, or this fork of one, was opened."""
        return self.log if self.forked_from is None else self.forked_from.log

    @property
    def can_ask_above(self) -> bool:
        """Return whether questions of a turn go up. For a fork nothing above waits."""
        return self.asks_above and self.forked_from is None

    @property
    def people(self) -> list[str]:
        """The ids of the people of the channel: whom a turn can ask."""
        return [one.agent_id for one in self.participants if one.is_person]

    @property
    def is_flow_run(self) -> bool:
        """Return whether it is a run of a whole flow, and not of the inner steps of one."""
        flow = self.knobs.get("flow")
        return isinstance(flow, dict) and not flow.get("at")

    @property
    def turn_order(self) -> tuple[str, ...]:
        """The participants whose turn comes round, in order: without those that another one plays (N8)."""
        return tuple(one.agent_id for one in self.participants if one.takes_turns and not one.played_by)

    def names(self) -> Mapping[str, str]:
        """Every id and every name of a participant -> the id."""
        by_name = {participant.name: participant.agent_id for participant in self.participants}
        return by_name | {participant.agent_id: participant.agent_id for participant in self.participants}

    def resolve(self, name: str) -> str:
        """Return the id of the participant known by this id or name (L2)."""
        return Names(self).resolve(name)

    def participant(self, agent_id: str) -> Participant | None:
        for one in self.participants:  # A loop: it is asked many times in a turn.
            if one.agent_id == agent_id:
                return one
        return None

    def player_of(self, agent_id: str) -> str:
        """Return who takes the turns of a participant: itself, or the one that plays it."""
        member = self.participant(agent_id)
        return agent_id if member is None else member.player

    def is_played(self, agent_id: str) -> bool:
        """Return whether another participant takes the turns of this one."""
        member = self.participant(agent_id)
        return member is not None and bool(member.played_by)

    def is_person(self, agent_id: str) -> bool:
        """Return whether the participant is a person."""
        member = self.participant(agent_id)
        return member is not None and member.is_person

    def name_of(self, agent_id: str) -> str:
        """Return the participant's name; the id if it is another one's, or if the name was erased."""
        member = self.participant(agent_id)
        return agent_id if member is None else member.name or agent_id

    def kind_of(self, agent_id: str | None) -> str:
        """Return the participant's kind; empty for an id of another one."""
        member = self.participant(agent_id or "")
        return "" if member is None else member.kind


class Names:
    """The participants of a channel by id and name: made once, asked for each name in a graph."""

    def __init__(self, spec: ChannelSpec) -> None:
        self._spec = spec
        self._ids = spec.names()

    def resolve(self, name: str) -> str:
        """Return the id of the participant known by this id or name (L2)."""
        if name not in self._ids:
            raise UnknownParticipant(name, (participant.name for participant in self._spec.participants))
        return self._ids[name]


class ChannelMetadata(Struct, frozen=True, kw_only=True):
    """What can be said of a channel without its conversation."""

    channel_id: str
    type: str
    status: ChannelState
    creator_id: str
    participants: list[Participant]
    knobs: JsonObject
    labels: dict[str, str]
    created_at: datetime
    seq: int
    turn_count: int
    speaker_id: str | None
    close_reason: str | None
    closed_at: datetime | None
    ttl_seconds: float | None
    parent_id: str | None
    waiting_for: str = ""
    """Why the turn in progress is paused, or `message` for a channel that rests; else empty."""


class ChannelRow(Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True):
    """What the index says of a channel: enough to list it, and to know when to look at it (Y7).

    A function of the channel's state. It is written with each append, and can be made again from the log.
    """

    channel_id: str
    type: str
    status: ChannelState
    seq: int
    created_at: datetime
    updated_at: datetime
    creator_id: str = ""
    participants: list[str] = []
    labels: dict[str, str] = {}
    flow: str = ""
    """The name of the flow that it is a run of."""
    parent_id: str = ""
    origin: str = ""
    """The channel that it is a fork of."""
    speaker_id: str = ""
    last_speaker_id: str = ""
    turn_count: int = 0
    user_key: str = ""
    """The user who started a run, or made the fork that continues it, as `user_key_of` names them."""
    waiting_for: str = ""
    """What an open channel waits for; `person` as soon as a question is open."""
    waits_for: list[str] = []
    """The participants that an open channel waits for: see `core.views`."""
    waits_for_children: bool = False
    """Whether the turn in progress is paused until a channel below closes, whatever else it waits for."""
    forked_for: str = ""
    """The user among whose open channels a fork counts."""
    deadline: datetime | None = None
    """When something falls due, by the times of its own lines."""
    closed_at: datetime | None = None
    close_code: str = ""

    @property
    def is_closed(self) -> bool:
        return self.closed_at is not None

    @property
    def is_run(self) -> bool:
        """Whether it is a run of a flow that nothing else opened."""
        return bool(self.flow) and not self.parent_id


class ChannelFilter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which channels a list shows. Every field that is set has to hold."""

    is_closed: bool | None = None
    type: str = ""
    flow: str = ""
    is_run: bool | None = None
    """Whether it is a run of a flow that nothing else opened."""
    labels: dict[str, str] = {}
    participants: list[str] = []
    """All of these are on it, by id. A list is walked by the first."""
    parent_id: str = ""
    origin: str = ""
    speaker_id: str = ""
    waiting_for: list[str] = []
    """One of these."""
    is_waiting: bool | None = None
    """Whether it waits for anything."""
    close_codes: list[str] = []
    """One of these."""
    but_close_codes: list[str] = []
    """None of these."""
    since: datetime | None = None
    until: datetime | None = None
    """When it was created: from `since` on, and before `until`."""
    due: datetime | None = None
    """Something falls due by then."""


def user_key_of(user_id: object) -> str:
    """Return what stands for a user in the index: a digest, for an index keeps no text about a person."""
    return _digest(str(user_id)) if user_id else ""


def age(row: ChannelRow) -> tuple[datetime, str]:
    """Return what rows are sorted by: when the channel was created, then its id."""
    return row.created_at, row.channel_id


def matches(row: ChannelRow, where: ChannelFilter) -> bool:
    """Return whether the row is one that `where` asks for."""
    same = all(
        not wanted or found == wanted
        for wanted, found in (
            (where.type, row.type),
            (where.flow, row.flow),
            (where.parent_id, row.parent_id),
            (where.origin, row.origin),
            (where.speaker_id, row.speaker_id),
        )
    )
    return (
        same
        and where.is_closed in (None, row.is_closed)
        and where.is_run in (None, row.is_run)
        and where.is_waiting in (None, bool(row.waiting_for))
        and where.labels.items() <= row.labels.items()
        and set(where.participants) <= set(row.participants)
        and (not where.waiting_for or row.waiting_for in where.waiting_for)
        and (not where.close_codes or row.close_code in where.close_codes)
        and row.close_code not in where.but_close_codes
        and (where.since is None or row.created_at >= where.since)
        and (where.until is None or row.created_at < where.until)
        and (where.due is None or (row.deadline is not None and row.deadline <= where.due))
    )


def child_id(parent: str, turn: int, place: str) -> str:
    """Return the id of a channel below another: the same whenever the same turn opens it."""
    readable = f"{parent}{CHILD_MARK}{turn}-{place}"
    if ID_PATTERN.fullmatch(readable) and _is_place(place):
        return readable
    return f"{_short_stem(parent)}{CHILD_MARK}{turn}-{_digest(place)}"


def is_child_id(channel_id: str) -> bool:
    """Whether only a turn of the channel above can open a channel of this id."""
    return CHILD_MARK in channel_id


def turn_of(channel_id: str, parent: str) -> int:
    """Return the turn of that parent for which `child_id` makes this id; 0 if there is none."""
    for stem in (parent, _short_stem(parent)):
        prefix = f"{stem}{CHILD_MARK}"
        turn, _, place = channel_id[len(prefix) :].partition("-")
        if channel_id.startswith(prefix) and _TURN.fullmatch(turn) and _is_place(place):
            return int(turn)
    return 0


def _is_place(place: str) -> bool:
    """Whether a place can stand in an id: with the mark in it, it would name a channel further below."""
    return bool(place) and CHILD_MARK not in f"-{place}"


def _short_stem(parent: str) -> str:
    """Return a short name of a parent. No channel has it as its id: the mark in it is followed by no turn."""
    return f"c{CHILD_MARK}{_digest(parent)}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def check_id(value: object, field: str) -> None:
    """Refuse what is not an id."""
    if not isinstance(value, str) or not ID_PATTERN.fullmatch(value):
        raise BadDraft(field, found=repr(value)[:80], expected="1 to 64 letters, digits, '_' or '-'")
