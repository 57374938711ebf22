"""The studio's files over HTTP: read once, sent as they are, with what keeps a browser strict.

    GET /studio             the page
    GET /studio/{path}      what the page loads: scripts, styles, vendored libraries

They hold nothing but the program, so they need no token; everything it shows is asked of
the API with one.

Rule: a page runs its own files and nothing else. No inline script or style, no other host, no
frame around it, no text that becomes HTML (`require-trusted-types-for`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from turnline.server.problems import not_found

PATH: Final = "/studio"
INDEX: Final = "index.html"
NOT_MODIFIED: Final = 304
TEMPORARY_REDIRECT: Final = 307
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "md": "text/plain; charset=utf-8",
    "LICENSE": "text/plain; charset=utf-8",
}
POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "object-src 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class Page(Struct, frozen=True):
    """One file."""

    body: bytes
    media_type: str
    tag: str
    """Another one for other bytes."""


@cache
def pages() -> Mapping[str, Page]:
    """Every file of the studio by its path. What is not among them is not there."""
    return dict(_below(files("turnline.server.studio") / "static", ""))


async def index(request: Request) -> Response:
    """The page itself. Its addresses are relative, so an app above this one may put it anywhere."""
    return _answer(request, INDEX)


async def file(request: Request) -> Response:
    """What the page loads."""
    if not request.path_params[
        "path"
    ]:  # From `/studio/`, the page's relative addresses would lead elsewhere.
        return Response(status_code=TEMPORARY_REDIRECT, headers={"Location": "../studio"})
    return _answer(request, request.path_params["path"])


def _answer(request: Request, path: str) -> Response:
    page = pages().get(path)
    if page is None:
        raise not_found("there is nothing at this path.")
    headers = {**HEADERS, "ETag": page.tag}
    if request.headers.get("if-none-match") == page.tag:
        return Response(status_code=NOT_MODIFIED, headers=headers)
    return Response(page.body, headers=headers, media_type=page.media_type)


def _below(folder: Traversable, path: str) -> list[tuple[str, Page]]:
    found = []
    for one in sorted(folder.iterdir(), key=lambda one: one.name):
        ending = one.name.rpartition(".")[2]
        if one.is_dir():
            found += _below(one, f"{path}{one.name}/")
        elif ending in _TYPES:
            body = one.read_bytes()
            tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
            found.append((path + one.name, Page(body, _TYPES[ending], tag)))
    return found
