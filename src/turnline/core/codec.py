"""Envelope <-> record, and the chain that makes damage visible.

    record  = seq, envelope id, head, hash            payload = salt + content, or nothing
    head    = sender, type, time, structure, digest   digest  = sha256(salt + content)
    hash    = sha256(previous hash + channel, seq, envelope id, head)

The chain covers heads, and each head covers its payload. So a payload can be erased and the chain still
proves the rest (Y1). The salt keeps a digest from being compared with guesses of what was erased.

    line = structure (type, ids, turn, claim, close code)  + content (messages, names, context, graphs, texts)

Structure stays as long as the channel: the chain covers it, and rules need it. An event type without a row in
`STRUCTURE` is all content, so what an application writes can be erased.

Each line has a head for good, so heads are short: MessagePack, in which a text of `WORDS` stands as its
number, and an id that a hub has drawn as its 16 bytes.

Rule 1: what was written is never encoded again, so moving a log keeps its hashes.

Rule 2: a line of another schema version is refused. Its content is never guessed.

Rule 3: `WORDS` only grows, at its end. A number that was written stands for its word forever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct, field
from msgspec.msgpack import Ext

from turnline.core import event_types as ev
from turnline.core.channel import ID_PATTERN
from turnline.core.directory import EV_PARTICIPANT_REGISTERED, EV_PARTICIPANT_REMOVED
from turnline.core.envelope import SCHEMA_VERSION, Basis, Close, Decision, Envelope, JsonObject, Rest, Speak
from turnline.core.json import is_number
from turnline.errors import CorruptRecord

HASH_BYTES: Final = 32
SALT_BYTES: Final = 32
NO_HASH: Final = bytes(HASH_BYTES)
"""What stands before a channel's first record."""


class Record(Struct, gc=False, frozen=True):
    """One envelope as a backend keeps it."""

    seq: int
    envelope_id: str
    head: bytes
    hash: bytes
    payload: bytes | None = None
    """The salt and the content. None: the line has no content, or it was erased."""

    @property
    def size(self) -> int:
        return len(self.head) + len(self.payload or b"")


class Kept(Envelope, frozen=True, kw_only=True):
    """An envelope that is on a log already, with its bytes: appended elsewhere, it keeps them."""

    head: bytes
    payload: bytes | None


class Structure(Struct, gc=False, frozen=True, omit_defaults=True, kw_only=True):
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


class Content(Struct, gc=False, frozen=True, array_like=True):
    """What of an envelope can be erased. On a log it is a JSON array, without the empty fields at its end."""

    data: JsonObject = {}
    condition: str = ""
    target: str = ""
    reason: str = ""
    """The texts of its decision."""


_NOTHING: Final = Content()
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Envelope)
_content_decoder = msgspec.json.Decoder(Content)


class _Version(Struct):
    v: int


_version_decoder = msgspec.json.Decoder(_Version)


def encode(envelope: Envelope) -> bytes:
    """Return a whole envelope as one JSON text, as frames and caches carry it."""
    return _encoder.encode(envelope)


def decode(body: bytes) -> Envelope:
    """Return the envelope that `encode` wrote. Raises `ValueError`, also for another schema version."""
    _check_version(_version_decoder.decode(body).v)
    return _decoder.decode(body)


def encode_all(envelopes: Iterable[Envelope]) -> list[tuple[int, bytes]]:
    """Return the seq and the bytes of each envelope."""
    return [(one.seq, encode(one)) for one in envelopes]


def decode_all(bodies: Iterable[bytes]) -> list[Envelope]:
    """Return the envelopes that this program encoded, so that no other version can be among them."""
    return [_decoder.decode(body) for body in bodies]


def seal_all(envelopes: Iterable[Envelope], previous: bytes, *, salt: bytes) -> list[Record]:
    """Return the records of `envelopes`, one after another, after the record whose hash is `previous`.

    `salt` is random and used for one append. Each line gets a salt of its own that is derived from it:
    a line that stays must not help to guess one that was erased.
    """
    records = list[Record]()
    for envelope in envelopes:
        own = sha256(salt + envelope.seq.to_bytes(8)).digest()
        records.append(seal(envelope, previous, salt=own))
        previous = records[-1].hash
    return records


