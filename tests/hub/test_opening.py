"""Opening a channel (L1, L2, W6): invite, wait for everybody, or say why not."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.client.participant import Invitation
from turnline.core.channel import ChannelState
from turnline.core.event_types import EV_CHANNEL_INVITE
from turnline.core.expectations import acks_within
from turnline.core.governance import Passport
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.step_targets import FanOutTarget
from turnline.core.transitions import AgentTarget, Always, FromSpeaker, TerminateTarget
from turnline.errors import (
    BadGraph,
    BadSpec,
    ChannelClosed,
    ChannelPending,
    InviteRejected,
    InviteTimeout,
    NameTaken,
    OpenFailed,
    UnknownName,
    UnknownParticipant,
)
from turnline.hub.request import OpenRequest
from turnline.log.memory import MemoryLog

from ..logs import OpenLog
from .scenes import A_B, CountingLog, House, begin, bob_is_away, closed, house, quiet, refused, types

A_B_C = sequence(["alice", "bob", "carol"])


async def waiting_for_carol(home: House, **given: Any) -> tuple[Any, str]:
    """Alice opens; carol, a person who answers by hand, has not answered yet."""
    await home.person("carol", auto_ack_invites=False)
    opening = begin(home.open(A_B_C, **given))
    await quiet()
    (pending,) = await home.hub.list_channels(state="pending")
    return opening, pending.channel_id


async def failure(opening: Any, kind: type[OpenFailed]) -> OpenFailed:
    with pytest.raises(kind) as failed:
        await opening
    return failed.value


# --- L1: invitations ---


async def test_the_last_ack_and_opened_are_one_append() -> None:
    """L1."""
    log = CountingLog()
    async with house(log, "alice", "bob", "carol") as home:
        channel = await home.open(A_B_C)

        assert await home.types(channel) == [
            "channel.invite",
            "channel.ack",
            "channel.ack",
            "channel.opened",
        ]
        assert log.appends[channel.channel_id] < 4
        bodies = [e.envelope_id for e in await home.wal(channel)]
        assert bodies[3] == f"{bodies[2]}-1"


async def test_a_channel_is_pending_until_everybody_has_accepted() -> None:
    """L1, L3."""
    async with house(MemoryLog(), "alice", "bob") as home:
        opening, channel_id = await waiting_for_carol(home)
        early = await refused(ChannelPending, home["bob"].channel(channel_id).interject("hello?"))
        await home.people["carol"].accept(channel_id)
        channel = await opening

        assert early.awaiting == (home.people["carol"].agent_id,)
        assert (await channel.info()).status is ChannelState.ACTIVE


async def test_the_opener_is_a_participant_and_the_first_in_order() -> None:
    """L1."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, by="bob")

        assert [one.name for one in (await channel.info()).participants] == ["bob", "alice"]


async def test_the_graph_is_stored_once_not_once_per_invitee() -> None:
    """L1."""
    async with house(MemoryLog(), "alice", "bob", "carol") as home:
        channel = await home.open(A_B_C)
        lines = await home.wal(channel)

        assert types(line for line in lines if "sequence_complete" in str(line.event_data)) == [
            EV_CHANNEL_INVITE
        ]


@pytest.mark.parametrize("ttl_sweep_interval", [0, 30.0])
async def test_nobody_waits_longer_than_the_ack_timeout(ttl_sweep_interval: float) -> None:
    """L1: 30 s; the opener keeps the time, also where no timers run."""
    async with house(MemoryLog(), "alice", "bob", ttl_sweep_interval=ttl_sweep_interval) as home:
        opening, channel_id = await waiting_for_carol(home)
        home.clock.advance(29.9)
        await quiet()
        assert not opening.done()

        home.clock.advance(0.1)
        failed = await failure(opening, InviteTimeout)
        assert isinstance(failed, InviteTimeout)
        assert failed.awaiting == (home.people["carol"].agent_id,)
        assert (await home.hub.state(channel_id)).pending_close_reason == "invite_timeout"
        assert await closed(home["bob"].channel(channel_id)) == "invite_timeout"


