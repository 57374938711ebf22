"""F5, F6: runs as a resource, and what whoever may not see them is told."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from msgspec.structs import replace

from tests.hub.scenes import die
from tests.logs import OpenLog
from turnline.server.auth.principal import Bound

from .stage import PEOPLE, Ctx, Server, person, served

pytestmark = pytest.mark.four_logs

WORK = "metadata: {name: work}\nspec: {trigger: {path: /work}, steps: [{id: only, runner: work}]}"
EVENT = """
metadata: {name: pay}
spec:
  trigger: {path: /pay}
  steps:
    - {id: rest, kind: wait, wait: {event: paid, into: payment}}
"""
TWO = """
metadata: {name: two}
spec:
  trigger: {path: /two}
  steps: [{id: first, runner: first}, {id: second, runner: second}]
"""


def same(ctx: Ctx) -> None:
    return None


async def started(server: Server, path: str = "/work", body: object = None, **headers: str) -> str:
    answer = await server.post(path, body or {}, **headers)
    return answer.headers["x-run-id"]


# --- stuck ---

PUBLIC = (
    "metadata: {name: work}\nspec: {trigger: {path: /work, public: true}, steps: [{id: only, runner: work}]}"
)


async def given_up(open_log: OpenLog, key: str, token: str) -> str:
    """Start a run whose only step ends its process again and again; return the run's id."""
    entered = asyncio.Event()

    async def never(ctx: Ctx) -> None:
        entered.set()
        await asyncio.Event().wait()

    async with served(PUBLIC, log=open_log, work=never) as server:
        headers = {"Idempotency_Key": key, "Prefer": "respond-async"}
        run_id = await started(server, token=token, **headers)
        await entered.wait()
    await die(open_log(), run_id, "only")
    return run_id


@pytest.mark.parametrize("token", ["root", "ann", ""])
async def test_n3_a_caller_who_waits_for_a_stuck_run_gets_turn_stuck_with_the_run_id(
    open_log: OpenLog, token: str
) -> None:
    run_id = await given_up(open_log, "pay-1", token)

    async with served(PUBLIC, log=open_log, work=same) as server:
        answer = await server.post("/work", {}, token=token, Idempotency_Key="pay-1")

    error = answer.json()["error"]
    assert (error["type"], error["step"], error["run_id"]) == ("turn_stuck", "only", run_id)
    assert answer.status_code >= 500


async def test_n3_stuck_runs_are_listed_as_such_and_a_retry_over_http_continues_the_same_run(
    open_log: OpenLog,
) -> None:
    run_id = await given_up(open_log, "pay-1", "root")

    async with served(PUBLIC, log=open_log, work=lambda ctx: {"worked": True}) as server:
        await server.runtime.runs.wait(run_id)
        well = await started(server)
        lists = {
            status: [
                one["run_id"] for one in (await server.get(f"/runs?status={status}")).json()["data"]["runs"]
            ]
            for status in ("stuck", "succeeded", "failed")
        }
        shown = (await server.get(f"/channels/{run_id}")).json()["data"]
        again = await server.post(f"/runs/{run_id}/retry", {})
        run = await server.ended(run_id)

    assert lists == {"stuck": [run_id], "succeeded": [well], "failed": []}
    assert shown["status"] == "active"
    assert again.json()["data"]["run_id"] == run_id
    assert (run["status"], run["data"]) == ("succeeded", {"worked": True})


# --- look ---


async def test_f5_the_runs_api_gives_the_verdict_that_the_caller_got() -> None:
    def fails(ctx: Ctx) -> None:
        raise ValueError("no")

    async with served(WORK, work=fails) as server:
        answer = await server.post("/work", {"n": 1})
        run = (await server.get(answer.headers["location"])).json()["data"]

    assert run["status"] == "failed"
    assert run["error"] == answer.json()["error"] == {"type": "error", "message": "no", "step": "only"}
    assert (run["flow"], run["step"], run["data"]) == ("work", "only", {"n": 1})
    assert run["started_at"] == run["ended_at"] == "2030-01-01T12:00:00Z"
    assert (run["labels"], run["parent"], run["children"]) == ({"flow": "work"}, None, [])


async def test_runs_are_listed_the_newest_first_in_pages_and_by_flow() -> None:
    async with served(WORK, TWO, work=same, first=same, second=same) as server:
        ids = [await started(server) for _ in range(3)]
        two = await started(server, "/two")
        first = (await server.get("/runs?limit=2")).json()["data"]
        rest = (await server.get(f"/runs?limit=2&after={first['next']}")).json()["data"]
        of_two = (await server.get("/runs?flow=two")).json()["data"]

    assert [run["run_id"] for run in first["runs"] + rest["runs"]] == [two, *ids[::-1]]
    assert rest["next"] is None
    assert [run["run_id"] for run in of_two["runs"]] == [two]


