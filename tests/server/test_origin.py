"""Requests for another name, or from another site's page, are refused, whatever they ask for."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.server.origin import LOOPBACK_NAMES, OriginCheck, known_names
from turnline.server.settings import ServerSettings

from .stage import served

LOCAL = ServerSettings(hosts=LOOPBACK_NAMES, same_origin=True)
PATHS = ["/health", "/studio", "/studio/main.js", "/channels", "/runs", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_name_that_was_made_to_lead_here_is_not_ours(path: str) -> None:
    async with served(settings=LOCAL) as server:
        rebound = await server.get(path, Host="evil.example:8484")

    assert (rebound.status_code, rebound.json()["error"]["type"]) == (421, "unknown_host")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8484", 200),
        ("localhost:1", 200),
        ("LOCALHOST", 200),
        ("[::1]:8484", 200),
        ("[::1]", 200),
        ("", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:8484", 421),
        ("evil.example#127.0.0.1", 421),
        ("0.0.0.0:8484", 421),
    ],
)
async def test_on_this_machine_only_its_own_names_are_known(host: str, status: int) -> None:
    async with served(settings=LOCAL) as server:
        answer = await server.get("/health", Host=host)

    assert answer.status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8484", 200),
        ("https://localhost:8484", 200),
        ("http://localhost:9999", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://localhost:8484.evil.example", 403),
    ],
)
async def test_a_page_of_another_site_may_ask_nothing(origin: str, status: int) -> None:
    async with served(settings=LOCAL) as server:
        answer = await server.get("/health", Host="localhost:8484", Origin=origin)

    assert answer.status_code == status


GET_FLOW = """
metadata: {name: note}
spec: {trigger: {path: /note, method: GET, public: true}, steps: [{id: only, runner: note}]}
"""


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec_Fetch_Site": "none"}, 200),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Sec_Fetch_Site": "same-origin", "Referer": "http://localhost:8484/studio"}, 200),
        ({"Referer": "http://localhost:8484/studio"}, 200),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Referer": "http://localhost:8484/"}, 403),
        ({"Referer": "http://evil.example/"}, 403),
        ({"Referer": "http://[evil/"}, 403),
    ],
)
async def test_a_cross_site_get_does_not_start_a_public_flow_on_this_machine(
    headers: dict[str, str], status: int
) -> None:
    started: list[Any] = []
    async with served(GET_FLOW, settings=LOCAL, note=started.append) as server:
        answer = await server.get("/note", token="", Host="localhost:8484", **headers)

    assert answer.status_code == status
    assert len(started) == (status == 200)


async def test_without_the_studio_a_flow_in_its_place_is_not_started_by_another_site() -> None:
    flow = GET_FLOW.replace("path: /note", "path: '/{part}/note/now'")
    settings = ServerSettings(hosts=LOOPBACK_NAMES, same_origin=True, studio=False)
    started: list[Any] = []
    async with served(flow, settings=settings, note=started.append) as server:
        answer = await server.get(
            "/studio/note/now", token="", Host="localhost:8484", Sec_Fetch_Site="cross-site"
        )

    assert answer.status_code == 403
    assert started == []


async def test_a_link_of_another_site_to_the_studio_is_followed() -> None:
    async with served(settings=LOCAL) as server:
        answer = await server.get("/studio", token="", Host="localhost:8484", Sec_Fetch_Site="cross-site")

    assert answer.status_code == 200


async def test_a_link_of_another_site_to_a_public_flow_is_followed_under_a_public_name() -> None:
    settings = ServerSettings(hosts=(*LOOPBACK_NAMES, "flows.example"), same_origin=True)
    async with served(GET_FLOW, settings=settings, note=lambda ctx: None) as server:
        answer = await server.get("/note", token="", Host="flows.example", Sec_Fetch_Site="cross-site")

    assert answer.status_code == 200


async def test_without_names_every_name_is_good_and_another_origin_still_is_not() -> None:
    async with served(settings=ServerSettings(same_origin=True)) as server:
        any_name = await server.get("/health", Host="flows.example")
        other = await server.get("/health", Host="flows.example", Origin="http://evil.example")

    assert (any_name.status_code, other.status_code) == (200, 403)


async def test_a_mounted_app_checks_neither() -> None:
    async with served() as server:
        answer = await server.get("/health", Host="flows.example", Origin="http://evil.example")

    assert answer.status_code == 200


async def test_a_websocket_from_another_site_is_closed_before_it_is_opened() -> None:
    sent: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("it got through")

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost:8484"), (b"origin", b"http://evil.example")]
    await OriginCheck(inner, hosts=LOOPBACK_NAMES)({"type": "websocket", "headers": headers}, receive, send)

    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_serve_knows_its_names_on_this_machine_and_takes_more() -> None:
    assert known_names("127.0.0.1", []) == (*LOOPBACK_NAMES, "127.0.0.1")
    assert known_names("127.0.0.1", ["flows.example"]) == (*LOOPBACK_NAMES, "127.0.0.1", "flows.example")
    assert known_names("0.0.0.0", []) is None
    assert known_names("0.0.0.0", ["flows.example"]) == ("flows.example",)
