"""What a channel's log adds up to.

A state is computed from the log and from nothing else, and it is bounded: its
size follows the channel's participants and context variables, never the number
of envelopes. The first nine fields are public, and the seeds name them.

`private_vars` is a field of its own beside `context_vars`. Conditions, views, templates, forks and every
answer to a client read `context_vars`; if keys with `_` were in it, each of them would have to filter, and
one that forgot would leak a secret. `views.state_for` drops one field instead.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from turnline.core.channel import ChannelMetadata, ChannelRow, ChannelSpec, ChannelState, user_key_of
from turnline.core.codec import is_code
from turnline.core.envelope import Draft, JsonObject
from turnline.core.undo import Write
from turnline.errors import PastErased

KEPT_SAID: Final = 64
"""So many of the last things said are found without reading the log from its beginning."""

LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)
"""The time of whatever has not happened yet."""


PERSON: Final = "person"
EVENT: Final = "event"
"""What a turn waits for that others have to bring."""
CHILDREN: Final = "children"
"""The turn waits until a channel below closes."""
RETRY: Final = "retry"
"""The turn failed and waits for its next attempt, which starts from the beginning."""
USER_KEY: Final = "_user_id"
"""The private variable that names the user of a run."""
STUCK: Final = "stuck"
"""The turn killed its worker again and again. It waits for an operator's retry (N3)."""


RESTING: Final = "resting"
"""The word for an open channel in which no participant has the floor."""
MESSAGE: Final = "message"
"""What a channel that rests waits for: the next message of a person or a program."""
WAITS: Final = {STUCK: STUCK, RESTING: MESSAGE}
"""The word for an open channel that waits -> what it waits for (`waiting_for`)."""


def ends_at(at: datetime, seconds: float | None, moment: datetime | None) -> datetime | None:
    """Return when a pause that began `at` ends by itself; None if it does not."""
    after = None if seconds is None else at + timedelta(seconds=seconds)
    return min((one for one in (after, moment) if one is not None), default=None)


LEASE_SECONDS: Final = 60.0
"""How long a worker elsewhere may be silent before it is replaced, unless its claim says otherwise."""


class Claim(Struct, gc=False, frozen=True, kw_only=True):
    """The note on the log that somebody works on the current turn."""

    seq: int
    """Where the note stands: a packet names it, and only the live claim's packet is accepted."""
    envelope_id: str
    agent_id: str
    worker: str
    lease_seconds: float
    alone: bool = False
    """The worker started nothing else beside this turn, so a crash is the turn's own (N3)."""

    def draft(
        self, event_type: str, data: JsonObject, audience: list[str] | None = None, *, envelope_id: str = ""
    ) -> Draft:
        """Return the draft of a line of the turn. Without an id it gets one when it is written."""
        return Draft(
            envelope_id=envelope_id,
            sender_id=self.agent_id,
            event_type=event_type,
            event_data=data,
            audience=audience,
            claim=self.seq,
            claim_id=self.envelope_id,
        )


class Pause(Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True):
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
    questions: list[str] = []
    """The questions it waits for, by request id. The first answer ends it."""
    children: list[str] = []
    """The channels below that it waits for. The first that closes ends it."""

    @property
    def until(self) -> datetime | None:
        """When it ends by itself, as far as its line says."""
        return ends_at(self.at, self.seconds, self.moment)


class Question(Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True):
    """A question of the turn in progress to people."""

    seq: int
    """The line that asks."""
    asked_by: str
    people: list[str]
    """Who may answer."""
    group: str = ""
    """The group whose members may answer, outside of the channel; empty: `people` are asked (N7)."""
    at: datetime = LONG_AGO
    """When it was asked."""
    expires: float | None = None
    """How many seconds after its line nobody may answer any more, as the hub's timers count."""
    call: str = ""
    """The tool call that asks: the model reply and the call in it, such as `2.1`; empty outside of a call."""
    position: int = 1
    """The number of the question within its call."""
    answer_seq: int = 0
    """The line that answers, or says that no answer came in time; 0 while the question is open."""
    answered_at: datetime | None = None
    is_expired: bool = False
    """No answer came in time."""

    @property
    def goes_up(self) -> bool:
        """Whether people or a group above are asked."""
        return not self.people and not self.group