@pytest.mark.parametrize(
    "token", ["/etc", "%00", "r1", "MTpyMQ==", "MTpyMQ!", "LTE6cjE", "OTk5OTk5OTk5OTk5OTk5OTk5OnI"]
)
@pytest.mark.parametrize("path", ["/runs", "/channels", "/channels/search"])
async def test_a_token_that_no_page_gave_is_a_400_that_says_what_to_do(path: str, token: str) -> None:
    async with served(WORK, work=same) as server:
        answer = await server.get(
            f"{path}?after={token}&text=x" if path != "/runs" else f"{path}?after={token}"
        )

    assert answer.status_code == 400
    assert "expected what `next` of the page before was" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=x",
        "limit=-1",
        "since=yesterday",
        "until=24",
        "label=red",
        "label=a=1&label=a=2",
    ],
)
async def test_a_page_that_cannot_be_is_422(query: str) -> None:
    async with served(WORK, work=same) as server:
        answer = await server.get(f"/runs?{query}")

    assert answer.status_code == 422
    assert answer.json()["error"]["problems"][0]["loc"] == ["query", query.partition("=")[0]]


async def test_flows_are_listed_with_their_input() -> None:
    typed = WORK.replace(
        "/work}", "/work, public: true, extra: false, input: {n: {type: integer, required: true}}}"
    )
    async with served(
        typed, "metadata: {name: inner}\nspec: {steps: [{id: a, runner: work}]}", work=same
    ) as server:
        flows = (await server.get("/flows", token="reader")).json()["data"]["flows"]

    assert [(one["name"], one["steps"]) for one in flows] == [("work", ["only"]), ("inner", ["a"])]
    assert flows[0]["trigger"]["path"] == "/work"
    assert flows[0]["input"] == {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    assert (flows[1]["trigger"], flows[1]["input"]) == (None, {"type": "object"})


# --- start ---


async def test_any_flow_can_be_started_by_name_with_checked_input_and_labels() -> None:
    inner = "metadata: {name: inner}\nspec: {steps: [{id: a, runner: work}]}"
    typed = WORK.replace("/work}", "/work, input: {n: integer}}")
    async with served(typed, inner, work=same) as server:
        made = await server.post(
            "/flows/inner/runs", {"input": {"x": 1}, "labels": {"team": "a", "flow": "z", "retry_of": "y"}}
        )
        run = await server.ended(made.headers["x-run-id"])
        wrong = await server.post("/flows/work/runs", {"input": {"n": "x"}})
        odd = await server.post("/flows/work/runs", {"input": [], "labels": {"a": 1}, "more": 1})
        unknown = await server.post("/flows/nowhere/runs", {})

    assert made.status_code == 201
    assert made.headers["location"] == made.json()["data"]["links"]["self"]
    assert (run["data"], run["labels"]) == ({"x": 1}, {"flow": "inner", "team": "a"})
    assert wrong.json()["error"]["problems"][0]["loc"] == ["body", "input", "n"]
    assert [one["loc"][1] for one in odd.json()["error"]["problems"]] == ["more", "input", "labels"]
    assert unknown.status_code == 404


async def test_f13_starting_by_name_needs_the_flows_scope_and_tells_nothing_of_flows() -> None:
    async with served(WORK, work=same) as server:
        known = await server.post("/flows/work/runs", {}, token="bob")
        unknown = await server.post("/flows/nowhere/runs", {}, token="bob")
        odd = await server.post("/flows/no%20where/runs", {}, token="root")
        nobody = await server.post("/flows/work/runs", {}, token="")

    assert [known.status_code, unknown.status_code, odd.status_code, nobody.status_code] == [
        403,
        403,
        403,
        401,
    ]
    assert known.text.replace("work", "nowhere") == unknown.text


async def test_f6_a_key_starts_one_run_by_name_too() -> None:
    async with served(WORK, work=same) as server:
        ids = [
            await started(server, "/flows/work/runs", {"input": {"n": 1}}, Idempotency_Key="k") for _ in "ab"
        ]
        other = await server.post("/flows/work/runs", {"input": {"n": 2}}, Idempotency_Key="k")

    assert len(set(ids)) == 1
    assert other.status_code == 409


# --- cancel, retry, wake ---


async def test_a_run_is_cancelled_once() -> None:
    async with served(EVENT) as server:
        run_id = await started(server, "/pay")
        first = await server.post(f"/runs/{run_id}/cancel")
        again = await server.post(f"/runs/{run_id}/cancel")

    assert (first.status_code, first.json()["data"]["error"]["type"]) == (200, "cancelled")
    assert again.status_code == 409


async def test_a_run_that_is_cancelled_in_the_middle_of_a_step_ends_at_once() -> None:
    inside, gone = asyncio.Event(), asyncio.Event()

    async def hangs(ctx: Ctx) -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async with served(WORK, work=hangs) as server:
        run_id = await started(server, Prefer="respond-async")
        await inside.wait()
        await server.post(f"/runs/{run_id}/cancel")
        run = await server.ended(run_id)
        await gone.wait()

    assert run["error"]["type"] == "cancelled"


async def test_a_run_goes_on_from_a_step_with_what_that_step_was_given() -> None:
    broken = True

    def first(ctx: Ctx) -> Ctx:
        return {"first": ctx.get("first", 0) + 1}

    def second(ctx: Ctx) -> Ctx:
        if broken:
            raise ValueError("no")
        return {"second": True}

    async with served(TWO, first=first, second=second) as server:
        run_id = await started(server, "/two")
        broken = False
        last = await server.post(f"/runs/{run_id}/retry")
        begin = await server.post(f"/runs/{run_id}/retry", {"step": "first"})
        unknown = await server.post(f"/runs/{run_id}/retry", {"step": "third"})
        odd = await server.post(f"/runs/{run_id}/retry", {"step": 3})
        runs = [await server.ended(one.headers["x-run-id"]) for one in (last, begin)]

    assert [last.status_code, begin.status_code, unknown.status_code, odd.status_code] == [201, 201, 422, 422]
    assert last.json()["data"]["retry_of"] == run_id
    assert [run["data"] for run in runs] == [{"first": 1, "second": True}] * 2
    assert unknown.json()["error"]["problems"][0]["loc"] == ["body", "step"]


async def test_a_run_that_is_not_over_is_not_retried() -> None:
    async with served(EVENT) as server:
        run_id = await started(server, "/pay")
        answer = await server.post(f"/runs/{run_id}/retry")

    assert answer.status_code == 409


async def test_an_event_wakes_the_run_that_waits_for_it_once_and_its_reserved_keys_are_dropped() -> None:
    async with served(EVENT) as server:
        run_id = await started(server, "/pay")
        other = await server.post(f"/runs/{run_id}/events/refunded", {})
        woken = await server.post(f"/runs/{run_id}/events/paid", {"amount": 5, "_user_id": "root"})
        run = await server.ended(run_id)
        again = await server.post(f"/runs/{run_id}/events/paid", {"amount": 6})
        audited = await server.audited("reserved_keys_dropped")

    assert [other.status_code, woken.status_code, again.status_code] == [409, 200, 409]
    assert (run["status"], run["data"]) == ("succeeded", {"payment": {"amount": 5}})
    assert audited == [{"channel_id": run_id, "source": "event", "keys": ["_user_id"]}]


# --- who may ---

UNKNOWN_IDS = ["nothing", "_audit", "_directory", "a" * 64, "a" * 300, "%00", "..%2f..", "ä", "key-0"]


@pytest.mark.parametrize("name", UNKNOWN_IDS)
@pytest.mark.parametrize("what", ["", "/events"])
async def test_f6_a_run_that_is_not_there_is_404(name: str, what: str) -> None:
    async with served(WORK, work=same) as server:
        answers = [
            await server.get(f"/runs/{name}{what}"),
            await server.get(f"/runs/{name}{what}", token="bob"),
            await server.post(f"/runs/{name}/cancel", token="reader"),
        ]

    assert [one.status_code for one in answers] == [404, 404, 404]
    assert answers[0].json()["error"]["type"] == "not_found"


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("GET", ""),
        ("GET", "/events"),
        ("POST", "/cancel"),
        ("POST", "/retry"),
        ("POST", "/events/paid"),
    ],
)
async def test_f13_a_run_one_may_not_read_and_one_that_is_not_there_answer_alike(
    method: str, what: str
) -> None:
    async with served(EVENT) as server:
        run_id = await started(server, "/pay")
        hidden = await server.send(method, f"/runs/{run_id}{what}", token="ann")
        unknown = await server.send(method, f"/runs/{'x' * len(run_id)}{what}", token="ann")
        nobody = await server.send(method, f"/runs/{run_id}{what}", token="")
        run = await server.get(f"/runs/{run_id}")

    assert (hidden.status_code, unknown.status_code, nobody.status_code) == (404, 404, 401)
    assert hidden.text.replace(run_id, "") == unknown.text.replace("x" * len(run_id), "")
    assert run.json()["data"]["status"] == "waiting"


