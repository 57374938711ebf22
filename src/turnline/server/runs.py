"""Runs as a resource: look at them, follow them, cancel, retry and wake them (F6).

GET  /runs?flow=&after=&limit=        GET  /runs/{id}
GET  /runs/{id}/events                POST /runs/{id}/events/{name}
POST /runs/{id}/cancel                POST /runs/{id}/retry {"step"}
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from turnline.core.envelope import JsonObject
from turnline.core.state import LONG_AGO, WorkflowState
from turnline.errors import UnknownName, UnknownRun
from turnline.flow.fields import Problem
from turnline.flow.verdict import STATUSES, Verdict
from turnline.server.answers import run_headers, run_links, success
from turnline.server.auth.principal import Principal
from turnline.server.body import json_body
from turnline.server.channels.facts import MOST_READ
from turnline.server.house import House, run_id_of
from turnline.server.operation import Operation
from turnline.server.parameters import cursor, page_size
from turnline.server.problems import CREATED, invalid
from turnline.server.settings import MOST_IN_A_PAGE, PAGE
from turnline.server.stream import Streams

MAX_NAME_CHARACTERS: Final = 200


class RunRoutes:
    """The operations on runs."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._streams = Streams(house)

    async def list_runs(self, request: Request) -> Response:
        await self._house.access.admit(request, "runs.list")
        limit, after = page_size(request), cursor(request)
        flow, status = request.query_params.get("flow"), _status(request)
        found, following = await self._page(flow, status, after, limit)
        return success({"runs": [summary(state, told) for state, told in found], "next": following})

    async def read(self, request: Request) -> Response:
        run_id, who = await self._admitted(request, "runs.read")
        return await self._shown(request, run_id, who)

    async def cancel(self, request: Request) -> Response:
        run_id, who = await self._admitted(request, "runs.cancel")
        await self._house.runtime.runs.cancel(run_id, by=who.user_id)
        return await self._shown(request, run_id, who)

    async def retry(self, request: Request) -> Response:
        """Retry a run, for the caller: who may start its flow, as it was and as it is now.

        A new run takes a place among those of the caller. A stuck run that resumes has its place already.
        """
        run_id, who = await self._admitted(request, "runs.retry")
        runs, open_runs = self._house.runtime.runs, self._house.runtime.open_runs
        flow = await self._house.access.check_retry(who, run_id)
        step = _step(await json_body(request, self._house.settings))
        is_over = (await runs.state(run_id)).is_over
        place = open_runs.starting(flow.name, who.user_id) if is_over else nullcontext()
        try:
            with place:
                new = await runs.retry(run_id, step=step, user_id=who.user_id)
        except UnknownName as error:
            raise invalid([Problem(("body", "step"), f"the run never came to {error.name!r}")]) from None
        origin = {} if new == run_id else {"retry_of": run_id}
        data = {"run_id": new, **origin, "status": "running", "links": run_links(request, new)}
        return success(data, status=CREATED, headers=run_headers(request, new))

    async def wake(self, request: Request) -> Response:
        run_id, who = await self._admitted(request, "runs.wake")
        data = await json_body(request, self._house.settings)
        await self._house.runtime.runs.post_event(run_id, request.path_params["name"], data)
        return await self._shown(request, run_id, who)

    async def events(self, request: Request) -> Response:
        run_id, who = await self._admitted(request, "runs.stream")
        return await self._streams.answer(request, run_id, who)

    async def _page(
        self, flow: str | None, status: str | None, after: str, limit: int
    ) -> tuple[list[tuple[WorkflowState, Verdict]], str | None]:
        """Runs behind an id, and the id to go on behind. Of other flows' runs it reads one line, once."""
        found: list[tuple[WorkflowState, Verdict]] = []
        left = MOST_READ
        for head in await self._house.runtime.hub.lines.channels(after=after):
            left -= head.channel_id not in self._house.facts
            facts = await self._house.facts.of(head.channel_id)
            is_wanted = facts is not None and facts.is_run and facts.parent_id is None
            if facts is not None and is_wanted and flow in (None, facts.labels.get("flow")):
                with suppress(UnknownRun):
                    state = await self._house.runtime.runs.state(head.channel_id)
                    told = await self._house.runtime.runs.verdict_of(state)
                    found += [(state, told)] if status in (None, told.status) else []
            if len(found) == limit or left <= 0:
                return found, head.channel_id
        return found, None

    async def _admitted(self, request: Request, operation: str) -> tuple[str, Principal]:
        run_id = request.path_params["run_id"]
        principal = await self._house.access.admit_to_run(request, operation, run_id)
        return run_id_of(run_id), principal

    async def _shown(self, request: Request, run_id: str, who: Principal) -> Response:
        """Answer where the run stands. A caller who may change the run but not read it gets its status."""
        runtime = self._house.runtime
        state = await runtime.runs.state(run_id)
        told = await runtime.runs.verdict_of(state)
        links = {"links": run_links(request, run_id)}
        if not await self._house.access.may_read_run(who, run_id):
            return success({"run_id": run_id, "status": told.status, **links})
        children = await runtime.hub.tree.children(run_id) if state.children else []
        below = {"children": children[-MOST_IN_A_PAGE:], "children_count": state.children}
        return success({**summary(state, told), "data": told.data, **below, **links})

    def operations(self) -> list[Operation]:
        return [*self._to_look(), *self._to_change()]

    def _to_look(self) -> list[Operation]:
        return [
            Operation(
                id="list_runs",
                method="GET",
                path="/runs",
                handler=self.list_runs,
                summary="Runs, by id; ids without an idempotency key sort by time",
                tag="runs",
                parameters=_PAGE_PARAMETERS,
                answers={200: "So many runs, and the id to go on behind"},
                refusals=(422,),
            ),
            Operation(
                id="read_run",
                method="GET",
                path="/runs/{run_id}",
                handler=self.read,
                summary="Where a run stands",
                tag="runs",
                parameters=[_RUN],
                answers=_STANDS,
                refusals=(404,),
            ),
            Operation(
                id="stream_run",
                method="GET",
                path="/runs/{run_id}/events",
                handler=self.events,
                summary="What happened to a run, and what happens to it now",
                tag="runs",
                parameters=[_RUN, *_EVENT_PARAMETERS],
                answers={200: "The events behind the last one seen", 204: "There will be no more"},
                refusals=(404, 422),
                media_type="text/event-stream",
            ),
        ]

    def _to_change(self) -> list[Operation]:
        refusals = (400, 404, 409, 413, 415, 422)
        return [
            Operation(
                id="wake_run",
                method="POST",
                path="/runs/{run_id}/events/{name}",
                handler=self.wake,
                summary="Wake a run that waits for this event; the body is the event's data",
                tag="runs",
                parameters=[_RUN, _EVENT],
                body={"type": "object"},
                answers=_STANDS,
                refusals=refusals,
            ),
            Operation(
                id="cancel_run",
                method="POST",
                path="/runs/{run_id}/cancel",
                handler=self.cancel,
                summary="End a run, and what is below it",
                tag="runs",
                parameters=[_RUN],
                answers=_STANDS,
                refusals=(404, 409),
            ),
            Operation(
                id="retry_run",
                method="POST",
                path="/runs/{run_id}/retry",
                handler=self.retry,
                summary="Resume a stuck run, or start one that continues from a step of a run that is over",
                tag="runs",
                parameters=[_RUN],
                body=_RETRY,
                answers={201: "The run was resumed, or the new run was started"},
                refusals=refusals,
            ),
        ]


