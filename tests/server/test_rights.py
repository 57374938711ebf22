"""Who may start what, as whom, and what they are told of it when it fails."""

from __future__ import annotations

import asyncio
import logging

import httpx2
import pytest
from msgspec.structs import replace

from tests.flow.test_driver import interrupted
from tests.hub.scenes import die
from turnline.log.memory import MemoryLog
from turnline.server.auth.principal import Bound
from turnline.server.runs import summary

from .stage import Ctx, Server, known, person, served

STEPS = "steps: [{id: only, runner: work}]"
PUBLIC = f"metadata: {{name: open}}\nspec: {{trigger: {{path: /open, public: true}}, {STEPS}}}"
SALES = f"metadata: {{name: sale}}\nspec: {{trigger: {{path: /sale, scopes: [sales]}}, {STEPS}}}"
GUARDED = f"metadata: {{name: guarded}}\nspec: {{{STEPS}}}"
CANARY = "the password is hunter2"


def work(ctx: Ctx) -> Ctx:
    return {"by": ctx.get("_user_id")}


def fails(ctx: Ctx) -> None:
    raise ValueError(CANARY)


# --- a narrowed token ---


@pytest.mark.parametrize(
    ("bound", "status"),
    [
        (Bound("resource", ("open",)), 200),
        (Bound("resource", ("another", "open")), 200),
        (Bound("operation", ("runs.start",)), 200),
        (Bound("resource", ("another",)), 403),
        (Bound("operation", ("runs.read",)), 403),
    ],
)
async def test_a_narrowed_token_does_not_start_public_flows_as_its_user(bound: Bound, status: int) -> None:
    narrow = replace(person("eve", "runs:read"), bounds=(bound,))
    with known(narrow=narrow):
        async with served(PUBLIC, work=work) as server:
            answer = await server.post("/open", {}, token="narrow")
            other = await server.post("/flows/open/runs", {}, token="narrow")
            anonymous = await server.post("/open", {}, token="")

    assert answer.status_code == status
    assert other.status_code == (201 if status == 200 else 403)
    assert anonymous.json()["data"] == {"by": None}
    if status == 200:
        assert answer.json()["data"] == {"by": "eve"}


# --- retry ---


async def failed_run(server: Server, path: str, token: str = "root") -> str:
    answer = await server.post(path, {"input": {}} if path.startswith("/flows") else {}, token=token)
    run_id = answer.headers["x-run-id"]
    await server.ended(run_id)
    return run_id


@pytest.mark.parametrize(
    ("path", "scopes", "status"),
    [
        ("/flows/guarded/runs", ["runs:write"], 403),
        ("/flows/guarded/runs", ["runs:write", "runs:start:another"], 403),
        ("/flows/guarded/runs", ["runs:write", "runs:start:guarded"], 201),
        ("/sale", ["runs:write", "runs:start:sale"], 403),
        ("/sale", ["runs:write", "runs:start:sale", "sales"], 201),
        ("/open", ["runs:write"], 201),
    ],
)
async def test_a_retry_needs_the_rights_of_the_flow(path: str, scopes: list[str], status: int) -> None:
    with known(eve=person("eve", *scopes)):
        async with served(PUBLIC, SALES, GUARDED, work=work) as server:
            run_id = await failed_run(server, path)
            answer = await server.post(f"/runs/{run_id}/retry", {}, token="eve")

    assert answer.status_code == status


async def test_a_token_narrowed_to_a_run_does_not_start_its_flow_again() -> None:
    async with served(GUARDED, work=work) as server:
        run_id = await failed_run(server, "/flows/guarded/runs")
        narrow = replace(person("eve", "*"), bounds=(Bound("resource", (run_id,)),))
        both = replace(person("eve", "*"), bounds=(Bound("resource", (run_id, "guarded")),))
        with known(narrow=narrow, both=both):
            refused = await server.post(f"/runs/{run_id}/retry", {}, token="narrow")
            taken = await server.post(f"/runs/{run_id}/retry", {}, token="both")

    assert [refused.status_code, taken.status_code] == [403, 201]


@pytest.mark.parametrize(("scopes", "status"), [([], 403), (["runs:start:guarded"], 201)])
async def test_a_fork_of_a_run_needs_the_rights_of_the_flow(scopes: list[str], status: int) -> None:
    with known(eve=person("eve", "admin", "runs:write", "channels:write", *scopes)):
        async with served(GUARDED, work=work) as server:
            run_id = await failed_run(server, "/flows/guarded/runs")
            answer = await server.post(f"/channels/{run_id}/fork", {"at": 2}, token="eve")

    assert answer.status_code == status


async def test_a_retry_runs_as_the_caller() -> None:
    with known(eve=person("eve", "runs:write", "runs:start:guarded")):
        async with served(GUARDED, work=work) as server:
            run_id = await failed_run(server, "/flows/guarded/runs")
            answer = await server.post(f"/runs/{run_id}/retry", {}, token="eve")
            retried = await server.ended(answer.headers["x-run-id"])
            first = (await server.get(f"/runs/{run_id}")).json()["data"]

    assert (first["data"], retried["data"]) == ({"by": "root"}, {"by": "eve"})


async def test_a_retry_counts_among_the_open_runs_of_its_caller() -> None:
    """Without a limit, one user could open any number of runs by retrying one that has failed."""
    flow = "metadata: {name: guarded}\nspec: {steps: [{id: ask, human: {title: 'Sure?'}}]}"
    with known(eve=person("eve", "runs:write", "runs:start:guarded")):
        async with served(flow, quotas={"open_runs_per_user": 2}) as server:
            started = await server.post("/flows/guarded/runs", {"input": {}})
            run_id = started.headers["x-run-id"]
            await server.post(f"/runs/{run_id}/cancel", {})
            answers = [await server.post(f"/runs/{run_id}/retry", {}, token="eve") for _ in range(3)]
            another = await server.post(f"/runs/{run_id}/retry", {})

    assert [answer.status_code for answer in answers] == [201, 201, 429]
    assert "open_runs_per_user" in answers[2].json()["error"]["message"]
    assert another.status_code == 201


