"""Who is let in over WebSocket, and what they may do there."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.certificates import LOOPBACK, certificate
from tests.hub.scenes import A_B, refused, until
from tests.server.auth.scenes import InlineReader, minted, reading
from tests.server.ws_raw import Raw, Tokens, raw, served
from turnline.client.embedded import Hub
from turnline.client.frames import FRAME_BYTES, decode_from_client
from turnline.client.hub_client import HubClient
from turnline.client.link import LocalLink
from turnline.client.ws_link import WsLink
from turnline.core.governance import Passport, Registration, Rule
from turnline.core.views import Notice
from turnline.errors import (
    Denied,
    Forbidden,
    LinkLost,
    NameTaken,
    RemoteFailed,
    Unauthenticated,
    UnknownParticipant,
)
from turnline.hub.request import OpenRequest
from turnline.hub.timers import sortable_ids
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.server.auth.operations import OPERATIONS
from turnline.server.auth.revocation import Revocations
from turnline.server.auth.tokens import TokenAuthenticator
from turnline.server.serve_ws import serve_ws
from turnline.server.ws_requests import REQUESTS
from turnline.server.ws_settings import WsSettings
from turnline.testing.manual_clock import ManualClock

ALL = ("channels:*",)


def both() -> Tokens:
    return Tokens(ann=ALL, ben=ALL)


def draft(sender_id: str, **fields: Any) -> dict[str, Any]:
    given = {"envelope_id": "e1", "event_type": "text", "event_data": {"text": "hello"}}
    return {"sender_id": sender_id, **given, **fields}


async def talk(client: Raw, by: str, to: str, channel_id: str = "story", **request: Any) -> str:
    request = {"type": "conversation", "target": [to], "channel_id": channel_id, **request}
    answer = await client.ask("open", seat=by, request=request)
    assert "error" not in answer, answer
    return channel_id


async def at_work(ann: Raw, ben: Raw, *others: str) -> tuple[str, str]:
    """Alice of ann's and bob of ben's are on a workflow channel; return their ids. Alice has the floor."""
    alice, bob = await ann.join("alice"), await ben.join("bob")
    request = {"type": "workflow", "knobs": {"graph": A_B.to_dict()}, "target": [bob, *others]}
    opening = asyncio.ensure_future(talk(ann, alice, bob, "story", **request))
    assert (await ben.receive())["kind"] == "wake"
    await ben.ask("answer_invite", seat=bob, channel_id="story")
    await opening
    return alice, bob


@asynccontextmanager
async def speaking() -> AsyncIterator[tuple[str, Raw, Raw, str, str]]:
    """Yield the server's address, the clients of ann and ben, and alice and bob.

    Alice works on her turn, and both clients listen to its words. Bob is also the id of a user.
    """
    async with (
        served(Tokens(ann=ALL, ben=ALL, bob=ALL)) as (_, serving),
        raw(serving.url, "ann") as ann,
        raw(serving.url, "ben") as ben,
    ):
        alice, bob = await at_work(ann, ben)
        await ann.claim(alice, "story")
        for client, seat in ((ann, alice), (ben, bob)):
            await client.ask("listen", seat=seat, channel_id="story")
        yield serving.url, ann, ben, alice, bob


async def accepting(hub: Hub, name: str) -> str:
    """Somebody of the hub's own process, who accepts whatever it is invited to."""
    return (await hub.register(None, Passport(name=name))).agent_id


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.com"])
async def test_without_tokens_only_this_machine_is_served(host: str) -> None:
    hub = await Hub.open(MemoryLog(), ttl_sweep_interval=0)
    with pytest.raises(Forbidden, match=r"127\.0\.0\.1"):
        serve_ws(hub, host)
    await hub.close()


async def test_nothing_but_a_hello_is_taken_first() -> None:
    async with served(both()) as (_, serving), raw(serving.url) as client:
        await client.send({"kind": "request", "id": "r1", "op": "register", "args": {}})
        bye = await client.receive()

        assert (bye["kind"], bye["reason"], bye["error"]["type"]) == ("bye", "bad_frames", "BadFrame")
        assert serving.counters.turned_away == 1