def seal(envelope: Envelope, previous: bytes, *, salt: bytes) -> Record:
    """Return the record of `envelope` after the record whose hash is `previous`."""
    if isinstance(envelope, Kept):
        head, payload = envelope.head, envelope.payload
    else:
        head, payload = _encode(envelope, salt)
    return Record(
        seq=envelope.seq,
        envelope_id=envelope.envelope_id,
        head=head,
        hash=_hash(previous, envelope.channel_id, envelope.seq, envelope.envelope_id, head),
        payload=payload,
    )


def unseal(channel_id: str, record: Record, *, previous: bytes, seq: int) -> Envelope:
    """Return the envelope of the record that has to be at `seq`, or raise `CorruptRecord`.

    A payload that is missing makes an envelope that `is_erased`; whether it may be missing, a later
    line says (`log.chain`).
    """
    if record.seq != seq:
        raise CorruptRecord(channel_id, seq=seq, because=f"it is missing; the next one found is {record.seq}")
    if _hash(previous, channel_id, seq, record.envelope_id, record.head) != record.hash:
        raise CorruptRecord(channel_id, seq=seq, because="its checksum does not match its bytes")
    try:
        structure = read_structure(record.head)
        if record.payload is not None and structure.digest != sha256(record.payload).digest():
            raise CorruptRecord(channel_id, seq=seq, because="its content does not match its digest")
        return _envelope(channel_id, record, structure)
    except ValueError as error:  # msgspec's decoding errors are ValueErrors.
        raise CorruptRecord(channel_id, seq=seq, because=str(error)) from error


def rehash(channel_id: str, record: Record, *, previous: bytes) -> Record:
    """Return the record with the hash that it has to have after the one whose hash is `previous`."""
    hash_ = _hash(previous, channel_id, record.seq, record.envelope_id, record.head)
    return msgspec.structs.replace(record, hash=hash_)


def keep(envelope: Envelope, record: Record) -> Kept:
    """Return an envelope with its bytes."""
    fields = {name: getattr(envelope, name) for name in Envelope.__struct_fields__}
    return Kept(**fields, head=record.head, payload=record.payload)


def without_content(envelope: Envelope) -> Envelope:
    """Return what is left of a line when its content is erased; the line itself if it has none."""
    data, rest = split(envelope.event_type, envelope.event_data)
    decision, content = _split_decision(envelope.decision, rest)
    if content is _NOTHING:
        return envelope
    return msgspec.structs.replace(envelope, event_data=data, decision=decision, is_erased=True)


def read_structure(head: bytes) -> Structure:
    """Return the structure in `head`. Raises `ValueError`, also for another schema version."""
    _check_version(version_of(head))
    return unpack_head(head)


def _check_version(version: int) -> None:
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"its schema version is {version}, this program reads {SCHEMA_VERSION}; "
            "use the version of turnline that wrote it"
        )


def _encode(envelope: Envelope, salt: bytes) -> tuple[bytes, bytes | None]:
    data, rest = split(envelope.event_type, envelope.event_data)
    decision, content = _split_decision(envelope.decision, rest)
    payload = None if content is _NOTHING else salt + _encode_content(content)
    structure = Structure(
        sender=envelope.sender_id,
        type=envelope.event_type,
        at=envelope.created_at,
        data=data,
        to=envelope.audience,
        cause=envelope.causation_id,
        priority=envelope.priority,
        decision=decision,
        trace=envelope.traceparent,
        digest=b"" if payload is None else sha256(payload).digest(),
    )
    return pack_head(structure), payload


def _encode_content(content: Content) -> bytes:
    fields = [content.data, content.condition, content.target, content.reason]
    while not fields[-1]:
        fields.pop()
    return _encoder.encode(fields)


