"""The client of a person: push with `on_envelope`, or pull with `next_envelope`."""

from __future__ import annotations

import asyncio

import pytest

from tests.hub.scenes import A_B, A_B_A, begin, closed, house, quiet, refused, until
from turnline.client.unread import UNREAD_ENVELOPES
from turnline.core.envelope import Envelope
from turnline.core.graph import sequence
from turnline.errors import HubClosed, InviteRejected
from turnline.log.memory import MemoryLog

USER_BOB = sequence(["user", "bob", "user"])


# --- pull ---


async def test_a_person_pulls_one_envelope_after_another() -> None:
    async with house(MemoryLog(), "alice", people=["user"]) as home:
        channel = await home.open(sequence(["alice", "user"]), message="hello")
        user = home.people["user"]
        pulled = [await user.next_envelope() for _ in range(3)]

        assert [e.event_type for e in pulled] == ["channel.invite", "channel.opened", "text"]
        await user.channel(channel.channel_id).send("bye")
        assert await closed(channel) == "sequence_complete"


async def test_pulling_has_a_timeout_that_says_its_limit() -> None:
    async with house(MemoryLog(), people=["user"]) as home:
        error = await refused(TimeoutError, home.people["user"].next_envelope(timeout=0.01))

    assert str(error) == "no envelope has come for 'user' within 0.01 s; wait again, or longer."


async def test_a_pull_that_timed_out_loses_nothing() -> None:
    async with house(MemoryLog(), "alice", people=["user"]) as home:
        user = home.people["user"]
        await refused(TimeoutError, user.next_envelope(timeout=0.01))
        await home.talk(to="user", message="hello")

        assert (await user.next_envelope()).event_type == "channel.invite"


async def test_envelopes_gives_them_all_as_they_come() -> None:
    async with house(MemoryLog(), "alice", people=["user"]) as home:
        channel = await home.talk(to="user")
        heard: list[str] = []

        async def listen() -> None:
            async for envelope in home.people["user"].envelopes():
                if envelope.event_type == "text":
                    heard.append(envelope.event_data["text"])

        listening = begin(listen())
        for text in ("one", "two", "three"):
            await channel.send(text)
        await until(lambda: len(heard) == 3)
        listening.cancel()

        assert heard == ["one", "two", "three"]


async def test_somebody_who_pulls_late_hears_everything_in_order() -> None:
    """More than its queue holds: what does not fit stays on the log until there is room."""
    said = [str(number) for number in range(UNREAD_ENVELOPES + 100)]
    async with house(MemoryLog(), "alice", people=["user"]) as home:
        channel = await home.talk(to="user")
        await asyncio.gather(*(channel.send(text) for text in said))
        await quiet()
        user, heard = home.people["user"], list[str]()
        while len(heard) < len(said):
            envelope = await user.next_envelope()
            heard += [envelope.event_data["text"]] if envelope.event_type == "text" else []

        assert heard == said


# --- push ---


async def test_a_person_is_called_with_what_concerns_it() -> None:
    async with house(MemoryLog(), "alice", people=["user"]) as home:
        heard: list[Envelope] = []
        home.people["user"].on_envelope(heard.append)
        await home.talk(to="user", message="hello")
        await until(lambda: len(heard) == 3)

        assert heard[-1].event_data == {"text": "hello"}
        await refused(TimeoutError, home.people["user"].next_envelope(timeout=0.01))


async def test_a_callback_that_is_set_late_is_called_with_what_nobody_pulled() -> None:
    """L6: also after a restart the person hears that it has the floor; in order, and once."""
    log = MemoryLog()
    async with house(log, "alice", people=["user"]) as home:
        channel = await home.open(sequence(["alice", "user"]), message="hello")
    async with house(log, "alice", people=["user"]) as home:
        await quiet()
        heard, let = list[str](), asyncio.Event()

        @home.people["user"].on_envelope
        async def user(envelope: Envelope) -> None:
            if envelope.event_data["text"] == "hello":
                await let.wait()
            heard.append(envelope.event_data["text"])

        await home.handle("alice", channel).interject("are you there?")
        await quiet()
        let.set()
        await until(lambda: len(heard) == 2)

        assert heard == ["hello", "are you there?"]


async def test_a_second_callback_hears_only_what_comes() -> None:
    async with house(MemoryLog(), "alice", people=["user"]) as home:
        first, second = list[Envelope](), list[Envelope]()
        home.people["user"].on_envelope(first.append)
        channel = await home.talk(to="user")
        await until(lambda: len(first) == 2)
        home.people["user"].on_envelope(second.append)
        await channel.send("hello")
        await until(lambda: second)

        assert [e.event_type for e in second] == ["text"]


