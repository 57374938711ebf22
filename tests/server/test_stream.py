"""F6: a run's events as a stream: in order, resumable, bounded, and nothing private in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.hub.scenes import Wrapped, quiet, until
from turnline.agent.agent import Agent
from turnline.core.envelope import Envelope
from turnline.hub.channels import RECENT_ENVELOPES
from turnline.hub.timers import sortable_ids
from turnline.log.memory import MemoryLog
from turnline.server.auth.authenticator import RECHECK_SECONDS
from turnline.server.auth.revocation import Revocations
from turnline.server.auth.tokens import TokenAuthenticator
from turnline.server.house import PAGES_AT_ONCE
from turnline.server.settings import ServerSettings
from turnline.testing import ScriptedModel
from turnline.testing.manual_clock import ManualClock

from .auth.scenes import InlineReader, minted, reading
from .stage import PEOPLE, Ctx, Listening, Server, person, served

TWO = """
metadata: {name: two}
spec:
  trigger: {path: /two, async: true}
  steps: [{id: first, runner: first}, {id: second, runner: second}]
"""
EVENT = """
metadata: {name: pay}
spec: {trigger: {path: /pay}, steps: [{id: rest, kind: wait, wait: {event: paid}}]}
"""


class SleepersClock(ManualClock):
    """Tells for how long somebody has gone to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep: asyncio.Queue[float] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        sleeping = asyncio.ensure_future(super().sleep(seconds))
        await asyncio.sleep(0)  # Now it is asleep.
        self.asleep.put_nowait(seconds)
        try:
            await sleeping
        finally:
            sleeping.cancel()


def hides(ctx: Ctx) -> Ctx:
    return {"shown": 1, "_token": "canary"}


def same(ctx: Ctx) -> None:
    return None


def read(piece: str) -> dict[str, Any]:
    """One event of a stream, by its fields."""
    fields = dict(line.split(": ", 1) for line in piece.strip().splitlines())
    data: dict[str, Any] = msgspec.json.decode(fields["data"])
    assert (int(fields["id"]), fields["event"]) == (data["seq"], data["type"])
    return data


async def ended(server: Server) -> str:
    run_id = (await server.post("/two", {"n": 1})).headers["x-run-id"]
    await server.ended(run_id)
    return run_id


@asynccontextmanager
async def listening(server: Server, run_id: str, **headers: str) -> AsyncIterator[Listening]:
    stream = Listening(server.app, f"/runs/{run_id}/events", **headers)
    try:
        yield stream
    finally:
        await stream.close()


async def test_f6_a_stream_tells_the_whole_run_and_ends_with_it() -> None:
    async with served(TWO, first=hides, second=same) as server:
        run_id = await ended(server)
        async with listening(server, run_id) as stream:
            pieces = await stream.rest()

    events = [read(piece) for piece in pieces]
    assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    told = [(event["type"], event.get("step", "")) for event in events if event["type"] != "step_started"]
    assert told == [("started", ""), ("step_ended", "first"), ("step_ended", "second"), ("ended", "")]
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    assert "canary" not in "".join(pieces)
    assert events[-1]["reason"] == "completed"


async def test_f6_a_stream_goes_on_behind_the_last_event_that_was_seen() -> None:
    async with served(TWO, first=same, second=same) as server:
        run_id = await ended(server)
        async with listening(server, run_id) as stream:
            whole = await stream.rest()
        for seen in range(len(whole)):
            async with listening(server, run_id, Last_Event_ID=str(read(whole[seen])["seq"])) as stream:
                rest = [] if seen == len(whole) - 1 else await stream.rest()
                assert rest == whole[seen + 1 :]


async def test_f6_behind_the_end_there_is_nothing_to_come_back_for() -> None:
    async with served(TWO, first=same, second=same) as server:
        run_id = await ended(server)
        answer = await server.get(f"/runs/{run_id}/events", Last_Event_ID="9999")

    assert (answer.status_code, answer.content) == (204, b"")


async def test_f6_events_come_as_they_happen() -> None:
    go = asyncio.Event()

    async def first(ctx: Ctx) -> None:
        await go.wait()

    async with served(TWO, first=first, second=same) as server:
        run_id = (await server.post("/two", {})).headers["x-run-id"]
        async with listening(server, run_id) as stream:
            started = read(await stream.next())
            go.set()
            rest = [read(piece)["type"] for piece in await stream.rest()]

    assert started["type"] == "started"
    assert rest[-1] == "ended"


