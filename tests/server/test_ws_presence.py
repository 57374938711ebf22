"""A presence: what a hub's end holds for a client, beyond its connection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.client.ws_proxy import CuttingProxy
from tests.hub.scenes import A_B, FailingLog, begin, quiet, refused, sqlite, until
from tests.server.ws_raw import Raw, Tokens, raw, served
from turnline.client.backoff import Backoff
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.turn import Turn
from turnline.client.ws_link import WsLink
from turnline.core.directory import DIRECTORY_CHANNEL
from turnline.core.envelope import Envelope
from turnline.core.governance import Passport
from turnline.core.graph import round_robin
from turnline.errors import LogUnavailable, NameTaken
from turnline.hub.retry import RETRY_SECONDS
from turnline.network.workflow_helpers import update_context
from turnline.server.serve_ws import ServedWs, serve_ws
from turnline.server.ws_settings import WsSettings
from turnline.testing.manual_clock import ManualClock

QUICK = Backoff(first_seconds=0.001, most_seconds=0.05)


async def claimed(client: Raw, hub: Hub, **fields: Any) -> tuple[str, int]:
    """Alice has claimed the first turn of a channel; her id and the claim."""
    await hub.register(None, Passport(name="bob"))
    alice = await client.join("alice")
    knobs = {"graph": A_B.to_dict()}
    request = {"type": "workflow", "target": ["bob"], "channel_id": "story", "knobs": knobs}
    await client.ask("open", seat=alice, request=request)
    return alice, await client.claim(alice, "story", request_id="claim-1", **fields)


def clock_of(hub: Hub) -> ManualClock:
    assert isinstance(hub.clock, ManualClock)
    return hub.clock


async def gone(serving: ServedWs) -> None:
    await until(lambda: serving.counters.connections == 0)
    await quiet()


async def test_a_client_that_comes_back_has_its_seats_and_its_claim() -> None:
    async with served() as (hub, serving):
        async with raw(serving.url) as client:
            presence = (await client.hello())["presence"]
            alice, claim = await claimed(client, hub)
            client.connection.transport.abort()
        await gone(serving)
        async with raw(serving.url) as client:
            welcome = await client.hello(presence=presence)
            line: dict[str, Any] = {
                "claim": claim,
                "speaker": alice,
                "event_type": "turn.released",
                "data": {},
            }
            await client.ask("write", seat=alice, channel_id="story", **line)

            assert welcome["resumed"] is True
            assert (await hub.state("story")).claim is None


async def test_a_client_that_does_not_come_back_in_time_is_given_up() -> None:
    async with served(settings=WsSettings(grace_seconds=30)) as (hub, serving):
        async with raw(serving.url) as client:
            presence = (await client.hello())["presence"]
            await claimed(client, hub)
            client.connection.transport.abort()
        await gone(serving)
        clock_of(hub).advance(29)
        assert serving.counters.presences == 1
        clock_of(hub).advance(2)
        await until(lambda: serving.counters.presences == 0)
        async with raw(serving.url) as client:
            assert (await client.hello(presence=presence)).get("resumed", False) is False

        assert serving.counters.given_up == 1


async def test_a_presence_is_its_owners_alone() -> None:
    tokens = Tokens(ann=["channels:*"], ben=["channels:*"])
    async with served(tokens) as (_, serving):
        async with raw(serving.url) as client:
            presence = (await client.hello("ann"))["presence"]
        async with raw(serving.url) as client:
            welcome = await client.hello("ben", presence=presence)

            assert welcome["presence"] != presence
            assert "resumed" not in welcome


async def test_a_request_that_is_sent_again_is_answered_again_and_done_once() -> None:
    async with served() as (hub, serving), raw(serving.url) as client:
        await client.hello()
        alice, claim = await claimed(client, hub)
        again = await client.claim(alice, "story", request_id="claim-1")

        assert again == claim
        assert [one.event_type for one in await hub.read_wal("story")].count("turn.claimed") == 1


async def test_a_claim_that_is_asked_for_again_under_its_id_is_the_same() -> None:
    async with served() as (hub, serving), raw(serving.url) as client:
        await client.hello()
        alice, claim = await claimed(client, hub, claim_id="once")
        again = await client.claim(alice, "story", request_id="claim-2", claim_id="once")

        assert again == claim
        assert [one.event_type for one in await hub.read_wal("story")].count("turn.claimed") == 1


async def test_the_server_logs_a_turn_that_failed_over_a_link_once(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as (hub, serving), raw(serving.url) as client:
        await client.hello()
        alice, claim = await claimed(client, hub)
        error = {"type": "KeyError", "message": "'lamp'\x1b[31m\nTraceback"}
        fields: dict[str, Any] = {"channel_id": "story", "claim": claim, "speaker": alice}
        fields |= {"event_type": "turn.failed", "data": {"error": error}}
        for _ in range(2):
            await client.ask("write", seat=alice, request_id="fail-1", **fields)

    (said,) = [one.getMessage() for one in caplog.records if one.name == "turnline.server.ws_requests"]
    reason = "KeyError: 'lamp'\N{REPLACEMENT CHARACTER}[31m"
    assert said == f"a turn of {alice} on channel story failed: {reason}"


async def test_it_is_done_once_also_where_the_answer_is_not_kept() -> None:
    """Another process, or an answer that was dropped: the log knows the request's id (E1)."""
    async with served() as (hub, serving):
        async with raw(serving.url) as client:
            await client.hello()
            alice, claim = await claimed(client, hub)
            await client.send({"kind": "ack", "ids": ["claim-1"]})
            assert await client.claim(alice, "story", request_id="claim-1") == claim
            turn: dict[str, Any] = {"channel_id": "story", "claim": claim, "speaker": alice}
            lines: list[tuple[str, dict[str, Any]]] = [
                ("turn.model", {"entry": {}}),
                ("turn.failed", {"error": {"type": "x"}}),
            ]
            for number, (event_type, data) in enumerate(lines):
                line = {**turn, "event_type": event_type, "data": data}
                first = await client.ask("write", seat=alice, request_id=f"write-{number}", **line)
                await client.send({"kind": "ack", "ids": [f"write-{number}"]})
                again = await client.ask("write", seat=alice, request_id=f"write-{number}", **line)
                assert first == again

        types = [one.event_type for one in await hub.read_wal("story")]
        assert [types.count(one) for one in ("turn.claimed", "turn.model", "turn.failed")] == [1, 1, 1]


