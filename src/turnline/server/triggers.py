"""Triggers: the HTTP requests that start runs, one operation for each flow that has one (F6).

    POST /api/leads {"email": "ada@example.com"}
    200 {"success": true, "data": {...}}       X-Run-Id: ...

A caller gets the verdict of the run. Where there is none yet, because it waits for
somebody, or `Prefer: respond-async` was sent, it gets 202 and where to look; where there is
none in time, 504. The run goes on in either case.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from turnline.core.envelope import JsonObject
from turnline.core.json import normalised
from turnline.errors import BadDraft, LogError
from turnline.flow.definition.flow import Flow, Trigger
from turnline.flow.fields import json_schema
from turnline.flow.verdict import Verdict, public_error
from turnline.server.access import peer_of
from turnline.server.answers import failure, run_headers, run_links, success
from turnline.server.auth.principal import Principal
from turnline.server.body import json_body, parsed
from turnline.server.house import House
from turnline.server.operation import Operation
from turnline.server.parameters import of_query, value_of
from turnline.server.problems import (
    ACCEPTED,
    BAD_REQUEST,
    TIMED_OUT,
    UNAVAILABLE,
    Answer,
    RequestRefused,
    invalid,
    status_of,
)
from turnline.server.starting import KEY_HEADER, FormFields, Given, Starting, idempotency_key, takes_form

RESPOND_ASYNC: Final = "respond-async"
_MAY_GO_ON: Final = (
    "the log cannot be used at the moment, and the run may go on when it can. Look at the list of runs "
    "before you send it again; with an Idempotency-Key it can be sent again at any time."
)


class TriggerRoute:
    """What one flow's trigger answers."""

    def __init__(self, house: House, flow: Flow, trigger: Trigger) -> None:
        self._house = house
        self._flow = flow
        self._trigger = trigger
        self._fields = trigger.input or {}

    async def __call__(self, request: Request) -> Response:
        principal = await self._house.access.start(request, self._flow)
        prefers_async = RESPOND_ASYNC in preferences(request.headers.getlist("prefer"))
        is_async = prefers_async or self._trigger.async_
        starting = Starting(
            house=self._house,
            flow=self._flow,
            principal=principal,
            key=idempotency_key(request),
            peer=peer_of(request),
            is_awaited=not is_async,
        )
        if takes_form(request, self._flow):
            run_id = await starting.start_form(request, partial(self._read_form, request))
        else:
            run_id = await starting.start(await self._input(request))
        if is_async:
            applied = {"Preference-Applied": RESPOND_ASYNC} if prefers_async else {}
            return await self._accepted(request, run_id, "running", applied)
        return await self._answer(request, run_id, principal)

    async def _input(self, request: Request) -> Given:
        """Return the body or the query, with what stands in the path."""
        if self._trigger.method == "GET":
            where = "query"
            data, problems = of_query(self._fields, request.query_params.multi_items())
            if problems:
                raise invalid(problems)
        else:
            where = "body"
            data = await json_body(request, self._house.settings)
        path = self._path(request)
        if where == "query" or path:
            data = _as_json(data | path)
        return Given(data=data, within=[where], in_path=path)

    def _read_form(self, request: Request, fields: FormFields) -> Given:
        """Return the fields of a form, as a query spells them; objects are JSON."""
        data, problems = of_query(self._fields, fields, within="body")
        if problems:
            raise invalid(problems)
        path = self._path(request)
        for name, value in data.items():
            spec = self._fields.get(name)
            if spec is not None and spec.type == "object" and isinstance(value, str):
                data[name] = parsed(value.encode())
        return Given(data=_as_json(data | path), within=["body"], in_path=path)

    def _path(self, request: Request) -> JsonObject:
        """Return the fields that stand in the path."""
        # By their places: where another method names them otherwise, the path is still one.
        given = [*request.path_params.values()]  # What an app above has found stands before ours.
        names = self._trigger.parameters
        texts = dict(zip(names, given[len(given) - len(names) :], strict=True))
        return {name: value_of(self._fields.get(name), text) for name, text in texts.items()}

    async def _answer(self, request: Request, run_id: str, principal: Principal) -> Response:
        try:
            async with self._house.runtime.patience() as patience:
                verdict = await self._house.runtime.runs.wait(run_id, timeout=self._trigger.timeout)
        except TimeoutError:
            await self._record(run_id)  # The caller gets its id.
            if patience.expired():  # The server is stopping; whoever comes next takes the run up.
                return await self._accepted(request, run_id, "running", {})
            return self._still_running(request, run_id)
        if verdict.status in ("running", "waiting"):
            return await self._accepted(request, run_id, verdict.status, {})
        return await self._ended(request, run_id, verdict, principal)

    async def _record(self, run_id: str) -> None:
        try:
            await self._house.runtime.runs.record(run_id)
        except LogError:  # It is held, and recorded when the log is back.
            raise RequestRefused(UNAVAILABLE, "unavailable", _MAY_GO_ON) from None

    async def _ended(self, request: Request, run_id: str, verdict: Verdict, principal: Principal) -> Response:
        """Answer with the verdict. A caller who may not read the run gets a reference to what a step said."""
        error, headers = verdict.error, run_headers(request, run_id)
        if error is None:
            return success(verdict.data, status=verdict.http_status, headers=headers)
        more: JsonObject = {"run_id": run_id} if verdict.status == "stuck" else {}
        if not await self._house.access.may_read_run(principal, run_id):
            state = await self._house.runtime.runs.state(run_id)
            shown = public_error(state, verdict, reference=run_id) or error
            if shown != error:  # The line that `log_failed_run` wrote has the reference, too.
                error, more = shown, {"reference": run_id}
        answer = Answer(
            status=status_of(error), type=error.type, message=error.message, step=error.step, more=more
        )
        return failure(answer, headers=headers)

    async def _accepted(
        self, request: Request, run_id: str, status: str, headers: dict[str, str]
    ) -> Response:
        tasks = await self._house.runtime.tasks.of_run(run_id) if status == "waiting" else ()
        task_id = tasks[0].task_id if tasks else ""
        data = {"run_id": run_id, "status": status, "links": run_links(request, run_id, task_id)}
        return success(data, status=ACCEPTED, headers={**run_headers(request, run_id), **headers})

    def _still_running(self, request: Request, run_id: str) -> Response:
        answer = Answer(
            status=TIMED_OUT,
            type="still_running",
            message=f"the run takes longer than {self._trigger.timeout:g} s; it goes on.",
            more={"run_id": run_id, "links": run_links(request, run_id)},
        )
        return failure(answer, headers=run_headers(request, run_id))


