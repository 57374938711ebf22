"""The fragments of seed 003 run as they are written: nodes, steps, conditions, and the response.

They are cut out of the document here, at test time; where the folder is not beside
the project, nothing is tested. What a fragment calls and does not define is given to it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from typing import Any, Final

import httpx2
import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from turnline.agent.messages import UserMessage
from turnline.agent.scripted import ScriptedModel
from turnline.flow.data.database import open_data
from turnline.flow.data.definition import read_model
from turnline.flow.events import event_of
from turnline.flow.node import names_of, node
from turnline.flow.work import Data, Node, Services
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.server.app import create_app
from turnline.server.runtime import Runtime
from turnline.testing.manual_clock import ManualClock

from .stage import Stage, flows_of, stage

SEEDS: Final = Path(__file__).parents[3] / "shared" / "seeds"
LEAD: Final = {
    "kind": "ModelDefinition",
    "metadata": {"name": "Lead"},
    "spec": {"fields": {"email": "string"}},
}

pytestmark = pytest.mark.skipif(not SEEDS.is_dir(), reason="the seeds are not beside the project")


def cut(first: int, last: int) -> str:
    """Lines `first` to `last` of the document."""
    (document,) = SEEDS.glob("003_*.txt")
    return "\n".join(document.read_text().splitlines()[first - 1 : last]) + "\n"


def nodes_in(source: str, **around: object) -> dict[str, Node]:
    """The `@node` functions of a fragment, by name; `around` is what it takes for granted."""
    names: dict[str, Any] = {"__name__": __name__, "node": node, "Any": Any, **around}
    exec(compile(source, "seed 003", "exec", dont_inherit=True), names)
    return {name: value for value in names.values() for name in names_of(value)}


def body_of_node(name: str, first: int, last: int, **around: object) -> dict[str, Node]:
    """A node whose body is a fragment of statements."""
    source = f"@node({name!r})\ndef {name}(ctx):\n{indent(cut(first, last), '    ')}"
    return nodes_in(source, **around)


def one_step(runner: str) -> str:
    return f"steps: [{{id: it, runner: {runner}}}]"


async def ran(flow: str, nodes: dict[str, Node], **body: Any) -> dict[str, Any]:
    """What a run of the flow ends with."""
    async with stage(services=Services(flows=flows_of(flow), nodes=nodes)) as house:
        verdict = await house.run(**body)
    assert verdict.status == "succeeded", verdict.error
    return verdict.data


async def signals(house: Stage, run_id: str) -> list[tuple[str, str]]:
    events = [event_of(line) for line in await house.wal(run_id)]
    return [(one.step, one.signal) for one in events if one is not None and one.type == "step_ended"]


@asynccontextmanager
async def leads(log: Log) -> AsyncIterator[Data]:
    database = await open_data([read_model(LEAD)], log=log)
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def served(flow: str, nodes: dict[str, Node]) -> AsyncIterator[httpx2.AsyncClient]:
    """A server of one flow, with a data model, so that there is a session."""
    services = Services(flows=flows_of(flow), nodes=nodes)
    runtime = Runtime(services, open_log=MemoryLog, open_data=leads, clock=ManualClock(), sweep_seconds=0)
    app = create_app(runtime, authenticator=Nobody())
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://server") as client,
    ):
        yield client


class Nobody:
    """See `Authenticator`: a public trigger asks for no token."""

    async def authenticate(self, credentials: Any) -> Any:
        raise AssertionError("nobody is asked who they are")


def public_flow(*steps: str) -> str:
    return f"{{trigger: {{path: /it, public: true}}, steps: [{', '.join(steps)}]}}"


# Lines 21-36: the initial context.


async def test_f1_the_request_body_is_merged_with_what_the_engine_injects() -> None:
    seen: dict[str, Any] = {}
    body = json.loads(cut(24, 28))
    injected = eval(compile(cut(31, 36).strip(), "seed 003", "eval"), {"AsyncSession": AsyncSession})

    async with served(public_flow("{id: look, runner: look}"), {"look": seen.update}) as client:
        answer = await client.post("/it", json=body)

    assert answer.json() == {"success": True, "data": body}
    assert {key: value for key, value in seen.items() if not key.startswith("_")} == body
    for key, value in injected.items():
        assert seen[key] == value or isinstance(seen[key], value)


# Lines 42-51: a node reads, writes and returns the context.


async def test_f3_enrich_writes_what_it_says() -> None:
    found = await ran(one_step("enrich"), nodes_in(cut(42, 51)), email="jane@example.com")

    assert found == {"email": "jane@example.com", "domain": "example.com", "status": "enriched"}


# Lines 75-86: the agent step.


async def test_f9_the_agent_step_shows_the_context_to_its_model_and_writes_back() -> None:
    model = ScriptedModel('{"potential": "high", "_user_id": "mallory"}')
    services = Services(flows=flows_of(cut(75, 86)), model=model)
    async with stage(services=services) as house:
        verdict = await house.run(name="Jane Doe", company="Acme Inc", domain="example.com")

    [message] = model.requests[0].messages
    assert isinstance(message, UserMessage)
    assert message.text.startswith(
        "Customer: Jane Doe\nCompany: Acme Inc\nEmail domain: example.com\n\nClassify this lead's potential."
    )
    assert verdict.data["lead_potential"] == "high"
    assert "_user_id" not in verdict.data


# Lines 90-105: three steps, the last two without their blocks.


async def test_the_flow_example_runs_from_save_to_route() -> None:
    saved = {"save_lead": lambda ctx: {"id": "1", "created_at": "2026-01-01T00:00:00Z"}}
    services = Services(flows=flows_of(cut(90, 105)), nodes=saved, model=ScriptedModel('{"lead_score": 91}'))
    async with stage(services=services) as house:
        run_id = await house.runs.start(
            "main", {"email": "jane@example.com", "name": "Jane", "company": "Acme"}
        )
        verdict = await house.runs.wait(run_id)

        assert await signals(house, run_id) == [
            ("save", "default"),
            ("classify", "default"),
            ("route", "default"),
        ]
    # What the comments of the fragment say goes into `route`.
    assert set(verdict.data) == {"email", "name", "company", "id", "created_at", "lead_score"}


# Lines 111-123: required, optional, perhaps there.


@pytest.mark.parametrize(("body", "sent"), [({"phone": "+49 1"}, ["+49 1"]), ({}, [])])
async def test_process_sends_where_there_is_a_phone(body: dict[str, str], sent: list[str]) -> None:
    told: list[str] = []
    nodes = nodes_in(cut(111, 123), send_sms=told.append)

    assert await ran(one_step("process"), nodes, email="a@b.c", **body) == {"email": "a@b.c", **body}
    assert told == sent


# Lines 127-136: the conditions of a router.


@pytest.mark.parametrize(
    ("body", "signal"),
    [
        ({"priority": "urgent", "lead_score": 99}, "escalate"),
        ({"priority": "normal", "lead_score": 81}, "high_value"),
        ({"lead_score": 80}, "normal"),
        ({}, "normal"),
    ],
)
async def test_f10_the_router_says_its_signal(body: dict[str, Any], signal: str) -> None:
    async with stage(cut(127, 136)) as house:
        run_id = await house.runs.start("main", body)

        assert (await house.runs.wait(run_id)).status == "succeeded"
        assert await signals(house, run_id) == [("check_priority", signal)]


# Lines 142-157: scopes.


async def test_two_requests_do_not_see_each_other() -> None:
    met = asyncio.Barrier(2)

    async def both_at_once(ctx: dict[str, Any]) -> dict[str, Any]:
        ctx["seen"] = [ctx["who"]]
        await met.wait()
        return ctx

    async with stage(one_step("it"), it=both_at_once) as house:
        found = await asyncio.gather(house.run(who="a"), house.run(who="b"))

    assert [one.data for one in found] == [{"who": "a", "seen": ["a"]}, {"who": "b", "seen": ["b"]}]


async def test_a_step_finds_what_an_earlier_one_wrote() -> None:
    results: list[int] = []
    first = body_of_node("first", 153, 154, expensive_calculation=lambda: 42)
    second = nodes_in(
        f"@node('second')\ndef second(ctx):\n{indent(cut(156, 157), '    ')}    keep(result)\n",
        keep=results.append,
    )

    await ran("steps: [{id: a, runner: first}, {id: b, runner: second}]", {**first, **second})

    assert results == [42]


# Lines 161-204: good habits.


async def test_the_statements_of_the_good_habits_are_bodies_of_nodes() -> None:
    meaningful: dict[str, Any] = {
        "customer": SimpleNamespace(id="c1"),
        "calculate_total": sum,
        "items": [1, 2],
        "address": {"city": "Bonn"},
    }
    sources = {
        "response": {"category": "lead", "confidence": 0.9},
        "weather": {"temperature": 21.5, "conditions": "sun"},
    }
    named = await ran(one_step("it"), body_of_node("it", 163, 170, **meaningful))
    prefixed = await ran(one_step("it"), body_of_node("it", 176, 182, **sources))
    kept = await ran(one_step("it"), body_of_node("it", 188, 189), email="JANE@Example.com")
    overwritten = await ran(one_step("it"), body_of_node("it", 191, 192), email="JANE@Example.com")

    shipping = {"customer_id": "c1", "order_total": 3, "shipping_address": {"city": "Bonn"}}
    assert named == {**shipping, "x": "c1", "val": 3}
    assert prefixed == {
        "ai_classification": "lead",
        "ai_confidence": 0.9,
        "api_weather_temp": 21.5,
        "api_weather_conditions": "sun",
    }
    assert kept == {"email": "JANE@Example.com", "normalized_email": "jane@example.com"}
    assert overwritten == {"email": "jane@example.com"}


@pytest.mark.parametrize(
    ("body", "ended"),
    [({"name": "x"}, "missing_phone"), ({"phone": "1", "name": "x"}, "default"), ({"phone": "1"}, "error")],
)
async def test_f4_a_missing_key_is_a_signal_or_an_error(body: dict[str, str], ended: str) -> None:
    services = Services(flows=flows_of(one_step("it")), nodes=body_of_node("it", 196, 204))
    async with stage(services=services) as house:
        run_id = await house.runs.start("main", body)
        await house.runs.wait(run_id)

        assert await signals(house, run_id) == [("it", ended)]


# Lines 210-216: cleaning up.


async def test_f2_finalize_takes_private_keys_out_of_the_run() -> None:
    left: list[set[str]] = []

    def begin(ctx: dict[str, Any]) -> dict[str, Any]:
        return {**ctx, "_temp_calculation": 1, "_intermediate_result": 2, "_kept": 3, "n": 4}

    nodes = {**nodes_in(cut(210, 216)), "begin": begin, "look": lambda ctx: left.append({*ctx})}
    steps = "steps: [{id: a, runner: begin}, {id: b, runner: finalize}, {id: c, runner: look}]"

    assert await ran(steps, nodes) == {"n": 4}
    assert left == [{"n", "_kept"}]


# Lines 222-239: what the caller gets.


async def test_f6_the_response_is_filtered_as_the_document_shows() -> None:
    at_the_end = eval(compile(cut(223, 229).strip(), "seed 003", "eval"), {"AsyncSession": AsyncSession})
    expected = json.loads(cut(232, 239))
    seen: dict[str, Any] = {}

    def save(ctx: dict[str, Any]) -> dict[str, Any]:
        ctx["id"] = at_the_end["id"]
        ctx["_last_error"] = at_the_end["_last_error"]
        return ctx

    nodes: dict[str, Callable[..., object]] = {"save": save, "look": seen.update}
    flow = public_flow("{id: save, runner: save}", "{id: look, runner: look}")
    async with served(flow, nodes) as client:
        answer = await client.post("/it", json={key: at_the_end[key] for key in ("email", "name")})

    assert answer.status_code == 200
    assert answer.json() == expected
    assert at_the_end.keys() <= seen.keys()


# Lines 245-254: debugging.


async def test_f2_debug_step_logs_what_is_public(caplog: pytest.LogCaptureFixture) -> None:
    nodes = {**nodes_in(cut(245, 254)), "begin": lambda ctx: {"_secret": "x"}}
    with caplog.at_level(logging.DEBUG, logger=__name__):
        await ran("steps: [{id: a, runner: begin}, {id: b, runner: debug_step}]", nodes, name="Jane")

    assert "Context: {'name': 'Jane'}" in caplog.messages


# Lines 260-274: type hints.


async def test_f3_a_typed_context_is_a_context() -> None:
    nodes = nodes_in(cut(260, 274), calculate_score=len)

    assert await ran(one_step("process_lead"), nodes, email="a@b.c") == {"email": "a@b.c", "lead_score": 5}


def test_every_node_of_the_document_is_run_here() -> None:
    (document,) = SEEDS.glob("003_*.txt")
    named = re.findall(r'^@node\("(\w+)"\)', document.read_text(), re.MULTILINE)

    assert named == ["enrich", "process", "finalize", "debug_step", "process_lead"]
