"""A body of several parts (multipart/form-data): fields, then files that stream through (Y6).

Rule: nothing is collected. A file is handed on piece by piece as it arrives, and a reader that stops reading
stops the client. The body as a whole, its parts, the headers and the fields have limits, and so has the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from turnline.agent.files import UNKNOWN_TYPE
from turnline.core.parts import MAX_PARTS
from turnline.server.body import too_large
from turnline.server.operation import MULTIPART
from turnline.server.problems import BAD_REQUEST, RequestRefused
from turnline.server.settings import ServerSettings

MAX_FORM_PARTS: Final = MAX_PARTS + 8
"""Files and fields of one body."""
MAX_BOUNDARY_CHARACTERS: Final = 70


@dataclass(frozen=True, slots=True)
class FormPart:
    """One part of a form. What is left unread of it is dropped when the next one is asked for."""

    name: str
    filename: str
    """Without a path; empty for a field."""
    media_type: str
    pieces: AsyncIterator[bytes]

    async def text(self, most_bytes: int) -> str:
        """Return the value of a field."""
        found = bytearray()
        async for piece in self.pieces:
            found += piece
            if len(found) > most_bytes:
                raise too_large(most_bytes)
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise _bad(f"the field {self.name[:80]!r} is not UTF-8") from None


@dataclass(slots=True)
class _Begin:
    headers: dict[str, bytes]


class _End:
    pass


_Event = _Begin | _End | bytes


def is_form(request: Request) -> bool:
    """Return whether the body says that it is one of several parts."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == MULTIPART


@asynccontextmanager
async def open_form(request: Request, settings: ServerSettings) -> AsyncIterator[AsyncGenerator[FormPart]]:
    """Yield the parts of a body, which has to arrive in time. Raises `RequestRefused`."""
    try:
        async with asyncio.timeout(settings.form_seconds), aclosing(read_form(request, settings)) as parts:
            yield parts
    except TimeoutError:
        message = f"the body did not come in {settings.form_seconds:g} s."
        raise RequestRefused(BAD_REQUEST, "too_slow", message) from None


async def read_form(request: Request, settings: ServerSettings) -> AsyncGenerator[FormPart]:
    """Yield the parts of a body, in order. Raises `RequestRefused`."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > settings.form_bytes:
        raise too_large(settings.form_bytes)
    events, count = _events(request, settings), 0
    async with aclosing(events):
        async for event in events:
            if not isinstance(event, _Begin):
                continue  # What is left of a part that was not read to its end.
            count += 1
            if count > MAX_FORM_PARTS:
                raise _bad(f"it has more than {MAX_FORM_PARTS} parts")
            yield _part(event, events)


def _part(begin: _Begin, events: AsyncGenerator[_Event]) -> FormPart:
    disposition, options = parse_options_header(begin.headers.get("content-disposition"))
    if disposition != b"form-data" or b"name" not in options:
        raise _bad("a part has no name")
    path = _decoded(options.get(b"filename", b""))
    media = begin.headers.get("content-type", b"").partition(b";")[0].decode("latin-1").strip().lower()
    return FormPart(
        name=_decoded(options[b"name"]),
        filename=path.replace("\\", "/").rpartition("/")[2],
        media_type=media or UNKNOWN_TYPE,
        pieces=_pieces(events),
    )


async def _pieces(events: AsyncGenerator[_Event]) -> AsyncIterator[bytes]:
    async for event in events:
        if not isinstance(event, bytes):
            return
        yield event


async def _events(request: Request, settings: ServerSettings) -> AsyncGenerator[_Event]:
    parsing, size = _Parsing(_boundary(request)), 0
    async for piece in request.stream():
        size += len(piece)
        if size > settings.form_bytes:
            raise too_large(settings.form_bytes)
        for event in parsing.feed(piece):
            yield event
    parsing.finish()


class _Parsing:
    """What the parser finds, in order."""

    def __init__(self, boundary: bytes) -> None:
        self._found: list[_Event] = []
        self._headers: dict[str, bytes] = {}
        self._name = self._value = b""
        self._has_ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._add_name,
                "on_header_value": self._add_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._add_data,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
        )

    def feed(self, data: bytes) -> list[_Event]:
        self._found = []
        try:
            self._parser.write(data)
        except MultipartParseError as error:
            raise _bad(str(error)[:200]) from None
        return self._found

    def finish(self) -> None:
        if not self._has_ended:
            raise _bad("it ends before its last boundary")

    def _begin(self) -> None:
        self._headers = {}

    def _add_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        self._headers[self._name.decode("latin-1").lower()] = self._value
        self._name = self._value = b""

    def _end_headers(self) -> None:
        self._found.append(_Begin(self._headers))

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self._found.append(data[start:end])

    def _end_part(self) -> None:
        self._found.append(_End())

    def _end(self) -> None:
        self._has_ended = True


def _boundary(request: Request) -> bytes:
    _, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= MAX_BOUNDARY_CHARACTERS:
        raise _bad(f"its boundary has {len(boundary)} characters, not 1 to {MAX_BOUNDARY_CHARACTERS}")
    return boundary


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _bad(because: str) -> RequestRefused:
    return RequestRefused(BAD_REQUEST, "bad_form", f"the body cannot be read: {because}.")
