"""`/ws` of a server: the same hub that its flows run on, behind the same tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.hub.scenes import answers, refused
from tests.server.stage import KnownTokens, runtime_with
from turnline.client.hub_client import HubClient
from turnline.client.ws_link import WsLink
from turnline.core.governance import Passport
from turnline.errors import Forbidden, NameTaken, Unauthenticated
from turnline.hub.timers import SystemClock
from turnline.server.app import create_app
from turnline.server.runtime import Runtime
from turnline.server.serving import DrainingServer, bind
from turnline.server.settings import ServerSettings

FLOW = "{steps: [{id: greet, runner: greet}]}"


async def greet(ctx: object) -> None: ...


@asynccontextmanager
async def serving(settings: ServerSettings | None = None) -> AsyncIterator[tuple[str, Runtime]]:
    """A server on a real port, in this process; its address, and what it serves."""
    settings = settings or ServerSettings(drain_seconds=1.0)
    runtime = runtime_with(FLOW, clock=SystemClock(), greet=greet)
    with bind("127.0.0.1", 0) as listening:
        async with asyncio.timeout(60), runtime:
            app = create_app(runtime, authenticator=KnownTokens(), settings=settings)
            server = DrainingServer(app, runtime, settings, access_log=False)
            running = asyncio.create_task(server.serve([listening]))
            try:
                yield f"ws://127.0.0.1:{listening.getsockname()[1]}/ws", runtime
            finally:
                server.should_exit = True
                await running


async def test_agents_and_people_converse_over_the_servers_own_hub() -> None:
    async with serving() as (url, runtime), WsLink(url, token="root") as link:
        client = HubClient(link)
        bob = await client.register(None, Passport(name="bob"))
        bob.on_turn(answers("fine"))
        user = await client.register_human(Passport(name="user", kind="human"))
        channel = await user.open("consulting", "bob", message="how are you?")
        result = await channel.result(10)

        assert (result.text, result.reason) == ("fine", "consulting_complete")
        assert len(await runtime.hub.read_wal(channel.channel_id)) > 3
        await client.close()


@pytest.mark.parametrize(
    ("token", "kind"), [("nobody", Unauthenticated), ("ann", Forbidden), ("", Unauthenticated)]
)
async def test_whoever_has_no_token_for_it_is_not_let_in(token: str, kind: type[Exception]) -> None:
    async with serving() as (url, runtime), WsLink(url, token=token) as link:
        before = len(runtime.hub.participants())
        await refused(kind, link.register(Passport(name="x"), None, None))

        assert len(runtime.hub.participants()) == before


async def test_a_token_may_come_with_the_handshake() -> None:
    async with serving() as (url, _):
        headers = {"Authorization": "Bearer root"}
        async with connect(url, additional_headers=headers, proxy=None) as connection:
            await connection.send('{"kind":"hello","version":1}')
            assert '"kind":"welcome"' in str(await connection.recv())


async def test_a_web_page_of_anybodys_is_not_let_in() -> None:
    async with serving() as (url, _):
        with pytest.raises(InvalidStatus, match="403"):
            async with connect(url, origin="https://evil.example", proxy=None):  # type: ignore[arg-type]
                pass


async def test_the_servers_own_participants_are_nobody_elses() -> None:
    """The driver of the flows is registered by the server; a name of it is taken."""
    async with serving() as (url, runtime), WsLink(url, token="root") as link:
        own = runtime.hub.participants()[0]
        await refused(NameTaken, link.register(Passport(name=own.name, kind=own.passport.kind), None, None))


async def test_a_user_of_the_http_api_is_nobody_elses_agent() -> None:
    async with serving() as (url, runtime), WsLink(url, token="carol") as link:
        await link.register(Passport(name="dave"), None, None)  # No dave has been here: it can be reclaimed.
        async with httpx2.AsyncClient(base_url=url.replace("ws://", "http://").removesuffix("/ws")) as client:
            for name in ("onlooker", "dave"):
                answer = await client.get("/channels", headers={"Authorization": f"Bearer {name}"})
                assert answer.status_code == 200
        error = await refused(NameTaken, link.register(Passport(name="Onlooker"), None, None))
        async with WsLink(url, token="dave") as own:
            dave = await own.register(Passport(name="dave", kind="human"), None, None)

        assert "the id of another user" in str(error)
        assert runtime.hub.participant("dave") == dave
        assert dave.user == "dave"


async def test_a_server_that_stops_sends_everybody_away() -> None:
    async with serving() as (url, runtime):
        connection = await connect(url, proxy=None)
        await connection.send('{"kind":"hello","version":1,"token":"root"}')
        await connection.recv()
        runtime.drain()

        assert '"reason":"closing"' in str(await connection.recv())
        await connection.close()
