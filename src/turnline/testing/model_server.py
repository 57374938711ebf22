"""A server on loopback that speaks to models' clients as OpenAI, Anthropic and Google do, from a script.

    with ModelServer("hello", call("look", where="here"), Fail(429, retry_after="7")) as server:
        model = OpenAIConfig("any", api_key="k", base_url=server.url).create()

An item answers one request: a text, a call, a list of calls, a `ModelReply`, or
one of the ways to go wrong below. A single function of the request answers all
of them. The request's path says which provider is meant.

Rule: it never waits for time to pass. `Silence` holds a request until the
server is closed, so a test of a timeout needs no sleep.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Final

import msgspec

from turnline.agent.messages import ModelReply, ToolCall
from turnline.testing.model_wire import WIRES, Asked, Json, Wire

MAX_BODY_BYTES: Final = 32 * 1024 * 1024
_NO_HEADERS: Final[Mapping[str, str]] = {}
_OK: Final = 200
_SCRIPT_ENDED: Final = 400
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    """With their names in lower case."""
    json: Json


@dataclass(frozen=True, slots=True)
class Fail:
    """An answer with an error's status."""

    status: int
    retry_after: str | None = None
    message: str = "no luck"


@dataclass(frozen=True, slots=True)
class Cut:
    """A reply whose connection ends in its middle, be it streamed or whole."""

    text: str = "a reply that nobody reads to its end"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A stream that ends in good order, but before the reply does."""

    text: str = "a reply that nobody reads to its end"


@dataclass(frozen=True, slots=True)
class Garbage:
    """Status 200 and whatever bytes."""

    body: bytes = b'{"id": "chatcmpl-1", "choi'


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer while the server is open."""


Answer = str | ToolCall | Sequence[ToolCall] | ModelReply | Fail | Cut | Unfinished | Garbage | Silence
ServerItem = Answer | Callable[[Received], Answer]


class ModelServer:
    """Listens on a free port of loopback while it is entered. What it received is in `requests`."""

    def __init__(self, *script: ServerItem) -> None:
        self.requests: list[Received] = []
        self._script = script
        self._lock = threading.Lock()
        self._calls = 0
        self.closed = threading.Event()

    def __enter__(self) -> ModelServer:
        handler = type("_BoundHandler", (_Handler,), {"server_script": self})
        self._http = _Http(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @property
    def url(self) -> str:
        """The `base_url` for any provider's client."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def next(self, received: Received) -> Answer:
        """Return what the script says to `received`; an error's status when it has ended."""
        with self._lock:
            self.requests.append(received)
            turn = len(self.requests)
            always = len(self._script) == 1 and callable(self._script[0])
            if turn > len(self._script) and not always:
                return Fail(_SCRIPT_ENDED, message=f"the server's script has ended (request {turn})")
            item = self._script[0 if always else turn - 1]
            return self._numbered(item(received) if callable(item) else item)

    def _numbered(self, answer: Answer) -> Answer:
        """`answer` as a `ModelReply` with ids, if it is one in short."""
        match answer:
            case str():
                return ModelReply(text=answer)
            case ToolCall():
                return ModelReply(calls=self._with_ids([answer]))
            case ModelReply():
                return msgspec.structs.replace(answer, calls=self._with_ids(answer.calls))
            case Fail() | Cut() | Unfinished() | Garbage() | Silence():
                return answer
            case _:
                return ModelReply(calls=self._with_ids(answer))

    def _with_ids(self, calls: Iterable[ToolCall]) -> list[ToolCall]:
        numbered = []
        for each in calls:
            self._calls += 1
            name = each.call_id or f"call_{self._calls}"
            numbered.append(msgspec.structs.replace(each, call_id=name))
        return numbered


class _Http(ThreadingHTTPServer):
    daemon_threads = False  # Closing waits for every answer, so that none is cut by the end of a test.

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave it to the standard library, unless the client merely went away."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    # Chunks are HTTP 1.1. Each connection carries one request, so that no thread outlives its answer.
    protocol_version = "HTTP/1.1"
    server_script: ClassVar[ModelServer]

    def do_POST(self) -> None:
        self.close_connection = True
        path = self.path.partition("?")[0]
        length = min(int(self.headers.get("content-length", 0)), MAX_BODY_BYTES)
        body: Json = json.loads(self.rfile.read(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        found = ((wire, wire.read(path, body)) for wire in WIRES)
        wire, asked = next(((wire, asked) for wire, asked in found if asked), (None, None))
        if wire is None or asked is None:
            self._send(_NOT_FOUND, {"error": {"message": f"nothing is at {path}"}})
            return
        answer = self.server_script.next(Received(path, headers, body))
        self._answer(wire, asked, answer)

    def _answer(self, wire: Wire, asked: Asked, answer: Answer) -> None:
        model = asked.model
        match answer:
            case Fail(status=status, retry_after=wait, message=message):
                self._send(status, wire.error(status, message), {} if wait is None else {"retry-after": wait})
            case Garbage(body=body):
                self._send_bytes(_OK, body, {"content-length": str(len(body))})
            case Silence():
                self.server_script.closed.wait()
            case Cut(text=text) if asked.is_streamed:
                self._stream(list(wire.events(model, ModelReply(text=text)))[:4], end=b"")
            case Cut(text=text):
                body = json.dumps(wire.body(model, ModelReply(text=text))).encode()
                self._send_bytes(_OK, body[: len(body) // 2], {"content-length": str(len(body))})
            case Unfinished(text=text):
                self._stream(list(wire.events(model, ModelReply(text=text)))[:4])
            case ModelReply() if asked.is_streamed:
                self._stream(wire.events(model, answer))
            case ModelReply():
                self._send(_OK, wire.body(model, answer))

    def _send(self, status: int, body: Json, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        encoded = json.dumps(body).encode()
        self._send_bytes(status, encoded, {"content-length": str(len(encoded)), **headers})

    def _send_bytes(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._head(status, "application/json", headers)
        self.wfile.write(body)

    def _stream(self, events: Iterable[bytes], *, end: bytes = b"0\r\n\r\n") -> None:
        self._head(_OK, "text/event-stream", {"transfer-encoding": "chunked"})
        for event in events:
            self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            self.wfile.flush()
        self.wfile.write(end)

    def _head(self, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-type": content_type, "connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: what came is in `requests`."""
