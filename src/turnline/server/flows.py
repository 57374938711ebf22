"""Flows as a resource: which there are, and runs of any of them.

GET  /flows                          name, version, trigger, the input's JSON Schema
GET  /flows/{name}                   the same, its steps as a picture, and what its author wrote
POST /flows/{name}/runs {"input"}    201, whether the flow has a trigger or not
POST /flows/{name}/runs as a form    the same, with the files of the input
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from turnline.core.envelope import JsonObject
from turnline.errors import Forbidden
from turnline.flow.definition.flow import Flow
from turnline.flow.fields import Problem, json_schema
from turnline.flow.picture import flow_picture
from turnline.server.access import peer_of
from turnline.server.answers import run_headers, run_links, success
from turnline.server.body import json_body, parsed
from turnline.server.house import House
from turnline.server.operation import Operation
from turnline.server.problems import CREATED, invalid, not_found
from turnline.server.starting import KEY_HEADER, FormFields, Given, Starting, idempotency_key, takes_form

MAX_LABELS: Final = 32
MAX_LABEL_CHARACTERS: Final = 200
_PARTS: Final = ("input", "labels")
_NO_FIELD: Final = "no such field; expected input, with the fields of the flow, or labels"
_OWN_LABELS: Final = frozenset({"flow", "retry_of"})


class FlowRoutes:
    """The operations on flows."""

    def __init__(self, house: House) -> None:
        self._house = house

    def operations(self) -> list[Operation]:
        name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        return [
            Operation(
                id="list_flows",
                method="GET",
                path="/flows",
                handler=self.list_flows,
                summary="The flows of the project",
                tag="flows",
                answers={200: "Every flow, with the JSON Schema of its input"},
            ),
            Operation(
                id="read_flow",
                method="GET",
                path="/flows/{name}",
                handler=self.read,
                summary="A flow, its picture, and for an operator its source",
                tag="flows",
                parameters=[name],
                answers={200: "The flow"},
                refusals=(404,),
            ),
            Operation(
                id="start_run",
                method="POST",
                path="/flows/{name}/runs",
                handler=self.start,
                summary="Start a run of any flow",
                tag="flows",
                parameters=[name, _KEY],
                body=_START,
                form=_START_FORM,
                answers={201: "The run was started"},
                refusals=(400, 404, 409, 413, 415, 422),
            ),
        ]

    async def list_flows(self, request: Request) -> Response:
        await self._house.access.admit(request, "flows.list")
        return success({"flows": [described(flow) for flow in self._house.runtime.flows.values()]})

    async def read(self, request: Request) -> Response:
        """A flow. Its source may hold what somebody should not have written there: an operator's only."""
        name = request.path_params["name"]
        access, runtime = self._house.access, self._house.runtime
        principal = await access.admit(request, "flows.read", name)
        flow = runtime.flows.get(name)
        if flow is None:
            raise not_found(f"there is no flow {name[:80]!r}.")
        told = {**described(flow), "picture": flow_picture(flow).to_dict(), "source": None}
        with suppress(Forbidden):
            access.check(principal, "flows.source", name)
            told["source"] = runtime.sources.get(name)
        return success(told)

    async def start(self, request: Request) -> Response:
        """Start a run; whoever may not start this one does not learn whether there is such a flow."""
        name = request.path_params["name"]
        flow = self._house.runtime.flows.get(name)
        if flow is None:
            await self._house.access.admit(request, "runs.start", name)
            raise not_found(f"there is no flow {name[:80]!r}.")
        principal = await self._house.access.start(request, flow)
        starting = Starting(
            house=self._house,
            flow=flow,
            principal=principal,
            key=idempotency_key(request),
            peer=peer_of(request),
        )
        if takes_form(request, flow):
            run_id = await starting.start_form(request, _read_form)
        else:
            run_id = await starting.start(_read(await json_body(request, self._house.settings)))
        told = {"run_id": run_id, "status": "running", "links": run_links(request, run_id)}
        return success(told, status=CREATED, headers=run_headers(request, run_id))


def described(flow: Flow) -> JsonObject:
    """What is told of a flow."""
    trigger = flow.spec.trigger
    told: JsonObject = {
        "name": flow.name,
        "version": flow.metadata.version,
        "description": flow.metadata.description,
        "labels": flow.metadata.labels,
        "steps": [step.id for step in flow.steps],
        "trigger": None,
        "input": input_schema(flow),
    }
    if trigger is not None:
        told["trigger"] = {
            "method": trigger.method,
            "path": trigger.path,
            "public": trigger.public,
            "async": trigger.async_,
            "timeout_seconds": trigger.timeout,
        }
    return told


def input_schema(flow: Flow) -> JsonObject:
    trigger = flow.spec.trigger
    if trigger is None or trigger.input is None:
        return {"type": "object"}
    return json_schema(trigger.input, extra=trigger.extra)


def _read_form(fields: FormFields) -> Given:
    """Return the same from a form: `input` and `labels` are JSON there."""
    names = [name for name, _ in fields]
    if len(set(names)) < len(names):
        raise invalid([Problem(("body",), "a field is given more than once")])
    wrong = [Problem(("body", name[:80]), _NO_FIELD) for name in names if name not in _PARTS]
    if wrong:
        raise invalid(wrong)
    return _read({name: parsed(text.encode()) for name, text in fields})


def _read(body: JsonObject) -> Given:
    """Return the input and the labels that a request to start a run names."""
    given, labels = body.get("input", {}), body.get("labels", {})
    problems = [Problem(("body", key), _NO_FIELD) for key in body if key not in _PARTS]
    if not isinstance(given, dict):
        problems.append(Problem(("body", "input"), "expected an object"))
    if not _are_labels(labels):
        problems.append(Problem(("body", "labels"), f"expected at most {MAX_LABELS} short texts by name"))
    if problems:
        raise invalid(problems)
    own = {key: text for key, text in labels.items() if key not in _OWN_LABELS}
    return Given(data=given, within=["body", "input"], labels=own)


def _are_labels(labels: Any) -> bool:
    if not isinstance(labels, dict) or len(labels) > MAX_LABELS:
        return False
    texts = (*labels, *labels.values())
    return all(isinstance(text, str) and len(text) <= MAX_LABEL_CHARACTERS for text in texts)


_START: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "input": {"type": "object", "description": "What the run begins with."},
        "labels": {
            "type": "object",
            "maxProperties": MAX_LABELS,
            "propertyNames": {"maxLength": MAX_LABEL_CHARACTERS},
            "additionalProperties": {"type": "string", "maxLength": MAX_LABEL_CHARACTERS},
        },
    },
    "additionalProperties": False,
}
_START_FORM: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "input": {
            "type": "string",
            "contentMediaType": "application/json",
            "description": "The other fields of the input, as JSON. It comes before the files.",
        },
        "labels": {"type": "string", "contentMediaType": "application/json"},
    },
    "additionalProperties": {
        "type": "string",
        "format": "binary",
        "description": "A file of the input, by the name of its field. For flows whose input has files.",
    },
}
_KEY: Final[JsonObject] = {
    "name": KEY_HEADER,
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
