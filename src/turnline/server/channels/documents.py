"""What the OpenAPI document says of the operations on channels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from turnline.core.envelope import JsonObject
from turnline.server.channels.listing import KINDS, OPEN_WORDS, WORDS
from turnline.server.operation import Handler, Operation
from turnline.server.parameters import LIMIT, LIST_PARAMETERS
from turnline.server.stream import EVENT_STREAM

if TYPE_CHECKING:
    from turnline.server.channels.changing import ChannelChanges
    from turnline.server.channels.looking import ChannelRoutes

_TAG: Final = "channels"


def to_look(routes: ChannelRoutes) -> list[Operation]:
    """The operations that only look."""
    return [
        _get(
            "list_channels",
            "",
            routes.list_channels,
            "Channels, the newest first",
            parameters=_LIST,
            refusals=(400, 422),
        ),
        _get(
            "search_lines",
            "/search",
            routes.search,
            "Lines that hold a text, from the newest channel on; it reads channels, a page at a time",
            parameters=_LIST,
            refusals=(400, 422),
        ),
        _stream("stream_channels", "/events", routes.events, "Which channels something happens on", []),
        _get("read_channel", "/{channel_id}", routes.read, "A channel, its graph and who has the floor"),
        _get(
            "read_envelopes",
            "/{channel_id}/envelopes",
            routes.envelopes,
            "The lines of a channel, in pages, forwards or backwards",
            parameters=[*_number("after", 0), *_number("before", 0), LIMIT, _TEXT],
            refusals=(404, 409, 422),
        ),
        _get(
            "read_state",
            "/{channel_id}/state",
            routes.state,
            "How a channel stood when a line had been written",
            parameters=_number("seq", 1),
            refusals=(404, 409, 422),
        ),
        _get(
            "explain_line",
            "/{channel_id}/envelopes/{seq}/why",
            routes.why,
            "Why the floor moved: rule by rule",
            parameters=[_path("seq")],
            refusals=(404, 409, 422),
        ),
        replace(
            _get(
                "read_file",
                "/{channel_id}/envelopes/{seq}/files/{index}",
                routes.read_file,
                "A file of a line: 0 is its first one",
                parameters=[_path("seq"), _path("index")],
                refusals=(404, 409, 422),
            ),
            media_type="*/*",
        ),
        _get(
            "list_children",
            "/{channel_id}/children",
            routes.children,
            "The channels that were opened below a channel, the latest first",
            parameters=[LIMIT],
            refusals=(404, 409, 422),
        ),
        _get("read_usage", "/{channel_id}/usage", routes.usage, "What a channel cost, and how long it took"),
        _stream(
            "stream_channel",
            "/{channel_id}/stream",
            routes.stream,
            "What happens on a channel, and the words of the turn in flight",
            _AFTER,
        ),
    ]


def to_change(routes: ChannelChanges) -> list[Operation]:
    """The operations that write."""
    text = {"type": "string"}
    some = {"type": ["string", "null"]}
    asked = {"request_id": text, "answer": text}
    return [
        replace(
            _post(
                "say",
                "messages",
                routes.say,
                "Say something as a person",
                needed={"text": text},
                more={"id": some, **_AS},
            ),
            form=_MESSAGE_FORM,
        ),
        _post("answer", "answers", routes.answer, "Answer what an agent asked, once", needed=asked, more=_AS),
        _post("fork", "fork", routes.fork, "A new channel with this past", needed={"at": _SEQ}, more={}),
        _post("close", "close", routes.close, "Close a channel", more={"reason": some}),
        replace(
            _post("close_many", "", routes.close_page, "Close the channels of a page", more={"reason": some}),
            path="/channels/close",
            parameters=[{**_LIST[0], "required": True, "schema": {"enum": list(OPEN_WORDS)}}, *_LIST[1:]],
            answers={200: "What became of each channel, and what the next page comes after"},
        ),
        _post(
            "erase",
            "erase",
            routes.erase,
            "Erase what was said on a closed channel, or some of its lines",
            more={"lines": _RANGES, "reason": some},
        ),
        replace(
            _post("forget", "", routes.forget, "Erase a person from the directory", more={"reason": some}),
            path="/people/{name}/forget",
            parameters=[_path("name")],
        ),
    ]


def _get(
    id: str,
    path: str,
    handler: Handler,
    summary: str,
    *,
    parameters: list[JsonObject] | None = None,
    refusals: tuple[int, ...] = (404, 409),
) -> Operation:
    return Operation(
        id=id,
        method="GET",
        path=f"/channels{path}",
        handler=handler,
        summary=summary,
        tag=_TAG,
        parameters=[*_of(path), *(parameters or [])],
        answers={200: "What whoever asks may see of it"},
        refusals=refusals,
    )


def _stream(id: str, path: str, handler: Handler, summary: str, parameters: list[JsonObject]) -> Operation:
    return Operation(
        id=id,
        method="GET",
        path=f"/channels{path}",
        handler=handler,
        summary=summary,
        tag=_TAG,
        parameters=[*_of(path), *parameters],
        answers={200: "The events behind the last one seen", 204: "There will be no more"},
        refusals=(404, 409, 422),
        media_type=EVENT_STREAM,
    )


def _post(
    id: str, verb: str, handler: Handler, summary: str, *, needed: JsonObject | None = None, more: JsonObject
) -> Operation:
    return Operation(
        id=id,
        method="POST",
        path=f"/channels/{{channel_id}}/{verb}",
        handler=handler,
        summary=summary,
        tag=_TAG,
        parameters=_of("/{channel_id}"),
        body={
            "type": "object",
            "properties": {**(needed or {}), **more},
            "required": list(needed or {}),
            "additionalProperties": False,
        },
        body_required=bool(needed),
        answers={200: "It is on the log", 201: "It is on the log"},
        refusals=(400, 404, 409, 413, 415, 422),
    )


def _of(path: str) -> list[JsonObject]:
    return [_path("channel_id")] if "{channel_id}" in path else []


def _path(name: str) -> JsonObject:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _number(name: str, least: int) -> list[JsonObject]:
    return [{"name": name, "in": "query", "schema": {"type": "integer", "minimum": least}}]


_MESSAGE_FORM: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "as": {"type": "string"},
        "id": {"type": "string"},
        "file": {"type": "array", "items": {"type": "string", "format": "binary"}},
    },
    "additionalProperties": False,
}
_SEQ: Final[JsonObject] = {"type": "integer", "minimum": 1}
_RANGES: Final[JsonObject] = {
    "type": ["array", "null"],
    "items": {"type": "array", "items": _SEQ, "minItems": 2, "maxItems": 2},
}
_AS: Final[JsonObject] = {
    "as": {
        "type": ["string", "null"],
        "description": "The person who speaks; by default whoever has the floor.",
    }
}
_TEXT: Final[JsonObject] = {"name": "text", "in": "query", "schema": {"type": "string", "maxLength": 200}}
_LIST: Final[list[JsonObject]] = [
    {"name": "status", "in": "query", "schema": {"enum": list(WORDS)}},
    {"name": "kind", "in": "query", "schema": {"enum": list(KINDS)}},
    {"name": "type", "in": "query", "schema": {"type": "string"}},
    _TEXT,
    *LIST_PARAMETERS,
]
_AFTER: Final[list[JsonObject]] = [
    {"name": "Last-Event-ID", "in": "header", "schema": {"type": "integer", "minimum": 0}},
    *_number("after", 0),
]