async def test_f6_a_quiet_stream_says_every_fifteen_seconds_that_it_is_there() -> None:
    clock = SleepersClock()
    async with served(EVENT, clock=clock) as server:
        run_id = (await server.post("/pay", {})).headers["x-run-id"]
        async with listening(server, run_id) as stream:
            while read(await stream.next())["type"] != "waiting":
                pass
            beats = []
            for _ in range(3):
                coming = asyncio.create_task(stream.next())
                while await clock.asleep.get() != 15:
                    pass
                clock.advance(15)
                beats.append(await coming)
            coming = asyncio.create_task(stream.next())
            await server.post(f"/runs/{run_id}/events/paid", {})
            woken = read(await coming)

    assert beats == [": still here\n\n"] * 3
    assert woken["type"] == "resumed"


async def test_f6_whoever_accepts_json_only_gets_a_list() -> None:
    async with served(TWO, first=same, second=same) as server:
        run_id = await ended(server)
        whole = await server.get(f"/runs/{run_id}/events", Accept="application/json")
        events = whole.json()["data"]["events"]
        after = f"/runs/{run_id}/events?after={events[0]['seq']}"
        rest = await server.get(after, Accept="application/json")
        over = await server.get(f"/runs/{run_id}/events?after=9999", Accept="application/json")
        both = await server.get(f"/runs/{run_id}/events", Accept="text/event-stream, application/json")

    assert (events[0]["type"], events[-1]["type"]) == ("started", "ended")
    assert rest.json()["data"] == {"events": events[1:], "next": None}
    assert over.json()["data"] == {"events": [], "next": None}
    assert both.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("seen", ["x", "-1", "1.5", "9" * 30])
async def test_f6_a_last_event_id_that_is_none_is_422(seen: str) -> None:
    async with served(TWO, first=same, second=same) as server:
        run_id = await ended(server)
        header = await server.get(f"/runs/{run_id}/events", Last_Event_ID=seen)
        query = await server.get(f"/runs/{run_id}/events?after={seen}")

    assert [header.status_code, query.status_code] == [422, 422]


async def test_x15_a_client_that_does_not_read_costs_a_page_and_holds_up_nobody() -> None:
    """The long run's lines are many pages; a stream that nobody reads asks the log for one of them."""
    loop = "{id: again, runner: work, routes: {more: again}}"
    spec = f"{{trigger: {{path: /loop}}, limits: {{max_steps: 400}}, steps: [{loop}]}}"
    flow = f"metadata: {{name: loop}}\nspec: {spec}"
    read_lines = 0

    class CountingLog(MemoryLog):
        async def read(self, channel_id: str, *, after: int = 0) -> Any:
            nonlocal read_lines
            async for line in super().read(channel_id, after=after):
                read_lines += 1
                yield line

    def work(ctx: Ctx) -> tuple[Ctx, str]:
        ctx["n"] = ctx.get("n", 0) + 1
        return ctx, "more" if ctx["n"] < 400 else "default"

    async with served(flow, log=CountingLog, work=work) as server:
        run_id = (await server.post("/loop", {})).headers["x-run-id"]
        seq = (await server.runtime.runs.state(run_id)).seq
        read_lines = 0
        async with listening(server, run_id) as slow, listening(server, run_id) as quick:
            await slow.next()
            await slow.next()
            after_slow = read_lines
            pieces = await quick.rest()
        pages = await listed(server, run_id)

    assert seq > 512
    assert 0 < after_slow <= 2 * 256 + 2
    assert read(pieces[-1])["type"] == "ended"
    assert len(pieces) >= 400
    assert [event for page in pages for event in page] == [read(piece) for piece in pieces]
    assert len(pages) > 2


async def listed(server: Server, run_id: str) -> list[list[dict[str, Any]]]:
    """The run's events as pages of JSON."""
    pages, after = [], 0
    while after is not None:
        answer = await server.get(f"/runs/{run_id}/events?after={after}", Accept="application/json")
        pages.append(answer.json()["data"]["events"])
        after = answer.json()["data"]["next"]
    return pages


