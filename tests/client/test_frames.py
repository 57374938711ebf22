"""Frames: what goes over the wire, as docs/frames.md shows it, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from turnline.client.frames import (
    MAX_FRAME_DEPTH,
    Frame,
    FromClient,
    FromServer,
    Hello,
    Ping,
    Request,
    decode_from_client,
    decode_from_server,
    encode,
)
from turnline.errors import BadFrame
from turnline.server.ws_presence import OWN
from turnline.server.ws_requests import REQUESTS

PAGE = (Path(__file__).parents[2] / "docs" / "frames.md").read_text()
EXAMPLES = re.findall(r"```json (client|server)\n(.*?)```", PAGE, re.DOTALL)


def kinds(frames: object) -> set[str]:
    names: set[str] = set()
    for kind in frames.__args__:  # type: ignore[attr-defined]
        names.add(msgspec.inspect.type_info(kind).tag)  # type: ignore[attr-defined]
    return names


@pytest.mark.parametrize(("side", "text"), EXAMPLES)
def test_every_example_of_the_page_is_a_frame_and_reads_back(side: str, text: str) -> None:
    decode = decode_from_client if side == "client" else decode_from_server
    frame = decode(text)

    assert decode(encode(frame)) == frame


def test_the_page_shows_a_frame_of_every_kind() -> None:
    shown = {(side, json.loads(text)["kind"]) for side, text in EXAMPLES}
    both = {"ping", "pong", "text", "part"}  # Shown once, whoever sends them.

    assert kinds(FromClient) - both <= {kind for side, kind in shown if side == "client"}
    assert kinds(FromServer) - both <= {kind for side, kind in shown if side == "server"}
    assert both <= {kind for _, kind in shown}


def test_the_page_names_everything_that_can_be_asked() -> None:
    table = "".join(line for line in PAGE.splitlines() if line.startswith("| `"))

    assert all(f"`{op}`" in table for op in {*REQUESTS, *OWN})


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("{", "line 1"),
        ('{"kind": "ping", "n": NaN}', "NaN"),
        ('{"kind": "ping", "n": 1, "n": 2}', "twice"),
        ('{"kind": "cancel", "id": "\\ud800"}', "surrogate"),
        ('{"kind": "cancel", "id": "\\u0000"}', "NUL"),
        ('{"kind": "ping", "n": ' + "9" * 400 + "}", "too long"),
        ('{"kind": "ping", "n": 1e999}', "too large"),
        ('{"kind": "ping", "m": 1}', "unknown field"),
        ('{"kind": "sing"}', "sing"),
        ("[]", "object"),
        ("[" * 100_000, "levels"),
    ],
)
def test_what_is_no_frame_is_refused_with_the_reason(text: str, because: str) -> None:
    with pytest.raises(BadFrame, match=because) as caught:
        decode_from_client(text)
    assert len(str(caught.value)) < 400


def test_a_binary_message_is_no_frame() -> None:
    with pytest.raises(BadFrame, match="binary"):
        decode_from_client(b'{"kind": "ping"}')


@pytest.mark.parametrize(("levels", "is_good"), [(MAX_FRAME_DEPTH - 2, True), (MAX_FRAME_DEPTH - 1, False)])
def test_a_frame_is_as_deep_as_an_envelope_needs_and_no_deeper(levels: int, is_good: bool) -> None:
    value: object = 1
    for _ in range(levels):
        value = [value]
    text = json.dumps({"kind": "request", "id": "a", "op": "x", "args": {"x": value}})
    if is_good:
        assert isinstance(decode_from_client(text), Request)
    else:
        with pytest.raises(BadFrame, match="deep"):
            decode_from_client(text)


def test_a_servers_frame_is_none_of_a_clients() -> None:
    with pytest.raises(BadFrame):
        decode_from_server(encode(Hello(version=1)))


def test_what_is_left_at_its_default_is_not_sent() -> None:
    frame: Frame = Ping()
    assert encode(frame) == '{"kind":"ping"}'