async def test_the_seat_of_a_client_that_was_killed_goes_to_the_next_of_its_name() -> None:
    """What it had claimed can be taken over at once."""
    async with served() as (hub, serving):
        async with raw(serving.url) as client:
            await client.hello()
            alice, claim = await claimed(client, hub)
            client.connection.transport.abort()
        await gone(serving)
        async with raw(serving.url) as client:
            await client.hello()
            assert await client.join("alice") == alice
            again = await client.claim(alice, "story")

        assert again > claim


async def test_the_next_process_of_a_client_that_was_killed_may_bring_another_resume() -> None:
    async with served() as (hub, serving):
        async with raw(serving.url) as client:
            await client.hello()
            alice = await client.join("alice")
            client.connection.transport.abort()
        await gone(serving)
        async with raw(serving.url) as client:
            await client.hello()
            await client.ask("register", passport={"name": "alice"}, resume={"summary": "edits"})
            answer = await client.ask("attach", seat=alice)

        assert "error" not in answer
        assert hub.participant("alice").resume.summary == "edits"


async def test_the_seat_of_a_client_that_is_there_stays_its() -> None:
    async with served() as (_, serving), WsLink(serving.url) as one, WsLink(serving.url) as two:
        await HubClient(one).register(None, Passport(name="alice"))
        await refused(NameTaken, HubClient(two).register(None, Passport(name="alice")))


