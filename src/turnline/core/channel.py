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


class ChannelState(StrEnum):
    """A channel's status. (The name is the public one; what a log adds up to is a `State`.)"""

    PENDING = "pending"
    ACTIVE = "active"
    CLOSING = "closing"
    CLOSED = "closed"
    EXPIRED = "expired"


class Participant(Struct, frozen=True, omit_defaults=True):
    """A member of a channel."""

    agent_id: str
    name: str
    kind: str = "agent"
    """`agent`, `human`, `remote_agent` or `step`."""
    takes_turns: bool = True
    """False for a participant that only passes the first message, such as the `user` of `run` (N8)."""


class Expectation(Struct, frozen=True):
    """A deadline on a channel, and what to do when it passes."""

    name: str
    """`turn_within`, `reply_within`, `max_silence` or `acks_within`."""
    seconds: float
    handler: str = "warn"
    """`warn` or `auto_close`."""


class ForkedFrom(Struct, frozen=True):
    """Whose past a fork has, and up to which line."""

    channel: str
    seq: int


class ChannelSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    parent_id: str | None = None
    """The channel this one was opened from, if it was."""
    depth: int = 0
    """How many channels are above this one."""
    max_depth: int = MAX_DEPTH
    """The depth that no channel of this tree may exceed. A channel has the limit of its parent."""
    max_runs: int = MAX_RUNS
    """Runs of flows that may be opened below this channel, if it is the top of a tree."""
    forked_from: ForkedFrom | None = None
    traceparent: str | None = None
    """The span it was opened in; whoever works on it goes on in that trace."""

    @property
    def is_flow_run(self) -> bool:
        """Whether it is a run of a whole flow, and not of the inner steps of one."""
        flow = self.knobs.get("flow")
        return isinstance(flow, dict) and not flow.get("at")

    @property
    def turn_order(self) -> tuple[str, ...]:
        """The participants whose turn comes round, in order: those that take turns, without steps (N8)."""
        return tuple(one.agent_id for one in self.participants if one.takes_turns and one.kind != "step")

    def names(self) -> Mapping[str, str]:
        """Every id and every name of a participant -> the id."""
        by_name = {participant.name: participant.agent_id for participant in self.participants}
        return by_name | {participant.agent_id: participant.agent_id for participant in self.participants}

    def resolve(self, name: str) -> str:
        """Return the id of the participant known by this id or name (L2)."""
        return Names(self).resolve(name)

    def participant(self, agent_id: str) -> Participant | None:
        return next((one for one in self.participants if one.agent_id == agent_id), None)


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


def child_id(parent: str, turn: int, place: str) -> str:
    """The id of a channel below another: the same whenever the same turn opens it."""
    readable = f"{parent}-{turn}-{place}"
    if ID_PATTERN.fullmatch(readable):
        return readable
    return f"child-{blake2b(readable.encode(), digest_size=16).hexdigest()}"


def check_id(value: object, field: str) -> None:
    """Refuse what is not an id."""
    if not isinstance(value, str) or not ID_PATTERN.fullmatch(value):
        raise BadDraft(field, found=repr(value)[:80], expected="1 to 64 letters, digits, '_' or '-'")