async def test_whoever_says_nothing_is_sent_away() -> None:
    settings = WsSettings(hello_seconds=0.02)
    async with served(both(), settings) as (_, serving), raw(serving.url) as client:
        assert (await client.receive())["reason"] == "unauthenticated"


async def test_a_bad_token_is_refused_and_not_repeated() -> None:
    canary = "canary-token-4711"
    async with served(both()) as (_, serving):
        async with raw(serving.url) as client:
            bye = await client.hello(canary)
        async with WsLink(serving.url, token=canary) as link:
            error = await refused(Unauthenticated, link.register(Passport(name="x"), None, None))

        assert bye["reason"] == "unauthenticated"
        assert canary not in json.dumps(bye) + str(error) + repr(link)


@pytest.mark.parametrize("token", ["unknown", "brief"])
async def test_a_client_without_a_valid_token_is_told_to_give_its_link_one(token: str) -> None:
    """An HTTP header is of no use to it."""
    tokens = Tokens(brief=ALL)
    async with served(tokens) as (hub, serving):
        tokens.expires_at = hub.clock.now() + timedelta(minutes=1)
        async with WsLink(serving.url, token=token) as link:
            if token == "brief":
                await link.register(Passport(name="alice"), None, None)
                assert isinstance(hub.clock, ManualClock)
                hub.clock.advance(61)
            error = await refused(Unauthenticated, link.register(Passport(name="bob"), None, None))

    assert "WsLink(URL, token=TOKEN)" in str(error)
    assert "Authorization" not in str(error)


async def test_another_version_is_not_spoken() -> None:
    async with served(both()) as (_, serving), raw(serving.url) as client:
        await client.send({"kind": "hello", "version": 2, "token": "ann"})
        assert (await client.receive())["reason"] == "version"


async def test_more_connections_than_there_are_places_are_sent_away() -> None:
    async with (
        served(both(), WsSettings(connections=1)) as (_, serving),
        raw(serving.url, "ann"),
        raw(serving.url) as second,
    ):
        assert (await second.receive())["reason"] == "too_many"


def test_every_request_needs_an_operation_that_is_known() -> None:
    assert {operation for operation, _ in REQUESTS.values()} <= set(OPERATIONS)


async def test_a_request_needs_its_scope() -> None:
    tokens = Tokens(ann=["channels:write"])
    async with served(tokens) as (hub, serving), raw(serving.url, "ann") as client:
        bob = await accepting(hub, "bob")
        alice = await client.join("alice")
        await talk(client, alice, bob)

        assert await client.refused("read", seat=alice, channel_id="story", after=0) == "Forbidden"
        tokens.scopes["ann"] = frozenset({"channels:*"})
        assert await client.refused("nonsense", seat=alice) == "BadFrame"


async def test_a_token_that_has_expired_since_is_good_for_nothing() -> None:
    tokens, settings = both(), WsSettings(recheck_seconds=3600)
    async with served(tokens, settings) as (hub, serving):
        tokens.expires_at = hub.clock.now() + timedelta(minutes=1)
        async with raw(serving.url, "ann") as client:
            alice = await client.join("alice")
            assert isinstance(hub.clock, ManualClock)
            hub.clock.advance(61)

            assert await client.refused("peers", seat=alice) == "Unauthenticated"


async def test_a_token_that_is_taken_away_ends_the_connection() -> None:
    tokens = both()
    async with served(tokens) as (hub, serving), raw(serving.url, "ann") as client:
        assert isinstance(hub.clock, ManualClock)
        del tokens.scopes["ann"]
        ending = asyncio.create_task(client.receive())
        while not ending.done():
            hub.clock.advance(WsSettings().recheck_seconds)
            await asyncio.sleep(0)

        assert (await ending)["reason"] == "unauthenticated"


