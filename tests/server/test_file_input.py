"""Y6: a flow's input may have files. They come as a form, and are stored before the run's first line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import pytest

from turnline.agent.agent import Agent
from turnline.agent.files import File
from turnline.agent.messages import UserMessage
from turnline.agent.scripted import ScriptedModel, call
from turnline.agent.tool_result import ToolResult
from turnline.core.envelope import JsonObject
from turnline.log.base import Blobs
from turnline.log.blobs import MAX_FILE_BYTES, UNUSED_SECONDS
from turnline.server.multipart import MAX_FORM_PARTS
from turnline.server.settings import ServerSettings

from .stage import EDGE, Ctx, Response, Server, form, served

PDF = b"%PDF-1.7 the plan"
FORM = f"multipart/form-data; boundary={EDGE}"
READ = """
metadata: {name: read}
spec:
  trigger:
    path: /read
    input:
      plan: {type: file, required: true, media_types: [application/pdf, "image/*"], max: 1000}
      pages: {type: array, items: file, max: 3}
      title: {type: string, min: 2}
      copies: {type: integer, default: 1}
      style: {type: object}
    extra: false
  steps: [{id: read, runner: read}]
"""
OPTIONAL = """
metadata: {name: optional}
spec:
  trigger: {path: /optional, public: true, input: {plan: file, note: any}}
  steps: [{id: look, runner: look}]
