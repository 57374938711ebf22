"""X16: hostile frames. Each gets a typed error, and the connection is usable or closed; it never hangs."""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from random import Random

import pytest
from websockets.exceptions import ConnectionClosed

from tests.faults.counts import SOAK, seed
from tests.faults.ws_hostile import CORPUS, mangled
from tests.server.ws_raw import Raw, raw, served
from turnline.core.governance import Passport
from turnline.server.ws_settings import WsSettings

FRAMES = 5_000 * SOAK
SENT_AT_ONCE = 50
FORGIVING = WsSettings(bad_frames=10**9)
KNOWN = {"answer", "refusal", "wake", "pong", "bye", "text"}


async def took_part(client: Raw) -> str:
    """Somebody with a seat, on a channel of its own."""
    await client.hello()
    mallory = await client.join("mallory")
    request = {"type": "workflow", "channel_id": "own", "knobs": {"graph": {"initial_speaker": "mallory"}}}
    await client.ask("open", seat=mallory, request=request)
    return mallory


async def answered(client: Raw) -> list[str]:
    """Whatever comes before the answer to a ping; the types of the errors in it."""
    await client.send({"kind": "ping", "n": 4711})
    errors: list[str] = []
    while (frame := await client.receive()) != {"kind": "pong", "n": 4711}:
        assert frame["kind"] in KNOWN
        if frame.get("error"):
            errors.append(frame["error"]["type"])
            assert frame["error"]["message"]
    return errors


@pytest.mark.parametrize("frame", CORPUS, ids=range(len(CORPUS)))
async def test_x16_a_hostile_frame_is_refused_and_the_connection_goes_on(frame: str | bytes) -> None:
    async with served(settings=FORGIVING) as (_, serving), raw(serving.url) as client:
        await took_part(client)
        await client.send(frame)
        errors = await answered(client)

        assert "RemoteFailed" not in errors
        assert await client.is_usable()


@pytest.mark.parametrize("number", [1, 2])
async def test_x16_mangled_frames_are_refused_and_the_connection_goes_on(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with asyncio.timeout(120), served(settings=FORGIVING) as (hub, serving):
        await hub.register(None, Passport(name="bob"))
        async with raw(serving.url) as client:
            frames = mangled(await took_part(client), "own", Random(seed(number)))
            errors: list[str] = []
            for _ in range(FRAMES // 2 // SENT_AT_ONCE):
                for frame in islice(frames, SENT_AT_ONCE):
                    await client.send(frame)
                errors += await answered(client)

        assert "RemoteFailed" not in errors, caplog.text
        assert {"BadFrame", "UnknownChannel"} <= set(errors)
        assert len(errors) > FRAMES // 4


@pytest.mark.parametrize("frame", [*CORPUS, '{"kind": "bye", "reason": "x"}', '{"kind": "ping"}'])
async def test_x16_before_the_hello_a_hostile_frame_ends_the_connection(frame: str | bytes) -> None:
    if frame == '{"kind": "hello", "version": 1}':
        return
    async with served() as (_, serving), raw(serving.url) as client:
        await client.send(frame)

        assert (await client.receive())["kind"] == "bye"


async def test_x16_whoever_goes_on_is_sent_away() -> None:
    async with served(settings=WsSettings(bad_frames=5)) as (_, serving), raw(serving.url) as client:
        await client.hello()
        for _ in range(6):
            await client.send("{")
        while (frame := await client.receive())["kind"] == "refusal":
            pass

        assert (frame["kind"], frame["reason"]) == ("bye", "bad_frames")
        assert serving.counters.refused_frames == 6


async def test_x16_a_message_that_is_too_large_ends_the_connection() -> None:
    async with served() as (_, serving), raw(serving.url) as client:
        await client.hello()
        await client.send('{"kind": "ping", "n": 1' + " " * 70_000 + "}")
        with pytest.raises(ConnectionClosed):
            await client.receive()


async def test_x16_parts_without_end_are_bounded() -> None:
    async with served(settings=WsSettings(payload_bytes=10_000)) as (_, serving), raw(serving.url) as client:
        await client.hello()
        part = {"kind": "part", "id": "p", "data": "QUJD" * 1_000}
        for _ in range(20):
            await client.send(part)
        errors = await answered(client)

        assert errors
        assert set(errors) == {"BadFrame"}


async def test_x16_more_requests_than_may_wait_are_refused() -> None:
    async with served(settings=WsSettings(requests=10)) as (_, serving), raw(serving.url) as client:
        mallory = await took_part(client)
        await client.join("silent")  # It never answers an invitation, so opening waits.
        graph = {"initial_speaker": "mallory"}
        for number in range(15):
            request = {"channel_id": f"c{number}", "type": "workflow", "target": ["silent"]}
            args = {"request": {**request, "knobs": {"graph": graph}}}
            await client.send(
                {"kind": "request", "id": f"s{number}", "op": "open", "seat": mallory, "args": args}
            )

        assert await answered(client) == ["BadFrame"] * 5
        assert serving.counters.refused_requests == 5