async def test_the_ack_timeout_is_the_openers_choice() -> None:
    """L1."""
    async with house(MemoryLog(), "alice", "bob") as home:
        opening, _ = await waiting_for_carol(home, ack_timeout=5)
        home.clock.advance(5)

        failed = await failure(opening, InviteTimeout)
        assert isinstance(failed, InviteTimeout)
        assert failed.seconds == 5


async def test_a_rejection_closes_and_the_opener_hears_why() -> None:
    """L1."""
    async with house(MemoryLog(), "alice", "bob") as home:
        opening, channel_id = await waiting_for_carol(home)
        await home.people["carol"].reject(channel_id, "on holiday")

        failed = await failure(opening, InviteRejected)
        assert isinstance(failed, InviteRejected)
        assert (failed.agent_id, failed.because) == (home.people["carol"].agent_id, "on holiday")
        assert (await home.hub.state(channel_id)).pending_close_reason == "invite_rejected"
        await refused(ChannelClosed, home.people["carol"].accept(channel_id))


async def test_an_answer_from_somebody_who_is_not_there_makes_no_channel() -> None:
    """L1: bob is registered, but his process is gone; only time can tell."""
    async with bob_is_away() as home:
        opening = begin(home.open(A_B, target="bob"))
        await quiet()
        home.clock.advance(30)
        await failure(opening, InviteTimeout)


async def test_whoever_comes_back_in_time_still_finds_the_invitation() -> None:
    """L1, L6."""
    async with bob_is_away() as home:
        opening = begin(home.open(A_B, target="bob"))
        await quiet()
        await home.agent("bob")

        assert (await (await opening).info()).status is ChannelState.ACTIVE


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"ttl": 10}, "ttl_expired"),
        ({"expectations": [acks_within(10, "auto_close")]}, "expectation_violated:acks_within"),
    ],
)
async def test_a_channel_that_closes_while_it_is_pending_is_not_handed_out_as_open(
    given: dict[str, Any], reason: str
) -> None:
    """L1: the opener gets the error, whatever the reason."""
    async with house(MemoryLog(), "alice", "bob") as home:
        opening, _ = await waiting_for_carol(home, **given)
        home.clock.advance(10)

        assert (await failure(opening, OpenFailed)).reason == reason


async def test_a_warning_about_missing_acks_leaves_the_invitation_open() -> None:
    """W11."""
    async with house(MemoryLog(), "alice", "bob") as home:
        opening, channel_id = await waiting_for_carol(home, expectations=[acks_within(10)])
        home.clock.advance(10)
        await quiet()
        await home.people["carol"].accept(channel_id)

        assert "expectation.violated" in await home.types(await opening)


# --- L2: names ---


async def test_names_do_wherever_somebody_is_named(open_log: OpenLog) -> None:
    """L2: in `target`, `initial_speaker`, `FromSpeaker`, `AgentTarget` and `audience`."""
    graph = TransitionGraph(
        "alice", [Transition(FromSpeaker("alice"), AgentTarget("bob"))], TerminateTarget("over")
    )
    async with house(open_log(), "alice", "bob", "carol") as home:
        channel = await home.open(graph)
        said = await channel.send("hello", audience=["carol"])

        assert (await channel.info()).speaker_id == home["bob"].agent_id
        assert said.audience == [home["carol"].agent_id]


async def test_ids_do_as_well() -> None:
    """L2."""
    async with house(MemoryLog(), "alice", "bob") as home:
        alice, bob = home["alice"].agent_id, home["bob"].agent_id
        channel = await home.open(sequence([alice, bob]), target=bob)
        await channel.send("hello")

        assert (await channel.info()).speaker_id == bob


@pytest.mark.parametrize(
    "graph",
    [
        sequence(["nobody", "bob"]),
        TransitionGraph("alice", [Transition(FromSpeaker("nobody"), AgentTarget("bob"))], TerminateTarget()),
        TransitionGraph("alice", [Transition(~FromSpeaker("nobody"), AgentTarget("bob"))], TerminateTarget()),
        TransitionGraph("alice", [Transition(Always(), AgentTarget("nobody"))], TerminateTarget()),
        TransitionGraph("alice", [], AgentTarget("nobody")),
    ],
)
async def test_an_unknown_name_in_a_graph_is_an_error_at_open_that_lists_the_known(
    graph: TransitionGraph,
) -> None:
    """L2."""
    async with house(MemoryLog(), "alice", "bob") as home:
        error = await refused(UnknownParticipant, home.open(graph))

        assert (error.name, error.known) == ("nobody", ("alice", "bob"))
        assert await home.hub.list_channels() == []


