"""F13: real tokens and keys at the door of a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import httpx2
import msgspec
import pytest

from tests.hub.scenes import refused
from turnline.client.embedded import Hub
from turnline.core.governance import Passport, Registrar
from turnline.errors import NameTaken
from turnline.hub.timers import SystemClock
from turnline.log.address import open_log
from turnline.server.access import OpenAuthenticator, development, only_api_keys, production
from turnline.server.app import create_app
from turnline.server.auth.api_keys import new_api_key
from turnline.server.auth.biscuit import mint
from turnline.server.auth.credentials import Credentials
from turnline.server.auth.keys import RootKey

from .stage import Ctx, runtime_with, served

FLOW = "metadata: {name: work}\nspec: {trigger: {path: /work}, steps: [{id: only, runner: work}]}"
SECRET = "11" * 32
API_KEY = "tlk_" + "k" * 40
KEYS = msgspec.json.encode(
    {"ci": {"sha256": sha256(API_KEY.encode()).hexdigest(), "scopes": ["runs:start:*"]}}
)
ENVIRONMENT = {"TURNLINE_AUTH_KEY": SECRET, "TURNLINE_API_KEYS": KEYS.decode()}


def token(key: RootKey, *scopes: str) -> str:
    now = datetime.now(UTC)
    return mint(key, user_id="ann", scopes=scopes, expires_at=now + timedelta(hours=1), now=now)


async def called(
    authenticator: OpenAuthenticator, *tokens: str, peer: str = "127.0.0.1"
) -> list[tuple[int, str]]:
    """The status that each token gets, and who it was."""

    def work(ctx: Ctx) -> Ctx:
        return {"user": ctx["_user_id"]}

    app = create_app(runtime_with(FLOW, clock=SystemClock(), work=work), authenticator=authenticator)
    transport = httpx2.ASGITransport(app=app, client=(peer, 4711))
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://server") as client,
    ):
        found = []
        for one in tokens:
            answer = await client.post("/work", json={}, headers={"Authorization": f"Bearer {one}"})
            found.append((answer.status_code, answer.json().get("data", {}).get("user", "")))
        return found


async def test_f13_what_the_project_has_signed_is_let_in_and_nothing_else(tmp_path: Path) -> None:
    ours, others = RootKey.from_text(SECRET, where="here"), RootKey.from_text("22" * 32, where="there")
    good, narrow, forged = token(ours, "runs:start:work"), token(ours, "runs:read"), token(others, "*")
    found = await called(
        production(tmp_path, ENVIRONMENT),
        good,
        narrow,
        forged,
        new_api_key(),
        API_KEY,
        API_KEY + "x",
        "x",
    )

    assert found == [(200, "ann"), (403, ""), (401, ""), (401, ""), (200, "ci"), (401, ""), (401, "")]


@pytest.mark.parametrize(("peer", "status"), [("127.0.0.1", 200), ("::1", 200), ("10.0.0.7", 401), ("", 401)])
async def test_f13_a_development_key_is_good_on_this_machine_only(
    peer: str, status: int, tmp_path: Path
) -> None:
    key = new_api_key()
    [(found, _)] = await called(development(key, tmp_path, {}), key, peer=peer)

    assert found == status


ASKS = "steps: [{id: work, agent: {name: ada, prompt: go, ask: {group: ops}}}]"
ASKS_PERSON = "steps: [{id: work, human: {title: Sure?, group: sales}}]"


async def test_a_development_key_is_in_every_group_that_a_step_asks(tmp_path: Path) -> None:
    key = new_api_key()
    async with (
        runtime_with(
            f"metadata: {{name: asks}}\nspec: {{{ASKS}}}",
            f"metadata: {{name: person}}\nspec: {{{ASKS_PERSON}}}",
        ) as runtime,
        development(key, tmp_path, {})(runtime) as known,
    ):
        principal = await known.authenticate(Credentials(key, peer="127.0.0.1"))

    assert principal.groups == {"ops", "sales"}


async def test_f13_without_a_key_of_its_own_a_server_knows_api_keys() -> None:
    ours = RootKey.from_text(SECRET, where="here")
    found = await called(only_api_keys(ENVIRONMENT), API_KEY, token(ours, "*"))

    assert found == [(200, "ci"), (401, "")]


async def test_the_name_of_an_http_user_is_refused_to_another_user_at_every_server_of_the_log(
    tmp_path: Path,
) -> None:
    """Also where that server has never seen the user, and after both were started again."""
    address = f"sqlite:///{tmp_path}/log.db"
    mallory = Registrar("mallory")
    other = await Hub.open(address)
    async with served(FLOW, log=lambda: open_log(address), work=lambda ctx: None) as server:
        assert (await server.get("/runs", token="root")).status_code == httpx2.codes.OK
        await refused(NameTaken, other.enrol(Passport(name="Root", owner="mallory"), None, None, by=mallory))
    await other.close()
    later = await Hub.open(address)
    await refused(NameTaken, later.enrol(Passport(name="root", owner="mallory"), None, None, by=mallory))
    await later.close()