async def test_a_revoked_token_loses_its_connection_within_five_seconds() -> None:
    log, clock = MemoryLog(), ManualClock()
    here, elsewhere = (Revocations(log, clock, sortable_ids(clock)) for _ in range(2))
    token = minted(scopes=ALL)
    hub = await Hub.open(MemoryLog(), ttl_sweep_interval=0, clock=clock)
    tokens = TokenAuthenticator(InlineReader(), here, clock)
    async with serve_ws(hub, authenticator=tokens) as serving, raw(serving.url, token) as client:
        await elsewhere.revoke(reading(token).revocation_ids[-1:], reason="", by="root")
        assert await client.is_usable()
        with suppress(ConnectionClosed):
            while await client.is_usable():
                assert clock.monotonic() <= 5, "it is still connected"
                clock.advance(0.25)
    await hub.close()


async def test_a_client_whose_token_is_taken_away_loses_its_seats_at_once() -> None:
    tokens = both()
    async with served(tokens) as (hub, serving), raw(serving.url, "ann") as client:
        assert isinstance(hub.clock, ManualClock)
        alice = await client.join("alice")
        del tokens.scopes["ann"]
        ending = asyncio.create_task(client.receive())
        while not ending.done():
            hub.clock.advance(WsSettings().recheck_seconds)
            await asyncio.sleep(0)
        await until(lambda: serving.counters.presences == 0)  # The clock stands still: no grace has passed.

        hub.attach(alice, Deaf())


async def test_the_sender_is_whoever_has_the_seat() -> None:
    async with served(both()) as (hub, serving), raw(serving.url, "ann") as client:
        bob = await accepting(hub, "bob")
        alice = await client.join("alice")
        await talk(client, alice, bob)
        said = await client.ask("post", seat=alice, channel_id="story", draft=draft(bob))

        assert said["result"]["sender_id"] == alice
        assert await client.refused("post", seat=bob, channel_id="story", draft=draft(bob)) == "BadFrame"


async def test_what_another_has_registered_is_another_ones() -> None:
    async with served(both()) as (hub, serving), raw(serving.url, "ann") as ann:
        alice = await ann.join("alice")
        async with WsLink(serving.url, token="ben") as link:
            await refused(NameTaken, link.register(Passport(name="alice"), None, None))
            stranger = Registration(agent_id=alice, passport=Passport(name="alice"))
            mine = await refused(UnknownParticipant, link.attach(stranger, Deaf()))
            nobody = Registration(agent_id="nobody", passport=Passport(name="alice"))
            other = await refused(UnknownParticipant, link.attach(nobody, Deaf()))

        assert str(mine).replace(alice, "X") == str(other).replace("nobody", "X")
        assert hub.participant("alice").passport.owner == "ann"


async def test_a_client_registers_for_its_own_user_only() -> None:
    async with served(both()) as (hub, serving), raw(serving.url, "ben") as ben:
        refusal = await ben.refused("register", passport={"name": "alice", "owner": "ann"})

        assert refusal == "BadDraft"
        assert hub.participants() == []


@pytest.mark.parametrize("hubs", [1, 2], ids=["one server", "two servers on one log"])
async def test_of_two_users_who_register_one_new_name_at_once_one_gets_it_and_its_seat(
    tmp_path: Path, hubs: int
) -> None:
    async with AsyncExitStack() as stack:
        links = []
        logs = [SqliteLog(tmp_path / "log.db", durability="process") for _ in range(hubs)]
        servers = [await stack.enter_async_context(served(both(), log=log, follow=True)) for log in logs]
        for (_, serving), token in zip(servers * 2, ("ann", "ben"), strict=False):
            links.append(await stack.enter_async_context(WsLink(serving.url, token=token)))
        for number in range(30):
            name = f"new-{number}"
            tries = (link.register(Passport(name=name), None, None) for link in links)
            got = await asyncio.gather(*tries, return_exceptions=True)
            [winner] = [found for found in got if isinstance(found, Registration)]
            [loser] = [number for number, found in enumerate(got) if isinstance(found, NameTaken)]
            await refused(UnknownParticipant, links[loser].attach(winner, Deaf()))
            seat = await links[1 - loser].attach(winner, Deaf())

            assert winner.passport.owner == ("ann", "ben")[1 - loser]
            assert seat.agent_id == winner.agent_id
            for hub, _ in servers:
                assert await hub.lookup(name) == winner