async def test_an_unknown_target_is_an_error_at_open_that_lists_the_known() -> None:
    """L2."""
    async with house(MemoryLog(), "alice", "bob") as home:
        error = await refused(UnknownParticipant, home.open(A_B, target=["bobb"]))

        assert error.known == ("alice", "bob")
        assert "Did you mean 'bob'?" in str(error)


# --- what cannot be opened ---


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"type": "workflow", "target": "bob"}, "knobs"),
        ({"type": "workflow", "target": "bob", "knobs": {"graph": {}}}, "the graph"),
        ({"type": "conversation", "target": "bob", "knobs": {"color": "red"}}, "knobs"),
        ({"type": "conversation", "target": "bob", "knobs": {"context_vars": {"n": {1, 2}}}}, "knobs"),
        ({"type": "conversation", "target": []}, "target"),
        ({"type": "conversation", "target": ["bob", "bob"]}, "target"),
        ({"type": "conversation", "target": "alice"}, "target"),
        ({"type": "conversation", "target": "bob", "ttl": 0}, "ttl"),
        ({"type": "conversation", "target": "bob", "ttl": float("inf")}, "ttl"),
        ({"type": "conversation", "target": "bob", "ack_timeout": -1}, "ack_timeout"),
        ({"type": "conversation", "target": "bob", "channel_id": "_mine"}, "channel_id"),
        ({"type": "conversation", "target": "bob", "labels": {"n": 1}}, "labels"),
        ({"type": "conversation", "target": "bob", "message": 5}, "message"),
        ({"type": "conversation", "target": "bob", "ttl": "60"}, "ttl"),
        ({"type": "conversation", "target": "bob", "expectations": ["soon"]}, "expectations"),
        ({"type": "conversation", "target": [5]}, "target"),
        ({"type": 5, "target": "bob"}, "type"),
    ],
)
async def test_what_does_not_describe_a_channel_is_refused_and_writes_nothing(
    given: dict[str, Any], field: str
) -> None:
    """E2: what would not read back is not opened."""
    async with house(MemoryLog(), "alice", "bob") as home:
        error = await refused(BadSpec, home["alice"].open(**given))

        assert error.field.startswith(field)
        assert await home.hub.list_channels() == []


@pytest.mark.parametrize(
    "given", [{"type": "seance"}, {"type": "conversation", "parent": "nowhere"}], ids=["type", "parent"]
)
async def test_an_unknown_type_or_parent_is_refused(given: dict[str, Any]) -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        await refused(UnknownName, home["alice"].open(target="bob", **given))


# --- L6: an id of one's own ---


async def test_opening_an_id_again_gives_the_channel_that_is_there(open_log: OpenLog) -> None:
    """L6: `message` is said once."""
    async with house(open_log(), "alice", "bob") as home:
        first = await home.open(A_B, channel_id="ticket-7", message="hello")
        again = await home.open(A_B, channel_id="ticket-7", message="hello")

        assert first.channel_id == again.channel_id
        assert (await home.types(again)).count("text") == 1


async def test_an_id_that_somebody_else_opened_is_taken() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        await home.open(A_B, channel_id="ticket-7")
        await refused(NameTaken, home.open(A_B, by="bob", channel_id="ticket-7"))


async def test_opening_an_id_that_has_closed_gives_its_end() -> None:
    """L6: a script that is started once more than needed."""
    async with house(MemoryLog(), "alice", "bob") as home:
        await (await home.open(A_B, channel_id="ticket-7")).close("solved")
        again = await home.open(A_B, channel_id="ticket-7")

        assert await closed(again) == "solved"


# --- W6: the kick-off ---


