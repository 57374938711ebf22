"""What a participant is shown and told of a channel, derived from its state and its lines.

A view turns envelopes into messages: what others said with their names on it,
what the participant said itself as its own. Only what somebody said is shown,
and only to whom it was addressed; `context.set` and `turn.*` never are (W10).

A notice says how far to read and what waits: a turn, an invitation, a question. It holds nothing that was
said, so a participant reads at its own pace, and it claims the turn without a question first (N5).

Rule 1: a line concerns those who may see it, except its sender, and the one that gets the floor by it.

Rule 2: a turn waits for its player, unless it is paused (N1) or the channel is over. The opener's first word
waits for nobody: the opener's program says it (W6).

Rule 3: a claim may ride with a floor that was never claimed (N6). A suspect is claimed when it is taken (N3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from turnline.core.adapter import AnyAdapter
from turnline.core.channel import ChannelRow, ChannelSpec, ChannelState
from turnline.core.envelope import Envelope, gives_floor_to, visible_to
from turnline.core.event_types import EV_CHANNEL_FORKED, SUBSTANTIVE, body_of
from turnline.core.json import copied
from turnline.core.parts import FilePart, files_of
from turnline.core.questions import shown_questions
from turnline.core.registry import Registry
from turnline.core.state import KEPT_SAID, LONG_AGO, State, row_of
from turnline.errors import BadSpec

_LEAST_WINDOW: Final = 4

S = TypeVar("S", bound=State)


@dataclass(frozen=True, slots=True)
class Message:
    """One line of a view."""

    role: str
    """`own`: the participant said it. `other`: somebody else did. `note`: it is about the channel."""
    name: str
    text: str
    seq: int = 0
    """Its line, if it has files."""
    files: tuple[FilePart, ...] = ()


class View(Protocol):
    """What turns envelopes into the messages of one participant."""

    name: ClassVar[str]

    def project(self, envelopes: Iterable[Envelope], agent_id: str, spec: ChannelSpec) -> list[Message]: ...


views: Final = Registry[View]("view")
register_view = views.register


@views.built_in
@dataclass(frozen=True, slots=True)
class FullTranscript(View):
    """Everything that was said."""

    name: ClassVar[str] = "full_transcript"

    def project(self, envelopes: Iterable[Envelope], agent_id: str, spec: ChannelSpec) -> list[Message]:
        return [_message(envelope, agent_id, spec) for envelope in _said(envelopes, agent_id)]


@views.built_in
@dataclass(frozen=True, slots=True)
class WindowedSummary(View):
    """The last `recent_n` things said, and one line about what came before.

    By default max(2N, 4) things, for N participants that take turns.
    """

    name: ClassVar[str] = "windowed_summary"
    recent_n: int | None = None

    def __post_init__(self) -> None:
        if self.recent_n is not None and (not isinstance(self.recent_n, int) or self.recent_n < 1):
            raise BadSpec(
                "WindowedSummary.recent_n", found=repr(self.recent_n), expected="a whole number from 1 on"
            )

    def project(
        self,
        envelopes: Iterable[Envelope],
        agent_id: str,
        spec: ChannelSpec,
        earlier: Mapping[str, int] = MappingProxyType({}),
    ) -> list[Message]:
        """`earlier` is who said how much before the first of `envelopes`."""
        said = _said(envelopes, agent_id)
        first = max(len(said) - self.window(spec), 0)
        left_out = {spec.name_of(who): count for who, count in earlier.items() if count}
        for envelope in said[:first]:
            name = spec.name_of(envelope.sender_id)
            left_out[name] = left_out.get(name, 0) + 1
        shown = [_message(envelope, agent_id, spec) for envelope in said[first:]]
        return [_summary(left_out), *shown] if left_out else shown

    def start(self, state: State) -> tuple[int, dict[str, int]]:
        """Where the window begins: the seq to read behind, and who said how much before it."""
        window = self.window(state.spec)
        if window >= len(state.said) or window > KEPT_SAID:
            return 0, {}
        shown = Counter(who for _, who in state.said[-window:])
        return state.said[-window][0] - 1, {who: n - shown[who] for who, n in state.said_by.items()}

    def window(self, spec: ChannelSpec) -> int:
        return self.recent_n or max(2 * len(spec.turn_order), _LEAST_WINDOW)


_DEFAULT_VIEW: Final = WindowedSummary()


def state_for(agent_id: str, state: S) -> S:
    """Return a channel's state as a participant may see it.

    It is without the questions and the context variables that are for others, and without what the engine
    keeps to undo a turn. What a run keeps (keys with `_`) is for the player of its steps only.
    Its context variables are the participant's own copy.
    """
    shared = shared_state_for(agent_id, state)
    return replace(shared, context_vars=copied(shared.context_vars))


def shared_state_for(agent_id: str, state: S) -> S:
    """Return what `state_for` does, with the channel's own context variables: its reader changes nothing."""
    return replace(
        state,
        context_vars=context_for(agent_id, state) if state.var_audiences else state.context_vars,
        var_audiences={key: to for key, to in state.var_audiences.items() if agent_id in to},
        questions=shown_questions(state, agent_id) if state.questions else {},
        turn_vars={},
        turn_writes=[],
        private_vars=state.private_vars if _plays_any(agent_id, state.spec) else {},
    )