async def test_f13_who_may_read_a_run_and_not_change_it_is_told_403() -> None:
    async with served(EVENT) as server:
        run_id = await started(server, "/pay")
        read = await server.get(f"/runs/{run_id}", token="reader")
        cancel = await server.post(f"/runs/{run_id}/cancel", token="reader")
        unknown = await server.post("/runs/nothing/cancel", token="reader")

    assert [read.status_code, cancel.status_code, unknown.status_code] == [200, 403, 404]


async def test_f13_a_token_narrowed_to_one_run_reads_that_one_only() -> None:
    async with served(WORK, work=same) as server:
        mine, other = await started(server), await started(server)
        narrowed = replace(person("narrow", "runs:read"), bounds=[Bound("resource", (mine,))])
        PEOPLE["narrow"] = narrowed
        try:
            answers = [await server.get(f"/runs/{one}", token="narrow") for one in (mine, other)]
        finally:
            del PEOPLE["narrow"]

    assert [one.status_code for one in answers] == [200, 404]


@pytest.mark.parametrize("path", ["/runs", "/flows", "/tasks"])
async def test_f13_lists_need_a_token_with_the_scope(path: str) -> None:
    async with served(WORK, work=same) as server:
        answers: list[Any] = [await server.get(path, token=token) for token in ("", "bob", "root")]

    assert [one.status_code for one in answers] == [401, 403, 200]


