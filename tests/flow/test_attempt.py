"""`retry` of a step: which failures are repeated. The servers are real, and on loopback."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.agent.agent import Agent
from turnline.agent.messages import ModelReply
from turnline.agent.model import Model, ModelRequest, OnText
from turnline.core.claims import Paused
from turnline.errors import ModelError
from turnline.flow.definition.flow import read
from turnline.flow.driver import attempt
from turnline.flow.verdict import Verdict
from turnline.flow.work import Services, StepResult, StepWork

from .http_server import Answer, HttpServer
from .scenes import work_on
from .stage import Stage, flows_of, stage

MINUTE = 60.0


async def retried(house: Stage, run_id: str) -> tuple[Verdict, int]:
    """Let the time of every retry pass; return how the run ended, and how many pauses it took."""
    pauses = 0
    while not (state := await house.runs.state(run_id)).is_over:
        if state.pause is not None and state.pause.reason == "retry":
            pauses += 1
            await house.pass_time(MINUTE)
        else:
            await house.hub.wait_beyond(run_id, state.seq)
    return await house.ended(run_id), pauses


async def requests_of(status: int, retry: str, routes: str = "{}") -> int:
    """Run one `api_call` against a server that answers `status`; return how many requests it got."""
    with HttpServer({"/x": Answer(status=status)}) as server:
        flow = (
            f"steps: [{{id: call, api_call: {{url: '{server.url}/x', method: POST, allow_private: true}}, "
            f"retry: {retry}, routes: {routes}}}]"
        )
        async with stage(flow) as house:
            await retried(house, await house.runs.start("main", {}))
        keys = {one.headers["idempotency-key"] for one in server.received}

    assert len(keys) == 1
    return len(server.received)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 451])
async def test_a_request_that_the_other_system_refuses_is_sent_once(status: int) -> None:
    assert await requests_of(status, "{attempts: 3}") == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503, 504])
async def test_a_request_that_may_succeed_later_is_repeated_with_the_same_idempotency_key(
    status: int,
) -> None:
    assert await requests_of(status, "{attempts: 3}") == 3


async def test_statuses_choose_which_answers_are_repeated() -> None:
    assert await requests_of(404, "{attempts: 2, statuses: [404]}") == 2
    assert await requests_of(503, "{attempts: 2, statuses: [404]}") == 1
    assert await requests_of(503, "{attempts: 2, statuses: []}") == 1
    assert await requests_of(404, "{attempts: 2, on: [timeout], statuses: [404]}") == 2


async def test_a_status_with_a_route_is_repeated_before_its_route_is_taken() -> None:
    assert await requests_of(503, "{attempts: 2, statuses: [503]}", "{http_503: END}") == 2
    assert await requests_of(404, "{attempts: 2, on: [http_404]}", "{http_404: END}") == 2
    assert await requests_of(404, "{attempts: 2, on: [error, http_404]}") == 2


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "http://169.254.169.254/", "file:///etc/passwd"])
async def test_a_refused_address_is_not_tried_again(url: str) -> None:
    flow = f"steps: [{{id: call, api_call: {{url: '{url}'}}, retry: {{attempts: 3}}}}]"
    async with stage(flow) as house:
        done, pauses = await retried(house, await house.runs.start("main", {}))

    assert (done.status, pauses) == ("failed", 0)


async def test_a_system_that_cannot_be_reached_is_tried_again() -> None:
    with HttpServer({}) as server:
        gone = server.url
    flow = f"steps: [{{id: call, api_call: {{url: '{gone}', allow_private: true}}, retry: {{attempts: 3}}}}]"
    async with stage(flow) as house:
        done, pauses = await retried(house, await house.runs.start("main", {}))

    assert (done.status, pauses) == ("failed", 2)


class Refusing(Model):
    """A model whose provider answers every request with one status."""

    name = "test:refusing"

    def __init__(self, status: int) -> None:
        self.requests = 0
        self._status = status

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        self.requests += 1
        raise ModelError(self.name, because="refused", transient=False, status=self._status)


@pytest.mark.parametrize(("status", "requests"), [(401, 1), (503, 3)])
async def test_a_model_that_refuses_the_request_is_asked_once(status: int, requests: int) -> None:
    model = Refusing(status)
    flow = "steps: [{id: ask, agent: {name: writer, prompt: x}, retry: {attempts: 3}}]"
    services = Services(flows=flows_of(flow), agents={"writer": Agent("writer", config=model)})
    async with stage(services=services) as house:
        await retried(house, await house.runs.start("main", {}))

    assert model.requests == requests


@pytest.mark.parametrize("status", [200, 399, 600, "503x"])
def test_a_status_that_is_not_a_failure_cannot_be_chosen(status: Any) -> None:
    with pytest.raises(ValueError, match="statuses"):
        read({"steps": [{"id": "a", "runner": "x", "retry": {"statuses": [status]}}]}, name="main")


class Unit:
    """Database work that notes whether it was closed."""

    is_closed = False

    async def close(self) -> None:
        self.is_closed = True


async def test_the_database_work_of_an_attempt_that_is_repeated_is_closed() -> None:
    unit: Any = Unit()

    async def perform(work: StepWork[Any]) -> StepResult:
        return StepResult(signal="error", commit=unit)

    turn: Any = None  # Nothing is written: the step is tried again.
    ended = await attempt(work_on({"runner": "x", "retry": {"attempts": 2}}), perform, turn)

    assert (type(ended), unit.is_closed) == (Paused, True)