def context_for(agent_id: str, state: State) -> dict[str, Any]:
    """Return the context variables that a participant may see: a packet's own are for its audience."""
    hidden = {key for key, to in state.var_audiences.items() if agent_id not in to}
    return {key: value for key, value in state.context_vars.items() if key not in hidden}


def _plays_any(agent_id: str, spec: ChannelSpec) -> bool:
    return any(one.played_by == agent_id for one in spec.participants)


def view_for(agent_id: str, spec: ChannelSpec) -> View:
    """The view this participant has of a channel: its own, else the channel's, else the default (W10)."""
    given = spec.knobs.get("views", {})
    if not isinstance(given, dict):
        raise BadSpec(
            "knobs.views", found=f"a {type(given).__name__}", expected="an object: participant -> view"
        )
    own = {spec.resolve(name): data for name, data in given.items()}
    chosen = own.get(agent_id, spec.knobs.get("view"))
    return _DEFAULT_VIEW if chosen is None else views.from_dict(chosen)


def _said(envelopes: Iterable[Envelope], agent_id: str) -> list[Envelope]:
    return [one for one in envelopes if one.event_type in SUBSTANTIVE and visible_to(one, agent_id)]


def _message(envelope: Envelope, agent_id: str, spec: ChannelSpec) -> Message:
    text = body_of(envelope.event_type, envelope.event_data)
    role = "own" if envelope.sender_id == agent_id else "other"
    files = tuple(files_of(envelope.event_type, envelope.event_data))
    return Message(role, spec.name_of(envelope.sender_id), text, envelope.seq if files else 0, files)


def _summary(earlier: Mapping[str, int]) -> Message:
    told = ", ".join(f"{name} ({count})" for name, count in earlier.items())
    return Message("note", "", f"Earlier, not shown: {sum(earlier.values())} messages by {told}.")


class Floor(Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True):
    """A turn that waits for a participant, or for one that it plays."""

    speaker: str
    turn: int
    seq: int
    """The line that gave the floor, or that ended the turn's last pause."""
    unexplained: int = 0
    """See `State.unexplained`."""


class Notice(Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True):
    """What a participant is told of a channel: how far to read, and what it has to do there."""

    channel_id: str
    first: int
    """The first line that concerns it."""
    seq: int
    """The last line of the channel."""
    floor: Floor | None = None
    """The turn that it takes; None for none."""
    is_invited: bool = False
    """The channel waits for its answer to the invitation."""
    is_over: bool = False


def floor_for(agent_id: str, state: State) -> Floor | None:
    """Return the turn in progress, if the participant takes it, itself or for one that it plays."""
    player, floor = _taker(state)
    return floor if player == agent_id else None


def unclaimed_floor(state: State) -> tuple[str, Floor] | None:
    """Return the player and the turn that may be claimed together with its floor (N6); None if none may."""
    player, floor = _taker(state)
    if floor is None or floor.unexplained or is_first_word(state):
        return None
    return player, floor