async def test_the_openers_message_is_turn_1_if_it_is_the_initial_speaker() -> None:
    """W6: said in the same append as the opening."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(A_B, message="hello")
        info = await channel.info()

        assert (info.turn_count, info.speaker_id) == (1, home["bob"].agent_id)
        assert (await home.types(channel))[-2:] == ["channel.opened", "text"]


async def test_the_message_of_an_opener_without_the_floor_is_no_turn() -> None:
    """W6: it is recorded, and the initial speaker has the floor."""
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(sequence(["bob", "alice"]), message="hello")
        info = await channel.info()

        assert (info.turn_count, info.speaker_id) == (0, home["bob"].agent_id)
        assert (await home.wal(channel))[-1].event_data == {"text": "hello"}


async def test_a_message_can_end_a_channel_before_it_is_handed_out() -> None:
    """W6, L3: max_turns=1, and the message is the turn."""
    async with house(MemoryLog(), "alice", "bob") as home:
        graph = TransitionGraph(
            "alice", [Transition(Always(), AgentTarget("bob"))], TerminateTarget(), max_turns=1
        )
        channel = await home.open(graph, message="the only word")

        assert await closed(channel) == "max_turns"


# --- N6: opening is one append ---


async def test_n6_opening_among_participants_of_this_process_is_one_append() -> None:
    log = CountingLog()
    async with house(log, "alice", "bob", people=["ann"]) as home:
        channel = await home.open(A_B, message="go")

        assert await home.types(channel) == [
            "channel.invite",
            "channel.ack",
            "channel.ack",
            "channel.opened",
            "text",
        ]
        await quiet()
        assert log.appends[channel.channel_id] == 1


async def test_n6_accept_callbacks_run_before_anything_is_written_and_once() -> None:
    log, seen = CountingLog(), list[tuple[str, int]]()

    def decide(invitation: Invitation) -> bool:
        seen.append((invitation.channel_id, log.appends[invitation.channel_id]))
        return True

    async with house(log, "alice") as home:
        home.agents["bob"] = await home.door.register(None, Passport(name="bob"), accept=decide)
        channel = await home.open(A_B)
        await quiet()

    assert seen == [(channel.channel_id, 0)]


async def test_n6_a_refusal_is_one_append_too() -> None:
    log = CountingLog()
    async with house(log, "alice", "bob") as home:
        carol = await home.door.register(None, Passport(name="carol"), accept=lambda invitation: "too busy")
        home.agents["carol"] = carol
        failed = await failure(home.open(A_B_C, channel_id="c1"), InviteRejected)
        await quiet()

        assert failed.reason == "invite_rejected"
        assert "too busy" in str(failed)
        assert types(await home.hub.read_wal("c1")) == ["channel.invite", "channel.reject", "channel.closed"]
        assert log.appends["c1"] == 1


async def test_n6_no_callback_is_asked_about_a_channel_that_cannot_be_opened() -> None:
    asked = list[Invitation]()

    def decide(invitation: Invitation) -> bool:
        asked.append(invitation)
        return True

    async with house(MemoryLog(), "alice") as home:
        home.agents["bob"] = await home.door.register(None, Passport(name="bob"), accept=decide)
        await refused(UnknownParticipant, home.open(sequence(["alice", "nobody"])))

    assert asked == []


async def test_n6_those_who_are_here_answer_with_the_invitation_and_the_others_later() -> None:
    log = CountingLog()
    async with house(log, "alice", "bob") as home:
        opening, channel_id = await waiting_for_carol(home)
        assert log.appends[channel_id] == 1
        assert types(await home.hub.read_wal(channel_id)) == ["channel.invite", "channel.ack"]
        await home.people["carol"].accept(channel_id)
        await opening


async def test_n9_a_channel_whose_steps_have_no_performer_is_refused() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        idle = await home.hub.enrol(Passport(name="idle"), None, None)
        graph = TransitionGraph("idle", [], FanOutTarget(["alice"], step="opinions"))
        request = OpenRequest(type="workflow", target=["alice"], knobs={"graph": graph.to_dict()})
        error = await refused(BadGraph, home.hub.open_channel(request, idle.agent_id))

        assert "'opinions'" in str(error)
        assert await home.hub.list_channels() == []
