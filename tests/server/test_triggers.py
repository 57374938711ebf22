"""F1, F6: a request starts a run, and its verdict is the answer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from turnline.log.base import Prunes
from turnline.log.memory import MemoryLog
from turnline.log.pruning import Pruner, plan_trees
from turnline.log.records import looking_at_log
from turnline.server.settings import ServerSettings

from .stage import Ctx, Server, served

HELLO = """
metadata: {name: hello}
spec:
  trigger:
    path: /hello
    input: {name: {type: string, required: true}, age: integer}
  steps: [{id: greet, runner: greet}]
"""


def greet(ctx: Ctx) -> Ctx:
    return {"greeting": f"Hello {ctx['name']}"}


def fails(ctx: Ctx) -> None:
    raise ValueError("the disk is on fire")


def flow(name: str, trigger: str, steps: str, more: str = "", *, below: str = "") -> str:
    spec = f"spec: {{trigger: {{path: '/{name}{below}'{trigger}}}, steps: [{steps}]{more}}}"
    return f"metadata: {{name: {name}}}\n{spec}\n"


async def start(server: Server, path: str = "/hello", body: object = None, **headers: str) -> str:
    answer = await server.post(path, body if body is not None else {"name": "Ann"}, **headers)
    return answer.headers["x-run-id"]


# --- success ---


async def test_f6_the_answer_is_exactly_success_and_data_with_the_run_in_a_header() -> None:
    async with served(HELLO, greet=greet) as server:
        answer = await server.post("/hello", {"name": "Ann"})

    assert answer.status_code == 200
    assert answer.json() == {"success": True, "data": {"name": "Ann", "greeting": "Hello Ann"}}
    run_id = answer.headers["x-run-id"]
    assert answer.headers["location"] == f"/runs/{run_id}"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(("status", "body"), [(201, b'{"success":true,"data":{"id":7}}'), (204, b"")])
async def test_f6_a_response_step_says_the_status_and_what_the_caller_gets(status: int, body: bytes) -> None:
    response = f"{{id: say, kind: response, response: {{mapping: {{id: number}}, status: {status}}}}}"
    async with served(flow("made", "", response)) as server:
        answer = await server.post("/made", {"number": 7})

    assert (answer.status_code, answer.content) == (status, body)


async def test_f2_private_keys_are_not_in_the_answer() -> None:
    def hides(ctx: Ctx) -> Ctx:
        return {"_token": "canary", "shown": 1}

    async with served(flow("hides", "", "{id: only, runner: hides}"), hides=hides) as server:
        answer = await server.post("/hides", {})
        shown = await server.get(f"/runs/{answer.headers['x-run-id']}")

    assert answer.json() == {"success": True, "data": {"shown": 1}}
    assert "canary" not in answer.text + shown.text


# --- failure ---


async def test_f6_a_failed_run_is_answered_with_its_type_message_and_step() -> None:
    async with served(flow("bad", "", "{id: burn, runner: fails}"), fails=fails) as server:
        answer = await server.post("/bad", {})

    assert answer.status_code == 422
    error = {"type": "error", "message": "the disk is on fire", "step": "burn"}
    assert answer.json() == {"success": False, "error": error}
    assert answer.headers["x-run-id"]


async def test_f6_a_step_that_took_too_long_is_504() -> None:
    async def hangs(ctx: Ctx) -> None:
        await asyncio.Event().wait()

    async with served(flow("slow", "", "{id: hang, runner: hangs, timeout: 10ms}"), hangs=hangs) as server:
        answer = await server.post("/slow", {})

    assert (answer.status_code, answer.json()["error"]["type"]) == (504, "timeout")


async def test_f6_a_run_that_took_too_long_is_504_and_its_step_is_let_go() -> None:
    inside, gone = asyncio.Event(), asyncio.Event()

    async def hangs(ctx: Ctx) -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    limited = flow("slow", "", "{id: hang, runner: hangs}", ", limits: {timeout: 1h}")
    async with served(limited, hangs=hangs) as server:
        asking = asyncio.create_task(server.post("/slow", {}))
        await inside.wait()
        await server.pass_time(3601)
        answer = await asking
        await gone.wait()

    assert (answer.status_code, answer.json()["error"]["type"]) == (504, "timeout")


async def test_f6_a_run_that_somebody_cancelled_is_409() -> None:
    inside = asyncio.Event()

    async def hangs(ctx: Ctx) -> None:
        inside.set()
        await asyncio.Event().wait()

    async with served(flow("slow", "", "{id: hang, runner: hangs}"), hangs=hangs) as server:
        asking = asyncio.create_task(server.post("/slow", {}, Idempotency_Key="k"))
        await inside.wait()
        [run] = (await server.get("/runs")).json()["data"]["runs"]
        cancelled = await server.post(f"/runs/{run['run_id']}/cancel")
        answer = await asking

    assert cancelled.json()["data"]["status"] == "failed"
    assert (answer.status_code, answer.json()["error"]["type"]) == (409, "cancelled")


async def test_f5_a_handled_error_is_a_success() -> None:
    steps = "{id: burn, runner: fails, routes: {error: mend}}, {id: mend, runner: mend}"
    async with served(flow("bad", "", steps), fails=fails, mend=lambda ctx: {"mended": True}) as server:
        answer = await server.post("/bad", {})

    assert (answer.status_code, answer.json()["data"]) == (200, {"mended": True})


# --- later ---


async def test_f6_a_run_that_waits_for_a_person_is_202_and_says_where_to_look() -> None:
    human = "{id: ask, kind: human, human: {title: Sure?, form: {ok: boolean}}}"
    async with served(flow("ask", "", human)) as server:
        answer = await server.post("/ask", {})
        data = answer.json()["data"]
        task = await server.get(data["links"]["task"])
        run = await server.get(data["links"]["self"])

    assert answer.status_code == 202
    assert data["status"] == "waiting"
    assert answer.headers["location"] == data["links"]["self"] == f"/runs/{data['run_id']}"
    assert task.json()["data"]["title"] == "Sure?"
    assert run.json()["data"]["waiting_for"]["reason"] == "person"


async def test_f6_a_run_that_waits_longer_than_the_caller_is_202() -> None:
    async with served(flow("wait", "", "{id: rest, kind: wait, wait: {for: 1h}}")) as server:
        answer = await server.post("/wait", {})

    assert (answer.status_code, answer.json()["data"]["status"]) == (202, "waiting")


async def test_f6_respond_async_is_202_at_once_and_the_preference_is_echoed() -> None:
    go = asyncio.Event()

    async def work(ctx: Ctx) -> Ctx:
        await go.wait()
        return {"done": True}

    async with served(flow("later", "", "{id: only, runner: work}"), work=work) as server:
        answer = await server.post("/later", {}, Prefer='wait=5, Respond-Async;x="y"')
        go.set()
        run = await server.ended(answer.headers["x-run-id"])

    assert (answer.status_code, answer.json()["data"]["status"]) == (202, "running")
    assert answer.headers["preference-applied"] == "respond-async"
    assert (run["status"], run["data"]) == ("succeeded", {"done": True})


async def test_f6_an_async_trigger_never_waits() -> None:
    async def hangs(ctx: Ctx) -> None:
        await asyncio.Event().wait()

    async with served(flow("later", ", async: true", "{id: only, runner: hangs}"), hangs=hangs) as server:
        answer = await server.post("/later", {})

    assert answer.status_code == 202
    assert "preference-applied" not in answer.headers


async def test_f6_a_caller_whose_time_is_up_is_told_504_and_the_run_goes_on() -> None:
    go = asyncio.Event()

    async def work(ctx: Ctx) -> Ctx:
        await go.wait()
        return {"done": True}

    async with served(flow("slow", ", timeout: 20ms", "{id: only, runner: work}"), work=work) as server:
        answer = await server.post("/slow", {})
        go.set()
        run = await server.ended(answer.headers["x-run-id"])

    assert answer.status_code == 504
    assert answer.json()["error"]["run_id"] == answer.headers["x-run-id"]
    assert answer.json()["error"]["type"] == "still_running"
    assert run["status"] == "succeeded"


# --- input ---


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({}, ["body", "name"]),
        ({"name": 5}, ["body", "name"]),
        ({"name": "Ann", "age": "5"}, ["body", "age"]),
        ([1], ["body"]),
        ("text", ["body"]),
        (None, ["body", "name"]),
    ],
)
async def test_f6_input_that_is_not_what_it_has_to_be_is_422_and_says_where(
    body: Any, loc: list[str]
) -> None:
    async with served(HELLO, greet=greet) as server:
        answer = await server.post("/hello", body)
        runs = await server.get("/runs")

    assert answer.status_code == 422
    assert answer.json()["error"]["type"] == "invalid_input"
    assert [one["loc"] for one in answer.json()["error"]["problems"]] == [loc]
    assert runs.json()["data"]["runs"] == []


async def test_f6_a_get_trigger_reads_the_query_by_the_types_of_its_fields() -> None:
    fields = "{n: integer, x: number, yes: boolean, tags: {type: array, items: integer}, text: string}"
    query = "n=5&x=1.5&yes=true&tags=1&tags=2&text=007&more=1"
    async with served(
        flow("look", f", method: GET, input: {fields}", "{id: only, runner: work}"), work=lambda ctx: None
    ) as server:
        answer = await server.get(f"/look?{query}")
        wrong = await server.get("/look?n=five&text=a&text=b")
        twice = await server.get("/look?n=five")

    assert answer.json()["data"] == {
        "n": 5,
        "x": 1.5,
        "yes": True,
        "tags": [1, 2],
        "text": "007",
        "more": "1",
    }
    assert wrong.json()["error"]["problems"] == [
        {"loc": ["query", "text"], "message": "it is given more than once"}
    ]
    assert twice.json()["error"]["problems"][0]["loc"] == ["query", "n"]


async def test_f6_parameters_of_the_path_are_input_and_beat_the_body() -> None:
    trigger = ", input: {lead: {type: integer, required: true}}"
    leads = flow("leads", trigger, "{id: only, runner: work}", below="/{lead}")
    async with served(leads, work=lambda ctx: None) as server:
        answer = await server.post("/leads/7", {"lead": 8, "x": 1})
        wrong = await server.post("/leads/seven", {})

    assert answer.json()["data"] == {"lead": 7, "x": 1}
    assert wrong.json()["error"]["problems"][0]["loc"] == ["path", "lead"]


async def test_f1_reserved_keys_of_a_request_have_no_effect_and_are_audited() -> None:
    seen: list[Ctx] = []
    body = {"name": "Ann", "_user_id": "root", "_response": {"x": 1}}
    async with served(
        HELLO.replace("age: integer}", "age: integer}\n    extra: false"),
        greet=lambda ctx: seen.append(dict(ctx)),
    ) as server:
        answer = await server.post("/hello", body, token="ann")
        audited = await server.audited("reserved_keys_dropped")

    assert seen[0]["_user_id"] == "ann"
    assert answer.json()["data"] == {"name": "Ann"}
    run_id = answer.headers["x-run-id"]
    assert audited == [{"channel_id": run_id, "source": "body", "keys": ["_response", "_user_id"]}]


async def test_f1_reserved_keys_in_a_query_or_a_path_have_no_effect() -> None:
    seen: list[Ctx] = []
    async with served(
        flow("look", ", method: GET, public: true", "{id: only, runner: work}", below="/{_user_id}"),
        work=lambda ctx: seen.append(dict(ctx)),
    ) as server:
        answer = await server.get("/look/root?_response=1", token="")

    assert (answer.status_code, answer.json()["data"]) == (200, {})
    assert "_user_id" not in seen[0]


# --- who may ---


async def test_f13_a_trigger_is_denied_without_a_token_that_allows_it() -> None:
    async with served(HELLO, greet=greet) as server:
        nobody = await server.post("/hello", {"name": "Ann"}, token="")
        stranger = await server.post("/hello", {"name": "Ann"}, token="forged")
        other = await server.post("/hello", {"name": "Ann"}, token="bob")
        runs = await server.get("/runs")

    assert [one.status_code for one in (nobody, stranger, other)] == [401, 401, 403]
    assert nobody.headers["www-authenticate"].startswith("Bearer")
    assert nobody.json()["error"]["type"] == "unauthenticated"
    assert runs.json()["data"]["runs"] == []


async def test_f13_who_may_not_start_is_told_before_the_body_is_read() -> None:
    async with served(HELLO, greet=greet) as server:
        answer = await server.post("/hello", b"{ not json", token="bob")

    assert answer.status_code == 403


async def test_f13_a_public_trigger_needs_no_token_but_takes_no_bad_one() -> None:
    seen: list[Ctx] = []
    async with served(
        flow("open", ", public: true", "{id: only, runner: work}"), work=lambda ctx: seen.append(dict(ctx))
    ) as server:
        nobody = await server.post("/open", {}, token="")
        known = await server.post("/open", {}, token="bob")
        bad = await server.post("/open", {}, token="forged")

    assert [one.status_code for one in (nobody, known, bad)] == [200, 200, 401]
    assert [ctx.get("_user_id") for ctx in seen] == [None, "bob"]


async def test_f13_a_trigger_may_ask_for_more_scopes() -> None:
    async with served(
        flow("more", ", scopes: ['runs:write']", "{id: only, runner: work}"), work=lambda ctx: None
    ) as server:
        ann = await server.post("/more", {}, token="ann")
        root = await server.post("/more", {}, token="root")

    assert (ann.status_code, root.status_code) == (403, 200)


# --- once ---


async def test_f6_the_same_key_and_body_give_the_same_run_and_its_answer() -> None:
    calls: list[Ctx] = []

    def work(ctx: Ctx) -> Ctx:
        calls.append(ctx)
        return {"calls": len(calls)}

    async with served(HELLO, greet=work) as server:
        first = await server.post("/hello", {"name": "Ann"}, Idempotency_Key="one")
        again = await server.post("/hello", {"name": "Ann"}, Idempotency_Key="one")
        other = await server.post("/hello", {"name": "Ann"}, Idempotency_Key="two")

    assert first.json() == again.json()
    assert first.headers["x-run-id"] == again.headers["x-run-id"] != other.headers["x-run-id"]
    assert len(calls) == 2


async def test_f6_the_same_key_with_another_body_is_409() -> None:
    async with served(HELLO, greet=greet) as server:
        await server.post("/hello", {"name": "Ann"}, Idempotency_Key="one")
        answer = await server.post("/hello", {"name": "Bob"}, Idempotency_Key="one")

    assert (answer.status_code, answer.json()["error"]["type"]) == (409, "conflict")


async def test_y3_the_key_of_a_run_that_was_pruned_starts_no_second_one() -> None:
    calls: list[int] = []
    async with served(HELLO, greet=lambda ctx: calls.append(1)) as server:
        run_id = await start(server, Idempotency_Key="one")
        log = server.runtime.hub.log
        assert isinstance(log, Prunes)
        trees, _, _ = await plan_trees(
            log, before=server.runtime.clock.now() + timedelta(days=1), labels={}, most=9
        )
        opened = partial(looking_at_log, log.address, log)
        hub = server.runtime.hub
        pruner = Pruner(log, opened, now=hub.clock.now, new_id=hub.new_id, forget=hub.forget_pruned)
        await pruner.prune(trees, None)

        again = await server.post("/hello", {"name": "Ann"}, Idempotency_Key="one")
        shown = await server.get(f"/runs/{run_id}")

    assert (again.status_code, again.json()["error"]["type"]) == (409, "conflict")
    assert "pruned" in again.json()["error"]["message"]
    assert shown.status_code == 404
    assert len(calls) == 1


async def test_f6_a_key_is_its_principals_own() -> None:
    async with served(HELLO, greet=greet) as server:
        ann = await start(server, token="ann", Idempotency_Key="one")
        root = await start(server, token="root", Idempotency_Key="one")

    assert ann != root


async def test_f6_many_requests_of_one_key_at_once_start_one_run() -> None:
    calls: list[int] = []
    async with served(HELLO, greet=lambda ctx: calls.append(1)) as server:
        ids = await asyncio.gather(*(start(server, Idempotency_Key="one") for _ in range(20)))

    assert len(set(ids)) == len(calls) == 1


@pytest.mark.parametrize("key", ["k" * 256, "", " ", "a\tb", "ä"])
async def test_f6_a_key_that_cannot_be_used_is_400(key: str) -> None:
    async with served(HELLO, greet=greet) as server:
        headers = [(b"Authorization", b"Bearer root"), (b"Idempotency-Key", key.encode())]
        answer = await server.client.post("/hello", json={"name": "Ann"}, headers=headers)

    assert answer.status_code == 400


# --- how many ---


async def test_f6_more_runs_at_once_than_the_flow_allows_are_503_until_one_ends() -> None:
    human = "{id: ask, kind: human, human: {title: Sure?}}"
    limited = flow("ask", "", human, ", limits: {concurrency: 2}")
    async with served(limited) as server:
        runs = [await start(server, "/ask", {}, Idempotency_Key=str(n)) for n in range(2)]
        refused = await server.post("/ask", {})
        also = await server.post("/flows/ask/runs", {})
        again = await server.post("/ask", {}, Idempotency_Key="0")
        await server.post(f"/runs/{runs[0]}/cancel")
        retried = await server.post(f"/runs/{runs[0]}/retry")
        full = await server.post("/ask", {})

    assert [refused.status_code, also.status_code, full.status_code] == [503, 503, 503]
    assert refused.headers["retry-after"] == "1"
    assert (again.status_code, again.headers["x-run-id"]) == (202, runs[0])
    assert retried.status_code == 201


async def test_f6_runs_that_were_open_before_the_server_started_count() -> None:
    log = MemoryLog()
    limited = flow("ask", "", "{id: ask, kind: human, human: {title: Sure?}}", ", limits: {concurrency: 1}")
    async with served(limited, log=lambda: log) as server:
        await server.post("/ask", {})
    async with served(limited, log=lambda: log) as server:
        refused = await server.post("/ask", {})

    assert refused.status_code == 503


async def test_more_requests_at_once_than_the_server_takes_are_503() -> None:
    go, inside = asyncio.Event(), asyncio.Event()

    async def work(ctx: Ctx) -> None:
        inside.set()
        await go.wait()

    async with served(
        flow("slow", "", "{id: only, runner: work}"), work=work, settings=ServerSettings(requests=1)
    ) as server:
        first = asyncio.create_task(server.post("/slow", {}))
        await inside.wait()
        refused = await server.get("/runs")
        alive = await server.get("/health")
        go.set()
        await first
        after = await server.get("/runs")

    assert [refused.status_code, alive.status_code, after.status_code] == [503, 200, 200]
    assert refused.json()["error"]["type"] == "busy"


async def test_one_user_has_a_limit_of_requests_at_once_and_others_are_served() -> None:
    go, inside = asyncio.Event(), asyncio.Semaphore(0)

    async def work(ctx: Ctx) -> None:
        inside.release()
        await go.wait()

    settings = ServerSettings(requests=4, requests_per_user=2)
    async with served(flow("slow", "", "{id: only, runner: work}"), work=work, settings=settings) as server:
        waiting = [asyncio.create_task(server.post("/slow", {}, token="ann")) for _ in range(2)]
        for _ in waiting:
            await inside.acquire()
        refused = [await server.post("/slow", {}, token="ann") for _ in range(3)]
        other = await server.get("/runs", token="reader")
        go.set()
        await asyncio.gather(*waiting)
        after = await server.post("/slow", {}, token="ann")

    assert [one.status_code for one in refused] == [429] * 3
    assert "requests_per_user" in refused[0].json()["error"]["message"]
    assert refused[0].headers["retry-after"] == "1"
    assert [other.status_code, after.status_code] == [200, 200]


async def test_f7_eighty_runs_are_inside_a_slow_step_at_the_same_time() -> None:
    inside = 0
    all_in = asyncio.Event()

    async def slow(ctx: Ctx) -> None:
        nonlocal inside
        inside += 1
        if inside == 80:
            all_in.set()
        await all_in.wait()

    async with served(flow("slow", "", "{id: only, runner: slow}"), slow=slow) as server:
        answers = await asyncio.gather(*(server.post("/slow", {"n": n}) for n in range(80)))

    assert [one.json()["data"]["n"] for one in answers] == list(range(80))


async def test_f3_five_hundred_runs_at_once_never_see_each_others_context() -> None:
    async def first(ctx: Ctx) -> Ctx:
        ctx["seen"] = {"n": ctx["n"]}
        ctx["_mine"] = ctx["n"]
        await asyncio.sleep(0)
        return ctx

    async def second(ctx: Ctx) -> Ctx:
        ctx["seen"]["mine"] = ctx["_mine"]
        ctx["seen"]["user"] = ctx["_user_id"]
        return ctx

    steps = "{id: first, runner: first}, {id: second, runner: second}"
    async with served(flow("own", "", steps), first=first, second=second) as server:
        tokens = ["ann", "root"]
        answers = await asyncio.gather(
            *(server.post("/own", {"n": n}, token=tokens[n % 2]) for n in range(500))
        )

    wanted = [{"n": n, "seen": {"n": n, "mine": n, "user": tokens[n % 2]}} for n in range(500)]
    assert [one.json()["data"] for one in answers] == wanted
