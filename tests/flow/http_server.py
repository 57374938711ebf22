"""A server on loopback that answers from a table, and remembers what it was asked.

with HttpServer({"/lead": Answer(json={"id": 1})}) as server:
    ... server.url, server.received[0].headers
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What a path answers: `json`, or `body`."""

    status: int = 200
    json: Any = None
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    silent: bool = False
    """Whether it says nothing until the server is closed."""

    def content(self) -> tuple[bytes, dict[str, str]]:
        if self.json is None:
            return self.body, dict(self.headers)
        return json.dumps(self.json).encode(), {"Content-Type": "application/json", **self.headers}


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    """With their names in lower case."""
    body: bytes


class HttpServer:
    """See the module."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.received: list[Received] = []
        self.closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, answers))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> HttpServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(server: HttpServer, answers: Mapping[str, Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.received.append(Received(self.command, self.path, headers, body))
            answer = answers[self.path.partition("?")[0]]
            if answer.silent:
                server.closing.wait()
                return
            content, sent = answer.content()
            self.send_response(answer.status)
            for name, value in sent.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _answer  # noqa: N815  http.server's names.

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler
