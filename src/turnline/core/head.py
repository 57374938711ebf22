"""The head of a record: the structure of a line, packed.

    head = [version, type, sender, time, data, audience, cause, decision, digest, priority, trace]

A head is MessagePack. It is packed because each line of a log has one for good. Three things make it short:

    words    a text of `WORDS`, as a key, a type, a sender or a kind, stands as its number
    ids      an id that a hub has drawn stands as its 16 bytes (`pack_id`)
    times    a number, not a text

Rule 1: `WORDS` only grows, at its end. A number that was written stands for its word forever.

Rule 2: what is read is what was packed, whatever a structure holds: a text that is not in `WORDS`, a number
of any size, an id that somebody chose.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct, field
from msgspec.msgpack import Ext

from turnline.core.envelope import SCHEMA_VERSION, Basis, Close, Decision, JsonObject, Rest, Speak

WORDS: Final = (
    *("hub", "packet", "turn.claimed", "text", "turn.model", "turn.tool", "turn.once", "turn.renewed"),
    *("turn.released", "turn.paused", "turn.resumed", "turn.abandoned", "turn.failed", "context.set"),
    *("channel.invite", "channel.ack", "channel.reject", "channel.opened", "channel.forked", "channel.child"),
    *("channel.closed", "channel.expired", "expectation.violated", "timer.fired", "human.requested"),
    *("human.answered", "task.started", "task.progress", "task.completed", "task.failed", "payload.erased"),
    *("participant.registered", "participant.removed"),
    *("speak", "close", "rest", "initial", "transition", "default", "handoff", "finish", "max_turns"),
    *("out_of_steps", "retry", "resume", "adapter", "empty_reply", "agent_turns", "turn_failed"),
    *("agent_id", "turn", "worker", "lease_seconds", "alone", "replaces", "heard", "routing", "kind"),
    *("usage", "requests", "input_tokens", "output_tokens", "cost", "entry", "type", "call_id", "attempt"),
    *("call", "channel_id", "creator_id", "participants", "invited", "takes_turns", "played_by", "asks"),
    *("knobs", "flow", "name", "digest", "at", "pins", "parent_id", "forked_from", "traceparent", "log"),
    *("reason", "by", "for", "awaiting", "child", "parent", "run", "seq", "pause", "request_id", "position"),
    *("expires", "group", "seconds", "until", "times_out", "questions", "children", "key", "event", "error"),
    *("claims", "format", "summary", "upto", "lines"),
)
"""Texts that heads repeat, the frequent ones first: a number up to 127 takes one byte."""

ID_BYTES: Final = 16
_ID_CHARACTERS: Final = 26
_OWN_ID: Final = re.compile(r"[0-9a-v]{25}[048cgkos]")
"""16 bytes in base 32 with the digits 0 to v, without padding; the last digit has two bits to spare."""
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuv"
_PAIRS: Final = [one + other for one in _DIGITS for other in _DIGITS]
"""Two digits for each number of ten bits."""
_SHIFTS: Final = range(120, -1, -10)
_LONG_INTEGER: Final = 1
"""The kind of a MessagePack extension: the digits of a number of more than 64 bits."""

_HOLDERS: Final = frozenset({dict, list})


class _Names(dict[int | str, Any]):
    """A text or number -> what stands for it; a text that is not there stands for itself."""

    def __missing__(self, key: int | str) -> str:
        if isinstance(key, str):
            return key
        raise ValueError(f"found {key!r} where a text or the number of one is expected")


_TEXTS: Final = _Names(enumerate(WORDS))
_NUMBERS: Final = _Names((word, number) for number, word in enumerate(WORDS))


class Structure(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The structure of an envelope. The record has its id and its seq, and the channel is known."""

    v: int = SCHEMA_VERSION
    sender: str = field(name="from")
    type: str
    at: datetime
    data: JsonObject = {}
    to: list[str] | None = None
    cause: str | None = None
    priority: int = 0
    decision: Decision | None = None
    """Without its texts, which are content."""
    trace: str | None = None
    digest: bytes = b""
    """Of the payload; empty: the line has no content."""


class _Packed(Struct, array_like=True, frozen=True):
    version: int
    type: int | str
    sender: int | str
    at: datetime
    data: dict[int | str, Any] | None
    """None if it is empty."""
    to: list[str] | None
    cause: Any
    """Bytes: the id of `pack_id`."""
    decision: tuple[int | str, str | None, int | str, int | None] | None
    """Its kind, whom it names or why it closes, and the kind and index of its basis."""
    digest: bytes | None
    priority: int
    trace: str | None


