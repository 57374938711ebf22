"""A presence: what a hub's end holds for a client, beyond its connection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.client.ws_proxy import CuttingProxy
from tests.hub.scenes import A_B, begin, quiet, refused, sqlite, until
from tests.server.ws_raw import Raw, Tokens, raw, served
from turnline.client.backoff import Backoff
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.turn import Turn
from turnline.client.ws_link import WsLink
from turnline.core.envelope import Envelope
from turnline.core.governance import Passport
from turnline.core.graph import round_robin
from turnline.errors import NameTaken
from turnline.network.workflow_helpers import update_context
from turnline.server.serve_ws import ServedWs, serve_ws
from turnline.server.ws_settings import WsSettings
from turnline.testing.manual_clock import ManualClock

QUICK = Backoff(first_seconds=0.001, most_seconds=0.05)


async def claimed(client: Raw, hub: Hub, **fields: str) -> tuple[str, int]:
    """Alice has claimed the first turn of a channel; her id and the claim."""
    await hub.register(None, Passport(name="bob"))
    alice = await client.join("alice")
    knobs = {"graph": A_B.to_dict()}
    request = {"type": "workflow", "target": ["bob"], "channel_id": "story", "knobs": knobs}
    await client.ask("open", seat=alice, request=request)
    answer = await client.ask("claim", seat=alice, request_id="claim-1", channel_id="story", turn=1, **fields)
    return alice, answer["result"]["seq"]


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
            await client.ask("release", seat=alice, channel_id="story", claim=claim)

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
        again = await client.ask("claim", seat=alice, request_id="claim-1", channel_id="story", turn=1)

        assert again["result"]["seq"] == claim
        assert [one.event_type for one in await hub.read_wal("story")].count("turn.claimed") == 1


async def test_a_claim_that_is_asked_for_again_under_its_id_is_the_same() -> None:
    async with served() as (hub, serving), raw(serving.url) as client:
        await client.hello()
        alice, claim = await claimed(client, hub, envelope_id="once")
        fields: dict[str, Any] = {"seat": alice, "channel_id": "story", "turn": 1, "envelope_id": "once"}
        again = await client.ask("claim", request_id="claim-2", **fields)

        assert again["result"]["seq"] == claim
        assert [one.event_type for one in await hub.read_wal("story")].count("turn.claimed") == 1


async def test_the_server_logs_a_turn_that_failed_over_a_link_once(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as (hub, serving), raw(serving.url) as client:
        await client.hello()
        alice, claim = await claimed(client, hub)
        error = {"type": "KeyError", "message": "'lamp'\x1b[31m\nTraceback"}
        fields: dict[str, Any] = {"channel_id": "story", "claim": claim, "error": error}
        for _ in range(2):
            await client.ask("fail", seat=alice, request_id="fail-1", **fields)

    (said,) = [one.getMessage() for one in caplog.records if one.name == "turnline.server.ws_requests"]
    reason = "KeyError: 'lamp'\N{REPLACEMENT CHARACTER}[31m"
    assert said == f"a turn of {alice} on channel story failed: {reason}"


async def test_it_is_done_once_also_where_the_answer_is_not_kept() -> None:
    """Another process, or an answer that was dropped: the log knows the request's id (E1)."""
    async with served() as (hub, serving):
        async with raw(serving.url) as client:
            await client.hello()
            alice, claim = await claimed(client, hub)
            entry: dict[str, Any] = {"claim": claim, "event_type": "turn.model", "data": {"entry": {}}}
            for op, args in (("record", entry), ("fail", {"claim": claim, "error": {"type": "x"}})):
                first = await client.ask(op, seat=alice, request_id=f"{op}-1", channel_id="story", **args)
                await client.send({"kind": "ack", "ids": [f"{op}-1"]})
                again = await client.ask(op, seat=alice, request_id=f"{op}-1", channel_id="story", **args)
                assert first == again
            await client.send({"kind": "ack", "ids": ["claim-1"]})
            again = await client.ask("claim", seat=alice, request_id="claim-1", channel_id="story", turn=1)

        types = [one.event_type for one in await hub.read_wal("story")]
        assert [types.count(one) for one in ("turn.claimed", "turn.model", "turn.failed")] == [1, 1, 1]
        assert again["result"]["seq"] == claim


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
            again = await client.ask("claim", seat=alice, channel_id="story", turn=1)

        assert again["result"]["seq"] > claim


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


async def test_a_wait_that_was_cancelled_is_cancelled_at_the_server() -> None:
    """There is room for one request: the next is answered only if the first is gone."""
    async with served(settings=WsSettings(requests=1)) as (_, serving), WsLink(serving.url) as link:
        alice = await HubClient(link).register(None, Passport(name="alice"))
        sleeping = begin(alice.seat.sleep(10.0))
        await quiet()
        sleeping.cancel()
        await asyncio.gather(sleeping, return_exceptions=True)

        assert await alice.seat.peers() == []


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
