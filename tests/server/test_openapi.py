"""X16: whatever the document allows or forbids, the server answers as the document says, and never with 500.

schemathesis makes the requests, good and bad, and sends them to a real port.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from turnline.server.app import create_app
from turnline.server.serving import DrainingServer, bind
from turnline.server.settings import ServerSettings

from .stage import Ctx, KnownTokens, runtime_with

EXAMPLES = 1_000 if os.environ.get("TURNLINE_SOAK") else 30
CHECKS = [not_a_server_error, response_schema_conformance, status_code_conformance]
ENDLESS = "/channels/events"
BULK = ("/runs/cancel", "/runs/retry", "/channels/close")
"""A stream that ends with the server; tests/server/channels reads it."""
FLOWS = """
metadata: {name: lead}
spec:
  trigger:
    path: /api/leads
    extra: false
    input:
      email: {type: email, required: true}
      age: {type: integer, min: 0, max: 150}
      tags: {type: array, items: string, max: 5}
      when: datetime
      plan: {type: string, enum: [basic, gold], default: basic}
      address: {type: object, properties: {city: {type: string, required: true}}}
  steps: [{id: work, runner: work}]
---
metadata: {name: look}
spec:
  trigger: {path: "/api/leads/{lead}", method: GET, public: true, input: {lead: integer, deep: boolean}}
  steps: [{id: work, runner: work}, {id: say, kind: response, response: {mapping: {lead: lead}, status: 201}}]
---
metadata: {name: anything}
spec: {trigger: {path: /api/anything, method: PUT}, steps: [{id: work, runner: fails_for_some}]}
---
metadata: {name: ask}
spec:
  trigger: {path: /api/ask}
  steps: [{id: ask, kind: human, human: {title: Sure?, form: {ok: {type: boolean, required: true}}}}]
"""


def work(ctx: Ctx) -> Ctx:
    return {"worked": True}


def fails_for_some(ctx: Ctx) -> Ctx:
    if len(ctx) % 2:
        raise KeyError("a step that cannot do it")
    return {"worked": True}


class Served:
    """An app on a real port, in a thread with an event loop of its own."""

    def __init__(self) -> None:
        runtime = runtime_with(FLOWS, work=work, fails_for_some=fails_for_some)
        app = create_app(runtime, authenticator=KnownTokens())
        self._runtime = runtime
        self._socket = bind("127.0.0.1", 0)
        self._server = DrainingServer(app, runtime, ServerSettings(drain_seconds=1), access_log=False)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._opened = threading.Event()
        self.said = app.state.openapi
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.ids: dict[str, str] = {}
        """Parameter of a path -> something that is there."""

    async def _serve(self) -> None:
        async with self._runtime as runtime:
            over = await runtime.runs.start("lead", {"email": "a@example.com"})
            await runtime.runs.wait(over)
            asked = await runtime.runs.start("ask", {})
            await runtime.runs.wait(asked)
            [task] = await runtime.tasks.list()
            self.ids = {"run_id": over, "channel_id": over, "task_id": task.task_id, "name": "ask"}
            self._opened.set()
            await self._server.serve([self._socket])

    @contextmanager
    def running(self) -> Iterator[Served]:
        self._thread.start()
        try:
            assert self._opened.wait(30)
            yield self
        finally:
            self._server.should_exit = True
            self._thread.join(30)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served().running() as one:
        yield one


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_f6_no_request_is_answered_with_500_or_otherwise_than_the_document_says(
    served: Served, mode: GenerationMode
) -> None:
    schema = schemathesis.openapi.from_dict(served.said)
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    operations.sort(key=lambda one: one.path in BULK)  # They end what the others look at.
    statuses: dict[str, set[int]] = {}

    def check(case: Any, is_there: bool) -> None:
        if is_there:
            case.path_parameters = {**(case.path_parameters or {}), **known(case, served.ids)}
        headers = {"Authorization": "Bearer root"}
        response = case.call(base_url=served.address, headers=headers, timeout=20)
        case.validate_response(response, checks=CHECKS)
        statuses.setdefault(case.operation.definition.raw["operationId"], set()).add(response.status_code)

    for operation in operations:
        if operation.path == ENDLESS:
            continue
        send(operation.as_strategy(generation_mode=mode), check)
        named = set(re.findall(r"{(\w+)}", operation.path))
        if (
            operation.method == "get" and named <= served.ids.keys()
        ):  # The plainest request: chance may miss it.
            check(operation.Case(path_parameters={}), is_there=True)

    assert len(operations) == 36
    succeeded = {operation for operation, found in statuses.items() if min(found) < 300}
    if mode is GenerationMode.POSITIVE:  # Else it would prove that a server refuses everything.
        assert succeeded >= {"trigger_lead", "trigger_look", "trigger_anything", "trigger_ask", "start_run"}
        assert succeeded >= {"list_runs", "read_run", "stream_run", "retry_run", "list_tasks", "read_task"}
        assert succeeded >= {"list_channels", "read_channel", "read_envelopes", "read_usage"}


def send(cases: Any, check: Callable[[Any, bool], None]) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=cases, is_there=booleans())
    def checked(case: Any, is_there: bool) -> None:
        check(case, is_there)

    checked()


def known(case: Any, ids: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in ids.items() if f"{{{name}}}" in case.path}