class _Version(Struct, array_like=True):
    version: int


def _read_extension(code: int, body: memoryview) -> int:
    if code != _LONG_INTEGER:
        raise ValueError(f"found the extension {code}, expected {_LONG_INTEGER}")
    return int(bytes(body))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Packed, ext_hook=_read_extension)
_version_decoder = msgspec.msgpack.Decoder(_Version)


def pack_head(structure: Structure) -> bytes:
    """Return a structure as the bytes that a log keeps."""
    packed = _Packed(
        structure.v,
        _NUMBERS[structure.type],
        _NUMBERS[structure.sender],
        structure.at,
        _rename(structure.data, _NUMBERS) if structure.data else None,
        structure.to,
        None if structure.cause is None else pack_id(structure.cause),
        None if structure.decision is None else _pack_decision(structure.decision),
        structure.digest or None,
        structure.priority,
        structure.trace,
    )
    try:
        return _encoder.encode(packed)
    except OverflowError:  # MessagePack has no number of more than 64 bits.
        return _encoder.encode(msgspec.structs.replace(packed, data=_wrap(packed.data)))


def version_of(head: bytes) -> int:
    """Return the schema version of a head. Raises `ValueError`."""
    return _version_decoder.decode(head).version


def unpack_head(head: bytes) -> Structure:
    """Return the structure in a head. Raises `ValueError`."""
    packed = _decoder.decode(head)
    return Structure(
        v=packed.version,
        sender=_TEXTS[packed.sender],
        type=_TEXTS[packed.type],
        at=packed.at,
        data=_rename(packed.data, _TEXTS) if packed.data else {},
        to=packed.to,
        cause=unpack_id(packed.cause) if isinstance(packed.cause, bytes) else _expect(packed.cause, str),
        priority=packed.priority,
        decision=None if packed.decision is None else _unpack_decision(*packed.decision),
        trace=packed.trace,
        digest=packed.digest or b"",
    )


def pack_id(text: str) -> bytes | str:
    """Return an id that a hub has drawn as its 16 bytes, and what follows it; any other id as it is."""
    if _OWN_ID.match(text) is None:
        return text
    drawn = int(text[:_ID_CHARACTERS], 32) >> 2
    return drawn.to_bytes(ID_BYTES) + text[_ID_CHARACTERS:].encode()


def unpack_id(body: bytes) -> str:
    """Return the id that `pack_id` made these bytes of. Bytes of no id give a text that is no line's id."""
    drawn = int.from_bytes(body[:ID_BYTES]) << 2
    text = "".join([_PAIRS[drawn >> shift & 1023] for shift in _SHIFTS])
    return text if len(body) == ID_BYTES else text + body[ID_BYTES:].decode(errors="replace")


def _pack_decision(decision: Decision) -> tuple[int | str, str | None, int | str, int | None]:
    by = _NUMBERS[decision.by.kind], decision.by.index
    match decision:
        case Speak(agent_id=agent_id):
            return _NUMBERS["speak"], agent_id, *by
        case Close(reason=reason):
            return _NUMBERS["close"], reason, *by
        case Rest():
            return _NUMBERS["rest"], None, *by


def _unpack_decision(kind: int | str, about: str | None, by_kind: int | str, index: int | None) -> Decision:
    by = Basis(kind=_TEXTS[by_kind], index=index)
    match _TEXTS[kind]:
        case "speak":
            return Speak(about or "", by)
        case "close":
            return Close(about or "", by)
        case "rest":
            return Rest(by)
        case other:
            raise ValueError(f"found a decision of the kind {other!r}")


def _rename(value: Any, names: _Names) -> Any:
    """Return a value with other keys in its objects."""
    if type(value) is dict:
        # Most values hold nothing: this is asked for each line of a log that is read.
        return {
            names[key]: _rename(one, names) if type(one) in _HOLDERS else one for key, one in value.items()
        }
    return [_rename(one, names) for one in value] if type(value) is list else value


def _wrap(value: Any) -> Any:
    """Replace each integer by an extension, which any size fits into."""
    if type(value) is dict:
        return {key: _wrap(one) for key, one in value.items()}
    if type(value) is list:
        return [_wrap(one) for one in value]
    return Ext(_LONG_INTEGER, str(value).encode()) if type(value) is int else value


def _expect(value: Any, kind: type) -> Any:
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"found {type(value).__name__}, expected {kind.__name__}")
    return value