async def test_f13_a_stream_ends_when_its_token_does() -> None:
    clock = SleepersClock()
    PEOPLE["brief"] = replace(
        person("brief", "runs:read"), expires_at=datetime(2030, 1, 1, 12, 0, 20, tzinfo=UTC)
    )
    try:
        async with served(EVENT, clock=clock) as server:
            run_id = (await server.post("/pay", {})).headers["x-run-id"]
            async with listening(server, run_id, token="brief") as stream:
                while read(await stream.next())["type"] != "waiting":
                    pass
                rest = asyncio.create_task(stream.rest())
                while await clock.asleep.get() != RECHECK_SECONDS:
                    pass
                clock.advance(30)
                pieces = await rest
    finally:
        del PEOPLE["brief"]

    assert set(pieces) <= {": still here\n\n"}


class Revoking:
    """A server's tokens, and another process that revokes them on the same log."""

    def __init__(self, clock: ManualClock) -> None:
        log, new_id = MemoryLog(), sortable_ids(clock)
        self.authenticator = TokenAuthenticator(InlineReader(), Revocations(log, clock, new_id), clock)
        self._elsewhere = Revocations(log, clock, new_id)

    async def revoke(self, token: str) -> None:
        await self._elsewhere.revoke(reading(token).revocation_ids[-1:], reason="", by="root")


async def seconds_until(done: asyncio.Future[Any], clock: ManualClock) -> float:
    """Let time pass until `done` is; return how much."""
    began = clock.monotonic()
    while not done.done():
        assert clock.monotonic() - began < 60, "it does not end"
        await let_pass(0.25, clock)
    return clock.monotonic() - began


async def let_pass(seconds: float, clock: ManualClock) -> None:
    """Let time pass in small steps, with room for what each step wakes."""
    until = clock.monotonic() + seconds
    while clock.monotonic() < until:
        clock.advance(0.25)
        for _ in range(50):
            await asyncio.sleep(0)


@pytest.mark.parametrize("path", ["/runs/{}/events", "/channels/{}/stream", "/channels/events"])
async def test_a_revoked_token_loses_its_open_streams_within_five_seconds(path: str) -> None:
    clock = ManualClock()
    tokens, token, other = Revoking(clock), minted(scopes=["*"]), minted(scopes=["*"])
    async with served(EVENT, clock=clock, authenticator=tokens.authenticator) as server:
        run_id = (await server.post("/pay", {}, token=token)).headers["x-run-id"]
        stream = Listening(server.app, path.format(run_id), token=token)
        kept = Listening(server.app, path.format(run_id), token=other)
        ended, stays = asyncio.create_task(stream.rest()), asyncio.create_task(kept.rest())
        await server.get("/health")
        await tokens.revoke(token)
        seconds = await seconds_until(ended, clock)

        assert (stream.status, kept.status) == (200, 200)
        assert seconds <= 5
        assert not stays.done()
        stays.cancel()
        await stream.close()
        await kept.close()


@pytest.mark.parametrize("moment", [0.25, 1.0, 1.75, 2.25, 3.0, 3.75])
async def test_a_revoked_token_loses_its_streams_in_time_whenever_the_list_was_read_last(
    moment: float,
) -> None:
    """The worst case: a request of another token has just read the list of revocations."""
    clock = ManualClock()
    tokens, token, other = Revoking(clock), minted(scopes=["*"]), minted(scopes=["*"])
    async with served(EVENT, clock=clock, authenticator=tokens.authenticator) as server:
        run_id = (await server.post("/pay", {}, token=token)).headers["x-run-id"]
        stream = Listening(server.app, f"/runs/{run_id}/events", token=token)
        ended = asyncio.create_task(stream.rest())
        await let_pass(moment, clock)
        assert (await server.get("/flows", token=other)).status_code == 200
        await tokens.revoke(token)

        assert await seconds_until(ended, clock) <= 5
        await stream.close()


async def test_a_revoked_token_loses_a_stream_that_it_does_not_read() -> None:
    clock = ManualClock()
    tokens, token, other = Revoking(clock), minted(scopes=["*"]), minted(scopes=["*"])
    settings = ServerSettings(streams=1)
    async with served(EVENT, clock=clock, settings=settings, authenticator=tokens.authenticator) as server:
        path = f"/runs/{(await server.post('/pay', {}, token=token)).headers['x-run-id']}/events"
        stuck = Listening(server.app, path, token=token)
        await stuck.answered.wait()
        full = await server.get(path, token=other)
        await tokens.revoke(token)
        await let_pass(5, clock)
        await stuck.ended.wait()  # What it had not read is lost; its place is free.
        freed = Listening(server.app, path, token=other)
        await freed.answered.wait()
        await freed.close()

    assert (full.status_code, freed.status) == (503, 200)


