"""The OpenAPI document of a server: every operation, every flow with its input schema (F6)."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

from turnline import __version__
from turnline.core.envelope import JsonObject
from turnline.server.operation import MULTIPART, Operation

_JSON: Final = "application/json"
_EVERY: Final = (401, 403, 422, 429, 503)
"""What any operation that needs a token may answer. 422: also for a parameter that it does not know."""


def document(operations: Iterable[Operation], *, title: str) -> JsonObject:
    """Return the document. Operation ids are unique, because flows' names are."""
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Failure": _FAILURE},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A Biscuit token (`turnline token mint`), or an API key.",
                }
            },
        },
    }


def _operation(one: Operation) -> JsonObject:
    # Without a token a public operation is anybody's; with a bad one it is nobody's.
    security: list[JsonObject] = [{}, {"token": []}] if one.is_public else [{"token": []}]
    said: JsonObject = {
        "operationId": one.id,
        "summary": one.summary,
        "tags": [one.tag],
        "security": security,
        "responses": _responses(one),
    }
    if one.parameters:
        said["parameters"] = list(one.parameters)
    bodies = {_JSON: one.body, MULTIPART: one.form}
    content = {kind: {"schema": schema} for kind, schema in bodies.items() if schema is not None}
    if content:
        said["requestBody"] = {"required": one.body_required, "content": content}
    return said


def _responses(one: Operation) -> JsonObject:
    found = {str(status): _answer(status, means, one) for status, means in one.answers.items()}
    for status in sorted({*one.refusals, *(_EVERY if one.answers else ())}):
        found[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {_JSON: {"schema": {"$ref": "#/components/schemas/Failure"}}},
        }
    return found


def _answer(status: int, means: str, one: Operation) -> JsonObject:
    if status == HTTPStatus.NO_CONTENT:
        return {"description": means}
    content: JsonObject = {_JSON: {"schema": _SUCCESS}}
    if one.media_type != _JSON:
        content[one.media_type] = {}
    return {"description": means, "content": content}


_SUCCESS: Final[JsonObject] = {
    "type": "object",
    "properties": {"success": {"const": True}, "data": {"type": "object"}},
    "required": ["success", "data"],
}
_FAILURE: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "success": {"const": False},
        "error": {
            "type": "object",
            "properties": {
                "type": {"type": "string"},
                "message": {"type": "string"},
                "step": {"type": ["string", "null"], "description": "Of a failed run."},
                "reference": {
                    "type": "string",
                    "description": "Of a failed run that the caller may not read: the server's log has the "
                    "reason in the line with this id.",
                },
                "problems": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "loc": {"type": "array", "items": {"type": ["string", "integer"]}},
                            "message": {"type": "string"},
                        },
                        "required": ["loc", "message"],
                    },
                },
            },
            "required": ["type", "message", "step"],
        },
    },
    "required": ["success", "error"],
}
