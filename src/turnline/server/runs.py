"""Runs as a resource: look at them, follow them, cancel, retry and wake them (F6).

GET  /runs?status=&since=&until=&label=&participant=&flow=&after=&limit=
POST /runs/cancel?status=waiting&...  POST /runs/retry?status=failed&...      those of a page
GET  /runs/{id}
GET  /runs/{id}/events                POST /runs/{id}/events/{name}
POST /runs/{id}/cancel                POST /runs/{id}/retry {"step"}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from turnline.client.bulk import Act
from turnline.core.envelope import JsonObject
from turnline.core.lifecycle import CANCELLED
from turnline.core.state import LONG_AGO, WorkflowState
from turnline.errors import UnknownName
from turnline.flow.fields import Problem
from turnline.flow.runs import ListedRun, RunPage
from turnline.flow.verdict import LISTED, RunError, Verdict
from turnline.server.answers import change_each, run_headers, run_links, success
from turnline.server.auth.principal import Principal
from turnline.server.body import json_body
from turnline.server.house import House, run_id_of
from turnline.server.operation import Operation
from turnline.server.parameters import LIST_PARAMETERS, list_query, page_size
from turnline.server.problems import CREATED, invalid
from turnline.server.settings import MOST_IN_A_PAGE
from turnline.server.stream import Streams

MAX_NAME_CHARACTERS: Final = 200
CANCELLED_STATUSES: Final = ("running", "waiting", "stuck")
RETRIED_STATUSES: Final = ("failed", "stuck", CANCELLED)

ReadRuns = Callable[..., Awaitable[RunPage]]
"""`Runs.page` or `Runs.page_to_retry`."""


class RunRoutes:
    """The operations on runs."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._streams = Streams(house)

    async def list_runs(self, request: Request) -> Response:
        await self._house.access.admit(request, "runs.list")
        page = await self._page(request, _status(request), self._house.runtime.runs.page)
        return success({"runs": [listed(one) for one in page.runs], "next": page.next})

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
        await self._house.access.check_retry(who, run_id)
        step = _step(await json_body(request, self._house.settings))
        try:
            new = await self._retry(who, run_id, step)
        except UnknownName as error:
            raise invalid([Problem(("body", "step"), f"the run never came to {error.name!r}")]) from None
        origin = {} if new == run_id else {"retry_of": run_id}
        data = {"run_id": new, **origin, "status": "running", "links": run_links(request, new)}
        return success(data, status=CREATED, headers=run_headers(request, new))

    async def cancel_page(self, request: Request) -> Response:
        """Cancel the runs of a page: each as `cancel` does, if the caller may."""
        runs = self._house.runtime.runs
        who, page = await self._page_to_change(request, "runs.cancel", CANCELLED_STATUSES, runs.page)

        async def cancel_one(run_id: str) -> JsonObject:
            self._house.access.check(who, "runs.cancel", run_id)
            await runs.cancel(run_id, by=who.user_id)
            return {"result": CANCELLED}

        return await self._done(request, page.runs, cancel_one, page.next)

    async def retry_page(self, request: Request) -> Response:
        """Retry the runs of a page that were not retried yet: each as `retry` does, if the caller may."""
        read = self._house.runtime.runs.page_to_retry
        who, page = await self._page_to_change(request, "runs.retry", RETRIED_STATUSES, read)

        async def retry_one(run_id: str) -> JsonObject:
            self._house.access.check(who, "runs.retry", run_id)
            return {"result": "retried", "run_id": await self._retry(who, run_id, None)}

        return await self._done(request, page.runs, retry_one, page.next)

    async def _retry(self, who: Principal, run_id: str, step: str | None) -> str:
        runs, open_runs = self._house.runtime.runs, self._house.runtime.open_runs
        flow = await self._house.access.check_retry(who, run_id)
        is_over = (await runs.state(run_id)).is_over
        with open_runs.starting(flow.name, who.user_id) if is_over else nullcontext():
            return await runs.retry(run_id, step=step, user_id=who.user_id)

    async def _page_to_change(
        self, request: Request, operation: str, statuses: Collection[str], read: ReadRuns
    ) -> tuple[Principal, RunPage]:
        """Return who asks, and the page of runs. A status is required: no mistake means every run."""
        who = await self._house.access.admit(request, "runs.list")
        self._house.access.check(who, operation)
        status = request.query_params.get("status", "")
        if status not in statuses:
            raise invalid([Problem(("query", "status"), f"expected one of {', '.join(statuses)}")])
        return who, await self._page(request, status, read)

    async def _page(self, request: Request, status: str, read: ReadRuns) -> RunPage:
        where = await list_query(request, self._house.runtime.hub)
        after = request.query_params.get("after", "")
        return await read(where, status=status, after=after, limit=page_size(request))

    async def _done(
        self, request: Request, found: Iterable[ListedRun], act: Act, next_: str | None
    ) -> Response:
        ids = [run.row.channel_id for run in found]
        done = await change_each(request, ids, act, self._house.runtime.hub.new_id)
        return success({"runs": done, "next": next_})

    async def wake(self, request: Request) -> Response:
        run_id, who = await self._admitted(request, "runs.wake")
        data = await json_body(request, self._house.settings)
        await self._house.runtime.runs.post_event(run_id, request.path_params["name"], data)
        return await self._shown(request, run_id, who)

    async def events(self, request: Request) -> Response:
        run_id, who = await self._admitted(request, "runs.stream")
        return await self._streams.answer(request, run_id, who)

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
                summary="Runs, the newest first",
                tag="runs",
                parameters=_PAGE_PARAMETERS,
                answers={200: "A page of runs, and what the next page comes after"},
                refusals=(400, 422),
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
                id="cancel_runs",
                method="POST",
                path="/runs/cancel",
                handler=self.cancel_page,
                summary="Cancel the runs of a page of the list, each by itself",
                tag="runs",
                parameters=_bulk_parameters(CANCELLED_STATUSES),
                answers=_EACH,
                refusals=(400, 422),
            ),
            Operation(
                id="retry_runs",
                method="POST",
                path="/runs/retry",
                handler=self.retry_page,
                summary="Retry the runs of a page of the list that were not retried yet, each by itself",
                tag="runs",
                parameters=_bulk_parameters(RETRIED_STATUSES),
                answers=_EACH,
                refusals=(400, 422),
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


ERASED: Final = "erased"
"""Shown for the name of a flow that was erased: it is content (Y2)."""


def summary(state: WorkflowState, told: Verdict) -> JsonObject:
    """Return what is shown of a run with this verdict. Nothing private is in it (F2)."""
    speaker = state.last_speaker_id if state.is_over else state.expected_next_speaker
    pause = state.pause
    return {
        "run_id": state.channel_id,
        "flow": state.spec.labels.get("flow") or (ERASED if state.is_incomplete else ""),
        "status": told.status,
        "step": speaker,
        "error": _error(told.error),
        "waiting_for": None
        if pause is None
        else {"reason": pause.reason, "key": pause.key or None, "until": pause.until},
        "started_at": None if state.opened_at == LONG_AGO else state.opened_at,
        "ended_at": state.closed_at,
        "labels": state.spec.labels,
        "parent": state.spec.parent_id,
    }


def listed(one: ListedRun) -> JsonObject:
    """Return what a list shows of a run: what the index knows, and why it failed."""
    row, error = one.row, one.error
    return {
        "run_id": row.channel_id,
        "flow": row.flow,
        "status": one.status,
        "step": (row.last_speaker_id if row.is_closed else row.speaker_id) or None,
        "error": _error(error),
        "waiting_for": {"reason": row.waiting_for} if row.waiting_for else None,
        "started_at": row.created_at,
        "ended_at": row.closed_at,
        "labels": row.labels,
        "parent": row.parent_id or None,
    }


def _error(error: RunError | None) -> JsonObject | None:
    return None if error is None else {"type": error.type, "message": error.message, "step": error.step}


def _status(request: Request) -> str:
    status = request.query_params.get("status", "")
    if status and status not in LISTED:
        raise invalid([Problem(("query", "status"), f"expected one of {', '.join(LISTED)}")])
    return status


def _bulk_parameters(statuses: Sequence[str]) -> list[JsonObject]:
    status = {"name": "status", "in": "query", "required": True}
    return [{**status, "schema": {"type": "string", "enum": [*statuses]}}, *LIST_PARAMETERS]


def _step(body: JsonObject) -> str | None:
    problems = [Problem(("body", key), "no such field") for key in body if key != "step"]
    step = body.get("step")
    if step is not None and (not isinstance(step, str) or len(step) > MAX_NAME_CHARACTERS):
        problems.append(Problem(("body", "step"), "expected the id of a step"))
    if problems:
        raise invalid(problems)
    return step


_EACH: Final = {200: "What became of each run, and what the next page comes after"}
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
    {"name": "status", "in": "query", "schema": {"type": "string", "enum": list(LISTED)}},
    *LIST_PARAMETERS,
]
_EVENT_PARAMETERS: Final[list[JsonObject]] = [
    {"name": "Last-Event-ID", "in": "header", "schema": {"type": "integer", "minimum": 0}},
    {"name": "after", "in": "query", "schema": {"type": "integer", "minimum": 0}},
]