def _split_decision(decision: Decision | None, rest: JsonObject) -> tuple[Decision | None, Content]:
    """Return the decision without its texts, and the content with them."""
    if decision is None:
        return None, Content(rest) if rest else _NOTHING
    reason = decision.reason if isinstance(decision, Close) and not is_code(decision.reason) else ""
    by = decision.by
    if not (by.condition or by.target or reason):
        return decision, Content(rest) if rest else _NOTHING
    bare = msgspec.structs.replace(decision, by=Basis(kind=by.kind, index=by.index))
    if reason:
        bare = msgspec.structs.replace(bare, reason="")
    return bare, Content(rest, by.condition, by.target, reason)


def _join_decision(decision: Decision | None, content: Content) -> Decision | None:
    if decision is None or not (content.condition or content.target or content.reason):
        return decision
    by = msgspec.structs.replace(decision.by, condition=content.condition, target=content.target)
    whole = msgspec.structs.replace(decision, by=by)
    return msgspec.structs.replace(whole, reason=content.reason) if content.reason else whole


def _envelope(channel_id: str, record: Record, structure: Structure) -> Envelope:
    is_erased = bool(structure.digest) and record.payload is None
    content = _NOTHING if record.payload is None else _content_decoder.decode(record.payload[SALT_BYTES:])
    return Envelope(
        schema_version=structure.v,
        envelope_id=record.envelope_id,
        channel_id=channel_id,
        seq=record.seq,
        sender_id=structure.sender,
        event_type=structure.type,
        event_data=join(structure.data, content.data) if structure.data else content.data,
        audience=structure.to,
        causation_id=structure.cause,
        priority=structure.priority,
        created_at=structure.at,
        decision=_join_decision(structure.decision, content),
        traceparent=structure.trace,
        is_erased=is_erased,
    )


def _hash(previous: bytes, channel_id: str, seq: int, envelope_id: str, head: bytes) -> bytes:
    # Lengths are part of what is hashed, so no two records share an input.
    place = f"{len(channel_id)}:{channel_id}{seq}:{len(envelope_id)}:{envelope_id}"
    return sha256(b"".join((previous, place.encode(), head))).digest()


_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}(:[a-z][a-z0-9_]{0,63})?")


def is_code(value: object) -> bool:
    """Return whether a reason is a code, such as `turn_failed`, and not a sentence about somebody."""
    return isinstance(value, str) and _CODE.fullmatch(value) is not None


def is_id(value: object) -> bool:
    """Return whether a value looks like an id, and not like a full name or an address."""
    return isinstance(value, str) and ID_PATTERN.fullmatch(value) is not None


Shape = dict[str, Any]
"""Key -> True: structure; a shape: look inside, also into each object of a list; a function: ask it."""


def _keys(*names: str, **inner: Any) -> Shape:
    return dict.fromkeys(names, True) | inner


_ALL: Final = _keys("*")
"""Every key is structure: such a line cannot be erased."""

_PARTICIPANT: Final = _keys("agent_id", "kind", "takes_turns", "played_by", "asks_seconds", asks=is_id)
_FLOW: Final = _keys("name", "digest", "at", "pins", "retry_of", "is_untrusted")
_USAGE: Final = dict.fromkeys(("requests", "input_tokens", "output_tokens", "cost"), is_number)
_ENTRY: Final = _keys("type", "call_id", "attempt", usage=_USAGE)
_CLOSE: Final = _keys("awaiting", by=is_id, reason=is_code)
_TASK: Final = _keys("task_id")
_LIMITS: Final = ("ttl_seconds", "ack_timeout_seconds", "depth", "max_depth", "max_runs")
_AUDIT: Final = _keys(
    *("channel_id", "seq", "agent_id", "turn", "forked_from", "handler", "count", "seconds"),
    by=is_id,
    reason=is_code,
    source=is_code,
)