async def test_f13_whoever_started_a_run_may_read_it_and_no_more() -> None:
    flow = "{metadata: {name: main}, trigger: {path: /ask}, steps: [{id: ask, human: {title: ok?}}]}"
    async with served(flow) as server:
        run_id = (await server.post("/ask", {}, token="ann")).json()["data"]["run_id"]

        async def status(method: str, path: str, token: str) -> int:
            return (await server.send(method, path, token=token)).status_code

        assert await status("GET", f"/runs/{run_id}", "ann") == 200
        assert await status("POST", f"/runs/{run_id}/cancel", "ann") == 403
        assert await status("GET", f"/runs/{run_id}", "bob") == 404
        assert await status("POST", f"/runs/{run_id}/cancel", "bob") == 404
        assert await status("GET", "/runs", "ann") == 403


# --- what the server's log says ---


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


async def test_the_server_logs_each_failed_run_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    def fails(ctx: Ctx) -> None:
        raise ValueError("no lamp")

    async with served(WORK, work=fails) as server:
        run_id = await started(server)

    bug, failed = said(caplog)
    assert bug.startswith(f"step 'only' of run {run_id} (flow 'work') failed: ValueError: no lamp\n")
    assert f'File "{__file__}"' in bug
    assert failed == f"run {run_id} of flow 'work' failed at step 'only': error: no lamp"


async def test_the_server_logs_nothing_of_runs_that_succeed_or_are_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(WORK, EVENT, work=same) as server:
        await started(server)
        run_id = await started(server, "/pay", Prefer="respond-async")
        await server.post(f"/runs/{run_id}/cancel", {})

    assert said(caplog) == []


async def test_a_failure_in_nested_flows_is_logged_once_with_its_path(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def work(ctx: Ctx) -> None:
        raise RuntimeError("no lamp")

    flows = (
        "{metadata: {name: top}, spec: {steps: [{id: call, workflow: {name: middle}}]}}",
        "{metadata: {name: middle}, spec: {steps: [{id: pass, workflow: {name: bottom}}]}}",
        "{metadata: {name: bottom}, spec: {steps: [{id: only, runner: work}]}}",
    )
    async with served(*flows, work=work) as server:
        run_id = (await server.post("/flows/top/runs", {"input": {}})).headers["x-run-id"]
        await server.runtime.runs.wait(run_id)

    of_step, of_run = [one.getMessage() for one in caplog.records if "no lamp" in one.getMessage()]
    assert of_step.startswith("step 'only' of run ")
    assert "of flow 'top' failed at step 'call': error: flow 'middle' failed at its step 'pass'" in of_run
    assert "flow 'bottom' failed at its step 'only': error: no lamp" in of_run


async def test_a_nested_run_that_no_step_failed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    flows = (
        "{metadata: {name: top}, spec: {steps: "
        "[{id: call, workflow: {name: bottom}, routes: {error: END}}]}}",
        "{metadata: {name: bottom}, spec: {steps: [{id: only, runner: work, routes: {default: FAIL}}]}}",
    )
    async with served(*flows, work=lambda ctx: None) as server:
        run_id = (await server.post("/flows/top/runs", {"input": {}})).headers["x-run-id"]
        done = await server.ended(run_id)

    (failed,) = [one.getMessage() for one in caplog.records if "failed" in one.getMessage()]
    assert done["status"] == "succeeded"
    assert "of flow 'bottom' failed at step 'only'" in failed