async def test_a_seat_is_taken_at_the_next_server_right_after_its_registration_at_another(
    tmp_path: Path,
) -> None:
    log, other = (SqliteLog(tmp_path / "log.db", durability="process") for _ in range(2))
    async with served(both(), log=log) as (_, one), served(both(), log=other) as (_, two):
        async with WsLink(one.url, token="ann") as here, WsLink(two.url, token="ann") as there:
            alice = await here.register(Passport(name="alice"), None, None)
            seat = await there.attach(alice, Deaf())

        assert seat.agent_id == alice.agent_id


async def test_a_person_over_a_link_has_the_name_of_their_user_id() -> None:
    tokens = Tokens(ann=ALL, root=["*"])
    person = Passport(name="carol", kind="human")
    async with served(tokens) as (_, serving), WsLink(serving.url, token="ann") as link:
        error = await refused(Denied, link.register(person, None, None))
        own = await link.register(Passport(name="ann", kind="human"), None, None)
        async with WsLink(serving.url, token="root") as admin:
            other = await admin.register(person, None, None)

        assert "'ann'" in str(error)
        assert "admin" in str(error)
        assert (own.passport.owner, other.passport.owner) == ("ann", "root")


async def test_of_two_users_of_one_server_who_register_a_name_at_once_one_gets_it() -> None:
    async with (
        served(both()) as (hub, serving),
        WsLink(serving.url, token="ann") as ann,
        WsLink(serving.url, token="ben") as ben,
    ):
        for number in range(30):
            passport = Passport(name=f"new-{number}")
            tries = (link.register(passport, None, None) for link in (ann, ben))
            got = await asyncio.gather(*tries, return_exceptions=True)
            [winner] = [one for one in got if isinstance(one, Registration)]

            assert sorted(type(one).__name__ for one in got) == ["NameTaken", "Registration"]
            assert hub.participant(passport.name).passport.owner == winner.passport.owner


async def test_a_user_gets_the_name_of_their_own_id_back_from_a_squatter() -> None:
    async with served(both()) as (hub, serving), raw(serving.url, "ann") as ann:
        squatter = await ann.join("ben")
        async with WsLink(serving.url, token="ben") as link:
            ben = await link.register(Passport(name="ben", kind="human"), None, None)
            await link.attach(ben, Deaf())

            assert hub.participant("ben").agent_id == ben.agent_id != squatter
            for op in ("channels", "peers"):
                assert await ann.refused(op, seat=squatter) == "UnknownParticipant"
            assert await ann.refused("register", passport={"name": "ben"}) == "NameTaken"


async def test_a_user_registers_only_so_many_names() -> None:
    async with (
        served(both(), WsSettings(names_per_user=2)) as (_, serving),
        WsLink(serving.url, token="ann") as ann,
        WsLink(serving.url, token="ben") as ben,
    ):
        client = HubClient(ann)
        for name in ("one", "two"):
            await client.register(None, Passport(name=name))
        error = await refused(Denied, client.register(None, Passport(name="three")))
        await ben.register(Passport(name="three of ben"), None, None)
        await client.unregister("one")
        await client.register(None, Passport(name="three"))

        assert "2 per user" in str(error)


async def test_nobody_gets_rid_of_a_rule_by_leaving() -> None:
    tokens = Tokens(ann=ALL, root=["*"])
    async with served(tokens) as (hub, serving):
        await hub.enrol(Passport(name="alice", owner="ann"), None, Rule(inbox=1))
        async with WsLink(serving.url, token="ann") as link:
            alice = await HubClient(link).register(None, Passport(name="alice"))
            error = await refused(Forbidden, alice.unregister())

            assert error.operation == "agents.rule"
            assert hub.participant("alice").rule == Rule(inbox=1)
            assert await alice.seat.peers() == []