# --- invitations ---


async def test_a_person_who_answers_by_hand_accepts() -> None:
    """L1: auto_ack_invites=False."""
    async with house(MemoryLog(), "alice") as home:
        user = await home.person("user", auto_ack_invites=False)
        opening = begin(home.talk(to="user"))
        invite = await user.next_envelope()
        await quiet()
        assert not opening.done()
        await user.accept(invite.channel_id)

        assert (await (await opening).info()).status == "active"
        assert invite.event_data["creator_id"] == home["alice"].agent_id


async def test_a_person_who_answers_by_hand_rejects() -> None:
    """L1."""
    async with house(MemoryLog(), "alice") as home:
        user = await home.person("user", auto_ack_invites=False)
        opening = begin(home.talk(to="user"))
        await user.reject((await user.next_envelope()).channel_id, "not now")
        with pytest.raises(InviteRejected, match="not now"):
            await opening


async def test_a_person_accepts_by_itself_unless_told_otherwise() -> None:
    async with house(MemoryLog(), "alice", people=["user"]) as home:
        assert (await (await home.talk(to="user")).info()).status == "active"


async def test_a_callback_can_decide_about_an_invitation() -> None:
    async with house(MemoryLog(), "alice") as home:
        user = await home.person("user", auto_ack_invites=False)

        @user.on_envelope
        async def decide(envelope: Envelope) -> None:
            if envelope.event_type == "channel.invite":
                await user.accept(envelope.channel_id)

        assert await home.talk(to="user")


# --- speaking ---


async def test_a_person_opens_and_takes_its_turns() -> None:
    """W6: the kick-off of seed 004."""
    async with house(MemoryLog(), "bob", people=["user"]) as home:
        channel = await home.open(USER_BOB, by="user")
        first = await channel.send("a brief")
        await home.handle("bob", channel).send("a draft")
        await channel.send("thank you")

        assert first.decision is not None
        assert (await channel.result()).turns == 3


async def test_a_person_without_the_floor_interjects() -> None:
    """W9."""
    async with house(MemoryLog(), "alice", "bob", people=["user"]) as home:
        channel = await home.open(A_B_A)
        said = await home.handle("user", channel).send("a remark")

        assert said.decision is None
        assert (await channel.info()).speaker_id == home["alice"].agent_id


async def test_a_remark_can_be_for_some_ears_only() -> None:
    """W9: visible to everyone it addresses."""
    async with house(MemoryLog(), "alice", "bob", people=["user"]) as home:
        channel = await home.open(A_B)
        await home.handle("user", channel).interject("for bob", audience=["bob"])
        await channel.close()
        seen = {
            name: [e.event_data.get("text") async for e in home.handle(name, channel).stream()]
            for name in ("alice", "bob")
        }

        assert "for bob" in seen["bob"]
        assert "for bob" not in seen["alice"]


async def test_closing_the_hub_wakes_everybody_who_waits_at_a_person() -> None:
    """Also at a client that the hub does not know of, and after what has come already."""
    async with house(MemoryLog(), "alice", people=["user", "boss"]) as home:
        await home.talk(to="user", message="hello")
        await quiet()
        boss, heard = home.people["boss"], list[str]()

        async def listen() -> None:
            async for one in home.people["user"].envelopes():
                heard.append(one.event_type)

        listening, waiting = begin(listen()), begin(boss.next_envelope())
        await quiet()
        await home.hub.close()
        await listening

        with pytest.raises(HubClosed):
            await waiting
        await refused(HubClosed, boss.next_envelope())
        assert heard == ["channel.invite", "channel.opened", "text"]


async def test_a_pull_that_is_cancelled_takes_nothing_from_another() -> None:
    async with house(MemoryLog(), "alice", people=["user"]) as home:
        user = home.people["user"]
        first, second = begin(user.next_envelope()), begin(user.next_envelope())
        await quiet()
        first.cancel()
        await home.talk(to="user")

        assert (await second).event_type == "channel.invite"


async def test_closing_a_client_that_is_pushing_ends_the_pushing() -> None:
    async with house(MemoryLog(), "alice", people=["user"]) as home:
        await home.talk(to="user", message="hello")
        await quiet()
        ended = list[str]()

        @home.people["user"].on_envelope
        async def slow(envelope: Envelope) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(envelope.event_type)

        await quiet()
        await home.people["user"].close()

        assert ended == ["channel.invite"]
