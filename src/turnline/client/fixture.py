"""A channel as a test fixture: what was recorded of it, played again without a model, a person or a clock.

    fixture = await export_channel(hub, channel_id)      JSON, for a file `tests/NAME.channel.json`
    parted = play_channel(fixture)                       None, or the first line that went another way

Rule 1: every model reply, tool result, word and time is taken from the fixture. What follows from them is
decided anew: what a round's tool calls mean, where the floor goes, when the channel closes.

Rule 2: the graph is the one in the fixture, or the one that is given: today's, to see whether it still
leads the conversation where it went.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnline.agent.messages import ModelReply
from turnline.agent.round import ToolAnswer
from turnline.client.turn import routing_tools
from turnline.core import event_types as ev
from turnline.core.adapter import AnyAdapter
from turnline.core.adapters import built_in
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.event_types import body_of
from turnline.core.graph import TransitionGraph
from turnline.core.routing import ToolOutcome, packet
from turnline.core.state import State
from turnline.core.study.difference import said
from turnline.errors import BadSpec, TurnlineError
from turnline.hub.hub import Hub
from turnline.turns.journal import entries

VERSION: Final = 1
SUFFIX: Final = ".channel.json"
_UNDER_A_CLAIM: Final = frozenset(
    {
        ev.EV_TURN_MODEL,
        ev.EV_TURN_TOOL,
        ev.EV_TURN_ONCE,
        ev.EV_TURN_RELEASED,
        ev.EV_TURN_PAUSED,
        ev.EV_TURN_FAILED,
        ev.EV_PACKET,
    }
)
_PERHAPS_UNDER_A_CLAIM: Final = frozenset({ev.EV_CONTEXT_SET, ev.EV_HUMAN_REQUESTED})
_TEXT_CHARACTERS: Final = 200


class ChannelFixture(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole conversation."""

    version: int
    channel: list[Envelope]
    """Its lines, without the provider's own form of a reply."""


class Parted(Struct, frozen=True, kw_only=True):
    """The first line that went another way."""

    seq: int
    expected: str
    found: str

    def __str__(self) -> str:
        return f"line {self.seq} went another way\n    expected: {self.expected}\n    found: {self.found}"


async def export_channel(hub: Hub, channel_id: str) -> JsonObject:
    """Return the channel as a fixture. Raises `BadSpec` for a run: it holds what is private to its flow.

    Raises `PastErased` if content of the channel was erased.
    """
    (await hub.state(channel_id)).check_complete()
    lines = await hub.read_wal(channel_id)
    if "flow" in _object(lines[0].event_data.get("knobs")):
        found = f"{channel_id!r}, a run of a flow"
        raise BadSpec("channel", found=found, expected="a conversation; `turnline runs export` is for runs")
    fixture = ChannelFixture(version=VERSION, channel=[_without_raw(line) for line in lines])
    exported: JsonObject = msgspec.to_builtins(fixture)
    return exported


def play_channel(data: JsonObject, *, graph: TransitionGraph | None = None) -> Parted | None:
    """Decide the conversation anew; return the first line that went another way.

    Raises `BadSpec` for what is no fixture.
    """
    lines = _read(data)
    spec = msgspec.convert(lines[0].event_data, ChannelSpec)
    if graph is not None:
        spec = replace(spec, knobs={**spec.knobs, "graph": graph.to_dict()})
    adapter = built_in().get(spec.type)
    state: State = adapter.initial(spec)
    for place, together in _appends(lines):
        try:
            draft = _draft(state, together, lines[: place + 1])
            now = replace(draft, event_data=msgspec.to_builtins(spec)) if place == 0 else draft
            decided, _ = adapter.decide(state, now, together[0].created_at)
        except TurnlineError as error:
            told = _told(together[0], state)
            return Parted(seq=together[0].seq, expected=told, found=f"refused: {error}")
        parted = _parted(state, together, decided)
        if parted is not None:
            return parted
        state = _folded(adapter, state, decided)
    return None


def _read(data: JsonObject) -> list[Envelope]:
    try:
        fixture = msgspec.convert(data, ChannelFixture)
    except msgspec.ValidationError as error:
        raise BadSpec("the fixture", found=str(error), expected="what `export_channel` gave") from None
    lines = fixture.channel
    if fixture.version != VERSION or not lines or lines[0].event_type != ev.EV_CHANNEL_INVITE:
        found = f"of version {fixture.version} with {len(lines)} lines"
        raise BadSpec("the fixture", found=found, expected=f"version {VERSION}, from its first line on")
    return lines


