"""Quotas of one user: each has a name, a default, and an error that names it, over HTTP and WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from tests.server.channels.scene import scene
from tests.server.ws_raw import Raw, Tokens, raw, served as served_ws
from turnline.client.hub_client import HubClient
from turnline.client.link import LocalLink
from turnline.core.envelope import JsonObject
from turnline.core.governance import OPEN_CHANNELS_PER_USER, Passport
from turnline.core.variables import MAX_CONTEXT_BYTES
from turnline.log.memory import MemoryLog
from turnline.server.limits import OPEN_RUNS_OF_STRANGERS, OPEN_RUNS_PER_USER
from turnline.server.settings import ServerSettings

from .stage import EDGE, Response, Server, form, served

ASK = "{trigger: {path: /ask}, steps: [{id: ask, kind: human, human: {title: Sure?, group: sales}}]}"
FILL = "{trigger: {path: /fill}, steps: [{id: fill, runner: fill}]}"


@asynccontextmanager
async def linked(**quotas: Any) -> AsyncIterator[tuple[Raw, str]]:
    """A user's client over a WebSocket and its seat; the project's agent `bob` accepts everything."""
    async with served_ws(Tokens(ann=["channels:*"]), **quotas) as (hub, serving):
        project = HubClient(LocalLink(hub))
        await project.register(None, Passport(name="bob"))
        async with raw(serving.url, token="ann") as client:
            yield client, await client.join("ann-1")
        await project.close()


async def opened(client: Raw, seat: str, channel_id: str, **knobs: Any) -> JsonObject:
    request = {"type": "conversation", "target": ["bob"], "channel_id": channel_id, "knobs": knobs}
    return await client.ask("open", seat=seat, request=request)


def message_of(answer: Response) -> str:
    return str(answer.json()["error"]["message"])


def test_the_quotas_are_these_unless_a_project_says_otherwise() -> None:
    settings = ServerSettings()

    assert MAX_CONTEXT_BYTES == 1024 * 1024
    assert OPEN_CHANNELS_PER_USER == 1_000
    assert (OPEN_RUNS_PER_USER, OPEN_RUNS_OF_STRANGERS) == (1_000, 10_000)
    assert (settings.streams_per_user, settings.ws.presences_per_user) == (100, 100)


async def test_a_context_beyond_its_limit_is_refused_by_name_over_websocket() -> None:
    large = {"a": "x" * 2_000}
    async with linked(context_bytes=1_000) as (client, seat):
        at_once = await opened(client, seat, "large", context_vars=large)
        await opened(client, seat, "story")
        draft: JsonObject = {"envelope_id": "e1", "sender_id": seat, "event_type": "context.set"}
        draft |= {"event_data": {"set": large}}
        later = await client.ask("post", seat=seat, channel_id="story", draft=draft)

    assert "(context_bytes)" in at_once["error"]["message"]
    assert "(context_bytes)" in later["error"]["message"]


async def test_a_context_beyond_its_limit_is_refused_by_name_over_http() -> None:
    async with served(FILL, quotas={"context_bytes": 1_000}, fill=lambda ctx: {"b": "y" * 900}) as server:
        large = await server.post("/fill", {"a": "x" * 2_000})
        grown = await server.post("/fill", {"a": "x" * 500})

    assert large.status_code == 413
    assert "(context_bytes)" in message_of(large)
    assert grown.status_code == 422
    assert "(context_bytes)" in message_of(grown)


async def test_a_project_that_raises_context_bytes_has_contexts_larger_than_a_line_of_the_log() -> None:
    flow = """
    {trigger: {path: /fill}, steps: [
    {id: one, runner: one}, {id: two, runner: two}, {id: count, runner: count},
    {id: say, response: {mapping: {size: "{{ size }}"}}}]}
    """
    async with served(
        flow,
        quotas={"context_bytes": 4_000_000},
        one=lambda ctx: {"one": "x" * 900_000},
        two=lambda ctx: {"two": "y" * 900_000},
        count=lambda ctx: {"size": len(ctx["one"]) + len(ctx["two"])},
    ) as server:
        answer = await server.post("/fill", {})

    assert answer.json()["data"] == {"size": 1_800_000}


async def test_open_channels_beyond_the_limit_of_a_user_are_refused_by_name_over_websocket() -> None:
    async with linked(open_channels_per_user=1) as (client, seat):
        first = await opened(client, seat, "one")
        second = await opened(client, seat, "two")
        await client.ask("close_channel", seat=seat, channel_id="one", reason="enough")
        third = await opened(client, seat, "three")

    assert "error" not in first
    assert second["error"]["type"] == "Denied"
    assert "(open_channels_per_user)" in second["error"]["message"]
    assert "error" not in third


async def test_runs_that_wait_count_against_the_limit_of_their_user() -> None:
    async with served(ASK, quotas={"open_runs_per_user": 1}) as server:
        first = await server.post("/ask", {})
        refused = await server.post("/ask", {})
        of_another = await server.post("/ask", {}, token="ann")
        await server.post(f"/runs/{first.headers['x-run-id']}/cancel", {})
        again = await server.post("/ask", {})

    assert [first.status_code, of_another.status_code, again.status_code] == [202, 202, 202]
    assert refused.status_code == 429
    assert "(open_runs_per_user)" in message_of(refused)


async def test_forks_beyond_the_limit_of_open_channels_are_refused_by_name_over_http() -> None:
    async with scene("hello", quotas={"open_channels_per_user": 2}) as stage:
        talk = (await stage.people["carol"].open(type="conversation", target="dave")).channel_id
        forks = [
            await stage.server.post(f"/channels/{talk}/fork", {"at": 2}, token="carol") for _ in range(3)
        ]
        await stage.server.post(f"/channels/{forks[0].json()['data']['channel_id']}/close", {}, token="carol")
        again = await stage.server.post(f"/channels/{talk}/fork", {"at": 2}, token="carol")

    assert [one.status_code for one in forks] == [201, 201, 403]
    assert "(open_channels_per_user)" in message_of(forks[2])
    assert again.status_code == 201


FILED = """
metadata: {name: filed}
spec: {trigger: {path: /filed, public: true, input: {plan: file}}, steps: [{id: do, runner: do}]}
"""


async def test_the_files_of_a_user_have_a_limit_that_a_restart_does_not_change() -> None:
    log = MemoryLog()

    async def send(server: Server, size: int, token: str) -> Response:
        body = form(("plan", "a.pdf", "application/pdf", bytes([size]) * size))
        kind = f"multipart/form-data; boundary={EDGE}"
        return await server.post("/filed", body, token=token, Content_Type=kind)

    def serve() -> AbstractAsyncContextManager[Server]:
        return served(FILED, log=lambda: log, quotas={"file_bytes_per_user": 100}, do=lambda ctx: {})

    async with serve() as server:
        first = [await send(server, size, token) for size, token in ((60, "ann"), (60, "root"), (60, ""))]
    async with serve() as server:
        second = [await send(server, 50, token) for token in ("ann", "root", "")]
        small = await send(server, 40, "ann")
        runs = (await server.get("/runs")).json()["data"]["runs"]

    assert [one.status_code for one in first] == [200] * 3
    assert [one.status_code for one in second] == [413] * 3
    assert "file_bytes_per_user" in second[0].json()["error"]["message"]
    assert small.status_code == 200
    assert len(runs) == 4