class State(Struct, gc=False, frozen=True, kw_only=True):
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
    pauses: int = 0
    """How often the turn in progress has paused since its last unit, question or answer."""
    once_units: int = 0
    """How many results of `once` the turn in progress has recorded (N4)."""
    questions: dict[str, Question] = {}
    """Request id -> what the turn in progress has asked people, answered or not (N1b)."""
    rested_seconds: float = 0.0
    """How long its turns have been paused, all together; a TTL does not count it."""
    private_vars: dict[str, Any] = {}
    """The keys with `_` that the steps of a flow keep for the run. Nobody is ever shown them (F2)."""
    order_at: str = ""
    """Who of the turn order took a turn last: round robin continues there after a step (N8)."""
    agent_turns: int = 0
    """Turns of agents since a person or a program last said something."""
    children: int = 0
    """Channels that were opened directly below this one."""
    nested_runs: int = 0
    """Runs of flows that were opened below this channel, as its own lines count them."""
    forked_by: str = ""
    """Who made this fork; empty: it is not a fork."""
    forked_for: str = ""
    """The user among whose open channels a fork counts; empty: it counts for no user."""
    awaiting: list[str] = []
    """Invited, and not heard from yet."""
    warned: dict[str, int] = {}
    """Expectation -> the line since which it was violated, so that each moment is told once."""
    closed_at: datetime | None = None
    is_incomplete: bool = False
    """The content of a line was erased: variables and texts of the channel are not all here (Y2)."""

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
        """Return whether the channel is open and waits for a message: no participant has the floor."""
        return self.status is ChannelState.ACTIVE and self.expected_next_speaker is None

    @property
    def is_over(self) -> bool:
        return self.status in (ChannelState.CLOSED, ChannelState.EXPIRED)

    def check_complete(self) -> None:
        """Raise `PastErased` if something that a rule, a model or a reader would need was erased."""
        if self.is_incomplete:
            raise PastErased(self.channel_id, at=self.seq)


class WorkflowState(State, frozen=True, kw_only=True):
    """What the log of a `workflow` channel adds up to."""

    graph_data: JsonObject = {}
    """The graph as it was given to `open`."""
    graph_key: str = ""
    """What the compiled graph is remembered by."""


def has_open_question(state: State) -> bool:
    """Return whether the turn in progress waits for a person to answer it."""
    return any(not one.answer_seq for one in state.questions.values())


def waiting_for(state: State) -> str:
    """Return what the channel waits for before anybody works on it again; empty if it waits for nothing."""
    if state.is_resting:
        return MESSAGE
    return "" if state.pause is None else state.pause.reason


def row_of(state: State, deadline: datetime | None, waits_for: list[str]) -> ChannelRow:
    """Return the channel's row in the index. `deadline` is when something falls due next.

    A closed channel waits for nothing, so it has no speaker, pause or deadline.
    """
    spec = state.spec
    is_open = not state.is_over
    is_asking = has_open_question(state) and not state.is_stuck
    flow = spec.knobs.get("flow") if spec.is_flow_run else None
    return ChannelRow(
        channel_id=spec.channel_id,
        type=spec.type,
        status=state.status,
        seq=state.seq,
        created_at=state.created_at,
        updated_at=state.last_at,
        creator_id=spec.creator_id,
        participants=[one.agent_id for one in spec.participants],
        labels=spec.labels,
        flow=str(flow.get("name", "")) if isinstance(flow, dict) else "",
        parent_id=spec.parent_id or "",
        origin=spec.forked_from.channel if spec.forked_from else "",
        speaker_id=(state.expected_next_speaker or "") if is_open else "",
        last_speaker_id=state.last_speaker_id or "",
        turn_count=state.turn_count,
        user_key=user_key_of(state.private_vars.get(USER_KEY)),
        waiting_for=(PERSON if is_asking else waiting_for(state)) if is_open else "",
        waits_for=waits_for,
        waits_for_children=is_open and state.pause is not None and bool(state.pause.children),
        forked_for=state.forked_for,
        deadline=deadline if is_open else None,
        closed_at=state.closed_at,
        close_code=state.pending_close_reason if is_code(state.pending_close_reason) else "",
    )


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
