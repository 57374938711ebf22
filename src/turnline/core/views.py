"""Views: what one participant is shown of a log.

A view turns envelopes into messages: what others said with their names on it,
what the participant said itself as its own. Only what somebody said is shown,
and only to whom it was addressed; `context.set` and `turn.*` never are (W10).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol, TypeVar

from msgspec.structs import replace

from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Envelope, visible_to
from turnline.core.event_types import SUBSTANTIVE
from turnline.core.packet import body_of
from turnline.core.questions import shown_questions
from turnline.core.registry import Registry
from turnline.core.state import KEPT_SAID, State
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
        window: deque[Envelope] = deque()
        left_out = Counter({_name(who, spec): count for who, count in earlier.items() if count})
        for envelope in _said(envelopes, agent_id):
            window.append(envelope)
            if len(window) > self.window(spec):
                left_out[_name(window.popleft().sender_id, spec)] += 1
        shown = [_message(envelope, agent_id, spec) for envelope in window]
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


def state_for(agent_id: str, state: S) -> S:
    """Return a channel's state as a participant may see it.

    It is without the questions and the context variables that are for others, and without what the engine
    keeps to undo a turn.
    """
    return replace(
        state,
        context_vars=context_for(agent_id, state),
        var_audiences={key: to for key, to in state.var_audiences.items() if agent_id in to},
        questions=shown_questions(state, agent_id),
        turn_vars={},
        turn_writes=[],
        private_vars={},
    )


def context_for(agent_id: str, state: State) -> dict[str, Any]:
    """Return the context variables that a participant may see: a packet's own are for its audience."""
    hidden = {key for key, to in state.var_audiences.items() if agent_id not in to}
    return {key: value for key, value in state.context_vars.items() if key not in hidden}


def view_for(agent_id: str, spec: ChannelSpec) -> View:
    """The view this participant has of a channel: its own, else the channel's, else the default (W10)."""
    given = spec.knobs.get("views", {})
    if not isinstance(given, dict):
        raise BadSpec(
            "knobs.views", found=f"a {type(given).__name__}", expected="an object: participant -> view"
        )
    own = {spec.resolve(name): data for name, data in given.items()}
    chosen = own.get(agent_id, spec.knobs.get("view"))
    return WindowedSummary() if chosen is None else views.from_dict(chosen)


def _said(envelopes: Iterable[Envelope], agent_id: str) -> Iterable[Envelope]:
    return (e for e in envelopes if e.event_type in SUBSTANTIVE and visible_to(e, agent_id))


def _message(envelope: Envelope, agent_id: str, spec: ChannelSpec) -> Message:
    text = body_of(envelope.event_type, envelope.event_data)
    role = "own" if envelope.sender_id == agent_id else "other"
    return Message(role, _name(envelope.sender_id, spec), text)


def _summary(earlier: Counter[str]) -> Message:
    told = ", ".join(f"{name} ({count})" for name, count in earlier.items())
    return Message("note", "", f"Earlier, not shown: {earlier.total()} messages by {told}.")


def _name(agent_id: str, spec: ChannelSpec) -> str:
    participant = spec.participant(agent_id)
    return participant.name if participant else agent_id
