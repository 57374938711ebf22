"""Frames that nobody who means well sends: a corpus, and good frames that went through the mangle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final

CORPUS: Final[list[str | bytes]] = [
    "",
    " ",
    "null",
    "true",
    "[]",
    "{}",
    '"hello"',
    "{",
    '{"kind"}',
    '{"kind": null}',
    '{"kind": 1}',
    '{"kind": "nothing"}',
    '{"kind": "hello", "version": 1}',
    '{"kind": "welcome", "version": 1}',
    '{"kind": "request"}',
    '{"kind": "request", "id": 1, "op": "peers"}',
    '{"kind": "request", "id": "a", "op": "peers", "more": 1}',
    '{"kind": "request", "id": "a", "id": "b", "op": "peers"}',
    '{"kind": "request", "id": "a", "op": "peers", "args": []}',
    '{"kind": "request", "id": "a", "op": "read", "args": {"channel_id": "c", "after": NaN}}',
    '{"kind": "request", "id": "a", "op": "read", "args": {"channel_id": "c", "after": Infinity}}',
    '{"kind": "request", "id": "a", "op": "read", "args": {"channel_id": "c", "after": 1e999}}',
    '{"kind": "request", "id": "a\\u0000", "op": "peers"}',
    '{"kind": "request", "id": "\\ud800", "op": "peers"}',
    '{"kind": "request", "id": "a", "op": "\\udc00\\ud800"}',
    '{"kind": "ack", "ids": "all"}',
    '{"kind": "ack", "ids": [null]}',
    '{"kind": "cancel", "id": {}}',
    '{"kind": "part", "id": "p", "data": "!!", "last": true}',
    '{"kind": "part", "id": "p", "data": "", "last": true}',
    '{"kind": "part", "id": "p", "data": "//8=", "last": true}',
    '{"kind": "part", "id": "p", "data": "bnVsbA==", "last": true}',
    '{"kind": "part", "id": "p", "data": "eyJraW5kIjoicGFydCIsImlkIjoieCIsImRhdGEiOiIifQ==", "last": true}',
    '{"kind": "text", "channel_id": "c", "agent_id": "a"}',
    '{"kind": "text", "channel_id": "_directory", "agent_id": "hub", "text": "x"}',
    '{"kind": "ping", "n": 1.5}',
    '{"kind": "ping", "n": ' + "9" * 400 + "}",
    '{"kind": "ping", "n": ' + "9" * 5000 + "}",
    '{"kind": "ping", "n": ' + "[" * 100 + "]" * 100 + "}",
    "[" * 20_000,
    '{"a":' * 10_000,
    '{"kind": "ping"' + " " * 40_000 + "}",
    '{"kind": "request", "id": "a", "op": "register", "args": {"passport": {"name": "x", "kind": "hub"}}}',
    '{"kind": "request", "id": "a", "op": "attach", "seat": "hub"}',
    '{"kind": "request", "id": "a", "op": "resume", "args": {"seats": {"x": {"y": "z"}}, "pending": []}}',
    '{"kind": "request", "id": "' + "i" * 30_000 + '", "op": "peers"}',
    b"",
    b"\x00",
    b'{"kind": "ping"}',
    b"\xff\xfe",
]

_ODD: Final[list[Any]] = [
    None,
    True,
    -1,
    2**63,
    10**300,
    1.5,
    "",
    "\0",
    "\ud800",
    "_directory",
    "../../etc/passwd",
    "${HOME}",
    [],
    {},
    [[[[]]]],
    {"": ""},
    "x" * 2_000,
]


def good(seat: str, channel_id: str) -> list[dict[str, Any]]:
    """One frame of each kind, and one request of each that there is."""
    draft = {"envelope_id": "e", "sender_id": seat, "event_type": "text", "event_data": {"text": "x"}}
    channel: dict[str, Any] = {"channel_id": channel_id}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("register", {"passport": {"name": "mallory"}}),
        ("attach", {}),
        ("resume", {"seats": {seat: {channel_id: 1}}, "pending": []}),
        ("peers", {}),
        ("channels", {}),
        ("open", {"request": {"type": "conversation", "target": ["bob"], "channel_id": "other"}}),
        ("post", {**channel, "draft": draft}),
        ("answer_invite", channel),
        ("read", {**channel, "after": 0}),
        ("state", channel),
        ("metadata", channel),
        ("claim", {**channel, "floor": {"speaker": seat, "turn": 1, "seq": 1}}),
        ("write", {**channel, "claim": 1, "speaker": seat, "event_type": "turn.model", "data": {}}),
        ("summary", channel),
        ("listen", channel),
        ("unlisten", channel),
    ]
    frames = [{"kind": "request", "id": "r", "op": op, "seat": seat, "args": args} for op, args in requests]
    return [
        *frames,
        {"kind": "ack", "ids": ["r"]},
        {"kind": "cancel", "id": "r"},
        {"kind": "text", "channel_id": channel_id, "agent_id": seat, "text": "x"},
        {"kind": "ping", "n": 1},
        {"kind": "part", "id": "p", "data": "e30=", "last": True},
    ]


def mangled(seat: str, channel_id: str, random: Random) -> Iterator[str]:
    """Good frames with something wrong in them, without end."""
    frames = good(seat, channel_id)
    number = 0
    while True:
        number += 1
        frame = json.loads(json.dumps(random.choice(frames)))
        if "id" in frame:
            frame["id"] = f"h{number}"
        text = json.dumps(_with_something_odd(frame, random))
        for _ in range(random.choice([0, 0, 1, 3])):
            text = _damaged(text, random)
        yield text


def _with_something_odd(frame: dict[str, Any], random: Random) -> dict[str, Any]:
    place: Any = frame
    while True:
        key = random.choice(list(place))
        inner = place[key]
        if isinstance(inner, dict) and inner and random.random() < 0.7:
            place = inner
            continue
        match random.randrange(3):
            case 0:
                place[key] = random.choice(_ODD)
            case 1:
                del place[key]
            case _:
                place[str(random.choice(["x", "_x", "\0", key + "x"]))] = random.choice(_ODD)
        return frame


def _damaged(text: str, random: Random) -> str:
    at = random.randrange(len(text) + 1)
    return random.choice(
        [
            text[:at],
            text[:at] + text[at + 1 :],
            text[:at] + random.choice('{}[]",:\\0eN\x00\u2028') + text[at:],
            text + text[at:],
        ]
    )
