"""What is different between two channels: where they part, what they ended with, what they cost.

    difference(Side(state, lines), Side(state, lines)) -> Difference

Rule: two lines are the same if the same participant says the same and the floor goes to the same. Ids,
times, claims, pauses, children, and what a reply cost are new in every conversation and part nobody. A
question that a fork asks again counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

from msgspec import Struct

from turnline.core import event_types as ev
from turnline.core.channel import is_child_id
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import body_of
from turnline.core.state import STUCK, State
from turnline.core.study.spent import Spent, spent
from turnline.core.study.why import outcome
from turnline.core.study.wording import turns_told

_OF_ANY_TRY: Final = frozenset(
    {ev.EV_CHANNEL_INVITE, ev.EV_CHANNEL_INVITE_ACK, ev.EV_CHANNEL_OPENED, ev.EV_CHANNEL_FORKED}
)
_WORK: Final = frozenset(
    {
        ev.EV_TURN_CLAIMED,
        ev.EV_TURN_RELEASED,
        ev.EV_TURN_RENEWED,
        ev.EV_EXPECTATION_VIOLATED,
        ev.EV_CHANNEL_CHILD,
    }
)
_TEXT_CHARACTERS: Final = 160


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two."""

    state: State
    lines: Sequence[Envelope]
    below: Spent
    """What the channels below it used."""


class Told(Struct, frozen=True, kw_only=True):
    """A line where the two part."""

    seq: int
    event_type: str
    speaker: str
    text: str
    then: str
    """Where the floor went; empty if it did not move."""

    def __str__(self) -> str:
        then = f" ({self.then})" if self.then else ""
        return f"{self.seq} {self.event_type} by {self.speaker}: {self.text}{then}"


class Ended(Struct, frozen=True, kw_only=True):
    """How one of the two stands."""

    channel_id: str
    status: str
    reason: str
    turns: int
    spent: Spent

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.channel_id}: {self.status}{reason} after {turns_told(self.turns)}; {self.spent}"


class Changed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A context variable that is not the same in both. Missing in one: `in_a` or `in_b` is False."""

    a: Any = None
    b: Any = None
    in_a: bool = True
    in_b: bool = True

    def __str__(self) -> str:
        return f"{_value(self.a, self.in_a)} | {_value(self.b, self.in_b)}"


class Difference(Struct, frozen=True, kw_only=True):
    """What is different between `a` and `b`. `str()` of it is for people."""

    a: Ended
    b: Ended
    first_a: Told | None
    """The first line of `a` that `b` does not have there; None if `a` ends there."""
    first_b: Told | None
    context: dict[str, Changed]
    cost: float
    """What `b` cost more than `a`, in dollars."""
    tokens: int
    """How many tokens `b` used more than `a`, in and out."""

    @property
    def is_same(self) -> bool:
        """Whether the two say the same from beginning to end."""
        return self.first_a is None and self.first_b is None and not self.context

    def __str__(self) -> str:
        told = [f"a  {self.a}", f"b  {self.b}"]
        if self.is_same:
            return "\n".join([*told, "They say the same."])
        told += [
            "They part at:",
            f"  a  {self.first_a or '(it ends)'}",
            f"  b  {self.first_b or '(it ends)'}",
        ]
        told += ["Context variables (a | b):"] if self.context else []
        told += [f"  {key}: {changed}" for key, changed in self.context.items()]
        return "\n".join([*told, f"b used {self.tokens:+} tokens and ${self.cost:+.4f}."])


def difference(a: Side, b: Side) -> Difference:
    """Compare two conversations, typically a fork or a replay with its origin."""
    first_a, first_b = _parting(a, b)
    ended_a, ended_b = _ended(a), _ended(b)
    return Difference(
        a=ended_a,
        b=ended_b,
        first_a=None if first_a is None else _told(first_a, a.state),
        first_b=None if first_b is None else _told(first_b, b.state),
        context=_changed(a.state.context_vars, b.state.context_vars),
        cost=ended_b.spent.cost - ended_a.spent.cost,
        tokens=_tokens(ended_b.spent) - _tokens(ended_a.spent),
    )


def said(line: Envelope, state: State) -> tuple[str, str, object, str]:
    """What a line comes to, whichever channel it is on: two that are equal say the same."""
    decision = line.decision
    then = "" if decision is None else outcome(decision, state.spec)
    return line.event_type, state.spec.name_of(line.sender_id), _matter(line), then


def substance(lines: Iterable[Envelope]) -> list[Envelope]:
    """The lines without those that every try has of its own: invitations, claims, pauses, the fork itself."""
    kept, asked = list[Envelope](), set[str]()
    for one in lines:
        if one.event_type in _OF_ANY_TRY | _WORK or _is_wait(one):
            continue
        if one.event_type == ev.EV_HUMAN_REQUESTED:
            place = _place_of(one.event_data)
            if place in asked:
                continue
            asked.add(place)
        kept.append(one)
    return kept


def _place_of(asked: JsonObject) -> str:
    """Return what a question is known by. A fork has channels below of its own, which ask the same again."""
    is_from_below = is_child_id(str(asked.get("call")))
    keys = ("turn", "question") if is_from_below else ("turn", "call", "position", "question")
    return str([asked.get(key) for key in keys])


def _is_wait(line: Envelope) -> bool:
    """Return whether a line only says that a turn waits, or waits no more: that depends on timing."""
    if line.event_type == ev.EV_TURN_RESUMED:
        return not line.event_data.keys() & {"event", "data"}
    return line.event_type == ev.EV_TURN_PAUSED and line.event_data.get("reason") != STUCK


def _parting(a: Side, b: Side) -> tuple[Envelope | None, Envelope | None]:
    for one, other in zip_longest(substance(a.lines), substance(b.lines)):
        if one is None or other is None or said(one, a.state) != said(other, b.state):
            return one, other
    return None, None


def _matter(line: Envelope) -> object:
    """The part of a line's data that two tries can be expected to share."""
    data = line.event_data
    if line.event_type in (ev.EV_TURN_MODEL, ev.EV_TURN_TOOL):
        data = _object(data.get("entry") or data.get("summary"))
    kept = _SHARED.get(line.event_type)
    if kept is None:
        return data
    return {key: _without_id(data[key]) for key in kept if data.get(key)}