def summary(state: WorkflowState, told: Verdict) -> JsonObject:
    """Return what a list shows of a run with this verdict. Nothing private is in it (F2)."""
    error = told.error
    speaker = state.last_speaker_id if state.is_over else state.expected_next_speaker
    pause = state.pause
    return {
        "run_id": state.channel_id,
        "flow": state.spec.labels.get("flow", ""),
        "status": told.status,
        "step": speaker,
        "error": None
        if error is None
        else {"type": error.type, "message": error.message, "step": error.step},
        "waiting_for": None
        if pause is None
        else {"reason": pause.reason, "key": pause.key or None, "until": pause.until},
        "started_at": None if state.opened_at == LONG_AGO else state.opened_at,
        "ended_at": state.closed_at,
        "labels": state.spec.labels,
        "parent": state.spec.parent_id,
    }


def _status(request: Request) -> str | None:
    status = request.query_params.get("status")
    if status is not None and status not in STATUSES:
        raise invalid([Problem(("query", "status"), f"expected one of {', '.join(STATUSES)}")])
    return status


def _step(body: JsonObject) -> str | None:
    problems = [Problem(("body", key), "no such field") for key in body if key != "step"]
    step = body.get("step")
    if step is not None and (not isinstance(step, str) or len(step) > MAX_NAME_CHARACTERS):
        problems.append(Problem(("body", "step"), "expected the id of a step"))
    if problems:
        raise invalid(problems)
    return step


_STANDS: Final = {200: "Where the run stands"}
_RUN: Final[JsonObject] = {"name": "run_id", "in": "path", "required": True, "schema": {"type": "string"}}
_EVENT: Final[JsonObject] = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_RETRY: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "step": {
            "type": ["string", "null"],
            "maxLength": MAX_NAME_CHARACTERS,
            "description": "From which step; without it, the last one.",
        }
    },
    "additionalProperties": False,
}
_PAGE_PARAMETERS: Final[list[JsonObject]] = [
    {"name": "flow", "in": "query", "schema": {"type": "string"}},
    {"name": "status", "in": "query", "schema": {"type": "string", "enum": list(STATUSES)}},
    {"name": "after", "in": "query", "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}},
    {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": MOST_IN_A_PAGE, "default": PAGE},
    },
]
_EVENT_PARAMETERS: Final[list[JsonObject]] = [
    {"name": "Last-Event-ID", "in": "header", "schema": {"type": "integer", "minimum": 0}},
    {"name": "after", "in": "query", "schema": {"type": "integer", "minimum": 0}},
]
