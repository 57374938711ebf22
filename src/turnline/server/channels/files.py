"""Files of messages over HTTP (Y6): those of a message that arrives, and those of a line that is read.

Rule 1: a file is written for the person who says the line, so the fields of a form come before its files.

Rule 2: a browser runs nothing of what is sent here. It gets the media type as the sender named it and
may not guess another. Only types of the short list are shown in place, all others are saved; a page that
is opened from here has an origin of its own and no scripts (`sandbox`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import quote

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from turnline.agent.files import File
from turnline.core.envelope import JsonObject
from turnline.core.parts import MAX_PARTS, FilePart, TextPart, message_data
from turnline.flow.fields import Problem
from turnline.log.base import Blob
from turnline.log.blobs import read_blob
from turnline.server.channels.reading import seq_of
from turnline.server.channels.sight import seen
from turnline.server.house import House
from turnline.server.multipart import FormPart, open_form
from turnline.server.problems import invalid, not_found
from turnline.server.settings import ServerSettings
from turnline.turns.files import describe

FILE: Final = "file"
"""The name of the parts of a form that are files."""
SHOWN_IN_PLACE: Final = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "text/plain"}
)
MAX_NAME_SHOWN: Final = 80
"""Characters of the name of a field in an error."""
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Fields = dict[str, str]
AddFile = Callable[[AsyncIterator[bytes]], Awaitable[Blob]]
"""Keeps a file."""


async def read_message(
    request: Request, settings: ServerSettings, begin: Callable[[Fields], AddFile]
) -> tuple[Fields, JsonObject]:
    """Return the fields of a form, and the data of the message in it.

    `begin` gets the fields, before the first file, and returns what keeps a file.
    """
    fields, files, add = Fields(), list[FilePart](), None
    async with open_form(request, settings) as parts:
        async for part in parts:
            if part.name == FILE:
                add = add or begin(fields)
                files.append(await _keep(part, add, len(files)))
            else:
                await _take_field(part, fields, settings, is_late=add is not None)
    text = fields.get("text", "")
    if not files and not text:
        raise invalid([Problem(("body", "text"), "expected text, or a file")])
    return fields, message_data([TextPart(text), *files] if text else files)


async def _take_field(part: FormPart, fields: Fields, settings: ServerSettings, *, is_late: bool) -> None:
    where = ("body", part.name[:MAX_NAME_SHOWN])
    if is_late:
        raise invalid([Problem(where, "expected before the first file")])
    if part.name in fields or part.name not in _FIELDS:
        raise invalid([Problem(where, f"no such field, or twice; expected {', '.join(_FIELDS)}, each once")])
    fields[part.name] = await part.text(settings.body_bytes)


_FIELDS: Final = ("text", "as", "id")


async def _keep(part: FormPart, add: AddFile, index: int) -> FilePart:
    if index >= MAX_PARTS - 1:
        raise invalid([Problem(("body", FILE), f"expected at most {MAX_PARTS - 1} files")])
    wanted = describe(File(b"", part.filename, part.media_type), "body.file")
    blob = await add(part.pieces)
    return replace(wanted, size=blob.size, digest=blob.digest)


async def serve_file(house: House, request: Request) -> Response:
    """Answer with a file of a line that the caller may see."""
    state, sight = await seen(house, request, "channels.read")
    hub = house.runtime.hub
    seq = seq_of(request.path_params["seq"], "path", state.seq)
    index = request.path_params["index"]
    lines = await hub.read_page(state.channel_id, seq - 1, 1)
    line = sight.view(lines[0], state.spec.participants) if lines else None
    if line is None or not (index.isdecimal() and len(index) < len(str(MAX_PARTS)) + 1):
        raise not_found(f"there is no file {index[:20]!r} on line {seq} of channel {state.channel_id!r}.")
    file, blob = await hub.files.find(line, int(index))
    headers = {**_HEADERS, **headers_of(file)}
    body = read_blob(hub.files.log, blob)
    return StreamingResponse(body, headers=headers)


def headers_of(file: FilePart) -> Mapping[str, str]:
    """Return the headers that say what a file is."""
    is_text = file.media_type.startswith("text/")
    way = "inline" if file.media_type in SHOWN_IN_PLACE else "attachment"
    plain = "".join(one if one.isascii() and one not in '"\\%;' else "_" for one in file.name)
    return {
        "Content-Type": f"{file.media_type}; charset=utf-8" if is_text else file.media_type,
        "Content-Length": str(file.size),
        "Content-Disposition": f"{way}; filename=\"{plain}\"; filename*=UTF-8''{quote(file.name, safe='')}",
    }
