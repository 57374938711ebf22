"""Answers: `{"success": true, "data": {...}}`, and its opposite, as bytes on their way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnline.client.bulk import Act, do_each
from turnline.core.envelope import JsonObject
from turnline.errors import TurnlineError
from turnline.server.problems import OK, Answer, answer_to

RUN_ID_HEADER: Final = "X-Run-Id"
JSON: Final = "application/json"
_EVERY: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_BODILESS: Final = frozenset({204, 205})

_encoder = msgspec.json.Encoder()


def success(data: object, *, status: int = OK, headers: Mapping[str, str] | None = None) -> Response:
    """What was asked for."""
    return respond({"success": True, "data": data}, status=status, headers=headers)


def failure(answer: Answer, *, headers: Mapping[str, str] | None = None) -> Response:
    """Why not."""
    return respond(answer.body(), status=answer.status, headers={**answer.headers, **(headers or {})})


def respond(body: Any, *, status: int, headers: Mapping[str, str] | None = None) -> Response:
    given = {**_EVERY, **(headers or {})}
    if status in _BODILESS:
        return Response(status_code=status, headers=given)
    return Response(_encoder.encode(body), status, given, JSON)


async def change_each(
    request: Request, ids: Iterable[str], act: Act, new_id: Callable[[], str]
) -> list[JsonObject]:
    """Do something to each of many, and return what became of it: an error as if it had been the only one."""

    def explain(error: TurnlineError) -> JsonObject:
        answer = answer_to(error, request_id=new_id(), where=f"{request.method} {request.url.path}")
        return {"type": answer.type, "message": answer.message}

    return [one async for one in do_each(ids, act, explain)]


def run_headers(request: Request, run_id: str) -> dict[str, str]:
    """What every answer about one run carries."""
    return {RUN_ID_HEADER: run_id, "Location": run_path(request, run_id)}


def run_path(request: Request, run_id: str) -> str:
    """Where a run is found, also where the app is mounted below another."""
    return f"{request.scope.get('root_path', '')}/runs/{run_id}"


def run_links(request: Request, run_id: str, task_id: str = "") -> JsonObject:
    """Where to look for a run, and for the task it waits with."""
    path = run_path(request, run_id)
    links: JsonObject = {"self": path, "events": f"{path}/events", "cancel": f"{path}/cancel"}
    if task_id:
        links["task"] = f"{request.scope.get('root_path', '')}/tasks/{task_id}"
    return links