"""


async def read(ctx: Ctx) -> Ctx:
    file = await ctx["_read_file"](ctx["plan"])
    pages = [(await ctx["_read_file"](one)).read().decode() for one in ctx.get("pages", [])]
    return {"text": file.read().decode(), "kind": file.media_type, "all": pages}


def look(ctx: Ctx) -> Ctx:
    return {"text": ctx["_read_file"](ctx["plan"]).read().decode() if "plan" in ctx else ""}


def a_file(name: str = "plan", content: bytes = PDF, **more: str) -> tuple[str, str, str, bytes]:
    return name, more.get("called", "plan.pdf"), more.get("kind", "application/pdf"), content


def a_field(name: str, value: str) -> tuple[str, None, str, bytes]:
    return name, None, "", value.encode()


async def send(server: Server, body: bytes, path: str = "/read", **more: Any) -> Response:
    return await server.post(path, body, Content_Type=FORM, **more)


async def no_run(server: Server) -> bool:
    return not (await server.get("/runs")).json()["data"]["runs"]


def problem(answer: Response) -> str:
    assert answer.status_code == 422, answer.text
    return str(answer.json()["error"]["message"])


async def test_a_file_and_fields_of_a_form_are_the_input_of_a_run() -> None:
    async with served(READ, read=read) as server:
        body = form(
            a_field("title", "The plan"),
            a_field("copies", "3"),
            a_field("style", '{"a": [1]}'),
            a_file(),
            a_file("pages", b"one"),
            a_file("pages", b"two", called="2.pdf"),
        )
        answer = await send(server, body)

    data = answer.json()["data"]
    assert (data["text"], data["kind"], data["all"]) == (PDF.decode(), "application/pdf", ["one", "two"])
    assert (data["title"], data["copies"], data["style"]) == ("The plan", 3, {"a": [1]})
    assert data["plan"] == {
        "type": "file",
        "media_type": "application/pdf",
        "name": "plan.pdf",
        "size": len(PDF),
        "digest": sha256(PDF).hexdigest(),
    }


async def test_the_run_of_any_flow_takes_its_input_as_json_beside_the_files() -> None:
    async with served(READ, read=read) as server:
        body = form(a_field("input", '{"title": "Hi"}'), a_field("labels", '{"team": "a"}'), a_file())
        made = await send(server, body, "/flows/read/runs", token="ann")
        run = await server.ended(made.json()["data"]["run_id"])
        bad = [
            await send(server, form(a_field("input", "{"), a_file()), "/flows/read/runs"),
            await send(server, form(a_field("more", "{}"), a_file()), "/flows/read/runs"),
            await send(server, form(*[a_field("input", "{}")] * 2, a_file()), "/flows/read/runs"),
        ]

    assert (run["data"]["text"], run["data"]["title"]) == (PDF.decode(), "Hi")
    assert run["labels"]["team"] == "a"
    assert [one.status_code for one in bad] == [400, 422, 422]


async def test_the_files_of_a_run_are_on_its_channel_and_an_operator_reads_them() -> None:
    async with served(READ, read=read) as server:
        run_id = (await send(server, form(a_file()))).headers["x-run-id"]
        path = f"/channels/{run_id}/envelopes/1/files"
        found, absent = await server.get(f"{path}/0"), await server.get(f"{path}/1")
        stranger = await server.get(f"{path}/0", token="onlooker")
        first = (await server.get(f"/channels/{run_id}/envelopes?limit=1")).json()["data"]["envelopes"][0]

    assert (found.content, found.headers["content-type"]) == (PDF, "application/pdf")
    assert (absent.status_code, stranger.status_code) == (404, 404)
    assert first["seq"] == 1
    assert PDF.decode() not in str(first)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (form(), "body.plan: it is missing; expected a file; send the body as multipart/form-data"),
        (form(a_field("plan", "x")), "body.plan: expected a file, found text"),
        (form(a_field("title", "x"), a_file()), "body.title: expected at least 2 characters"),
        (form(a_file(), a_field("title", "late")), "body.title: expected before the first file"),
        (form(a_file(), a_file()), "body.plan: it is given more than once"),
        (form(a_file("other")), "body.other: no such file; expected plan, pages, and at most 64 files"),
        (form(a_file(kind="text/html")), "body.plan: expected a file of type application/pdf or image/*"),
        (form(a_file(content=b"x" * 1_001)), "body.plan: expected at most 1000 bytes"),
        (form(a_file(), *[a_file("pages")] * 4), "body.pages: expected at most 3 items"),
    ],
    ids=range(9),
)
async def test_what_the_input_does_not_take_is_said_and_no_run_begins(body: bytes, said: str) -> None:
    async with served(READ, read=read) as server:
        answer = await send(server, body)

        assert said in problem(answer)
        assert await no_run(server)


@pytest.mark.parametrize(
    ("status", "file"),
    [
        (400, a_file(called="a\x01.pdf")),
        (400, a_file(kind="application")),
        (400, a_file(called="..")),
        (413, a_file("pages", bytes(MAX_FILE_BYTES + 1))),
    ],
    ids=range(4),
)
async def test_a_bad_name_or_media_type_or_a_large_file_begins_no_run(
    status: int, file: tuple[str, str, str, bytes]
) -> None:
    async with served(READ, read=read) as server:
        assert (await send(server, form(file))).status_code == status
        assert await no_run(server)


async def test_the_path_in_the_name_of_a_file_is_dropped() -> None:
    async with served(READ, read=read) as server:
        answer = await send(server, form(a_file(called="../../etc/pass wd.pdf")))

    assert answer.json()["data"]["plan"]["name"] == "pass wd.pdf"


async def test_json_that_looks_like_a_file_is_none_whatever_digest_it_names() -> None:
    async with served(READ, OPTIONAL, read=read, look=look) as server:
        plan = (await send(server, form(a_file()))).json()["data"]["plan"]
        answers = [
            await server.post("/read", {"plan": plan}),
            await server.post("/optional", {"plan": plan}),
            await server.post("/flows/optional/runs", {"input": {"plan": plan}}),
            await send(server, form(a_field("plan", "{}")), "/optional"),
        ]
        beside = await server.post("/optional", {"note": plan})

    assert [problem(one).split(":")[1].partition(",")[0] for one in answers] == [" expected a file"] * 4
    assert "send the body as multipart/form-data" in problem(answers[0])
    assert beside.json()["data"]["note"] == plan  # It is JSON like any other, and gives no bytes.


async def test_a_node_reads_no_file_that_the_run_did_not_begin_with() -> None:
    async def steal(ctx: Ctx) -> Ctx:
        return {"got": (await ctx["_read_file"](ctx["note"])).read().decode()}

    async with served(READ, OPTIONAL, read=read, look=steal) as server:
        plan = (await send(server, form(a_file()))).json()["data"]["plan"]
        answer = await server.post("/optional", {"note": plan})

    assert answer.status_code == 422
    assert "expected a file of the run's input" in answer.json()["error"]["message"]


async def test_only_who_may_start_the_flow_uploads() -> None:
    async with served(READ, read=read) as server:
        answers = [await send(server, form(a_file()), token=token) for token in ("bob", "reader", "")]
        blobs = server.runtime.hub.log
        assert isinstance(blobs, Blobs)

        assert [one.status_code for one in answers] == [403, 403, 401]
        assert not await blobs.old_blobs(before=server.clock.now().replace(year=9000), limit=10)


async def test_a_key_stands_for_one_run_with_its_files() -> None:
    async with served(READ, read=read) as server:
        first = await send(server, form(a_file()), Idempotency_Key="k1")
        again = await send(server, form(a_file()), Idempotency_Key="k1")
        other = await send(server, form(a_file(content=b"another")), Idempotency_Key="k1")
        log = server.runtime.hub.log
        assert isinstance(log, Blobs)
        kept = await log.blobs(first.headers["x-run-id"])

    assert first.headers["x-run-id"] == again.headers["x-run-id"]
    assert again.json() == first.json()
    assert other.status_code == 409
    assert [one.digest for one in kept] == [sha256(PDF).hexdigest()]


async def test_a_stranger_gets_no_answer_to_other_files_with_a_key_of_another_one() -> None:
    async with served(OPTIONAL, look=look) as server:
        first = await send(server, form(a_file()), "/optional", token="", Idempotency_Key="k")
        again = await send(server, form(a_file()), "/optional", token="", Idempotency_Key="k")
        other = await send(server, form(a_file(content=b"x")), "/optional", token="", Idempotency_Key="k")

    assert again.json() == first.json()
    assert other.status_code == 409


async def test_ten_thousand_parts_are_refused_after_a_few() -> None:
    async with served(READ, OPTIONAL, read=read, look=look) as server:
        fields = await send(server, form(*[a_field("note", "x")] * 10_000), "/optional")
        files = await send(server, form(*[a_file("pages", b"x")] * 10_000))

    assert (fields.status_code, files.status_code) == (400, 422)
    assert f"more than {MAX_FORM_PARTS} parts" in fields.json()["error"]["message"]


async def test_fields_of_a_form_have_together_the_size_of_a_body() -> None:
    body = form(*[a_field("title", "x" * 60_000)] * 20, a_file())
    async with served(READ, read=read) as server:
        assert (await send(server, body)).status_code == 413


async def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    async with served(READ, read=read) as server:
        headers = {"Authorization": "Bearer root", "Content-Type": FORM, "Content-Length": "99999999999"}
        answer = await server.client.post("/read", content=body(), headers=headers)

    assert answer.status_code == 413


async def test_a_file_over_the_limit_is_refused_before_the_rest_of_the_body_is_read() -> None:
    sent, piece = 0, bytes(1024 * 1024)

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        yield form(a_file("pages", b""))[: -len(EDGE) - 8]
        for _ in range(60):
            sent += len(piece)
            yield piece

    async with served(READ, read=read) as server:
        headers = {"Authorization": "Bearer root", "Content-Type": FORM}
        answer = await server.client.post("/read", content=body(), headers=headers)

    assert answer.status_code == 413
    assert f"at most {MAX_FILE_BYTES} bytes" in answer.json()["error"]["message"]
    assert sent <= MAX_FILE_BYTES + 2 * len(piece)


async def test_a_slow_upload_ends_and_of_a_broken_one_nothing_stays() -> None:
    settings = ServerSettings(form_seconds=0.05)

    async def slow() -> AsyncIterator[bytes]:
        yield form(a_file(content=b"x" * 500))[:-300]
        await asyncio.Event().wait()

    async with served(READ, settings=settings, read=read) as server:
        headers = {"Authorization": "Bearer root", "Content-Type": FORM}
        late = await server.client.post("/read", content=slow(), headers=headers)
        cut = await send(server, form(a_file(content=b"x" * 500))[:-300])
        log = server.runtime.hub.log
        assert isinstance(log, Blobs)

        assert (late.json()["error"]["type"], cut.json()["error"]["type"]) == ("too_slow", "bad_form")
        assert not await log.old_blobs(before=server.clock.now().replace(year=9000), limit=10)
        assert await no_run(server)


async def test_files_of_a_run_that_never_began_go_after_a_day() -> None:
    async with served(READ, read=read) as server:
        answer = await send(server, form(a_file("pages", b"a page")))
        assert "body.plan: it is missing" in problem(answer)
        log = server.runtime.hub.log
        assert isinstance(log, Blobs)
        ever = server.clock.now().replace(year=9000)
        assert len(await log.old_blobs(before=ever, limit=10)) == 1

        await server.pass_time(UNUSED_SECONDS + 3_601)

        assert not await log.old_blobs(before=ever, limit=10)


async def test_the_document_and_the_description_of_a_flow_show_a_file_field() -> None:
    async with served(READ, OPTIONAL, read=read, look=look) as server:
        paths = (await server.get("/openapi.json")).json()["paths"]
        flow = (await server.get("/flows/read")).json()["data"]

    needed = paths["/read"]["post"]["requestBody"]["content"]
    either = paths["/optional"]["post"]["requestBody"]["content"]
    plan: JsonObject = {"type": "string", "format": "binary", "x-media-types": ["application/pdf", "image/*"]}
    assert list(needed) == ["multipart/form-data"]
    assert needed["multipart/form-data"]["schema"]["properties"]["plan"] == plan
    assert list(either) == ["application/json", "multipart/form-data"]
    assert flow["input"]["properties"]["plan"] == plan
    assert flow["input"]["properties"]["pages"]["items"] == {"type": "string", "format": "binary"}


NESTED = """
metadata: {name: outer}
spec:
  trigger: {path: /outer, input: {scans: {type: array, items: file, required: true}, other: file}}
  steps:
    - id: each
      for_each:
        items: scans
        steps:
          - id: view
            agent: {name: viewer, prompt: "Look at {{ item.name }}", output: {format: text, key: seen}}
          - {id: inner, workflow: {name: optional, input: {plan: "{{ item }}"}}}