def preferences(headers: Iterable[str]) -> set[str]:
    """The names in the `Prefer` headers."""
    tokens = (part for header in headers for part in header.split(","))
    return {token.partition(";")[0].partition("=")[0].strip().lower() for token in tokens}


def _as_json(data: JsonObject) -> JsonObject:
    try:
        return normalised(data, field="input")
    except BadDraft as error:
        raise RequestRefused(BAD_REQUEST, "bad_request", str(error)) from None


# What the document says.


def trigger_operation(house: House, flow: Flow, trigger: Trigger) -> Operation:
    """The operation of one flow's trigger."""
    names = trigger.parameters
    is_get = trigger.method == "GET"
    fields = {name: spec for name, spec in (trigger.input or {}).items() if name not in names}
    schema = json_schema(fields, extra=trigger.extra)
    needs_form = any(spec.required for spec in trigger.files.values())
    return Operation(
        id=f"trigger_{flow.name}",
        method=trigger.method,
        path=trigger.path,
        handler=TriggerRoute(house, flow, trigger),
        summary=flow.metadata.description or f"Start a run of {flow.name}, and wait for its answer",
        tag="triggers",
        parameters=[*_path_parameters(trigger, names), *(_query(schema) if is_get else ()), *_HEADERS],
        body=None if is_get or needs_form else schema,
        form=schema if trigger.files else None,
        body_required=bool(schema.get("required")),
        answers={
            200: "What the run answers, with the status that its response step says",
            201: "The same, where the response step says so",
            202: "The run goes on: it waits for somebody, or was asked to answer later",
        },
        refusals=(400, 409, 413, 415, 422, 503, 504),
        is_public=trigger.public,
        has_own_query=True,
    )


def _path_parameters(trigger: Trigger, names: list[str]) -> list[JsonObject]:
    schema = json_schema(trigger.input or {})["properties"]
    return [
        {"name": name, "in": "path", "required": True, "schema": schema.get(name) or {"type": "string"}}
        for name in names
    ]


def _query(schema: JsonObject) -> list[JsonObject]:
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": one}
        for name, one in schema["properties"].items()
    ]


_HEADERS: Final[list[JsonObject]] = [
    {
        "name": KEY_HEADER,
        "in": "header",
        "description": "The same key and input again: the same run, and its answer again.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    },
    {
        "name": "Prefer",
        "in": "header",
        "description": "`respond-async`: answer 202 at once.",
        "schema": {"type": "string"},
    },
]
