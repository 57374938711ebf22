"""The example project `examples/leads`: it checks, tests, runs, and answers over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest

from tests.cli.projects import call
from tests.server.stage import KnownTokens
from turnline.flow.project import load_project
from turnline.server.app import create_app
from turnline.server.runtime import runtime_of
from turnline.testing import ModelServer

ROOT = Path(__file__).parents[2]
FLOW = "examples/leads/workflows/lead_processing.yaml"
JANE = {"email": "jane@example.com", "name": "Jane Doe", "company": "Acme Inc"}
TOKEN = {"Authorization": "Bearer root"}


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("TURNLINE_MODEL", raising=False)


def given(**body: str) -> list[str]:
    return [word for key, value in body.items() for word in ("-i", f"{key}={value}")]


def test_f15_nothing_is_wrong_with_it() -> None:
    done = call("check", "examples/leads")

    assert done.code == 0, done.out + done.err


def test_f14_its_tests_pass_and_a_recorded_run_is_among_them() -> None:
    done = call("test", "examples/leads")

    assert done.code == 0, done.out
    assert done.out.splitlines()[-1] == "9 passed."
    assert "ok   examples/leads/tests/urgent_lead.fixture.json:1 recorded run" in done.out


def test_it_runs_without_a_key() -> None:
    told = json.loads(call("run", FLOW, *given(**JANE), "--json").out)

    assert told["status"] == "succeeded"
    assert (told["data"]["potential"], told["data"]["score"]) == ("high", 91)


def test_with_a_model_named_in_the_environment_that_one_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that speaks the provider's wire format stands in for the provider."""
    with ModelServer('{"potential": "low", "score": 7}') as server:
        monkeypatch.setenv("TURNLINE_MODEL", "openai:any")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        told = json.loads(call("run", FLOW, *given(**JANE), "--json").out)

    assert (told["status"], told["data"]["score"]) == ("succeeded", 7)
    assert "Company: Acme Inc" in server.requests[0].json["messages"][-1]["content"]


async def test_f6_it_answers_over_http_and_waits_for_a_person_where_it_is_urgent() -> None:
    runtime = runtime_of(load_project("examples/leads"), log_address="memory:", grace_seconds=0)
    app = create_app(runtime, authenticator=KnownTokens())
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url="http://leads", headers=TOKEN
        ) as client,
    ):
        answer = await client.post("/api/leads", json=JANE)
        urgent = await client.post("/api/leads", json={**JANE, "priority": "urgent"})
        [task] = (await client.get("/tasks")).json()["data"]["tasks"]
        await client.post(f"/tasks/{task['task_id']}/answer", json={"answer": {"approved": True}})
        verdict = await runtime.runs.wait(task["run_id"])

    assert answer.status_code == 200
    assert answer.json()["success"] is True
    assert answer.json()["data"].keys() == {"id", "potential", "score"}
    assert (urgent.status_code, task["title"]) == (202, "Escalate Jane Doe?")
    assert (verdict.status, verdict.data["score"]) == ("succeeded", 91)


def test_its_readme_is_short() -> None:
    assert len((ROOT / "examples/leads/README.md").read_text().splitlines()) <= 10
