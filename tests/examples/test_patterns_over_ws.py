"""P1: the ten patterns over a WebSocket, and in the hub's own process: nobody could tell which."""

from __future__ import annotations

import runpy

import pytest

from turnline.client import run
from turnline.client.link import LocalLink, Seat
from turnline.client.ws_link import WsLink
from turnline.core.governance import Passport, Registration, Resume, Rule
from turnline.hub.delivery import Receiver
from turnline.hub.hub import Hub
from turnline.server.serve_ws import serve_ws

from .test_patterns import FOLDER, PATTERNS


class OverWs:
    """A link to a hub of this process that goes out by the door and comes in again; each seat by its own."""

    def __init__(self, hub: Hub) -> None:
        self._served = serve_ws(hub)
        self._links: list[WsLink] = []

    async def register(self, passport: Passport, resume: Resume | None, rule: Rule | None) -> Registration:
        if not self._links:
            await self._served.open()
        self._links.append(WsLink(self._served.url))
        return await self._links[-1].register(passport, resume, rule)

    async def attach(self, registration: Registration, receiver: Receiver) -> Seat:
        return await self._links[-1].attach(registration, receiver)

    async def settle(self) -> None:
        for link in self._links:
            await link.close()
        await self._served.close()


@pytest.mark.parametrize("name", [*PATTERNS, "fan_out"])
def test_p1_a_pattern_prints_the_same_over_either_link(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = []
    for link in (LocalLink, OverWs):
        monkeypatch.setattr(run, "LocalLink", link)
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        printed.append(capsys.readouterr().out)

    here, there = printed
    assert "(closed: " in here
    assert there == here