async def test_nobody_unregisters_what_is_another_ones() -> None:
    async with served(both()) as (hub, serving), raw(serving.url, "ann") as ann:
        alice = await ann.join("alice")
        async with raw(serving.url, "ben") as ben:
            assert await ben.refused("unregister", seat=alice) == "BadFrame"

        assert hub.participant("alice").agent_id == alice


async def test_nobody_gives_itself_a_rule() -> None:
    async with served(both()) as (_, serving), WsLink(serving.url, token="ann") as link:
        error = await refused(Forbidden, link.register(Passport(name="alice"), None, Rule()))
        assert error.operation == "agents.rule"


async def test_a_channel_of_others_is_as_unknown_as_one_that_is_not_there() -> None:
    async with (
        served(both()) as (hub, serving),
        raw(serving.url, "ann") as ann,
        raw(serving.url, "ben") as ben,
    ):
        bob = await accepting(hub, "bob")
        await talk(ann, await ann.join("alice"), bob)
        stranger = await ben.join("stranger")
        given: dict[str, dict[str, Any]] = {
            "read": {"after": 0},
            "state": {},
            "metadata": {},
            "read_next": {"after": 0},
            "wait_unclaimed": {},
            "summary": {},
            "close_channel": {"reason": "x"},
            "answer_invite": {},
            "claim": {"floor": {"speaker": stranger, "turn": 1, "seq": 3}},
            "write": {"claim": 3, "speaker": stranger, "event_type": "turn.model", "data": {}},
            "post": {"draft": draft(stranger)},
        }
        for op, args in given.items():
            told = [
                json.dumps((await ben.ask(op, seat=stranger, channel_id=name, **args))["error"]).replace(
                    name, "X"
                )
                for name in ("story", "nowhere", "_directory")
            ]
            assert told[0] == told[1] == told[2], op
        assert await ben.refused("listen", seat=stranger, channel_id="story") == "UnknownChannel"


async def test_a_claim_of_somebody_else_on_the_channel_is_not_ones_own() -> None:
    async with (
        served(both()) as (hub, serving),
        raw(serving.url, "ann") as ann,
        raw(serving.url, "ben") as ben,
    ):
        alice, bob = await at_work(ann, ben)
        claim = await ann.claim(alice, "story")

        release: dict[str, Any] = {"claim": claim, "event_type": "turn.released", "data": {}}
        for speaker in (alice, bob):
            tried = ben.refused("write", seat=bob, channel_id="story", speaker=speaker, **release)
            assert await tried == "ClaimLost"
        event = {"claim": claim, "event_type": "channel.closed", "data": {"reason": "mine"}}
        written = ann.refused("write", seat=alice, channel_id="story", speaker=alice, **event)
        assert await written == "BadDraft"
        state = await hub.state("story")
        assert state.claim is not None
        assert state.claim.seq == claim


async def test_words_are_sent_only_to_clients_that_the_packet_is_for() -> None:
    async with speaking() as (_, ann, ben, alice, _):
        for text, audience in (
            ("to myself", [alice]),
            ("to nobody", []),
            ("to bob", ["bob"]),
            ("to all", None),
        ):
            words = {"kind": "text", "channel_id": "story", "agent_id": alice, "text": text}
            await ann.send(words | {"audience": audience})
        heard = list[str]()
        while "to all" not in heard:
            frame = await ben.receive()
            heard += [frame["text"]] if frame["kind"] == "text" else []

        assert heard == ["to bob", "to all"]


async def test_only_the_participant_that_has_the_turn_tells_words() -> None:
    """Else a member could put words on the screens of the others before the speaker does."""
    async with speaking() as (_, ann, ben, alice, bob):
        words = {"kind": "text", "channel_id": "story", "audience": None}
        for agent_id in (bob, alice):
            await ben.send({**words, "agent_id": agent_id, "text": "forged"})
        await ben.ask("state", seat=bob, channel_id="story")
        await ann.send({**words, "agent_id": alice, "text": "true"})
        told = list[str]()
        while "true" not in told:
            told.append(str((await ann.receive()).get("text")))

        assert "forged" not in told