"""


async def test_nested_steps_and_flows_have_the_files_and_an_agent_is_shown_those_its_prompt_names() -> None:
    model = ScriptedModel("a cat", "a dog")
    async with served(NESTED, OPTIONAL, look=look, agents=[Agent("viewer", config=model)]) as server:
        body = form(
            a_file("scans", b"cat", kind="image/png"), a_file("scans", b"dog"), a_file("other", b"no")
        )
        answer = await send(server, body, "/outer")

    assert answer.status_code == 200, answer.text
    asked = [one for request in model.requests for one in request.messages if isinstance(one, UserMessage)]
    shown = sorted(file.data for one in asked for file in one.files)
    assert shown == [b"cat", b"dog"]
    assert all("[file plan.pdf (" in one.text for one in asked)


DRAW = """
metadata: {name: draw}
spec:
  trigger: {path: /draw}
  steps: [{id: draw, agent: {name: artist, prompt: Draw, output: {format: text, key: said}}}]
"""


async def test_an_agent_step_sends_the_files_that_its_tools_attach() -> None:
    def chart() -> ToolResult:
        return ToolResult("Drawn.", attach=[File(b"chart", "chart.png")])

    artist = Agent("artist", config=ScriptedModel(call("chart"), "Here."), tools=[chart])
    async with served(DRAW, agents=[artist]) as server:
        answer = await server.post("/draw", {})
        run_id = answer.headers["x-run-id"]
        lines = (await server.get(f"/channels/{run_id}/envelopes")).json()["data"]["envelopes"]
        packet = next(one for one in lines if one["event_type"] == "packet")
        file = await server.get(f"/channels/{run_id}/envelopes/{packet['seq']}/files/0")

    assert answer.json()["data"]["said"] == "Here."
    assert [one.get("text") or one["name"] for one in packet["event_data"]["parts"]] == ["Here.", "chart.png"]
    assert (file.content, file.headers["content-type"]) == (b"chart", "image/png")


async def test_a_retried_run_has_the_files_of_the_one_before() -> None:
    tries = []

    async def fails_once(ctx: Ctx) -> Ctx:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        return await read(ctx)

    async with served(READ, read=fails_once) as server:
        failed = await send(server, form(a_file()))
        made = await server.post(f"/runs/{failed.headers['x-run-id']}/retry", {})
        run = await server.ended(made.json()["data"]["run_id"])

    assert failed.status_code == 422
    assert run["data"]["text"] == PDF.decode()
