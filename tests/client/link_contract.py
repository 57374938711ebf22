"""What every link promises: a program does not notice over which one it speaks.

class TestMyLink(LinkContract):
    def served(self, hub): ...   # an async context manager that gives a function: a new link to the hub
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.hub.scenes import (
    A_B,
    A_B_A,
    SAFETY_SECONDS,
    House,
    begin,
    draft,
    is_closed,
    refused,
    until,
)
from tests.turn_lines import claim_own, release
from turnline.agent.files import File
from turnline.client.channel import delete_context, set_context, update_context
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.link import Link
from turnline.client.participant import Invitation
from turnline.core.channel import ChannelState, child_id
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_PACKET
from turnline.core.governance import Passport, Resume, Rule
from turnline.core.routing import packet
from turnline.core.state import WorkflowState
from turnline.core.views import Notice
from turnline.errors import (
    BadDraft,
    BadGraph,
    BadSpec,
    ChannelClosed,
    ClientClosed,
    ContextMismatch,
    Denied,
    EnvelopeIdReused,
    InviteRejected,
    NameTaken,
    OutOfTurn,
    Refused,
    ReservedEventType,
    TurnlineError,
    UnknownChannel,
    UnknownFile,
    UnknownName,
    UnknownParticipant,
)
from turnline.hub.request import OpenRequest
from turnline.log.blobs import MAX_FILE_BYTES
from turnline.log.memory import MemoryLog
from turnline.testing.lines import NOON
from turnline.testing.manual_clock import ManualClock

LARGE_FILE = bytes(range(256)) * 4_000

NewLink = Callable[[], Link]


class Deaf:
    """A receiver that does not listen."""

    def wake(self, notice: Notice) -> None: ...


class Linked:
    """What a contract stands on; a subclass says how a hub is reached."""

    def served(self, hub: Hub) -> AbstractAsyncContextManager[NewLink]:
        raise NotImplementedError

    @asynccontextmanager
    async def home(self, *agents: str, people: tuple[str, ...] = (), **options: Any) -> AsyncIterator[House]:
        """A hub whose participants all come over links: agents over one, people over another."""
        clock = ManualClock()
        hub = await Hub.open(MemoryLog(), ttl_sweep_interval=0, clock=clock, **options)
        try:
            async with asyncio.timeout(SAFETY_SECONDS), self.served(hub) as new_link:
                home = House(hub, clock)
                home.door = HubClient(new_link())
                elsewhere = House(hub, clock)
                elsewhere.door = HubClient(new_link())
                for name in agents:
                    await home.agent(name)
                for name in people:
                    home.people[name] = await elsewhere.person(name)
                yield home
                await home.door.close()
                await elsewhere.door.close()
        finally:
            await hub.close()


class LinkContract(Linked):
    """Seats and channels, and what is refused. See `LinkTurnsContract` for turns and people."""

    # Registering and seats.

    async def test_a_participant_is_registered_and_found_again_by_its_name(self) -> None:
        async with self.home("alice") as home:
            known = home.hub.participant("alice")
            await home.door.close()
            again = await home.door.register(None, Passport(name="alice"), Resume(summary="writes"))

            assert again.agent_id == known.agent_id
            assert home.hub.participant("alice").resume.summary == "writes"

    async def test_a_seat_is_taken_until_it_is_left(self) -> None:
        async with self.home("alice") as home:
            await refused(NameTaken, home.door.register(None, Passport(name="alice")))
            await home.door.close()
            await home.agent("alice")

    async def test_a_refused_registration_changes_nothing(self) -> None:
        async with self.home("alice") as home, self.served(home.hub) as new_link:
            before = home.hub.participant("alice")
            passport = Passport(name="alice", kind="remote_agent")
            for door in (home.door, HubClient(new_link())):
                await refused(
                    NameTaken,
                    door.register(None, Passport(name="alice"), Resume(summary="mine"), rule=Rule(inbox=0)),
                )
                await refused(NameTaken, door.register(None, passport, Resume(summary="mine")))

            assert home.hub.participant("alice") == before
            assert len(await home.hub.read_wal("_directory")) == 1
            assert await home["alice"].seat.peers() == []

    async def test_a_name_that_looks_like_a_taken_one_is_refused_and_the_taken_one_shown(self) -> None:
        async with self.home("alice") as home:
            error = await refused(NameTaken, home.agent("\u0430lice"))

            assert (error.name, error.taken) == ("\u0430lice", "alice")
            assert "looks like 'alice'" in str(error)

    async def test_an_unregistered_participant_is_gone_and_its_channels_keep_its_name(self) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.talk()
            await home.door.unregister("bob")
            await refused(UnknownParticipant, home.door.unregister("bob"))
            error = await refused(UnknownParticipant, home.talk())
            again = await home.agent("bob")

            assert error.known == ("alice",)
            assert [one.name for one in (await channel.info()).participants] == ["alice", "bob"]
            assert again.agent_id not in [one.agent_id for one in (await channel.info()).participants]
            assert await again.seat.channels() == []

    async def test_a_client_unregisters_itself_and_its_seat_is_free(self) -> None:
        async with self.home("alice", "bob") as home:
            await home["bob"].unregister()
            await refused(ClientClosed, home["bob"].unregister())

            assert [one.name for one in home.hub.participants()] == ["alice"]

    async def test_only_the_participant_that_has_the_turn_opens_a_channel_under_a_derived_id(self) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.open(A_B, by="alice")
            above = channel.channel_id
            child = child_id(above, 1, "0")
            await refused(BadSpec, home.talk(by="bob", to="alice", channel_id=child))
            await refused(Denied, home.talk(by="bob", to="alice", channel_id=child, parent=above))
            for other in (child_id(above, 2, "0"), child_id("elsewhere", 1, "0"), f"{child}--1-0"):
                await refused(Denied, home.talk(by="alice", to="bob", channel_id=other, parent=above))
            text = draft(home["bob"], envelope_id=child, interject=True)
            await refused(BadDraft, home["bob"].seat.post(above, text))

            assert (await home.talk(by="alice", to="bob", channel_id=child, parent=above)).channel_id == child

    async def test_a_channel_of_another_parent_is_not_taken_for_a_child(self) -> None:
        async with self.home("alice", "bob") as home:
            first, second = await home.talk(), await home.talk()
            await home.talk(channel_id="c", parent=first.channel_id)

            await refused(NameTaken, home.talk(channel_id="c", parent=second.channel_id))

    # Invitations.

    @pytest.mark.parametrize("is_async", [False, True])
    async def test_an_agent_declines_an_invitation_and_the_opener_is_told_why(
        self, *, is_async: bool
    ) -> None:
        seen: list[Invitation] = []

        def decide(invitation: Invitation) -> bool | str:
            seen.append(invitation)
            return invitation.labels.get("topic") == "bees" or "I only talk about bees."

        async def decide_later(invitation: Invitation) -> bool | str:
            await asyncio.sleep(0)
            return decide(invitation)

        async with self.home("alice") as home:
            bob = await home.door.register(
                None, Passport(name="bob"), accept=decide_later if is_async else decide
            )
            asked = home["alice"].open(
                "consulting", "bob", {"context_vars": {"x": 1}}, message="Wasps?", channel_id="wasps"
            )
            error = await refused(InviteRejected, asked)
            accepted = await home["alice"].open(
                "consulting", "bob", message="Bees?", labels={"topic": "bees"}
            )

            assert (error.agent_id, error.because) == (bob.agent_id, "I only talk about bees.")
            assert str(error).startswith("'bob' rejected the invite to ")
            assert (await home.hub.state("wasps")).pending_close_reason == "invite_rejected"
            assert (await accepted.info()).status is ChannelState.ACTIVE
            first = Invitation(
                channel_id="wasps",
                type="consulting",
                opener="alice",
                opener_id=home["alice"].agent_id,
                labels={},
                message="Wasps?",
                knobs={"context_vars": {"x": 1}},
            )
            assert seen[0] == first

    @pytest.mark.parametrize(
        ("answer", "because"),
        [
            (False, "declined"),
            (None, "declined"),
            (1, "declined"),
            ("", "declined"),
            ("a\0b\ud800", "ab"),
            ("x" * 10_000, "x" * 500),
            (ValueError("canary"), "its accept callback failed"),
        ],
        ids=["false", "none", "one", "empty", "unprintable", "long", "raises"],
    )
    async def test_only_true_accepts_an_invitation(self, answer: Any, because: str) -> None:
        def decide(_: Invitation) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        async with self.home("alice") as home:
            await home.door.register(None, Passport(name="bob"), accept=decide)
            error = await refused(InviteRejected, home.talk())

            assert error.because == because

    async def test_what_cannot_decide_on_invitations_is_refused_before_the_agent_is_registered(self) -> None:
        decide: Any = "yes"
        async with self.home("alice") as home:
            with pytest.raises(BadDraft, match="accept is a str; expected a function"):
                await home.door.register(None, Passport(name="bob"), accept=decide)

            await refused(UnknownParticipant, home.talk())

    async def test_an_unknown_name_lists_nobody_whom_a_rule_hides(self) -> None:
        async with self.home("bob", "boss") as home:
            await home.agent("alice", rule=Rule(may_address=["b?b"]))
            error = await refused(UnknownParticipant, home.talk(to="bos"))

            assert error.known == ("bob",)
            assert "boss" not in str(error)
            assert [one.name for one in await home["alice"].seat.peers()] == ["bob"]

    async def test_a_bad_passport_is_refused_with_its_field(self) -> None:
        async with self.home() as home:
            error = await refused(BadDraft, home.door.register(None, Passport(name=" ")))
            assert error.field == "passport.name"

    async def test_whoever_is_not_registered_has_no_seat(self) -> None:
        async with self.home("alice") as home, self.home() as elsewhere:
            stranger = home.hub.participant("alice")
            async with self.served(elsewhere.hub) as new_link:
                await refused(UnknownParticipant, new_link().attach(stranger, Deaf()))

    async def test_a_seat_is_all_that_a_participant_needs(self) -> None:
        async with self.home("bob") as home, self.served(home.hub) as new_link:
            link = new_link()
            seat = await link.attach(await link.register(Passport(name="alice"), None, None), Deaf())
            request = OpenRequest(type="workflow", target=["bob"], knobs={"graph": A_B.to_dict()})
            channel_id = await seat.open(request)
            claim = await claim_own(seat, channel_id, 1)
            await release(seat, channel_id, claim)
            said = await seat.post(channel_id, draft(home["bob"], envelope_id=seat.new_id()))
            await seat.close_channel(channel_id, "enough")
            reading = await seat.read(channel_id, 0)

            assert said.sender_id == seat.agent_id
            assert (await seat.metadata(channel_id)).close_reason == "enough"
            assert (await seat.state(channel_id)).turn_count == 1
            assert [e.event_type for e in reading.envelopes] == ["channel.opened", "text", "channel.closed"]
            assert reading.seq == len(await home.hub.read_wal(channel_id))
            seat.leave()
            await link.settle()

    async def test_peers_and_channels_are_those_of_the_seat(self) -> None:
        async with self.home("alice", "bob", "cyd") as home:
            channel = await home.talk()

            assert [one.name for one in await home["alice"].seat.peers()] == ["bob", "cyd"]
            assert [one.channel_id for one in await home["bob"].seat.channels()] == [channel.channel_id]
            assert await home["cyd"].seat.channels() == []

    # Channels.

    async def test_what_is_said_reaches_the_others_and_reads_back_equal(self) -> None:
        async with self.home("alice", "bob") as home:
            heard: list[Envelope] = []
            home["bob"].on_envelope(heard.append)
            channel = await home.talk(labels={"a": "b"})
            data = {"text": "häh? \u2028 🙂", "n": 1.5, "list": [1, None, {"x": True}]}
            said = await channel.send(event_data=data, causation_id="why", priority=3, envelope_id="mine")
            await until(lambda: heard and heard[-1].event_type == "text")

            assert heard[-1] == said == (await home.wal(channel))[-1]
            assert (said.event_data, said.causation_id, said.priority) == (data, "why", 3)
            assert (await channel.info()).labels == {"a": "b"}

    async def test_e1_sending_again_under_one_id_is_answered_with_the_first_result(self) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.talk()
            first = await channel.send("hello", envelope_id="once")

            assert await channel.send("hello", envelope_id="once") == first
            error = await refused(EnvelopeIdReused, channel.send("other", envelope_id="once"))
            assert error.seq == first.seq

    async def test_l1_opening_the_same_id_again_gives_the_channel_that_is_there(self) -> None:
        async with self.home("alice", "bob") as home:
            first = await home.open(A_B, channel_id="story", message="hello")
            again = await home.open(A_B, channel_id="story", message="hello")

            assert first.channel_id == again.channel_id == "story"
            assert (await home.types(again)).count("text") == 1

    async def test_a_state_is_the_state(self) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.open(A_B, knobs={"context_vars": {"n": 1}}, message="hello")
            state, kept = await channel.state(), await home.hub.state(channel.channel_id)

            assert isinstance(state, WorkflowState)
            assert isinstance(kept, WorkflowState)
            assert (state.spec, state.graph_data, state.graph_key) == (
                kept.spec,
                kept.graph_data,
                kept.graph_key,
            )
            assert (state.said, state.floor_seq, state.last_at) == (kept.said, kept.floor_seq, kept.last_at)
            assert state.context_vars == {"n": 1}

    async def test_context_variables_are_set_deleted_and_compared(self) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.open(A_B, knobs={"context_vars": {"n": 1, "old": 1}})
            await set_context(channel, "route", {"to": ["north"]})
            await delete_context(home.handle("bob", channel), "old")
            await update_context(channel, expect={"n": 1}, increment={"n": 2})
            error = await refused(ContextMismatch, update_context(channel, expect={"n": [1]}, set={"n": 9}))

            assert (await channel.state()).context_vars == {"n": 3, "route": {"to": ["north"]}}
            assert (error.key, error.expected, error.found) == ("n", [1], 3)

    async def test_l5_a_result_waits_for_the_end(self) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.open(A_B)
            waiting = begin(channel.result())
            await channel.send(event_type=EV_PACKET, event_data=packet("hello", context_updates={"n": 2}))
            await home.handle("bob", channel).send("bye")
            result = await waiting

            assert (result.reason, result.text, result.turns) == ("sequence_complete", "bye", 2)
            assert result.context_vars == {"n": 2}

    async def test_a_long_channel_is_streamed_whole_and_in_order(self) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.talk()
            await asyncio.gather(*(channel.send(str(n), envelope_id=f"n{n}") for n in range(400)))
            await channel.close()
            said = [e.envelope_id async for e in channel.stream()]

            assert sorted(said[1:-1]) == sorted(f"n{n}" for n in range(400))

    async def test_large_things_are_sent_and_read(self) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.talk()
            texts = [letter * 700_000 for letter in "xyz"]
            for text in texts:
                await channel.send(text)
            read = home.handle("bob", channel).stream()
            heard: list[str] = []
            async for envelope in read:
                heard += [envelope.event_data["text"]] if envelope.event_type == "text" else []
                if len(heard) == 3:
                    break

            assert heard == texts

    # Files.

    async def test_y6_files_are_sent_and_read_through_their_line(self, tmp_path: Path) -> None:
        path = tmp_path / "plan.pdf"
        path.write_bytes(LARGE_FILE)
        async with self.home("alice", "bob", people=("ann",)) as home:
            channel = await home.open(A_B_A)
            said = await channel.send("look", parts=[File(b"\x89PNG", "a.png"), "and", File(path)])
            again = await home.handle("bob", channel).send(parts=[File(b"\x89PNG", "b.png", "image/x-mine")])

            assert [part.get("text") or part["name"] for part in said.event_data["parts"]] == [
                "look",
                "a.png",
                "and",
                "plan.pdf",
            ]
            reader = home.handle("ann", channel)
            assert await reader.read_file(said) == File(b"\x89PNG", "a.png", "image/png")
            assert await reader.read_file(said.seq, 1) == File(LARGE_FILE, "plan.pdf", "application/pdf")
            assert (await reader.read_file(again)).media_type == "image/x-mine"
            for seq, index in ((said.seq, 2), (said.seq, -1), (1, 0), (999, 0), (0, 0)):
                error = await refused(UnknownFile, reader.read_file(seq, index))
                assert (error.seq, error.index) == (seq, index)

    async def test_y6_a_file_is_refused_before_its_line(self) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.open(A_B)
            head = (await channel.state()).seq
            for file in (
                File(bytes(MAX_FILE_BYTES + 1), "large.bin"),
                File(b"x", "a/b"),
                File(b"x", "a", "no type"),
            ):
                await refused(BadDraft, channel.send(parts=[file]))
            part = {"type": "file", "media_type": "text/plain", "name": "a", "size": 1}
            digest = sha256(b"x").hexdigest()
            await refused(BadDraft, channel.send(event_data={"parts": [{**part, "digest": digest}]}))
            await home["alice"].seat.add_file(channel.channel_id, File(b"x").pieces())
            for wrong in ({"size": 2}, {"digest": "0" * 64}, {"media_type": "Text"}, {"name": ""}):
                data = {"parts": [{**part, "digest": digest, **wrong}]}
                await refused(BadDraft, channel.send(event_data=data))

            assert (await channel.state()).seq == head
            await channel.send(event_data={"parts": [{**part, "digest": digest}]})

    async def test_y6_a_file_is_read_by_those_who_may_see_its_line(self) -> None:
        async with self.home("alice", "bob", "carol") as home:
            channel = await home.open(A_B)
            said = await channel.send(parts=[File(b"secret")], audience=["bob"])
            part = said.event_data["parts"][0]

            assert (await home.handle("bob", channel).read_file(said)).read() == b"secret"
            await refused(UnknownFile, home.handle("carol", channel).read_file(said))
            stolen = home.handle("carol", channel).send(event_data={"parts": [part]}, interject=True)
            await refused(BadDraft, stolen)
            other = await home.talk(by="carol", to="bob")
            await refused(BadDraft, other.send(event_data={"parts": [part]}))
            lonely = await home.talk(by="alice", to="bob")
            await refused(BadDraft, lonely.send(event_data={"parts": [part]}))
            outside = home.handle("carol", lonely)
            await refused(TurnlineError, outside.read_file(1))
            await refused(TurnlineError, home["carol"].seat.add_file(lonely.channel_id, File(b"x").pieces()))

    async def test_y6_a_tree_has_a_quota(self) -> None:
        async with self.home("alice", "bob", tree_bytes=10) as home:
            channel = await home.open(A_B)
            await home["alice"].seat.add_file(channel.channel_id, File(b"12345678").pieces())
            await home["alice"].seat.add_file(channel.channel_id, File(b"12345678").pieces())

            error = await refused(BadDraft, channel.send(parts=[File(b"123")]))
            assert "tree_bytes" in str(error)
            await channel.send(parts=[File(b"12")])

    async def test_waiting_ends_with_the_time_or_the_channel(self) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.talk()
            await refused(TimeoutError, channel.wait_for(lambda e: False, timeout=0.01))
            waiting = begin(channel.wait_for(lambda e: e.event_type == "never"))
            other = begin(channel.wait_for(is_closed))
            await channel.close("enough")

            with pytest.raises(ChannelClosed, match="enough"):
                await waiting
            assert (await other).event_data["reason"] == "enough"

    async def test_w9_out_of_turn_is_refused_and_a_person_interjects(self) -> None:
        async with self.home("alice", "bob", people=("user",)) as home:
            channel = await home.open(A_B_A)
            error = await refused(OutOfTurn, home.handle("bob", channel).send("me first"))
            said = await home.handle("user", channel).send("one thing")

            assert (error.channel_id, error.speaker) == (channel.channel_id, home["alice"].agent_id)
            assert isinstance(error, Refused)
            assert said.decision is None

    # Refusals.

    @pytest.mark.parametrize(
        ("kind", "said"),
        [
            (BadDraft, {"event_type": "context.set", "event_data": {"set": {"_x": 1}}}),
            (ReservedEventType, {"event_type": "channel.closed"}),
            (BadDraft, {"envelope_id": "not an id!"}),
            (BadDraft, {"event_data": {"deep": 64}}),
        ],
    )
    async def test_a_draft_that_is_refused_says_why(
        self, kind: type[TurnlineError], said: dict[str, Any]
    ) -> None:
        if said.get("event_data") == {"deep": 64}:
            said = {"event_data": {"deep": _nested(64)}}
        async with self.home("alice", "bob") as home:
            channel = await home.talk()
            error = await refused(kind, channel.send("x", **said))

            assert type(error) is kind
            assert str(error)
            assert await channel.send("still here")

    @pytest.mark.parametrize(
        "value",
        [math.nan, math.inf, (1, 2), {1}, {1: 2}, b"x", NOON, object(), "\ud800", "a\0b", 1 << 2000],
        ids=["nan", "infinity", "tuple", "set", "key", "bytes", "time", "object", "surrogate", "nul", "huge"],
    )
    async def test_e2_what_would_not_read_back_is_refused_wherever_it_stands(self, value: Any) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.talk()
            said = await refused(BadDraft, channel.send(event_type="app.x", event_data={"a": [value]}))
            knobs = {"context_vars": {"a": value}}
            opened = await refused(BadSpec, home["alice"].open("conversation", "bob", knobs))

            assert said.field.startswith("event_data.a[0]")
            assert opened.field.startswith("knobs.context_vars.a")
            assert (await channel.send("still here")).seq == 4

    @pytest.mark.parametrize(
        ("field", "said"),
        [
            ("causation_id", {"causation_id": 5}),
            ("audience", {"audience": "bob"}),
            ("event_type", {"event_type": None}),
        ],
    )
    async def test_e2_a_field_of_another_type_is_named(self, field: str, said: dict[str, Any]) -> None:
        async with self.home("alice", "bob") as home:
            error = await refused(BadDraft, (await home.talk()).send("x", **said))

            assert error.field == field

    async def test_e2_a_reason_that_would_not_read_back_is_refused_and_a_request_of_another_type(
        self,
    ) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.talk()
            closed = await refused(BadDraft, channel.close("a\0b"))
            labels: Any = {"a": 1}
            opened = await refused(BadSpec, home["alice"].open("conversation", "bob", labels=labels))

            assert (closed.field, opened.field) == ("event_data.reason", "labels[...]")
            assert (await channel.info()).status is ChannelState.ACTIVE

    async def test_opening_what_cannot_be_opened_says_why(self) -> None:
        async with self.home("alice", "bob") as home:
            unknown = await refused(UnknownParticipant, home["alice"].open("conversation", "carl"))
            await refused(UnknownName, home["alice"].open("nonsense", "bob"))
            await refused(BadGraph, home["alice"].open("workflow", "bob", {"graph": {"x": 1}}))

            assert (unknown.name, unknown.known) == ("carl", ("alice", "bob"))

    async def test_a_rule_is_enforced(self) -> None:
        async with self.home("bob") as home:
            rule = Rule(may_address=["carl"])
            alice = await home.door.register(None, Passport(name="alice"), rule=rule)
            error = await refused(Denied, alice.open("conversation", "bob"))

            assert error.who == "alice"

    async def test_a_channel_that_is_not_there_is_unknown(self) -> None:
        async with self.home("alice") as home:
            handle = home["alice"].channel("nowhere")
            await refused(UnknownChannel, handle.send("hello"))
            await refused(UnknownChannel, handle.result())

    async def test_a_closed_channel_takes_nothing(self) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.talk()
            await channel.close("enough")
            error = await refused(ChannelClosed, channel.send("one more"))
            await channel.close("again")

            assert error.reason == "enough"
            assert (await channel.info()).status is ChannelState.CLOSED

    async def test_sleeping_is_by_the_clock_of_the_link(self) -> None:
        async with self.home("alice") as home:
            sleeping = begin(home["alice"].seat.sleep(3600.0))
            while not sleeping.done():
                home.clock.advance(3600.0)
                await asyncio.sleep(0)
            assert sleeping.exception() is None


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value