@pytest.mark.parametrize("end", ["leave", "unregister", "reclaim"])
async def test_a_client_hears_no_words_of_a_channel_on_which_it_has_no_seat_any_more(end: str) -> None:
    """Its other seat is not on the channel. Not even words to all members are for that one."""
    async with speaking() as (url, ann, ben, alice, bob):
        await ben.join("other")
        words = {"kind": "text", "channel_id": "story", "agent_id": alice, "audience": None}
        await ann.send({**words, "text": "before"})
        await heard(ben, "before")
        if end == "reclaim":  # The user of this id takes the name from ben.
            async with raw(url, "bob") as owner:
                await owner.join("bob", kind="human")
        else:
            await ben.ask(end, seat=bob)
        await ann.send({**words, "text": "after"})
        await heard(ann, "after")

        told = list[str]()
        for number in (1, 2):  # Two round trips: words that were on their way have come by then.
            await ben.send({"kind": "ping", "n": number})
            while (frame := await ben.receive())["kind"] != "pong":
                told.append(frame["kind"])
        assert "text" not in told


async def heard(client: Raw, text: str) -> None:
    """Return once the client has been told these words."""
    while (await client.receive()).get("text") != text:
        pass


async def test_another_agent_over_a_link_answers_no_question_and_reads_no_units() -> None:
    async with (
        served(both()) as (hub, serving),
        raw(serving.url, "ann") as ann,
        raw(serving.url, "ben") as ben,
    ):
        user = await hub_person(hub, "user")
        alice, bob = await at_work(ann, ben, "user")
        claim = await ann.claim(alice, "story")
        unit: dict[str, Any] = {"event_type": "turn.tool", "data": {"entry": {"text": "canary"}}}
        await ann.ask("write", seat=alice, channel_id="story", claim=claim, speaker=alice, **unit)
        asked = {"request_id": "q" * 32, "question": "pay?", "turn": 1, "call": "1.1", "position": 1}
        question = {
            "event_type": "human.requested",
            "event_data": asked,
            "audience": ["user"],
            "claim": claim,
        }
        assert "result" in await ann.ask(
            "post", seat=alice, channel_id="story", draft=draft(alice, **question)
        )
        answer = {"request_id": "q" * 32, "answer": "yes"}
        tried = {"event_type": "human.answered", "event_data": answer, "envelope_id": "e2"}
        for_user = {**tried, "event_data": {**answer, "by": "bob", "for": user}}

        assert (
            await ben.refused("post", seat=bob, channel_id="story", draft=draft(user, **tried)) == "NotAsked"
        )
        assert (
            await ann.refused("post", seat=alice, channel_id="story", draft=draft(user, **tried))
            == "NotAsked"
        )
        assert (
            await ben.refused("post", seat=bob, channel_id="story", draft=draft("hub", **for_user))
            == "BadDraft"
        )
        for speaker in (alice, bob):
            floor = {"speaker": speaker, "turn": 1, "seq": 3}
            assert await ben.refused("claim", seat=bob, channel_id="story", floor=floor) == "OutOfTurn"
        state = await ben.ask("state", seat=bob, channel_id="story")
        assert "q" * 32 not in json.dumps(state)
        assert "canary" not in json.dumps(state)


async def hub_person(hub: Hub, name: str) -> str:
    """A person of the hub's own process, who accepts whatever it is invited to."""
    door = HubClient(LocalLink(hub), hub=hub)
    return (await door.register_human(Passport(name=name, kind="human"))).agent_id


async def test_only_the_hubs_own_process_has_steps() -> None:
    async with served(both()) as (_, serving), raw(serving.url, "ann") as client:
        alice = await client.join("alice")
        request = {"type": "conversation", "channel_id": "c", "steps": [{"agent_id": "x", "name": "x"}]}

        assert await client.refused("open", seat=alice, request=request) == "BadSpec"


