"""Where a request comes from: is it for this server's name, and not from another site's page?

A page of another site can make a browser send requests here: to our address, or, once its own
name has been made to lead to this machine, to its name. Neither has a token; refusing both
means that what needs no token is not theirs either.

Rule 1: `Host` is one of the names that the server is known by, where they are known.
Rule 2: an `Origin`, which browsers send with whatever a page's script asks for, names the same host.
Rule 3: a browser sends no `Origin` with a link or an image. Where such a request is for this machine's own
name, `Sec-Fetch-Site` or `Referer` must not name another site: only people at this machine may start a public
flow. A link to the studio is followed, for its pages start nothing. Under a public name, behind a proxy,
everybody may get a public flow, so a link may, too.
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
_OWN_SITES: Final = ("same-origin", "none")
"""What a browser says of a request by our own page, and by a person who typed the address."""
_FORBIDDEN: Final = 403
_MISDIRECTED: Final = 421


def known_names(host: str, allowed: Sequence[str]) -> tuple[str, ...] | None:
    """The names of a server on `host`: on this machine its own, elsewhere any, unless some are `allowed`."""
    if is_this_machine(host):
        return (*LOOPBACK_NAMES, host, *allowed)
    return tuple(allowed) or None


class OriginCheck:
    """An ASGI app around another one."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] | None, linked: Collection[str] = ()) -> None:
        """`linked` are paths to which, and below which, another site may link: nothing there starts a run."""
        self._app = app
        self._linked = tuple(linked)
        self._hosts = None if hosts is None else {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = (
            self._refused(scope.get("path", ""), Headers(scope=scope)) if scope["type"] in _ASKED else None
        )
        if refused is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await failure(refused)(scope, receive, send)

    def _refused(self, path: str, headers: Headers) -> Answer | None:
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        if self._hosts is not None and _name(host) not in self._hosts:
            message = "this server is not known by that name; allow it with `serve --allow-host NAME`."
            return Answer(status=_MISDIRECTED, type="unknown_host", message=message)
        is_linked = any(path == one or path.startswith(f"{one}/") for one in self._linked)
        is_local = is_this_machine(_name(host)) and not is_linked
        is_other = any(_host_of(origin) != host for origin in origins)
        if is_other or (is_local and _is_cross_site(headers, host)):
            message = "a page of another site may not ask this."
            return Answer(status=_FORBIDDEN, type="other_origin", message=message)
        return None


def _is_cross_site(headers: Headers, host: str) -> bool:
    """Return whether a browser says that a page of another site, or of another port, made the request."""
    sites = headers.getlist("sec-fetch-site")
    if sites:
        return any(site.strip().lower() not in _OWN_SITES for site in sites)
    return any(_host_of(referer) != host for referer in headers.getlist("referer"))


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:  # A bracket that is not closed, say.
        return ""


def _name(host: str) -> str:
    """A host without its port, and an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host
