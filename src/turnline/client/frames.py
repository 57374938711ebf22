"""Frames: what goes over a WebSocket between a client and a hub elsewhere.

    client                            server
    hello (version, token)      ->
                                <-    welcome (presence, limits)
    request (id, op, arguments) ->
                                <-    answer (id, result or error)
                                <-    wake, text
    ack, text, cancel           ->

A frame is one JSON object with a `kind`, in one text message. What is larger than the
other side takes in one message goes in `part` frames. docs/frames.md shows each of them.

Rule 1: reading is strict (`strict_json`), and whatever is wrong with a frame is a `BadFrame`.

Rule 2: a request's id is its client's, for ever: sent again, also to another server, it
is done once.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from turnline.client.strict_json import BadJson, check, loads
from turnline.core.envelope import JsonObject
from turnline.core.json import MAX_DEPTH, MAX_VALUES
from turnline.core.views import Notice
from turnline.errors import BadFrame

VERSION: Final = 1
FRAME_BYTES: Final = 64 * 1024
"""Of one message."""
SMALLEST_FRAME_BYTES: Final = 1024
"""What everybody takes."""
PAYLOAD_BYTES: Final = 16 * 1024 * 1024
"""Of one frame, all its parts together."""
MAX_FRAME_DEPTH: Final = MAX_DEPTH + 8
"""What an envelope may hold, and what is around it."""
CLIENT_FRAME_VALUES: Final = MAX_VALUES + 1_000
"""Values in the frame of a client: an envelope's, and what is around it."""
SERVER_FRAME_VALUES: Final = 3 * MAX_VALUES
"""Values in the frame of a server: an envelope's, and those of smaller ones beside it."""

_ERROR_CHARACTERS: Final = 300


class Frame(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag=str.lower,
):
    """What all frames have in common."""


class Hello(Frame, frozen=True):
    """The first frame of a connection."""

    version: int
    token: str = ""
    presence: str = ""
    """What an earlier welcome said: the client comes back."""
    frame_bytes: int = FRAME_BYTES
    """How much the client takes in one message; `payload_bytes`, in all parts of one frame."""
    payload_bytes: int = PAYLOAD_BYTES


class Welcome(Frame, frozen=True):
    """The answer to a hello that is let in."""

    version: int
    presence: str
    """Tells the server, at the next hello, who comes back. A secret of this client's."""
    frame_bytes: int
    """How much the server takes."""
    payload_bytes: int
    requests: int
    """So many of a client's requests may wait for their answers."""
    grace_seconds: float
    """For so long the server holds what is the client's after its connection is gone."""
    resumed: bool = False
    """Whether what the server held for the client is still there."""


class Request(Frame, frozen=True):
    """Somebody asks the hub for something."""

    id: str
    op: str
    seat: str = ""
    """As whom: the agent id of a seat that the client has taken."""
    args: JsonObject = {}


class Told(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error, as it crosses a link."""

    type: str
    message: str
    facts: JsonObject = {}


class Answer(Frame, frozen=True):
    """What became of a request."""

    id: str
    result: Any = None
    error: Told | None = None
    heard: bool = False
    """Whether anybody listens to the words of a turn in flight, on the request's channel."""


class Cancel(Frame, frozen=True):
    """Nobody waits for the answer any more."""

    id: str


class Ack(Frame, frozen=True):
    """These answers have arrived; the server need not keep them."""

    ids: list[str]


class Wake(Frame, frozen=True):
    """There is something for a seat on a channel: lines to read, and perhaps a turn to take."""

    seat: str
    notice: Notice


class Text(Frame, frozen=True):
    """Words of a turn in flight. They are on no log, and some may be missing."""

    channel_id: str
    agent_id: str
    text: str
    audience: list[str] | None = None
    """Who will see the packet; None is everyone."""


class Part(Frame, frozen=True):
    """A piece of a frame that is larger than a message may be."""

    id: str
    data: str
    """Base64 of the next bytes of the frame's JSON."""
    last: bool = False


class Ping(Frame, frozen=True):
    """Are you there? For clients that cannot send the protocol's own."""

    n: int = 0


class Pong(Frame, frozen=True):
    """The answer to a ping: yes."""

    n: int = 0


class Refusal(Frame, frozen=True):
    """A frame was refused; the connection goes on."""

    error: Told


class Bye(Frame, frozen=True):
    """The last frame of a connection, and why."""

    reason: str
    """`closed`, `closing`, `replaced`, `too_slow`, `bad_frames`, `too_many`, `version`, `unauthenticated`
    or `forbidden`. After the last three, coming back is no use."""
    error: Told | None = None


FromClient = Hello | Request | Cancel | Ack | Text | Part | Ping | Pong | Bye
FromServer = Welcome | Answer | Wake | Text | Part | Ping | Pong | Refusal | Bye

F = TypeVar("F")

_encoder = msgspec.json.Encoder()


def encode(frame: Frame) -> str:
    return _encoder.encode(frame).decode()


def check_readable(value: object) -> None:
    """Refuse what the other side would not read as it is, before it is sent. Raises `BadFrame`."""
    try:
        check(value, depth=MAX_FRAME_DEPTH - 1, values=CLIENT_FRAME_VALUES)
    except BadJson as error:
        raise BadFrame(_shortened(error.because)) from None


def decode_from_client(text: str | bytes) -> FromClient:
    """Return the frame a client sent. Raises `BadFrame`."""
    frame: FromClient = _decoded(text, FromClient, CLIENT_FRAME_VALUES)
    return frame


def decode_from_server(text: str | bytes) -> FromServer:
    """Return the frame a server sent. Raises `BadFrame`."""
    frame: FromServer = _decoded(text, FromServer, SERVER_FRAME_VALUES)
    return frame


def converted(value: object, kind: type[F]) -> F:
    """Return what a frame carries as what it has to be. Raises `BadFrame`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise BadFrame(_shortened(str(error))) from None


def _decoded(text: str | bytes, kinds: Any, values: int) -> Any:
    if isinstance(text, bytes):
        raise BadFrame("it is a binary message; expected text")
    try:
        data = loads(text, depth=MAX_FRAME_DEPTH, values=values)
    except BadJson as error:
        raise BadFrame(_shortened(error.because)) from None
    return converted(data, kinds)


def _shortened(text: str) -> str:
    # What is told back must itself be good Unicode, whatever it quotes.
    return text[:_ERROR_CHARACTERS].encode("ascii", "backslashreplace").decode()