STRUCTURE: Final[dict[str, Shape]] = {
    ev.EV_CHANNEL_INVITE: _keys(
        *("channel_id", "type", "creator_id", "invited", "expectations", *_LIMITS),
        *("parent_id", "asks_above", "forked_from", "traceparent", "log"),
        participants=_PARTICIPANT,
        knobs=_keys(flow=_FLOW),
    ),
    ev.EV_CHANNEL_INVITE_ACK: _keys("agent_id"),
    ev.EV_CHANNEL_INVITE_REJECT: _keys("agent_id", reason=is_code),
    ev.EV_CHANNEL_OPENED: _keys(),
    ev.EV_CHANNEL_FORKED: _keys("forked_from", **{"by": is_id, "for": is_id}),
    ev.EV_CHANNEL_CHILD: _keys("child", "parent", "run", "by"),
    ev.EV_CHANNEL_CLOSED: _CLOSE,
    ev.EV_CHANNEL_EXPIRED: _CLOSE,
    ev.EV_TURN_CLAIMED: _keys("agent_id", "turn", "worker", "lease_seconds", "alone", "replaces", "heard"),
    ev.EV_TURN_RELEASED: _keys(),
    ev.EV_TURN_RENEWED: _keys(),
    ev.EV_TURN_MODEL: _keys(entry=_ENTRY, usage=_USAGE, summary=_keys("agent_id", "upto")),
    ev.EV_TURN_TOOL: _keys(entry=_ENTRY),
    ev.EV_TURN_ONCE: _keys("call"),
    ev.EV_TURN_PAUSED: _keys(
        *("agent_id", "turn", "seconds", "until", "times_out", "questions", "children"),
        reason=is_code,
        key=is_id,
    ),
    ev.EV_TURN_RESUMED: _keys("pause", by=is_id, event=is_id),
    ev.EV_TURN_ABANDONED: _keys("agent_id", "turn"),
    ev.EV_TURN_FAILED: _keys("agent_id", "turn", "claims", "absent", error=_keys(type=is_id)),
    ev.EV_EXPECTATION_VIOLATED: _keys("expectation", "name", "seconds", "handler", "since"),
    ev.EV_TIMER_FIRED: _keys("pause", "question"),
    ev.EV_TASK_STARTED: _TASK,
    ev.EV_TASK_PROGRESS: _TASK,
    ev.EV_TASK_COMPLETED: _TASK,
    ev.EV_TASK_FAILED: _TASK,
    ev.EV_HUMAN_REQUESTED: _keys("request_id", "turn", "call", "position", "expires", group=is_id),
    ev.EV_HUMAN_ANSWERED: _keys(
        "request_id", "pause", "above", **{"by": is_id, "for": is_id, "group": is_id}
    ),
    ev.EV_PACKET: _keys("format", routing=_keys("kind"), usage=_USAGE),
    ev.EV_PAYLOAD_ERASED: _ALL,
    ev.EV_LOG_SEALED: _ALL,
    ev.EV_LOG_REPAIRED: _ALL,
    ev.EV_LINE_LOST: _ALL,
    EV_PARTICIPANT_REGISTERED: _keys("agent_id"),
    EV_PARTICIPANT_REMOVED: _keys("agent_id", reason=is_code),
}
"""Event type -> which keys of its data are structure."""

_AUDIT_FAMILY: Final = "audit."


def split(event_type: str, data: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return the structure and the content of a line's data."""
    shape = _AUDIT if event_type.startswith(_AUDIT_FAMILY) else STRUCTURE.get(event_type)
    if shape is None:
        return {}, data
    if shape is _ALL:
        return data, {}
    return _split(data, shape)


def _split(data: JsonObject, shape: Shape) -> tuple[JsonObject, JsonObject]:
    structure, content = JsonObject(), JsonObject()
    for key, value in data.items():
        inner = shape.get(key)
        if inner is True:
            structure[key] = value
        elif inner is None:
            content[key] = value
        elif callable(inner):
            (structure if inner(value) else content)[key] = value
        elif isinstance(value, dict):
            own, rest = _split(value, inner)
            structure |= {key: own} if own or not rest else {}
            content |= {key: rest} if rest else {}
        elif isinstance(value, list) and all(isinstance(one, dict) for one in value):
            pairs = [_split(one, inner) for one in value]
            structure[key] = [own for own, _ in pairs]
            content |= {key: [rest for _, rest in pairs]} if any(rest for _, rest in pairs) else {}
        else:
            content[key] = value
    return structure, content


def join(structure: JsonObject, content: JsonObject) -> JsonObject:
    """Return the data that `split` made these of."""
    return {**structure, **{key: _join(structure, key, value) for key, value in content.items()}}


def _join(structure: JsonObject, key: str, rest: Any) -> Any:
    own = structure.get(key)
    if isinstance(own, dict) and isinstance(rest, dict):
        return join(own, rest)
    if isinstance(own, list) and isinstance(rest, list):
        return [join(one, other) for one, other in zip(own, rest, strict=True)]
    return rest


def erased_lines(envelope: Envelope) -> list[tuple[int, int]]:
    """Return the first and the last line of each range that a `payload.erased` names."""
    return ranges_in(envelope.event_data)


def ranges_in(data: JsonObject) -> list[tuple[int, int]]:
    """Return the same from its data, which is all structure."""
    lines = data.get("lines")
    if not isinstance(lines, list):
        return []
    return [(one[0], one[1]) for one in lines if _is_range(one)]


def ranges(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as ranges: 4, 7, 8, 9 is (4, 4), (7, 9)."""
    found = list[tuple[int, int]]()
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


def _is_range(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(one, int) for one in value)  # noqa: PLR2004


# The head of a record: the structure of a line, packed.

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
    *("claims", "format", "summary", "upto", "lines", "log.line_lost", "log.repaired", "log.sealed"),
)
"""Texts that heads repeat, the frequent ones first: a number up to 127 takes one byte."""

_ID_BYTES: Final = 16
_ID_CHARACTERS: Final = 26
_OWN_ID: Final = re.compile(r"[0-9a-v]{25}[048cgkos]")
"""16 bytes in base 32 with the digits 0 to v, without padding; the last digit has two bits to spare."""
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuv"
ID_PAIRS: Final = [one + other for one in _DIGITS for other in _DIGITS]
"""Two digits for each number of ten bits."""
ID_SHIFTS: Final = range(120, -1, -10)
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


class _HeadVersion(Struct, array_like=True):
    version: int


def _read_extension(code: int, body: memoryview) -> int:
    if code != _LONG_INTEGER:
        raise ValueError(f"found the extension {code}, expected {_LONG_INTEGER}")
    return int(bytes(body))


_head_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(_Packed, ext_hook=_read_extension)
_head_version_decoder = msgspec.msgpack.Decoder(_HeadVersion)


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
        return _head_encoder.encode(packed)
    except OverflowError:  # MessagePack has no number of more than 64 bits.
        return _head_encoder.encode(msgspec.structs.replace(packed, data=_wrap(packed.data)))


def version_of(head: bytes) -> int:
    """Return the schema version of a head. Raises `ValueError`."""
    return _head_version_decoder.decode(head).version


def unpack_head(head: bytes) -> Structure:
    """Return the structure in a head. Raises `ValueError`."""
    packed = _head_decoder.decode(head)
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
    return drawn.to_bytes(_ID_BYTES) + text[_ID_CHARACTERS:].encode()


def unpack_id(body: bytes) -> str:
    """Return the id that `pack_id` made these bytes of. Bytes of no id give a text that is no line's id."""
    return write_id(int.from_bytes(body[:_ID_BYTES])) + body[_ID_BYTES:].decode(errors="replace")


def write_id(number: int) -> str:
    """Return 128 bits as 26 digits that sort as the numbers do; two digits at a time, for speed."""
    number <<= 2  # 26 digits have 130 bits.
    return "".join([ID_PAIRS[number >> shift & 1023] for shift in ID_SHIFTS])


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
