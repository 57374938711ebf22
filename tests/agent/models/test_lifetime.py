"""How long a client stays open, with a client that only counts."""

from __future__ import annotations

import asyncio

import pytest

from turnline.agent.models.lifetime import PerLoop


class Client:
    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.is_open = False

    async def __aenter__(self) -> Client:
        self.is_open = True
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.is_open = False
        self.closed.set()


class Maker:
    def __init__(self, *failures: Exception) -> None:
        self.made: list[Client] = []
        self._failures = list(failures)

    def __call__(self) -> Client:
        if self._failures:
            raise self._failures.pop()
        self.made.append(Client())
        return self.made[-1]


async def used(clients: PerLoop[Client]) -> Client:
    async with clients.use() as client:
        assert client.is_open
        return client


async def test_requests_share_one_client_however_many_come_first() -> None:
    clients = PerLoop(Maker())

    assert len({id(client) for client in await asyncio.gather(*(used(clients) for _ in range(5)))}) == 1


def test_the_end_of_a_loop_closes_its_client_and_the_next_loop_has_its_own() -> None:
    make = Maker()
    clients = PerLoop(make)
    for _ in range(2):
        asyncio.run(used(clients))

    assert [client.is_open for client in make.made] == [False, False]


def test_a_loop_that_ends_closes_clients_nobody_knows_any_more() -> None:
    make = Maker()
    asyncio.run(used(PerLoop(make)))

    assert [client.is_open for client in make.made] == [False]


async def test_an_idle_client_is_closed_and_the_next_request_opens_another() -> None:
    make = Maker()
    clients = PerLoop(make, idle_seconds=0.001)
    first = await used(clients)
    await first.closed.wait()

    assert await used(clients) is not first


async def test_a_client_in_use_is_not_idle() -> None:
    clients = PerLoop(Maker(), idle_seconds=0.0)
    async with clients.use() as client:
        await used(clients)
        for _ in range(5):
            await asyncio.sleep(0)
        assert client.is_open


async def test_what_could_not_be_made_is_tried_again() -> None:
    clients = PerLoop(Maker(LookupError("no key")))
    with pytest.raises(LookupError):
        await used(clients)

    await used(clients)