async def test_what_nobody_raised_on_purpose_is_told_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Careless:
        async def may_open(self, *_: object) -> None:
            raise ValueError("canary-4711")

        async def may_post(self, *_: object) -> None:
            raise ValueError("canary-4711")

    async with served(both(), arbiter=Careless()) as (hub, serving), WsLink(serving.url, token="ann") as link:
        bob = await accepting(hub, "bob")
        seat = await link.attach(await link.register(Passport(name="alice"), None, None), Deaf())
        error = await refused(RemoteFailed, seat.open(OpenRequest(type="conversation", target=[bob])))

        assert "canary-4711" not in str(error) + caplog.text


def test_a_token_does_not_go_over_the_network_in_the_clear() -> None:
    with pytest.raises(LinkLost, match="wss"):
        WsLink("ws://hub.example.com/ws", token="secret")
    assert WsLink("ws://hub.example.com/ws", token="secret", allow_plain=True)
    assert WsLink("wss://hub.example.com/ws", token="secret")


@pytest.mark.parametrize(
    "url",
    ["http://localhost", "localhost:80", "", "ws://", "ws://host:port", "ws://[::1", "http://me:hidden@host"],
)
def test_an_address_that_is_none_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(LinkLost, match="ws://host:port/path") as told:
        WsLink(url)
    assert "hidden" not in str(told.value)


async def test_where_no_server_is_the_first_request_says_so() -> None:
    async with WsLink("ws://me:hidden@127.0.0.1:9", open_seconds=0.0) as link:
        error = await refused(LinkLost, link.register(Passport(name="x"), None, None))

    assert "127.0.0.1:9 cannot be reached" in str(error)
    assert "start the server, or correct the address" in str(error)
    assert "hidden" not in str(error)


async def test_a_server_that_is_no_hub_is_told_with_what_to_do() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for scheme, told in (("ws", "it answered 404"), ("wss", "it does not speak TLS")):
            async with WsLink(f"{scheme}://127.0.0.1:{port}", open_seconds=0.0) as link:
                error = await refused(LinkLost, link.register(Passport(name="x"), None, None))
            assert told in str(error)


async def test_wss_trusts_whom_the_machine_does_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate(tmp_path, LOOPBACK)
    own, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=pem)
    own.load_cert_chain(pem)
    hub = await Hub.open(MemoryLog())
    async with serve_ws(hub, ssl=own) as served:
        async with WsLink(served.url, open_seconds=0.0) as link:
            error = await refused(LinkLost, link.register(Passport(name="x"), None, None))
        async with WsLink(served.url, ssl=trusting) as link:
            given = await link.register(Passport(name="x"), None, None)
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        async with WsLink(served.url) as link:
            found = await link.register(Passport(name="x"), None, None)
    await hub.close()

    assert "trusts its certificate" in str(error)
    assert found == given


class Deaf:
    """A receiver that does not listen."""

    def wake(self, notice: Notice) -> None: ...


async def test_one_user_has_a_limit_of_clients_and_others_are_let_in() -> None:
    async with (
        served(both(), WsSettings(presences_per_user=1)) as (_, serving),
        raw(serving.url, token="ann"),
        raw(serving.url) as second,
        raw(serving.url, token="ben"),
    ):
        bye = await second.hello("ann")

    assert (bye["kind"], bye["reason"]) == ("bye", "too_many")
    assert "presences_per_user" in bye["error"]["message"]


async def test_no_large_frame_is_read_on_the_loop() -> None:
    """Other clients do not wait for it."""
    sizes = list[int]()

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code is decode_from_client.__code__:
            sizes.append(len(frame.f_locals["text"]))

    async with served(both()) as (hub, serving), WsLink(serving.url, token="ann") as link:
        bob = await accepting(hub, "bob")
        alice = await HubClient(link).register(None, Passport(name="alice"))
        channel = await alice.open("conversation", bob)
        sys.setprofile(note)  # Of this thread alone.
        try:
            large = {"set": {"a": ["text"] * 20_000}}
            await channel.send(event_type="context.set", event_data=large)
        finally:
            sys.setprofile(None)

    assert sizes
    assert max(sizes) <= FRAME_BYTES
