"""What a channel's log adds up to.

A state is computed from the log and from nothing else, and it is bounded: its
size follows the channel's participants and context variables, never the number
of envelopes. The first nine fields are public, and the seeds name them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from turnline.core.channel import ChannelMetadata, ChannelSpec, ChannelState
from turnline.core.envelope import JsonObject
from turnline.core.undo import Write

KEPT_SAID: Final = 64
"""So many of the last things said are found without reading the log from its beginning."""

LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)
"""The time of whatever has not happened yet."""


PERSON: Final = "person"
EVENT: Final = "event"
"""What a turn waits for that others have to bring."""
RETRY: Final = "retry"
"""The turn failed and waits for its next attempt, which starts from the beginning."""
STUCK: Final = "stuck"
"""The turn killed its worker again and again. It waits for an operator's retry (N3)."""


RESTING: Final = "resting"
"""The word for an open channel in which nobody has the floor."""
MESSAGE: Final = "message"
"""What a channel that rests waits for: the next message of a person or a program."""


def ends_at(at: datetime, seconds: float | None, moment: datetime | None) -> datetime | None:
    """Return when a pause that began `at` ends by itself; None if it does not."""
    after = None if seconds is None else at + timedelta(seconds=seconds)
    return min((one for one in (after, moment) if one is not None), default=None)


class Claim(Struct, frozen=True, kw_only=True):
    """The note on the log that somebody works on the current turn."""

    seq: int
    """Where the note stands: a packet names it, and only the live claim's packet is accepted."""
    envelope_id: str
    agent_id: str
    worker: str
    lease_seconds: float
    alone: bool = False
    """The worker started nothing else beside this turn, so a crash is the turn's own (N3)."""


class Pause(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The turn in progress waits: for a time, a person, an event, its children. Nobody works on it."""

    seq: int
    """Where the note stands: whatever ends the pause names it, so that it ends once."""
    reason: str
    at: datetime
    seconds: float | None = None
    """How long it lasts at most, from its line on. A clock that is set forward or back changes nothing."""
    moment: datetime | None = None
    """The time of day at which it ends by itself, by the clock that people read."""
    key: str = ""
    """What the awaited answer or event has to name."""

    @property
    def until(self) -> datetime | None:
        """When it ends by itself, as far as its line says."""
        return ends_at(self.at, self.seconds, self.moment)


class Question(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question of the turn in progress to people."""

    seq: int
    """The line that asks."""
    asked_by: str
    people: list[str]
    """Who may answer."""
    call: str = ""
    """The tool call that asks: the model reply and the call in it, such as `2.1`; empty outside of a call."""
    position: int = 1
    """The number of the question within its call."""
    answer_seq: int = 0
    """The line that answers; 0 while the question is open."""


class State(Struct, frozen=True, kw_only=True):
    """What the log of any channel with turns adds up to."""

    participant_order: list[str] = []
    expected_next_speaker: str | None = None
    """Who has the floor."""
    last_speaker_id: str | None = None
    last_envelope_id: str | None = None
    """Of the last turn."""
    turn_count: int = 0
    pending_close_reason: str = ""
    creator_id: str = ""
    context_vars: dict[str, Any] = {}

    var_audiences: dict[str, list[str]] = {}
    """Context variable -> who may see it, where a packet to some of the participants has set it."""
    turn_vars: dict[str, Any] = {}
    """The context variables as the turn in progress found them."""
    turn_writes: list[Write] = []
    """What has been written since, from the turn's first own write on: what undoing it needs (T3, T5)."""
    spec: ChannelSpec = ChannelSpec()
    status: ChannelState = ChannelState.PENDING
    seq: int = 0
    created_at: datetime = LONG_AGO
    opened_at: datetime = LONG_AGO
    last_at: datetime = LONG_AGO
    """When the last line was accepted; the next is never earlier."""
    said: list[tuple[int, str]] = []
    """Where the last things said to everybody stand, and who said them: what a view starts from."""
    said_by: dict[str, int] = {}
    """How much everybody has said to everybody, from the beginning."""
    spoken_seq: int = 0
    """Of the last thing anybody said, interjections included."""
    spoken_at: datetime = LONG_AGO
    floor_seq: int = 0
    """The line that gave the floor to whoever has it."""
    floor_at: datetime = LONG_AGO
    floor_line: int = 0
    """The line whose time `floor_at` is: the one that gave the floor, or that ended its last pause."""
    claim: Claim | None = None
    claims: int = 0
    """How often this turn has been claimed."""
    unexplained: int = 0
    """Claims of this turn since its last sign of progress, the live one included (N3)."""
    alive_seq: int = 0
    """The last line that was made under the live claim: its worker was alive then."""
    pause: Pause | None = None
    questions: dict[str, Question] = {}
    """Request id -> what the turn in progress has asked people, answered or not (N1b)."""
    rested_seconds: float = 0.0
    """How long its turns have been paused, all together; a TTL does not count it."""
    private_vars: dict[str, Any] = {}
    """The keys with `_` that the steps of a flow keep for the run. Nobody is ever shown them (F2)."""
    agent_turns: int = 0
    """Turns of agents since a person or a program last said something."""
    children: int = 0
    """Channels that were opened directly below this one."""
    nested_runs: int = 0
    """Runs of flows that were opened below this channel, as its own lines count them."""
    forked_by: str = ""
    """Who made this fork; empty: it is not a fork. It counts among that participant's channels."""
    awaiting: list[str] = []
    """Invited, and not heard from yet."""
    warned: dict[str, int] = {}
    """Expectation -> the line since which it was violated, so that each moment is told once."""
    closed_at: datetime | None = None

    @property
    def channel_id(self) -> str:
        return self.spec.channel_id

    @property
    def turn(self) -> int:
        """The number of the turn in progress."""
        return self.turn_count + 1

    @property
    def is_stuck(self) -> bool:
        """Whether the turn in progress waits for an operator's retry."""
        return self.pause is not None and self.pause.reason == STUCK

    @property
    def is_resting(self) -> bool:
        """Whether the channel is open and nobody has the floor until a person or program says something."""
        return self.status is ChannelState.ACTIVE and self.expected_next_speaker is None

    @property
    def is_over(self) -> bool:
        return self.status in (ChannelState.CLOSED, ChannelState.EXPIRED)


class WorkflowState(State, frozen=True, kw_only=True):
    """What the log of a `workflow` channel adds up to."""

    graph_data: JsonObject = {}
    """The graph as it was given to `open`."""
    graph_key: str = ""
    """What the compiled graph is remembered by."""


def waiting_for(state: State) -> str:
    """Return what the channel waits for before anybody works on it again; empty if it waits for nothing."""
    if state.is_resting:
        return MESSAGE
    return "" if state.pause is None else state.pause.reason


def metadata_of(state: State) -> ChannelMetadata:
    spec = state.spec
    return ChannelMetadata(
        channel_id=spec.channel_id,
        type=spec.type,
        status=state.status,
        creator_id=spec.creator_id,
        participants=spec.participants,
        knobs=spec.knobs,
        labels=spec.labels,
        created_at=state.created_at,
        seq=state.seq,
        turn_count=state.turn_count,
        speaker_id=state.expected_next_speaker,
        close_reason=state.pending_close_reason or None,
        closed_at=state.closed_at,
        ttl_seconds=spec.ttl_seconds,
        parent_id=spec.parent_id,
        waiting_for=waiting_for(state),
    )