async def test_a_stuck_run_is_resumed_in_the_place_that_it_has() -> None:
    flow = "metadata: {name: main}\nspec: {limits: {concurrency: 1}, steps: [{id: only, runner: work}]}"
    log = MemoryLog()
    run_id = await interrupted(log, flow)
    await die(log, run_id, "step-only")

    async with served(flow, log=lambda: log, work=work) as server:
        await server.runtime.runs.wait(run_id)
        again = await server.post(f"/runs/{run_id}/retry", {})
        done = await server.ended(run_id)

    assert (again.status_code, done["status"]) == (201, "succeeded")


async def test_a_retry_of_another_users_run_does_not_let_the_caller_read_it() -> None:
    """The new run knows all that the first one knew."""
    with known(eve=person("eve", "runs:write", "runs:start:guarded")):
        async with served(GUARDED, work=work) as server:
            run_id = await failed_run(server, "/flows/guarded/runs")
            new = (await server.post(f"/runs/{run_id}/retry", {}, token="eve")).headers["x-run-id"]
            await server.ended(new)
            again = (await server.post(f"/runs/{new}/retry", {}, token="eve")).headers["x-run-id"]
            own = await failed_run(server, "/flows/guarded/runs", token="eve")
            of_own = (await server.post(f"/runs/{own}/retry", {}, token="eve")).headers["x-run-id"]
            found = [
                (await server.get(f"/runs/{one}", token="eve")).status_code
                for one in (run_id, new, again, own, of_own)
            ]

    assert found == [404, 404, 404, 200, 200]


# --- what a failure tells ---


async def test_a_public_caller_gets_the_type_of_a_failure_and_a_reference(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        async with served(PUBLIC, work=fails) as server:
            answer = await server.post("/open", {}, token="")

    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["step"]) == (422, "error", None)
    assert CANARY not in answer.text
    assert error["reference"] == answer.headers["x-run-id"]
    assert error["reference"] in error["message"]
    [line] = [one.getMessage() for one in caplog.records if error["reference"] in one.getMessage()]
    assert CANARY in line
    assert "'only'" in line


async def test_a_failure_in_the_log_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def forges(ctx: Ctx) -> None:
        raise ValueError("one\nreference 0: forged\x1b[2J")

    with caplog.at_level(logging.ERROR):
        async with served(PUBLIC, work=forges) as server:
            await server.post("/open", {}, token="")

    assert all(one.getMessage().isprintable() for one in caplog.records)


@pytest.mark.parametrize(
    ("scopes", "shown"),
    [(["runs:read"], True), (["runs:start:open"], True), (["runs:write"], False), ([], False)],
)
async def test_only_callers_who_may_read_the_run_get_what_a_step_raised(
    scopes: list[str], shown: bool
) -> None:
    """Who may start the flow may read the runs that they started."""
    with known(eve=person("eve", *scopes)):
        async with served(PUBLIC, work=fails) as server:
            answer = await server.post("/open", {}, token="eve")

    assert (CANARY in answer.text) == shown


async def test_a_flow_that_ends_with_fail_does_not_tell_the_public_what_a_step_raised() -> None:
    flow = PUBLIC.replace("runner: work}", "runner: work, routes: {error: FAIL}}")
    async with served(flow, work=fails) as server:
        answer = await server.post("/open", {}, token="")

    assert answer.status_code == 422
    assert CANARY not in answer.text


async def test_a_run_is_shown_without_what_a_step_raised_to_a_caller_who_may_only_write() -> None:
    async with served(GUARDED, work=fails) as server:
        run_id = await failed_run(server, "/flows/guarded/runs")
        state = await server.runtime.runs.state(run_id)
        told = await server.runtime.runs.verdict_of(state)

    assert CANARY in str(summary(state, told, with_reason=True))
    shown = summary(state, told, with_reason=False)
    assert CANARY not in str(shown)
    assert shown["error"]["type"] == "error"


# --- idempotency keys without a token ---


async def sent(server: Server, peer: str, body: object, *, key: str = "order-1", token: str = "") -> str:
    transport = httpx2.ASGITransport(app=server.app, client=(peer, 4711))
    headers = {"Idempotency-Key": key} | ({"Authorization": f"Bearer {token}"} if token else {})
    async with httpx2.AsyncClient(transport=transport, base_url="http://server") as client:
        answer = await client.post("/open", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    run_id: str = answer.headers["x-run-id"]
    return run_id


async def test_idempotency_keys_of_anonymous_callers_do_not_collide() -> None:
    async with served(PUBLIC, work=work) as server:
        ids = [
            await sent(server, "192.0.2.1", {"item": "tea"}),
            await sent(server, "192.0.2.2", {"item": "tea"}),
            await sent(server, "192.0.2.1", {"item": "milk"}),  # Another person behind the same address.
            await sent(server, "192.0.2.1", {"item": "tea"}, token="ann"),
            await sent(server, "192.0.2.1", {"item": "tea"}, key="order-2"),
        ]

    assert len(set(ids)) == len(ids)


async def test_an_anonymous_caller_who_sends_the_same_again_gets_the_same_run() -> None:
    async with served(PUBLIC, work=work) as server:
        tries = [sent(server, "192.0.2.1", {"item": "tea", "of": {"a": 1, "b": 2}}) for _ in range(5)]
        ids = await asyncio.gather(*tries)

    assert len(set(ids)) == 1