def is_first_word(state: State) -> bool:
    """Return whether the opener has the first turn: its program says the first word itself (W6)."""
    has_begun = state.turn_count or state.claims or state.floor_line != state.floor_seq
    return state.expected_next_speaker == state.creator_id and not has_begun


def concerns(envelope: Envelope, agent_id: str) -> bool:
    """Return whether a participant is told of a line: what others let it see, what gives it the floor."""
    if gives_floor_to(envelope) == agent_id:
        return True
    return envelope.sender_id != agent_id and visible_to(envelope, agent_id)


def plays(agent_id: str, spec: ChannelSpec, envelope: Envelope) -> bool:
    """Return whether the floor goes to a participant that `agent_id` plays."""
    floor = gives_floor_to(envelope)
    return floor is not None and floor != agent_id and spec.player_of(floor) == agent_id


def notice_for(agent_id: str, state: State, first: int) -> Notice:
    """Return what a participant is told of a channel whose line `first` concerns it."""
    return _notices(state, {agent_id: first})[agent_id]


def list_waited_for(state: State) -> list[str]:
    """Return the ids of the participants that an open channel waits for."""
    return [] if state.is_over else list(_waits_for(state))


def row_for(adapter: AnyAdapter, state: State) -> ChannelRow:
    """Return the channel's row in the index, as its state has it."""
    due = adapter.due(state, LONG_AGO)
    return row_of(state, due[0].at if due else None, list_waited_for(state))


def list_waits(state: State) -> dict[str, Notice]:
    """Return what the channel waits for: participant id -> what that participant is told."""
    return _notices(state, _waits_for(state))


def list_notices(
    state: State, envelopes: Sequence[Envelope], receivers: Collection[str]
) -> dict[str, Notice]:
    """Return what those of `receivers` are told that one of the new `envelopes` concerns."""
    if any(one.event_type == EV_CHANNEL_FORKED for one in envelopes):
        return list_all(state, receivers)  # The floor was given by a line of the past.
    first = dict[str, int]()
    for agent_id in state.participant_order:
        if agent_id in receivers:
            for one in envelopes:
                if concerns(one, agent_id) or plays(agent_id, state.spec, one):
                    first[agent_id] = one.seq
                    break
    return _notices(state, first)


def list_all(state: State, receivers: Collection[str]) -> dict[str, Notice]:
    """Return what those of `receivers` are told that are on the channel, from its first line on."""
    waits, past = _waits_for(state), state.spec.forked_from
    first = 1 if past is None else past.seq + 1
    members = (one for one in state.participant_order if one in receivers)
    return _notices(state, {one: min(first, waits.get(one, first)) for one in members})


def _notices(state: State, first: dict[str, int]) -> dict[str, Notice]:
    player, floor = ("", None) if is_first_word(state) else _taker(state)
    is_pending = state.status is ChannelState.PENDING
    return {
        agent_id: Notice(
            channel_id=state.channel_id,
            first=seq,
            seq=state.seq,
            floor=floor if agent_id == player else None,
            is_invited=is_pending and agent_id in state.awaiting,
            is_over=state.is_over,
        )
        for agent_id, seq in first.items()
    }


def _taker(state: State) -> tuple[str, Floor | None]:
    """Return who takes the turn in progress, and the turn; None if nobody can work on it now."""
    speaker = state.expected_next_speaker
    if speaker is None or state.pause is not None or state.is_over:
        return "", None
    floor = Floor(speaker=speaker, turn=state.turn, seq=state.floor_line, unexplained=state.unexplained)
    return state.spec.player_of(speaker), floor


def _waits_for(state: State) -> dict[str, int]:
    """Return whom the channel waits for, and since which line."""
    if state.status is ChannelState.PENDING:
        return dict.fromkeys(state.awaiting, 1)
    waits = dict[str, int]()
    for question in state.questions.values():  # In the order of their lines.
        for person in () if question.answer_seq else question.people:
            waits.setdefault(person, question.seq)
    if state.expected_next_speaker is not None and state.pause is None:
        waits[state.spec.player_of(state.expected_next_speaker)] = state.floor_seq
    return waits
