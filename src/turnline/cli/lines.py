"""A channel's lines as people read them, one each, and as JSON for scripts.

     7 10:31:05 ada: It is a lamp.  -> bo (transition 1)

Nothing private is in either: keys that start with `_` stay on the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from turnline.cli.plain import one_line, plain, public
from turnline.core import event_types as ev
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Close, Decision, Envelope, JsonObject, Speak, gives_floor_to
from turnline.core.event_types import body_of
from turnline.core.parts import files_of

_CHARACTERS: Final = 400
COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_red")
"""Of the participants, in their order."""


class Shown(NamedTuple):
    """One line for people."""

    head: str
    speaker: str
    text: str
    then: str
    colour: str

    def __str__(self) -> str:
        then = f"  {self.then}" if self.then else ""
        return f"{self.head} {self.speaker}{self.text}{then}".rstrip()


class Teller:
    """Tells a channel's lines in their order: what is recorded of a turn is whoever's that has the floor."""

    def __init__(self, spec: ChannelSpec, *, floor: str | None = None, every: bool = False) -> None:
        self._spec = spec
        self._floor = floor
        self._every = every
        """Whether to tell also what is not worth a line: claims, acknowledgements."""

    def tell(self, line: Envelope) -> Shown | None:
        """The line as people read it; None for what is not worth one."""
        who = self._who(line)
        self._floor = gives_floor_to(line) or self._floor
        telling = _TELL.get(line.event_type)
        text = telling(line.event_data) if telling else None
        if line.is_erased and telling is not None:
            text = ": erased" if text is not None and text.startswith(":") else f"({line.event_type}): erased"
        if text is None and not self._every:
            return None
        said = one_line(f"{text or f'({line.event_type})'}{_files(line)}", _CHARACTERS)
        return Shown(
            head=f"{line.seq:>5} {line.created_at:%H:%M:%S}",
            speaker=plain(self._spec.name_of(who)),
            text=said if said.startswith(":") else f" {said}",
            then=_then(line, self._spec),
            colour=_colour(who, self._spec),
        )

    def _who(self, line: Envelope) -> str:
        if line.event_type in (ev.EV_TURN_MODEL, ev.EV_TURN_TOOL, ev.EV_TURN_ONCE) and self._floor:
            return self._floor
        data = line.event_data
        return str(data.get("agent_id", data.get("for", line.sender_id)))


def _files(line: Envelope) -> str:
    """Return the files of a line, as people read them."""
    found = files_of(line.event_type, line.event_data)
    return "".join(f" [{one.name or one.media_type}, {one.size} bytes]" for one in found)


def as_json(line: Envelope, spec: ChannelSpec) -> JsonObject:
    """The line as scripts read it."""
    told: JsonObject = {
        "seq": line.seq,
        "at": line.created_at.isoformat(),
        "type": line.event_type,
        "by": spec.name_of(line.sender_id),
        "data": public(line.event_data),
    }
    if line.is_erased:
        told["erased"] = True
    if line.decision is not None:
        told["decision"] = msgspec.to_builtins(line.decision)
    if line.audience is not None:
        told["audience"] = [spec.name_of(one) for one in line.audience]
    return told


def _then(line: Envelope, spec: ChannelSpec) -> str:
    decision = line.decision
    if decision is None:
        return ""
    by = decision.by.kind if decision.by.index is None else f"{decision.by.kind} {decision.by.index}"
    return f"-> {_where(decision, spec)} ({by})"


def _where(decision: Decision, spec: ChannelSpec) -> str:
    if isinstance(decision, Speak):
        return plain(spec.name_of(decision.agent_id))
    return "close" if isinstance(decision, Close) else "rest"


def _colour(agent_id: str, spec: ChannelSpec) -> str:
    order = [one.agent_id for one in spec.participants]
    return COLOURS[order.index(agent_id) % len(COLOURS)] if agent_id in order else ""


def _said(key: str) -> Callable[[JsonObject], str]:
    return lambda data: f": {body_of(ev.EV_PACKET if key == 'body' else ev.EV_TEXT, data)}"


def _wrote(data: JsonObject) -> str:
    parts = [f"{part} {_json(public(data[part]))}" for part in data]
    return f"writes the context: {', '.join(parts)}"


def _replied(data: JsonObject) -> str | None:
    calls = _object(data.get("entry")).get("calls") or []
    asked = [f"{one.get('tool')}({_json(public(one.get('arguments') or {}))})" for one in map(_object, calls)]
    return f"calls {', '.join(asked)}" if asked else None


def _answered(data: JsonObject) -> str:
    entry = _object(data.get("entry"))
    how = "failed" if entry.get("failed") else "answered"
    return f"{entry.get('tool')} {how}: {entry.get('text', '')}"


def _failed(data: JsonObject) -> str:
    error = _object(data.get("error"))
    return f"could not take its turn: {error.get('type', '')}: {error.get('message', '')}"


def _forked(data: JsonObject) -> str:
    origin = _object(data.get("forked_from"))
    return f"forked from {origin.get('channel')} at {origin.get('seq')}"


def _answered_by(data: JsonObject) -> str:
    by = f", by {data['by']}" if data.get("by") else ""
    return f"answers{by}: {_json(public(data.get('answer', '')))}"


def _erased(data: JsonObject) -> str:
    lines = data.get("lines")
    ranges = [f"{one[0]}-{one[-1]}" for one in lines] if isinstance(lines, list) else []
    return f"erased the lines {', '.join(ranges)}, as {data.get('by')} asked ({data.get('reason')})"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_TELL: Final[dict[str, Callable[[JsonObject], str | None]]] = {
    ev.EV_TEXT: _said("text"),
    ev.EV_PACKET: _said("body"),
    ev.EV_CONTEXT_SET: _wrote,
    ev.EV_TURN_MODEL: _replied,
    ev.EV_TURN_TOOL: _answered,
    ev.EV_TURN_ONCE: lambda data: f"did {data.get('key')} once: {_json(public(data.get('result')))}",
    ev.EV_TURN_FAILED: _failed,
    ev.EV_TURN_PAUSED: lambda data: f"waits: {data.get('reason', '')} {data.get('until', '')}",
    ev.EV_HUMAN_REQUESTED: lambda data: f"asks a person: {data.get('question', '')}",
    ev.EV_HUMAN_ANSWERED: _answered_by,
    ev.EV_EXPECTATION_VIOLATED: lambda data: (
        f"noted that {data.get('name')} {data.get('seconds')} s has passed"
    ),
    ev.EV_CHANNEL_FORKED: _forked,
    ev.EV_CHANNEL_OPENED: lambda data: "opened the channel",
    ev.EV_CHANNEL_CLOSED: lambda data: f"closed the channel: {data.get('reason', '')}",
    ev.EV_PAYLOAD_ERASED: _erased,
}