async def test_who_started_a_run_may_follow_it_without_a_scope_for_those_of_others() -> None:
    async with served(EVENT) as server:
        run_id = (await server.post("/pay", {}, token="ann")).headers["x-run-id"]
        async with listening(server, run_id, token="ann") as stream:
            first = read(await stream.next())

    assert first["type"] == "started"


async def test_a_stream_ends_when_the_server_stops() -> None:
    async with served(EVENT) as server:
        run_id = (await server.post("/pay", {})).headers["x-run-id"]
        async with listening(server, run_id) as stream:
            while read(await stream.next())["type"] != "waiting":
                pass
            server.runtime.drain()
            rest = await stream.rest()

    assert rest == []


async def test_more_streams_than_the_server_takes_are_503_and_a_closed_one_makes_room() -> None:
    async with served(EVENT, settings=ServerSettings(streams=1)) as server:
        run_id = (await server.post("/pay", {})).headers["x-run-id"]
        async with listening(server, run_id) as stream:
            await stream.next()
            refused = await server.get(f"/runs/{run_id}/events")
        async with listening(server, run_id) as again:
            first = read(await again.next())

    assert refused.status_code == 503
    assert first["type"] == "started"


class GatedLog(Wrapped):
    """Holds up whoever reads `channel` from its start."""

    def __init__(self) -> None:
        super().__init__()
        self.channel = ""
        self.gate = asyncio.Event()
        self.inside = 0

    async def read(self, channel_id: str, *, after: int = 0) -> AsyncIterator[Envelope]:
        if channel_id == self.channel and not after:
            self.inside += 1
            await self.gate.wait()
        async for envelope in self.inner.read(channel_id, after=after):
            yield envelope


async def test_few_of_the_streams_that_wake_together_read_at_the_same_time() -> None:
    """The others wait, and requests are served between them."""
    log = GatedLog()
    async with served(EVENT, log=lambda: log) as server:
        run_id = (await server.post("/pay", {})).headers["x-run-id"]
        for _ in range(RECENT_ENVELOPES + 1):  # The first line is not in memory any more.
            await server.runtime.hub.write(run_id, "app.note", {})
        log.channel = run_id
        streams = [Listening(server.app, f"/runs/{run_id}/events") for _ in range(PAGES_AT_ONCE + 5)]
        waiting = [asyncio.create_task(stream.next()) for stream in streams]
        await until(lambda: log.inside == PAGES_AT_ONCE)
        await quiet()
        inside = log.inside
        log.gate.set()
        first = [read(await one)["type"] for one in waiting]
        for stream in streams:
            await stream.close()

    assert inside == PAGES_AT_ONCE
    assert first == ["started"] * len(streams)


async def test_one_user_has_a_limit_of_streams_and_others_are_served() -> None:
    async with served(EVENT, settings=ServerSettings(streams_per_user=1)) as server:
        run_id = (await server.post("/pay", {})).headers["x-run-id"]
        async with listening(server, run_id) as stream:
            await stream.next()
            refused = await server.get(f"/runs/{run_id}/events")
            others = Listening(server.app, f"/runs/{run_id}/events", token="reader")
            first = read(await others.next())
            await others.close()
        async with listening(server, run_id) as again:
            await again.next()

    assert refused.status_code == 429
    assert "streams_per_user" in refused.json()["error"]["message"]
    assert first["type"] == "started"


async def test_the_words_of_an_agent_step_come_as_they_are_written() -> None:
    flow = """
metadata: {name: say}
spec:
  trigger: {path: /say}
  steps:
    - {id: rest, kind: wait, wait: {event: begin}}
    - {id: speak, kind: agent, agent: {name: ada, prompt: go}}
"""
    async with served(flow, agents=[Agent("ada", config=ScriptedModel("one two three"))]) as server:
        run_id = (await server.post("/say", {})).headers["x-run-id"]
        stream = Listening(server.app, f"/runs/{run_id}/events")
        told = [await stream.next() for _ in range(3)]
        await server.post(f"/runs/{run_id}/events/begin", {})
        told += await stream.rest()

    words = [piece for piece in told if piece.startswith("event: words\n")]
    texts = [msgspec.json.decode(piece.partition("data: ")[2]) for piece in words]
    assert "".join(one["text"] for one in texts) == "one two three"
    assert {one["agent_id"] for one in texts} == {"speak"}
    ended = [place for place, piece in enumerate(told) if '"step":"speak"' in piece and "step_ended" in piece]
    assert told.index(words[0]) < ended[0]
