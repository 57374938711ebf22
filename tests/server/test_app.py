"""F6: the app as a whole: its paths, its document, its lifespan, and what it says when it is wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from msgspec.structs import replace
from starlette.applications import Starlette

from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.errors import LogUnavailable, NameTaken
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.log.sqlite_writer import WriterStats
from turnline.server.app import create_app
from turnline.server.auth.authenticator import Authenticator
from turnline.server.runtime import Runtime
from turnline.server.settings import ServerSettings

from .stage import Ctx, KnownTokens, runtime_with, served

WORK = "metadata: {name: work}\nspec: {trigger: {path: /work}, steps: [{id: only, runner: work}]}"


def same(ctx: Ctx) -> None:
    return None


def trigger(name: str, path: str, method: str = "POST") -> str:
    spec = f"{{trigger: {{path: '{path}', method: {method}}}, steps: [{{id: only, runner: work}}]}}"
    return f"metadata: {{name: {name}}}\nspec: {spec}"


def app_of(*flows: str) -> Starlette:
    return create_app(runtime_with(*flows, work=same), authenticator=KnownTokens())


def client_of(app: Starlette) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app)
    headers = {"Authorization": "Bearer root"}
    return httpx2.AsyncClient(transport=transport, base_url="http://server", headers=headers)


# --- paths ---


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/runs", "GET"),
        ("/runs/{x}", "GET"),
        ("/runs/latest", "GET"),
        ("/flows/{a}/runs", "POST"),
        ("/health", "GET"),
    ],
)
def test_a_trigger_at_a_path_of_the_servers_own_is_refused(path: str, method: str) -> None:
    with pytest.raises(NameTaken, match="The server itself answers it"):
        app_of(trigger("mine", path, method))


@pytest.mark.parametrize("other", ["/leads/{id}", "/leads/{lead}"])
def test_two_triggers_at_one_path_are_refused(other: str) -> None:
    with pytest.raises(NameTaken, match="Two flows have it"):
        app_of(trigger("one", "/leads/{id}"), trigger("two", other))


async def test_one_path_may_have_several_methods_and_what_is_spelled_out_goes_first() -> None:
    flows = [
        trigger("change", "/leads/{lead}", "PUT"),
        trigger("look", "/leads/{id}", "GET"),
        trigger("newest", "/leads/new", "GET"),
        trigger("todo", "/tasks", "POST"),
        trigger("end", "/runs/{which}", "DELETE"),
    ]
    async with served(*flows, work=same) as server:
        answers = [
            await server.send("PUT", "/leads/7", {}),
            await server.get("/leads/7"),
            await server.get("/leads/new"),
            await server.post("/tasks", {"a": 1}),
            await server.send("DELETE", "/runs/7"),
        ]
        wrong = await server.post("/leads/7", {})

    data = [one.json()["data"] for one in answers]
    assert data == [{"lead": "7"}, {"id": "7"}, {}, {"a": 1}, {"which": "7"}]
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, PUT")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/work/", 404),
        ("GET", "/docs", 404),
        ("GET", "/redoc", 404),
        ("GET", "/work", 405),
        ("HEAD", "/work", 405),
        ("TRACE", "/runs", 405),
        ("BREW", "/runs", 405),
    ],
)
async def test_what_is_not_there_is_told_in_the_same_shape(method: str, path: str, status: int) -> None:
    async with served(WORK, work=same) as server:
        answer = await server.send(method, path)

    assert answer.status_code == status
    if method != "HEAD":
        assert answer.json()["success"] is False
        assert set(answer.json()["error"]) == {"type", "message", "step"}


async def test_head_never_starts_a_run() -> None:
    async with served(trigger("look", "/look", "GET"), work=same) as server:
        answer = await server.send("HEAD", "/look")
        runs = (await server.get("/runs")).json()["data"]["runs"]

    assert (answer.status_code, runs) == (405, [])


# --- what goes wrong ---


async def test_an_unexpected_error_tells_a_request_id_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        async def authenticate(self, credentials: object) -> object:
            raise ZeroDivisionError("the secret is hunter2")

    runtime = runtime_with(WORK, work=same)
    broken: Authenticator = Broken()  # type: ignore[assignment]
    app = create_app(runtime, authenticator=broken)
    async with runtime, client_of(app) as client:
        with caplog.at_level(logging.ERROR):
            answer = await client.post("/work", json={})

    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (500, "internal_error")
    assert error["request_id"] == answer.headers["x-request-id"]
    assert "hunter2" not in answer.text + caplog.text
    assert "Traceback" not in answer.text
    [line] = caplog.messages
    assert error["request_id"] in line
    assert "ZeroDivisionError" in line


class FailingLog(MemoryLog):
    is_broken = False

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        if self.is_broken:
            raise LogUnavailable("sqlite:////home/ann/log.db", because="the disk is gone")
        await super().append(channel_id, envelopes, after=after, row=row)


async def test_a_log_that_cannot_be_written_is_503_and_its_address_is_nobodys_business() -> None:
    log = FailingLog()
    async with served(WORK, work=same, log=lambda: log) as server:
        log.is_broken = True
        broken = await server.post("/work", {})
        log.is_broken = False
        mended = await server.post("/work", {})

    assert [broken.status_code, mended.status_code] == [503, 200]
    assert broken.headers["retry-after"] == "1"
    assert "log.db" not in broken.text


# --- health ---


async def test_health_is_the_processs_and_ready_is_the_runtimes() -> None:
    runtime = runtime_with(WORK, work=same)
    app = create_app(runtime, authenticator=KnownTokens())
    async with client_of(app) as client:
        before = [(await client.get(path)).status_code for path in ("/health", "/ready", "/runs")]
        async with runtime:
            during = [(await client.get(path)).status_code for path in ("/health", "/ready", "/runs")]
            runtime.drain()
            draining = [(await client.get(path)).status_code for path in ("/health", "/ready", "/runs")]
        after = [(await client.get(path)).status_code for path in ("/health", "/ready", "/runs")]

    assert before == draining == after == [200, 503, 503]
    assert during == [200, 200, 200]


async def test_a_server_whose_log_takes_no_writes_is_not_ready_until_a_write_succeeds(tmp_path: Path) -> None:
    class FullDisk(SqliteLog):
        is_full = False
        tried = 0

        def stats(self) -> WriterStats:
            return replace(super().stats(), read_only="nothing can be written" if self.is_full else "")

        async def save_snapshot(self, channel_id: str, *, seq: int, body: bytes) -> None:
            self.tried += 1
            if self.tried < 3:
                raise LogUnavailable(self.address, because="it is full")
            self.is_full = False
            await super().save_snapshot(channel_id, seq=seq, body=body)

    log = FullDisk(tmp_path / "log.db")
    async with served(WORK, work=same, log=lambda: log) as server:
        log.is_full = True
        answers = [(await server.get("/ready", token="")).status_code for _ in range(4)]

    assert answers == [503, 503, 200, 200]
    assert log.tried == 3


async def test_numbers_are_for_who_may_read_them_and_addresses_for_nobody() -> None:
    async with served(WORK, work=same) as server:
        nobody = await server.get("/health", token="")
        reader = await server.get("/health", token="reader")
        root = await server.get("/health", token="root")

    assert nobody.json() == reader.json() == {"status": "ok", "runtime": "ready"}
    assert root.json()["durability"] == "none"
    assert "memory:" not in root.text


# --- the document ---


async def test_f6_the_document_lists_every_flow_with_its_input_and_every_operation_once() -> None:
    typed = WORK.replace(
        "/work}", "/work, public: true, input: {n: {type: integer, required: true}, s: email}}"
    )
    look = trigger("look", "/look/{id}", "GET").replace(
        "method: GET", "method: GET, input: {id: integer, q: string}"
    )
    async with served(typed, look, work=same) as server:
        said = (await server.get("/openapi.json", token="")).json()

    work = said["paths"]["/work"]["post"]
    assert work["requestBody"]["content"]["application/json"]["schema"] == {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "s": {"type": "string", "format": "email"}},
        "required": ["n"],
    }
    assert work["security"] == [{}, {"token": []}]
    assert {"200", "201", "202", "400", "409", "413", "422", "504"} <= set(work["responses"])
    parameters = {(one["in"], one["name"]): one for one in said["paths"]["/look/{id}"]["get"]["parameters"]}
    assert parameters["path", "id"]["schema"] == {"type": "integer"}
    assert parameters["query", "q"]["required"] is False
    assert said["paths"]["/look/{id}"]["get"]["security"] == [{"token": []}]
    ids = [one["operationId"] for path in said["paths"].values() for one in path.values()]
    assert len(ids) == len(set(ids)) == 34
    assert said["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


async def test_the_document_can_be_kept_for_those_with_a_token() -> None:
    async with served(WORK, work=same, settings=ServerSettings(public_openapi=False)) as server:
        answers = [await server.get("/openapi.json", token=token) for token in ("", "bob", "reader")]

    assert [one.status_code for one in answers] == [401, 403, 200]


# --- mounted ---


async def test_an_app_is_mounted_below_another_and_started_by_it() -> None:
    flows = create_app(runtime_with(WORK, work=same), authenticator=KnownTokens())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with flows.router.lifespan_context(flows):
            yield

    above = FastAPI(lifespan=lifespan)
    above.mount("/below", flows)
    async with above.router.lifespan_context(above), client_of(above) as client:
        answer = await client.post("/below/work", json={"a": 1})
        found = await client.get(answer.headers["location"])
        nowhere = await client.get("/below/nowhere")

    assert answer.headers["location"] == f"/below/runs/{answer.headers['x-run-id']}"
    assert found.json()["data"]["data"] == {"a": 1}
    assert (nowhere.status_code, nowhere.json()["success"]) == (404, False)
    assert "GET /openapi.json lists what is served" in nowhere.json()["error"]["message"]


async def test_a_runtime_that_somebody_else_opened_is_left_to_them() -> None:
    runtime = runtime_with(WORK, work=same)
    app = create_app(runtime, authenticator=KnownTokens())
    async with runtime, client_of(app) as client:
        async with app.router.lifespan_context(app):
            inside = await client.post("/work", json={})
        after = await client.post("/work", json={})

    assert [inside.status_code, after.status_code] == [200, 200]
    assert runtime.status == "closed"


async def test_an_authenticator_that_needs_the_log_is_opened_when_the_runtime_is() -> None:
    events: list[str] = []

    def opened(runtime: Runtime) -> AbstractAsyncContextManager[Authenticator]:
        @asynccontextmanager
        async def opening() -> AsyncIterator[Authenticator]:
            events.append(f"open on {runtime.hub.log.address}")
            yield KnownTokens()
            events.append(f"close while {runtime.status}")

        return opening()

    app = create_app(runtime_with(WORK, work=same), authenticator=opened)
    async with client_of(app) as client, app.router.lifespan_context(app):
        answer = await client.post("/work", json={})

    assert answer.status_code == 200
    assert events == ["open on memory:", "close while ready"]


# --- stopping ---


async def test_x20_a_server_that_stops_takes_nothing_new_and_answers_what_it_has() -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def work(ctx: Ctx) -> Ctx:
        inside.set()
        await go.wait()
        return {"done": True}

    async with served(WORK, work=work) as server:
        asking = asyncio.create_task(server.post("/work", {}))
        await inside.wait()
        server.runtime.drain()
        refused = await server.post("/work", {})
        go.set()
        answer = await asking

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert answer.json() == {"success": True, "data": {"done": True}}


async def test_x20_who_still_waits_at_the_end_is_told_where_to_look_and_the_run_goes_on_later() -> None:
    log = MemoryLog()
    inside = asyncio.Event()

    async def hangs(ctx: Ctx) -> None:
        inside.set()
        await asyncio.Event().wait()

    async with served(WORK, work=hangs, log=lambda: log) as server:
        asking = asyncio.create_task(server.post("/work", {}))
        await inside.wait()
        server.runtime.drain()
        server.runtime.give_up()
        answer = await asking
    async with served(WORK, work=lambda ctx: {"done": True}, log=lambda: log) as server:
        run = await server.ended(answer.headers["x-run-id"])

    assert (answer.status_code, answer.json()["data"]["status"]) == (202, "running")
    assert (run["status"], run["data"]) == ("succeeded", {"done": True})