def _appends(lines: Sequence[Envelope]) -> Iterator[tuple[int, list[Envelope]]]:
    """The lines that one draft brought about, with the place of the first."""
    place = 0
    while place < len(lines):
        first, size = lines[place], 1
        while place + size < len(lines) and lines[place + size].envelope_id == f"{first.envelope_id}-{size}":
            size += 1
        yield place, list(lines[place : place + size])
        place += size


def _draft(state: State, together: Sequence[Envelope], before: Sequence[Envelope]) -> Draft:
    """The draft that brought these lines about; of a round, its packet is made anew."""
    line = _asked(together)
    cause, _, call = (line.causation_id or "").partition("/")
    is_own = state.claim is not None and cause == state.claim.envelope_id
    claimed = line.event_type in _UNDER_A_CLAIM or (line.event_type in _PERHAPS_UNDER_A_CLAIM and is_own)
    data = line.event_data
    if line.event_type == ev.EV_PACKET:
        data = {**data, **_routing(state, line, before)}
    return Draft(
        envelope_id=together[0].envelope_id,
        sender_id=line.sender_id,
        event_type=line.event_type,
        event_data=data,
        audience=line.audience,
        causation_id=None if claimed else line.causation_id,
        priority=line.priority,
        interject=line.event_type == ev.EV_TEXT and line.decision is None,
        claim=state.claim.seq if claimed and state.claim is not None else None,
        call=call if claimed else "",
    )


def _asked(together: Sequence[Envelope]) -> Envelope:
    """What was asked for: giving a turn up, and closing in the middle of one, begin with its abandonment."""
    if together[0].event_type == ev.EV_TURN_ABANDONED and len(together) > 1:
        return together[1]
    return together[0]


def _routing(state: State, line: Envelope, before: Sequence[Envelope]) -> JsonObject:
    """What the turn's tool calls mean for the floor; nothing, where none is recorded."""
    recorded = entries(one for one in before if one.seq > state.floor_seq)
    answers = {one.call_id: one for one in recorded if isinstance(one, ToolAnswer)}
    calls = [call.call_id for one in recorded if isinstance(one, ModelReply) for call in one.calls]
    outcomes = [_outcome(answers[one]) for one in calls if one in answers]
    if not outcomes:
        return {}
    body = body_of(line.event_type, line.event_data)
    return {"routing": packet(body, outcomes, routing_tools=routing_tools(state))["routing"]}


def _outcome(answer: ToolAnswer) -> ToolOutcome:
    return ToolOutcome(
        tool=answer.tool, succeeded=not answer.failed, returned=answer.returned, reason=answer.reason
    )


def _parted(state: State, together: Sequence[Envelope], decided: Sequence[Envelope]) -> Parted | None:
    for was, now in zip(together, decided, strict=False):
        if was.event_type != ev.EV_CHANNEL_INVITE and said(was, state) != said(now, state):
            return Parted(seq=was.seq, expected=_told(was, state), found=_told(now, state))
    if len(together) == len(decided):
        return None
    place = min(len(together), len(decided))
    was_told = _told(together[place], state) if place < len(together) else "nothing more"
    now_told = _told(decided[place], state) if place < len(decided) else "nothing more"
    return Parted(seq=together[0].seq + place, expected=was_told, found=now_told)


def _told(line: Envelope, state: State) -> str:
    event_type, speaker, matter, then = said(line, state)
    text = f"{event_type} by {speaker}: {matter!r}"
    short = text if len(text) <= _TEXT_CHARACTERS else text[: _TEXT_CHARACTERS - 1] + "…"
    return f"{short} ({then})" if then else short


def _folded(adapter: AnyAdapter, state: State, lines: Iterable[Envelope]) -> State:
    folded: State = reduce(adapter.fold, lines, state)
    return folded


def _without_raw(line: Envelope) -> Envelope:
    entry = line.event_data.get("entry")
    if not isinstance(entry, dict) or "raw" not in entry:
        return line
    kept = {key: value for key, value in entry.items() if key != "raw"}
    return replace(line, event_data={**line.event_data, "entry": kept})


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
