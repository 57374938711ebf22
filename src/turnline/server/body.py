"""The body of a request: strict JSON, of bounded size, in bounded time.

Rule: what one reader takes and another does not, nobody takes. No NaN, no key twice, no
half of a surrogate pair, no NUL, no more than 64 levels and 100,000 values.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request

from turnline.client.strict_json import BadJson, loads
from turnline.core.envelope import JsonObject
from turnline.core.json import MAX_DEPTH, normalised
from turnline.errors import BadDraft
from turnline.server.problems import BAD_REQUEST, INVALID, TOO_LARGE, WRONG_TYPE, RequestRefused, located
from turnline.server.settings import ServerSettings
from turnline.threads import off_the_loop


async def json_body(request: Request, settings: ServerSettings) -> JsonObject:
    """Return the object in the request's body; no body at all is an empty one."""
    check_content_type(request)
    body = await read(request, settings)
    if not body:
        return {}
    return await off_the_loop(parsed, body, size=len(body))


def check_content_type(request: Request) -> None:
    """Refuse a body that says it is something else. One that says nothing is taken for JSON."""
    given = request.headers.get("content-type")
    if given is not None:
        media, _, parameters = given.partition(";")
        media, parameters = media.strip().lower(), parameters.replace('"', "").strip().lower()
        is_json = media == "application/json" or (
            media.startswith("application/") and media.endswith("+json")
        )
        if not is_json or parameters not in ("", "charset=utf-8"):
            raise RequestRefused(
                WRONG_TYPE,
                "unsupported_media_type",
                f"the body is {given[:100]!r}; expected application/json.",
            )
    coding = request.headers.get("content-encoding", "identity")
    if coding.strip().lower() != "identity":
        raise RequestRefused(
            WRONG_TYPE,
            "unsupported_media_type",
            f"the body is {coding[:100]!r}; send it without an encoding.",
        )


async def read(request: Request, settings: ServerSettings) -> bytes:
    """Return the body. Stops reading as soon as there is too much of it."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > settings.body_bytes:
        raise too_large(settings.body_bytes)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for piece in request.stream():
                size += len(piece)
                if size > settings.body_bytes:
                    raise too_large(settings.body_bytes)
                pieces.append(piece)
    except TimeoutError:
        raise RequestRefused(
            BAD_REQUEST, "too_slow", f"the body did not come in {settings.body_seconds:g} s."
        ) from None
    return b"".join(pieces)


def parsed(body: bytes) -> JsonObject:
    """Return the JSON object that `body` is. Raises what says why it is none."""
    try:
        data = loads(body, depth=MAX_DEPTH)
    except BadJson as error:
        raise _bad(_placed(error)) from None
    if not isinstance(data, dict):
        problem = located(["body"], "expected an object")
        raise RequestRefused(INVALID, "invalid_input", "the body is not a JSON object.", problems=[problem])
    return data


def _placed(error: BadJson) -> str:
    """Return why a body is refused, with the place of the value that is at fault."""
    try:
        normalised({} if error.data is None else error.data, field="body", max_bytes=_ANY_SIZE)
    except BadDraft as found:
        return f"{found.field} is {found.found}; expected {found.expected}"
    return error.because


def _bad(because: str) -> RequestRefused:
    return RequestRefused(BAD_REQUEST, "bad_json", f"the body cannot be read: {because}.")


def too_large(limit: int) -> RequestRefused:
    return RequestRefused(
        TOO_LARGE, "too_large", f"the body is too large; expected at most {limit} bytes.", headers=_CLOSE
    )


_CLOSE: Final = {"Connection": "close"}
"""The rest of the body is not read."""
_ANY_SIZE: Final = 1 << 40
"""The size was looked at before."""
