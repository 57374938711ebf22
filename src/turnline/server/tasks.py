"""Tasks as a resource: what waits for a person, and the answer, given once (F6).

    GET /tasks?group=        GET /tasks/{id}        POST /tasks/{id}/answer {"answer": {...}}

A task of another group answers like one that does not exist, whatever became of it. A task
without a group is for everybody with the scope.
"""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnline.core.channel import ID_PATTERN
from turnline.core.envelope import JsonObject
from turnline.errors import UnknownName
from turnline.flow.fields import Problem
from turnline.flow.task import Task
from turnline.server.answers import run_headers, run_links, success
from turnline.server.auth.principal import Principal
from turnline.server.body import json_body
from turnline.server.house import House
from turnline.server.operation import Operation
from turnline.server.problems import invalid, not_found

_MAX_ID_CHARACTERS: Final = 80


class TaskRoutes:
    """The operations on tasks."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def list_tasks(self, request: Request) -> Response:
        principal = await self._house.access.admit(request, "tasks.list")
        group = request.query_params.get("group")
        found = await self._house.runtime.tasks.list(groups=sorted(principal.groups))
        return success({"tasks": [shown(one) for one in found if group in (None, one.group)]})

    async def read(self, request: Request) -> Response:
        task, _ = await self._task(request, "tasks.read")
        return success(shown(task))

    async def answer(self, request: Request) -> Response:
        task, principal = await self._task(request, "tasks.answer")
        body = await json_body(request, self._house.settings)
        await self._house.runtime.tasks.answer(
            task.task_id, _answer(body), by=principal.user_id, groups=principal.groups
        )
        run_id = task.run_id
        data = {"task_id": task.task_id, "run_id": run_id, "links": run_links(request, run_id)}
        return success(data, headers=run_headers(request, run_id))

    async def _task(self, request: Request, operation: str) -> tuple[Task, Principal]:
        """The task that the path names, and who asks for it, who may."""
        task_id = request.path_params["task_id"]
        principal = await self._house.access.admit(request, operation, task_id[:_MAX_ID_CHARACTERS])
        if len(task_id) > _MAX_ID_CHARACTERS or ID_PATTERN.fullmatch(task_id[:64]) is None:
            raise not_found(f"there is no task {task_id[:_MAX_ID_CHARACTERS]!r}.")
        try:
            task = await self._house.runtime.tasks.get(task_id, groups=principal.groups)
        except UnknownName:
            raise not_found(f"there is no task {task_id!r}.") from None
        return task, principal

    def operations(self) -> list[Operation]:
        task = {"name": "task_id", "in": "path", "required": True, "schema": {"type": "string"}}
        group = {"name": "group", "in": "query", "schema": {"type": "string"}}
        return [
            Operation(
                id="list_tasks",
                method="GET",
                path="/tasks",
                handler=self.list_tasks,
                summary="What waits for an answer of whoever asks",
                tag="tasks",
                parameters=[group],
                answers={200: "The tasks of the groups that whoever asks is in, and those without a group"},
            ),
            Operation(
                id="read_task",
                method="GET",
                path="/tasks/{task_id}",
                handler=self.read,
                summary="A task that waits",
                tag="tasks",
                parameters=[task],
                answers={200: "The task"},
                refusals=(404, 409, 410),
            ),
            Operation(
                id="answer_task",
                method="POST",
                path="/tasks/{task_id}/answer",
                handler=self.answer,
                summary="Answer a task, once",
                tag="tasks",
                parameters=[task],
                body=_ANSWER,
                body_required=True,
                answers={200: "The answer was taken; the run goes on"},
                refusals=(400, 404, 409, 410, 413, 415, 422),
            ),
        ]


def shown(task: Task) -> JsonObject:
    """What a person is told of a task."""
    told: JsonObject = msgspec.to_builtins(task)
    return told


def _answer(body: JsonObject) -> JsonObject:
    answer = body.get("answer")
    problems = [Problem(("body", key), "no such field") for key in body if key != "answer"]
    if not isinstance(answer, dict):
        problems.append(Problem(("body", "answer"), "expected an object"))
    if problems or not isinstance(answer, dict):
        raise invalid(problems)
    return answer


_ANSWER: Final[JsonObject] = {
    "type": "object",
    "properties": {"answer": {"type": "object", "description": "A value for each field of the task's form."}},
    "required": ["answer"],
    "additionalProperties": False,
}