async def test_whoever_waits_waits_through_a_cut_and_hears_what_was_said_meanwhile() -> None:
    async with served() as (hub, serving), CuttingProxy(serving.url) as proxy:
        bob = await hub.register(None, Passport(name="bob"))
        async with WsLink(proxy.url, backoff=QUICK) as link:
            alice = await HubClient(link).register(None, Passport(name="alice"))
            heard: list[Envelope] = []
            alice.on_envelope(heard.append)
            channel = await alice.open("conversation", "bob")
            waiting = begin(channel.result())
            for number in range(5):
                proxy.cut_all()
                await bob.channel(channel.channel_id).send(str(number))
            await until(lambda: link.connections > 1)
            await bob.channel(channel.channel_id).close("enough")
            result = await waiting
            await until(lambda: heard[-1].event_type == "channel.closed")

    assert (result.reason, result.text) == ("enough", "4")
    assert [one.event_data["text"] for one in heard if one.event_type == "text"] == list("01234")


async def test_an_answer_is_kept_until_it_is_acknowledged() -> None:
    async with served() as (hub, serving), raw(serving.url) as client:
        await client.hello()
        alice = await client.join("alice")
        first = await client.ask("peers", seat=alice, request_id="once")
        await hub.register(None, Passport(name="bob"))
        again = await client.ask("peers", seat=alice, request_id="once")
        await client.send({"kind": "ack", "ids": ["once"]})
        anew = await client.ask("peers", seat=alice, request_id="once")

        assert first == again
        assert [one["name"] for one in anew["result"]] == ["bob"]


async def test_a_request_finds_the_seat_that_the_frame_before_it_took() -> None:
    async with served() as (_, serving), raw(serving.url) as client:
        await client.hello()
        alice = await client.join("alice")
        await client.ask("leave", seat=alice)
        for number, op in enumerate(["attach", "peers", "leave", "attach", "channels"]):
            await client.send({"kind": "request", "id": f"{number}-{alice}", "op": op, "seat": alice})
        answers = [await client.receive() for _ in range(5)]

        assert [one.get("error") for one in answers] == [None] * 5


async def test_nobody_listens_to_a_channel_for_a_client_that_has_left() -> None:
    async with served() as (hub, serving), raw(serving.url) as client:
        await client.hello()
        alice, _ = await claimed(client, hub)
        await client.ask("listen", seat=alice, channel_id="story")
        assert hub.texts.is_heard("story")
        await client.send({"kind": "bye", "reason": "closed"})

        await until(lambda: not hub.texts.is_heard("story"))


async def test_a_wait_that_was_cancelled_is_cancelled_at_the_server() -> None:
    """There is room for one request: the next is answered only if the first is gone."""
    async with served(settings=WsSettings(requests=1)) as (hub, serving), WsLink(serving.url) as link:
        await hub.register(None, Passport(name="bob"))
        alice = await HubClient(link).register(None, Passport(name="alice"))
        channel = await alice.open("discussion", "bob")
        waiting = begin(alice.seat.read_next(channel.channel_id, 1_000))
        await quiet()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

        assert [one.name for one in await alice.seat.peers()] == ["bob"]


async def speak(turn: Turn) -> str:
    await update_context(turn.channel, increment={"turns": 1})
    return f"turn {turn.number}"


