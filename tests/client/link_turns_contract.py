"""What every link promises of turns and people."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from tests.client.link_contract import Linked
from tests.client.tooling import actor
from tests.hub.scenes import (
    A_B,
    A_B_A,
    SAFETY_SECONDS,
    answers,
    begin,
    closed,
    refused,
    until,
)
from tests.turn_lines import claim_own, record, release
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.client.channel import Channel, set_context
from turnline.client.turn import Turn
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.routing import packet
from turnline.core.step_targets import FanOutTarget
from turnline.core.transitions import FromSpeaker, TerminateTarget
from turnline.core.views import Floor
from turnline.errors import (
    BadDraft,
    ClaimLost,
    ClientClosed,
    InviteRejected,
    InviteTimeout,
    NotAsked,
    OutOfTurn,
)
from turnline.hub.texts import TurnText
from turnline.hub.timers import secret_id
from turnline.testing import ScriptedModel, call


class Judgement(BaseModel):
    """What the judge answers."""

    guilty: bool
    reason: str


class LinkTurnsContract(Linked):
    """Turns and people."""

    # Turns.

    async def test_t1_turns_are_taken_and_committed(self) -> None:
        async with self.home("alice", "bob") as home:
            home["bob"].on_turn(answers("one"))
            home["alice"].on_turn(answers("two"))
            channel = await home.open(A_B_A, message="hello")

            assert await closed(channel) == "sequence_complete"
            assert [e.event_data["body"] for e in await home.wal(channel) if e.event_type == "packet"] == [
                "one",
                "two",
            ]

    async def test_t1_a_turn_has_one_claim(self) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.open(A_B)
            seat, channel_id = home["alice"].seat, channel.channel_id
            claim = await claim_own(seat, channel_id, 1)
            again = await claim_own(seat, channel_id, 1)
            waiting = begin(seat.wait_unclaimed(channel_id))
            await record(seat, channel_id, claim, "turn.model", {"entry": {"n": 1}})
            floor = Floor(speaker=seat.agent_id, turn=1, seq=0)
            claimed = await seat.claim_turn(floor, channel_id, claim_id="", alone=False)
            await release(seat, channel_id, claim)
            await waiting
            lost = await refused(ClaimLost, release(seat, channel_id, claim))

            assert again == claimed.claim == claim
            assert claimed.lines[-1].event_data == {"entry": {"n": 1}}
            assert (lost.claim, lost.live) == (claim.seq, None)

    async def test_t5_a_handler_that_raises_fails_the_turn_and_undoes_it(self) -> None:
        async with self.home("alice", "bob") as home:

            async def handler(turn: Turn) -> str:
                await set_context(turn.channel, "half", True)
                raise ValueError("no idea")

            home["bob"].on_turn(handler)
            channel = await home.open(A_B, message="hello")

            assert await closed(channel) == "turn_failed"
            assert (await channel.state()).context_vars == {}

    async def test_an_agent_uses_its_tools_and_the_networks(self) -> None:
        """Peers, context variables, tasks and delegation (K1, T7)."""
        async with self.home(people=("user",)) as home:
            bob, _ = actor("bob", "42")
            ada, model = actor(
                "ada",
                [call("peers"), call("context", action="set", key="n", value=7)],
                call("tasks", action="start", text="think"),
                call("delegate", to="bob", task="six times seven?"),
                "it is 42",
            )
            for agent in (ada, bob):
                home.agents[agent.name] = await home.door.register(agent)
            channel = await home.open(sequence(["user", "ada"]), by="user", target=["ada"], message="go")
            result = await channel.result(timeout=SAFETY_SECONDS)

            assert (result.text, result.context_vars) == ("it is 42", {"n": 7})
            assert result.usage.requests == 5  # Four of ada, and one of bob on the channel below.
            assert "42" in [getattr(one, "text", "") for one in model.requests[-1].messages][-1]
            assert "task.started" in await home.types(channel)

    async def test_the_result_of_a_channel_is_an_object_of_the_last_agents_type(self) -> None:
        """And `into` writes it to a context variable."""
        async with self.home(people=("user",)) as home:
            judge = Agent(
                "judge",
                config=ScriptedModel('{"guilty": false, "reason": "no proof"}'),
                response_schema=Judgement,
                into="verdict",
            )
            home.agents["judge"] = await home.door.register(judge)
            channel = await home.open(sequence(["user", "judge"]), by="user", target=["judge"], message="go")
            result = await channel.result(timeout=SAFETY_SECONDS)

            here = await home.agents["judge"].channel(channel.channel_id).result()
            typed = await channel.result(output_type=Judgement)

            assert here.output == typed.output == Judgement(guilty=False, reason="no proof")
            assert result.output == {"guilty": False, "reason": "no proof"}
            assert result.context_vars == {"verdict": {"guilty": False, "reason": "no proof"}}
            assert [line.speaker for line in result.transcript] == ["user", "judge"]

    async def test_l5_the_words_of_a_turn_come_as_they_are_said(self) -> None:
        async with self.home("alice") as home:
            await home.door.register(Agent("bob", config=ScriptedModel("one two three")), attach_plugin=False)
            channel = await home.open(A_B, target=["bob"])
            told: list[str] = []

            async def listen() -> None:
                async for one in channel.stream_with_text():
                    told.append(one.text if isinstance(one, TurnText) else one.event_type)

            listening = begin(listen())
            await until(lambda: home.hub.texts.is_heard(channel.channel_id))
            await channel.send("count")
            await listening
            await until(lambda: not home.hub.texts.is_heard(channel.channel_id))

            words = [one for one in told if one in "one two three"]
            assert "".join(words) == "one two three"
            assert told.index(words[-1]) < told.index("packet") < told.index("channel.closed")

    async def test_p1_a_fan_out_is_worked_on_by_whoever_opened_the_channel(self) -> None:
        async with self.home("alice", "bob", "cyd") as home:
            home["bob"].on_turn(answers("b"))
            home["cyd"].on_turn(answers("c"))
            graph = TransitionGraph(
                "alice",
                [Transition(FromSpeaker("alice"), FanOutTarget(["bob", "cyd"], into="said"))],
                default_target=TerminateTarget("asked"),
            )
            channel = await home.open(graph, message="what do you say?")
            result = await channel.result(timeout=SAFETY_SECONDS)

            assert [one["text"] for one in result.context_vars["said"]] == ["b", "c"]

    # People.

    async def test_a_person_pulls_and_answers(self) -> None:
        async with self.home("alice", people=("user",)) as home:
            channel = await home.open(sequence(["alice", "user"]), message="hello")
            user = home.people["user"]
            pulled = [await user.next_envelope() for _ in range(3)]
            await home.handle("user", channel).send("bye")

            assert [e.event_type for e in pulled] == ["channel.invite", "channel.opened", "text"]
            assert await closed(channel) == "sequence_complete"

    async def test_closing_a_persons_client_wakes_everybody_who_waits_at_it(self) -> None:
        async with self.home("alice", people=("user",)) as home:
            user, heard = home.people["user"], list[str]()

            async def listen() -> None:
                async for one in user.envelopes():
                    heard.append(one.event_type)

            listening, waiting = begin(listen()), begin(user.next_envelope())
            for _ in range(3):
                await asyncio.sleep(0)
            await user.close()
            await listening
            error = await refused(ClientClosed, waiting)

            assert (heard, error.name) == ([], "user")

    async def test_a_closed_client_refuses_every_call(self) -> None:
        async with self.home("alice", people=("user",)) as home:
            user = home.people["user"]
            channel = await home.open(sequence(["alice", "user"]), message="hello")
            mine = home.handle("user", channel)
            await user.close()

            await refused(ClientClosed, user.next_envelope())
            await refused(ClientClosed, anext(user.envelopes()))
            await refused(ClientClosed, user.open("conversation", "alice"))
            await refused(ClientClosed, user.accept(channel.channel_id))
            await refused(ClientClosed, mine.send("too late"))
            await refused(ClientClosed, mine.state())
            with pytest.raises(ClientClosed, match="Register 'user' again"):
                user.on_envelope(print)
            with pytest.raises(ClientClosed):
                user.channel(channel.channel_id)

    async def test_l1_an_invitation_is_rejected_with_a_reason(self) -> None:
        async with self.home("alice") as home:
            user = await home.person("user", auto_ack_invites=False)
            opening = begin(home.open(sequence(["alice", "user"])))
            invite = await user.next_envelope()
            await user.reject(invite.channel_id, "busy")

            with pytest.raises(InviteRejected) as error:
                await opening
            assert (error.value.because, error.value.agent_id) == ("busy", user.agent_id)
            assert str(error.value) == f"'user' rejected the invite to {invite.channel_id!r}: busy"

    async def test_l1_an_invitation_nobody_answers_times_out(self) -> None:
        async with self.home("alice") as home:
            user = await home.person("user", auto_ack_invites=False)
            opening = begin(home.open(sequence(["alice", "user"]), ack_timeout=5.0))
            invite = await user.next_envelope()
            await home.pass_time(6.0)

            with pytest.raises(InviteTimeout) as error:
                await opening
            assert (error.value.awaiting, error.value.seconds) == ((user.agent_id,), 5.0)
            assert str(error.value).startswith(f"'user' did not accept the invite to {invite.channel_id!r}")

    async def test_h1_a_tool_asks_a_person(self) -> None:
        async with self.home(people=("user",)) as home:
            ada = Agent("ada", config=ScriptedModel(call("colour"), "thanks"), tools=(colour,))
            home.agents["ada"] = await home.door.register(ada)
            channel = await home.open(sequence(["user", "ada"]), by="user", target=["ada"], message="go")
            user = home.people["user"]
            while (envelope := await user.next_envelope()).event_type != "human.requested":
                pass
            await user.answer(envelope, "blue")

            assert (await channel.result(timeout=SAFETY_SECONDS)).text == "thanks"

    async def test_only_a_person_whom_a_question_addresses_answers_it(self) -> None:
        async with self.home("alice", "bob", people=("user", "boss")) as home:
            asked, answered = list[Envelope](), list[Envelope]()

            async def approve(turn: Turn) -> str:
                asked.append(await turn.channel.send(**question(turn, to=["boss"])))
                is_answer = partial(is_of_type, "human.answered")
                answered.append(await turn.channel.wait_for(is_answer, since=asked[0].seq))
                return "paid"

            home["bob"].on_turn(approve)
            channel = await home.open(A_B, message="pay", target=["bob", "user", "boss"])
            await until(lambda: asked)
            request_id = asked[0].event_data["request_id"]
            data = {"request_id": request_id, "answer": "yes"}
            for name in ("alice", "bob", "user"):
                handle = home.handle(name, channel)
                error = await refused(NotAsked, handle.send(event_type="human.answered", event_data=data))
                assert str(error).startswith(f"{name!r} may not answer this question")
            states = {name: await home.handle(name, channel).state() for name in ("alice", "user", "boss")}
            await home.people["boss"].answer(asked[0], "no")
            await closed(channel)

            assert {name: request_id in one.questions for name, one in states.items()} == {
                "alice": False,
                "user": False,
                "boss": True,
            }
            (line,) = answered
            assert (line.sender_id, line.event_data["answer"]) == (home.people["boss"].agent_id, "no")

    # What is for some participants only.

    async def test_only_the_participant_that_has_the_turn_reads_what_it_recorded(self) -> None:
        async with self.home("alice", "bob") as home:
            channel = await home.open(A_B)
            alice, bob, channel_id = home["alice"].seat, home["bob"].seat, channel.channel_id
            claim = await claim_own(alice, channel_id, 1)
            await record(alice, channel_id, claim, "turn.model", {"entry": {"secret": 1}})
            for speaker in (alice.agent_id, bob.agent_id):
                floor = Floor(speaker=speaker, turn=1, seq=0)
                await refused(OutOfTurn, bob.claim_turn(floor, channel_id, claim_id="mine", alone=False))

            reading = await bob.read(channel_id, 0)
            assert "secret" not in str(reading.envelopes)

    async def test_only_units_of_a_turn_are_recorded(self) -> None:
        """Else a worker could have the hub write a person's answer."""
        async with self.home("alice", "bob") as home:
            channel = await home.open(A_B)
            claim = await claim_own(home["alice"].seat, channel.channel_id, 1)
            data = {"request_id": "x" * 32, "answer": "yes", "by": "x", "for": "x"}
            writing = record(home["alice"].seat, channel.channel_id, claim, "human.answered", data)

            await refused(BadDraft, writing)

    async def test_words_and_context_updates_are_for_the_audience_of_their_packet(self) -> None:
        async with self.home("alice", "bob", people=("cyd",)) as home:
            let = asyncio.Event()

            async def whisper(turn: Turn) -> JsonObject:
                turn.audience = ["alice"]
                await let.wait()
                await turn.tell("4")
                await turn.tell("2")
                return packet("42", context_updates={"salary": 42})

            home["bob"].on_turn(whisper)
            told: dict[str, list[str]] = {"alice": [], "cyd": []}

            async def listen(name: str, channel: Channel) -> None:
                async for one in channel.stream_with_text():
                    told[name].append(one.text if isinstance(one, TurnText) else one.event_type)

            knobs = {"context_vars": {"open": True}}
            channel = await home.open(A_B, target=["bob", "cyd"], knobs=knobs)
            listening = [begin(listen(name, home.handle(name, channel))) for name in told]
            await until(lambda: len(home.hub.texts.listeners[channel.channel_id]) == len(told))
            await channel.send("how much?")
            let.set()
            for one in listening:
                await one
            seen = {name: (await home.handle(name, channel).state()).context_vars for name in told}

            assert "".join(one for one in told["alice"] if one in ("4", "2")) == "42"
            assert "4" not in told["cyd"]
            assert "packet" not in told["cyd"]
            assert seen == {"alice": {"open": True, "salary": 42}, "cyd": {"open": True}}


def question(turn: Turn, *, to: list[str]) -> dict[str, Any]:
    """What a handler sends to ask people without a tool."""
    data = {"request_id": secret_id(), "question": "pay?", "turn": turn.number, "call": "", "position": 1}
    return {"event_type": "human.requested", "event_data": data, "audience": to}


def is_of_type(event_type: str, envelope: Envelope) -> bool:
    return envelope.event_type == event_type


async def colour(context: Context) -> str:
    return await context.input("what colour?")
