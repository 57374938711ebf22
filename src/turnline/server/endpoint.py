"""An endpoint: one path, with a handler for each method. Whatever a handler raises becomes an answer.

A plain ASGI app, which Starlette's `Route` takes as it is: nothing is built for a request
but the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnline import tracing
from turnline.hub.timers import Clock, SystemClock
from turnline.server.answers import failure
from turnline.server.operation import Handler
from turnline.server.problems import METHOD_NOT_ALLOWED, NOT_FOUND, RequestRefused, answer_to

REQUEST_ID_HEADER = "X-Request-Id"
HIDE_SECONDS = 0.02
"""A 404 leaves at a multiple of this after its request came: its time does not tell what is there."""
OTHER_METHOD = "_OTHER"
"""What a trace calls a method that nobody expected: names in traces are few."""


class Endpoint:
    """The operations of one path."""

    def __init__(
        self,
        path: str,
        handlers: Mapping[str, Handler],
        new_id: Callable[[], str],
        clock: Clock | None = None,
    ) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._handlers = dict(handlers)
        self._new_id = new_id
        self._allowed = ", ".join(sorted(handlers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, began = Request(scope, receive), self._clock.monotonic()
        method = request.method if request.method in self._handlers else OTHER_METHOD
        attributes = {"http.request.method": method, "http.route": self._path}
        above = request.headers.get("traceparent")
        with tracing.span_below(above, f"{method} {self._path}", attributes, kind="server") as recording:
            response = await self._answer(request)
            if response is not None:
                if response.status_code == NOT_FOUND:
                    await self._clock.sleep(HIDE_SECONDS - (self._clock.monotonic() - began) % HIDE_SECONDS)
                recording.note({"http.response.status_code": response.status_code})
                await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response | None:
        """None: nobody is there any more."""
        try:
            return await self._handler(request.method)(request)
        except ClientDisconnect:
            return None
        except Exception as error:
            request_id = self._new_id()
            answer = answer_to(error, request_id=request_id, where=f"{request.method} {request.url.path}")
            return failure(answer, headers={REQUEST_ID_HEADER: request_id})

    def _handler(self, method: str) -> Handler:
        if method not in self._handlers:
            message = f"this path does not take {method[:20]}; expected {self._allowed}."
            allow = {"Allow": self._allowed}
            raise RequestRefused(METHOD_NOT_ALLOWED, "method_not_allowed", message, headers=allow)
        return self._handlers[method]
