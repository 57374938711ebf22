"""Envelope <-> record, and the chain that makes damage visible.

    record  = seq, envelope id, head, hash            payload = salt + content, or nothing
    head    = sender, type, time, structure, digest   digest  = sha256(salt + content)
    hash    = sha256(previous hash + channel, seq, envelope id, head)

The chain covers heads, and each head covers its payload. So a payload can be erased and the chain still
proves the rest (Y1). The salt keeps a digest from being compared with guesses of what was erased.

    line = structure (type, ids, turn, claim, close code)  + content (messages, names, context, graphs, texts)

Structure stays as long as the channel: the chain covers it, and rules need it. An event type without a row in
`STRUCTURE` is all content, so what an application writes can be erased.

Rule 1: what was written is never encoded again, so moving a log keeps its hashes.

Rule 2: a line of another schema version is refused. Its content is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from turnline.core import event_types as ev
from turnline.core.channel import ID_PATTERN
from turnline.core.directory import EV_PARTICIPANT_REGISTERED, EV_PARTICIPANT_REMOVED
from turnline.core.envelope import SCHEMA_VERSION, Basis, Close, Decision, Envelope, JsonObject
from turnline.core.json import is_number
from turnline.errors import CorruptRecord

HASH_BYTES: Final = 32
SALT_BYTES: Final = 32
NO_HASH: Final = bytes(HASH_BYTES)
"""What stands before a channel's first record."""


class Record(Struct, frozen=True):
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


class Structure(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The structure of an envelope. The record has its id and its seq, and the channel is known."""

    v: int
    sender: str = field(name="from")
    type: str
    at: datetime
    data: JsonObject = {}
    to: list[str] | None = None
    cause: str | None = None
    priority: int = 0
    decision: Decision | None = None
    trace: str | None = None
    digest: bytes = b""
    """Of the payload; empty: the line has no content."""


class Content(Struct, frozen=True, omit_defaults=True):
    """What of an envelope can be erased."""

    data: JsonObject = {}
    condition: str = ""
    target: str = ""
    reason: str = ""
    """The texts of its decision."""


_NOTHING: Final = Content()
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Envelope)
_structure_decoder = msgspec.json.Decoder(Structure)
_content_decoder = msgspec.json.Decoder(Content)


class _Version(Struct):
    v: int


_version_decoder = msgspec.json.Decoder(_Version)


def encode(envelope: Envelope) -> bytes:
    """Return a whole envelope as one JSON text, as frames and caches carry it."""
    return _encoder.encode(envelope)


def decode(body: bytes) -> Envelope:
    """Return the envelope that `encode` wrote. Raises `ValueError`, also for another schema version."""
    _check_version(body)
    return _decoder.decode(body)


def encode_all(envelopes: Iterable[Envelope]) -> list[tuple[int, bytes]]:
    """Return the seq and the bytes of each envelope."""
    return [(one.seq, encode(one)) for one in envelopes]


def decode_all(bodies: Iterable[bytes]) -> list[Envelope]:
    """Return the envelopes in `bodies`. Raises what `decode` raises."""
    return [decode(body) for body in bodies]


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
    _check_version(head)
    return _structure_decoder.decode(head)


def _check_version(body: bytes) -> None:
    version = _version_decoder.decode(body).v
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"its schema version is {version}, this program reads {SCHEMA_VERSION}; "
            "use the version of turnline that wrote it"
        )


def _encode(envelope: Envelope, salt: bytes) -> tuple[bytes, bytes | None]:
    data, rest = split(envelope.event_type, envelope.event_data)
    decision, content = _split_decision(envelope.decision, rest)
    payload = None if content is _NOTHING else salt + _encoder.encode(content)
    structure = Structure(
        v=SCHEMA_VERSION,
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
    return _encoder.encode(structure), payload


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

_PARTICIPANT: Final = _keys("agent_id", "kind", "takes_turns", "played_by", asks=is_id)
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
    lines = envelope.event_data.get("lines")
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