def _without_id(value: object) -> object:
    """A reply's calls, without the ids that the provider gave them."""
    if isinstance(value, list):
        return [_without_id(one) for one in value]
    return {key: one for key, one in value.items() if key != "call_id"} if isinstance(value, dict) else value


_SHARED: Final = {
    ev.EV_PACKET: ("body", "routing", "context_updates", "context_deletes"),
    ev.EV_TURN_MODEL: ("text", "calls"),
    ev.EV_TURN_TOOL: ("tool", "text", "failed", "returned", "context"),
    ev.EV_TURN_ONCE: ("key", "result"),
    ev.EV_TURN_FAILED: ("error",),
    ev.EV_TURN_ABANDONED: ("turn",),
    ev.EV_TURN_PAUSED: ("reason",),
    ev.EV_TURN_RESUMED: ("event", "data"),
    ev.EV_TIMER_FIRED: (),
    ev.EV_CHANNEL_CLOSED: ("reason",),
    ev.EV_HUMAN_REQUESTED: ("question",),
    ev.EV_HUMAN_ANSWERED: ("answer",),
}
"""Event type -> the keys that count; of any other type, all do."""


def _told(line: Envelope, state: State) -> Told:
    event_type, speaker, matter, then = said(line, state)
    text = body_of(event_type, line.event_data) if event_type in ev.SUBSTANTIVE else repr(matter)
    return Told(
        seq=line.seq, event_type=event_type, speaker=speaker, text=_cut(" ".join(text.split())), then=then
    )


def _ended(side: Side) -> Ended:
    state = side.state
    return Ended(
        channel_id=state.channel_id,
        status=state.status.value,
        reason=state.pending_close_reason,
        turns=state.turn_count,
        spent=spent(side.lines) + side.below,
    )


def _changed(a: JsonObject, b: JsonObject) -> dict[str, Changed]:
    keys = [key for key in (a | b) if key not in a or key not in b or a[key] != b[key]]
    return {key: Changed(a=a.get(key), b=b.get(key), in_a=key in a, in_b=key in b) for key in sorted(keys)}


def _tokens(used: Spent) -> int:
    return used.input_tokens + used.output_tokens


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _value(value: object, is_there: bool) -> str:
    return _cut(repr(value)) if is_there else "(not set)"


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_CHARACTERS else text[: _TEXT_CHARACTERS - 1] + "…"