async def test_a_conversation_goes_on_with_the_next_server_on_the_same_log(tmp_path: Path) -> None:
    """The server is stopped three times; its clients wait for the next one, and nothing is done twice."""
    turns = 12

    async def up(port: int) -> tuple[Hub, ServedWs]:
        hub = await Hub.open(sqlite(tmp_path), ttl_sweep_interval=0)
        serving = serve_ws(hub, port=port)
        await serving.open()
        return hub, serving

    hub, serving = await up(0)
    port = serving.port
    async with asyncio.timeout(60), WsLink(serving.url, backoff=QUICK) as link:
        client = HubClient(link)
        for name in ("ada", "bob"):
            (await client.register(passport=Passport(name=name))).on_turn(speak)
        user = await client.register_human(Passport(name="user", kind="human"))
        graph = round_robin(["ada", "bob"], max_turns=turns).to_dict()
        channel = await user.open(
            "workflow", ["ada", "bob"], {"graph": graph}, channel_id="story", message="go"
        )
        waiting = begin(channel.result())
        for restart in range(1, 4):
            while (await hub.state("story")).turn_count < restart * 3:
                await hub.wait_beyond("story", (await hub.state("story")).seq)
            await serving.close()
            await hub.close()
            hub, serving = await up(port)
        result = await waiting
        lines = await hub.read_wal("story")

        assert result.context_vars == {"turns": turns}
        said = [one.event_data["body"] for one in lines if one.event_type == "packet"]
        assert said == [f"turn {n}" for n in range(1, turns + 1)]
        assert link.connections >= 4
        await client.close()
    await serving.close()
    await hub.close()


async def test_a_client_takes_its_seats_from_a_presence_that_it_had_before() -> None:
    """It was cut, and connected to another server meanwhile. This one has not noticed the cut."""
    async with served() as (_, serving), raw(serving.url) as before, raw(serving.url) as client:
        earlier = (await before.hello())["presence"]
        alice = await before.join("alice")
        await client.hello()
        lost = await client.ask("resume", seats={alice: {}}, pending=[])
        taken = await client.ask("resume", seats={alice: {}}, pending=[], earlier=[earlier])

        assert list(lost["result"]["lost"]) == [alice]
        assert taken["result"]["lost"] == {}


@pytest.mark.parametrize(
    ("event_type", "data"),
    [
        ("turn.once", {"key": "k", "result": 1}),
        ("packet", {"body": "done"}),
        ("turn.paused", {"reason": "time", "seconds": 9.0, "turn": 1}),
        ("turn.failed", {"error": {"type": "ValueError", "message": "no"}}),
    ],
)
async def test_a_line_of_a_turn_waits_until_the_log_can_be_read(
    event_type: str, data: dict[str, Any]
) -> None:
    log = FailingLog()
    async with served(log=log, cache_bytes=1) as (hub, serving), raw(serving.url) as client:
        await client.hello()
        alice, claim = await claimed(client, hub)
        request = {
            "type": "workflow",
            "target": ["bob"],
            "channel_id": "b",
            "knobs": {"graph": A_B.to_dict()},
        }
        await client.ask("open", seat=alice, request=request)
        log.fails_on, log.fail_read = "story", LogUnavailable("here", because="it is away")
        if event_type == "turn.paused":
            data = {**data, "agent_id": alice}
        line: dict[str, Any] = {"event_type": event_type, "data": data}
        writing = begin(
            client.ask("write", seat=alice, channel_id="story", claim=claim, speaker=alice, **line)
        )
        await until(lambda: log.fail_read is None)
        while not writing.done():
            clock_of(hub).advance(RETRY_SECONDS)
            await asyncio.sleep(0.001)

        assert "error" not in await writing
        assert event_type in [one.event_type for one in await hub.read_wal("story")]


async def test_a_client_loses_no_seat_because_its_server_cannot_read_the_log() -> None:
    """The server that it comes back to has not read who is registered."""
    log = FailingLog()
    async with served(log=log) as (_, serving), raw(serving.url) as client:
        await client.hello()
        log.fails_on, log.fail_read = DIRECTORY_CHANNEL, LogUnavailable("here", because="it is away")
        args = {"seats": {"una-1": {}}, "pending": []}
        await client.send({"kind": "request", "id": "r", "op": "resume", "seat": "", "args": args})
        frame = await client.receive()

        assert (frame["kind"], frame["reason"]) == ("bye", "log_away")
