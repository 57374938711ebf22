"""Where a request comes from: is it for this server's name, and not from another site's page?

A page of another site can make a browser send requests here: to our address, or, once its own
name has been made to lead to this machine, to its name. Neither has a token; refusing both
means that what needs no token is not theirs either.

Rule 1: `Host` is one of the names that the server is known by, where they are known.
Rule 2: an `Origin`, which browsers send with whatever a page asks for, names the same host.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from turnline.server.answers import failure
from turnline.server.problems import Answer
from turnline.server.serving import is_this_machine

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "::1")
_ASKED: Final = ("http", "websocket")
_FORBIDDEN: Final = 403
_MISDIRECTED: Final = 421


def known_names(host: str, allowed: Sequence[str]) -> tuple[str, ...] | None:
    """The names of a server on `host`: on this machine its own, elsewhere any, unless some are `allowed`."""
    if is_this_machine(host):
        return (*LOOPBACK_NAMES, host, *allowed)
    return tuple(allowed) or None


class OriginCheck:
    """An ASGI app around another one."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] | None) -> None:
        self._app = app
        self._hosts = None if hosts is None else {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refused(Headers(scope=scope)) if scope["type"] in _ASKED else None
        if refused is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await failure(refused)(scope, receive, send)

    def _refused(self, headers: Headers) -> Answer | None:
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        if self._hosts is not None and _name(host) not in self._hosts:
            message = "this server is not known by that name; allow it with `serve --allow-host NAME`."
            return Answer(status=_MISDIRECTED, type="unknown_host", message=message)
        if any(urlsplit(origin).netloc.lower() != host for origin in origins):
            message = "a page of another site may not ask this."
            return Answer(status=_FORBIDDEN, type="other_origin", message=message)
        return None


def _name(host: str) -> str:
    """A host without its port, and an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host
