"""Who may start what, as whom, and what they are told of it when it fails."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from msgspec.structs import replace

from tests.flow.test_driver import interrupted
from tests.hub.scenes import die
from turnline.log.memory import MemoryLog
from turnline.server.auth.principal import Bound

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
        ("/flows/guarded/runs", ["runs:write"], 404),
        ("/flows/guarded/runs", ["runs:write", "runs:read"], 403),
        ("/flows/guarded/runs", ["runs:write", "runs:read", "runs:start:another"], 403),
        ("/flows/guarded/runs", ["runs:write", "runs:start:guarded"], 201),
        ("/sale", ["runs:write", "runs:start:sale"], 404),
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
    if status == 404:
        assert answer.json()["error"]["message"] == f"there is no run {run_id!r}."


async def test_a_token_narrowed_to_a_run_does_not_start_its_flow_again() -> None:
    async with served(GUARDED, work=work) as server:
        run_id = await failed_run(server, "/flows/guarded/runs")
        narrow = replace(person("eve", "*"), bounds=(Bound("resource", (run_id,)),))
        both = replace(person("eve", "*"), bounds=(Bound("resource", (run_id, "guarded")),))
        with known(narrow=narrow, both=both):
            refused = await server.post(f"/runs/{run_id}/retry", {}, token="narrow")
            taken = await server.post(f"/runs/{run_id}/retry", {}, token="both")

    assert [refused.status_code, taken.status_code] == [403, 201]


@pytest.mark.parametrize(
    ("scopes", "status"),
    [(["runs:write"], 403), (["runs:start:guarded"], 403), (["runs:write", "runs:start:guarded"], 201)],
)
async def test_a_fork_of_a_run_needs_the_rights_of_the_flow(scopes: list[str], status: int) -> None:
    with known(eve=person("eve", "admin", "channels:write", *scopes)):
        async with served(GUARDED, work=work) as server:
            run_id = await failed_run(server, "/flows/guarded/runs")
            answer = await server.post(f"/channels/{run_id}/fork", {"at": 2}, token="eve")

    assert answer.status_code == status


OLD_SALES = SALES.replace("scopes: [sales]", "public: true")


@pytest.mark.parametrize(("then", "now"), [(SALES, OLD_SALES), (OLD_SALES, SALES)])
@pytest.mark.parametrize(
    ("scopes", "statuses"),
    [([], [404, 403]), (["runs:start:sale"], [404, 403]), (["runs:start:sale", "sales"], [201, 201])],
)
async def test_a_retry_needs_the_rights_of_the_flow_as_it_was_and_as_it_is_now(
    then: str, now: str, scopes: list[str], statuses: list[int]
) -> None:
    """A deploy must not open the runs of before, nor leave a door that it has closed.

    A caller who may not read the run is not told that it is there.
    """
    log = MemoryLog()
    with known(eve=person("eve", "admin", "runs:write", "channels:write", *scopes)):
        async with served(then, log=lambda: log, work=work) as server:
            run_id = await failed_run(server, "/sale")
        async with served(now, log=lambda: log, work=work) as server:
            retried = await server.post(f"/runs/{run_id}/retry", {}, token="eve")
            forked = await server.post(f"/channels/{run_id}/fork", {"at": 2}, token="eve")

    assert [retried.status_code, forked.status_code] == statuses


async def test_a_fork_of_a_run_is_of_the_user_who_forks_it() -> None:
    """`_user_id` decides what steps do. An admin who forks a run does not act as the user who started it."""
    with known(eve=person("eve", "*")):
        async with served(GUARDED, work=work) as server:
            run_id = await failed_run(server, "/flows/guarded/runs")
            line = (await server.runtime.runs.state(run_id)).seq
            forks = [
                (await server.post(f"/channels/{run_id}/fork", {"at": at}, token="eve")).json()["data"]
                for at in (1, line)
            ]
            ended = [await server.ended(one["channel_id"]) for one in forks]
            again = await server.post(f"/channels/{ended[0]['run_id']}/fork", {"at": 1}, token="root")
            last = await server.ended(again.json()["data"]["channel_id"])

    assert [one["data"] for one in ended] == [{"by": "eve"}, {"by": "root"}]  # The second had ended by then.
    assert last["data"] == {"by": "root"}


async def test_an_operator_who_forks_a_run_on_the_log_keeps_its_user() -> None:
    async with served(GUARDED, work=work) as server:
        run_id = await failed_run(server, "/flows/guarded/runs", token="ann")
        fork = await server.ended(await server.runtime.hub.fork(run_id, at=1))

    assert fork["data"] == {"by": "ann"}


async def test_a_caller_who_may_not_see_the_channel_of_a_run_cannot_fork_it() -> None:
    with known(eve=person("eve", "runs:*", "channels:*")):
        async with served(GUARDED, work=work) as server:
            run_id = await failed_run(server, "/flows/guarded/runs", token="eve")
            answer = await server.post(f"/channels/{run_id}/fork", {"at": 1}, token="eve")

    assert answer.status_code == 404


async def test_a_fork_of_a_run_counts_among_the_open_runs_of_its_caller() -> None:
    flow = "metadata: {name: guarded}\nspec: {steps: [{id: ask, human: {title: 'Sure?'}}]}"
    with known(eve=person("eve", "*")):
        async with served(flow, quotas={"open_runs_per_user": 2}) as server:
            started = await server.post("/flows/guarded/runs", {"input": {}})
            path = f"/channels/{started.headers['x-run-id']}/fork"
            forks = [await server.post(path, {"at": 1}, token="eve") for _ in range(3)]
            first = forks[0].json()["data"]["channel_id"]
            await server.post(f"/runs/{first}/cancel", {})
            after = await server.post(path, {"at": 1}, token="eve")
            own = await server.post(path, {"at": 1})

    assert [one.status_code for one in (*forks, after, own)] == [201, 201, 429, 201, 201]


async def test_a_fork_of_another_users_run_does_not_let_the_caller_read_it_later() -> None:
    """The fork knows all that the first run knew; the caller may have lost their rights since."""
    with known(eve=person("eve", "*")):
        async with served(GUARDED, work=work) as server:
            of_root = await failed_run(server, "/flows/guarded/runs")
            own = await failed_run(server, "/flows/guarded/runs", token="eve")
            forks = [
                (await server.post(f"/channels/{one}/fork", {"at": 1}, token="eve")).json()["data"]
                for one in (of_root, own)
            ]
            with known(eve=person("eve", "runs:start:guarded")):
                found = [
                    (await server.get(f"/runs/{one['channel_id']}", token="eve")).status_code for one in forks
                ]

    assert found == [404, 200]


async def test_a_narrowed_token_does_not_read_the_run_that_it_started() -> None:
    """It says what it is for, and reading is not among it."""
    narrow = replace(person("ann", "runs:start:*"), bounds=(Bound("operation", ("runs.start",)),))
    with known(narrow=narrow):
        async with served(GUARDED, work=fails) as server:
            run_id = await failed_run(server, "/flows/guarded/runs", token="narrow")
            found = [
                (await server.get(f"/runs/{run_id}", token=one)).status_code for one in ("narrow", "ann")
            ]

    assert found == [404, 200]


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
    await die(log, run_id, "only")

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
    async with served(PUBLIC, work=fails) as server:
        answer = await server.post("/open", {}, token="")

    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["step"]) == (422, "error", None)
    assert CANARY not in answer.text
    assert error["reference"] == answer.headers["x-run-id"]
    assert error["reference"] in error["message"]
    line = failure_in(caplog, error["reference"])
    assert CANARY in line
    assert "'only'" in line


async def test_a_failure_in_the_log_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def forges(ctx: Ctx) -> None:
        raise ValueError("\x1b[2Jone\nrun 0 failed: forged")

    async with served(PUBLIC, work=forges) as server:
        answer = await server.post("/open", {}, token="")

    line = failure_in(caplog, answer.headers["x-run-id"])
    assert line.endswith("[2Jone")
    assert line.isprintable()


def failure_in(caplog: pytest.LogCaptureFixture, run_id: str) -> str:
    """Return the line of the log that says why a run failed."""
    (line,) = [text for one in caplog.records if (text := one.getMessage()).startswith(f"run {run_id} ")]
    return line


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


@pytest.mark.parametrize(
    "step",
    [
        "for_each: {items: '[1]', on_error: collect, steps: [{id: only, runner: work}]}",
        "parallel: {on_error: collect, branches: {one: [{id: only, runner: work}]}}",
    ],
)
async def test_failures_that_a_public_flow_collects_do_not_tell_what_a_step_raised(step: str) -> None:
    flow = PUBLIC.replace(STEPS, f"steps: [{{id: all, {step}}}]")
    async with served(flow, work=fails) as server:
        answer = await server.post("/open", {}, token="")
        run_id = answer.headers["x-run-id"]
        [child] = (await server.get(f"/runs/{run_id}")).json()["data"]["children"]
        reason = (await server.get(f"/runs/{child}")).json()["data"]["error"]["message"]

    assert answer.status_code == 200
    assert "'type': 'error'" in str(answer.json()["data"])
    assert CANARY not in answer.text
    assert reason == CANARY


async def test_a_flow_that_ends_with_fail_does_not_tell_the_public_what_a_step_raised() -> None:
    flow = PUBLIC.replace("runner: work}", "runner: work, routes: {error: FAIL}}")
    async with served(flow, work=fails) as server:
        answer = await server.post("/open", {}, token="")

    assert answer.status_code == 422
    assert CANARY not in answer.text


WAITS = """
metadata: {name: waits}
spec: {steps: [{id: rest, kind: wait, wait: {event: paid, into: payment}}, {id: only, runner: work}]}
"""


@pytest.mark.parametrize("path", ["cancel", "events/paid"])
@pytest.mark.parametrize(
    ("scopes", "shown"),
    [(["runs:write"], False), (["runs:write", "runs:start:waits"], False), (["runs:*"], True)],
)
async def test_a_caller_who_may_change_a_run_but_not_read_it_gets_its_status_only(
    path: str, scopes: list[str], shown: bool
) -> None:
    with known(eve=person("eve", *scopes)):
        async with served(WAITS, work=fails) as server:
            begun = await server.post(
                "/flows/waits/runs", {"input": {"card": CANARY}, "labels": {"a": CANARY}}
            )
            run_id = begun.headers["x-run-id"]
            await server.waiting(run_id)
            answer = await server.post(f"/runs/{run_id}/{path}", {}, token="eve")

    assert answer.status_code == 200
    assert (CANARY in answer.text) == shown
    assert shown or answer.json()["data"].keys() == {"run_id", "status", "links"}


async def test_a_caller_who_changes_their_own_run_gets_what_it_knows() -> None:
    with known(eve=person("eve", "runs:write", "runs:start:waits")):
        async with served(WAITS, work=work) as server:
            begun = await server.post("/flows/waits/runs", {"input": {"card": 1}}, token="eve")
            run_id = begun.headers["x-run-id"]
            await server.waiting(run_id)
            answer = await server.post(f"/runs/{run_id}/cancel", {}, token="eve")

    assert answer.json()["data"]["data"] == {"card": 1}


async def test_a_caller_who_may_only_write_gets_the_answer_of_a_public_flow_and_cannot_read_its_run() -> None:
    """The flow's author decides what its trigger answers. The run itself needs `runs:read`."""
    with known(eve=person("eve", "runs:write")):
        async with served(PUBLIC, work=work) as server:
            answer = await server.post("/open", {}, token="eve")
            run_id = answer.headers["x-run-id"]
            read = await server.get(f"/runs/{run_id}", token="eve")
            stream = await server.get(f"/runs/{run_id}/events", token="eve")

    assert answer.json()["data"] == {"by": "eve"}
    assert [read.status_code, stream.status_code] == [404, 404]


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
