"""W10: what one participant is shown of a log."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core import event_types as ev
from turnline.core.channel import ChannelSpec, Participant
from turnline.core.envelope import Envelope
from turnline.core.graph import round_robin, sequence
from turnline.core.state import KEPT_SAID, WorkflowState
from turnline.core.views import (
    FullTranscript,
    Message,
    WindowedSummary,
    context_for,
    state_for,
    view_for,
    views,
)
from turnline.errors import BadGraph, BadSpec, ContextMismatch, UnknownName, UnknownParticipant

from .scenes import Scene, claims, draft, fails, hub, line, live, packs, says, workflow, writes

SPEC = ChannelSpec(participants=[Participant("id-a", "alice"), Participant("id-b", "bob")])


def said(count: int) -> list[Envelope]:
    """alice and bob in turn, saying 1, 2, 3, ..."""
    return [line(("id-a", "id-b")[n % 2], data={"text": str(n + 1)}, seq=n + 1) for n in range(count)]


def spec(count: int = 2, **knobs: Any) -> ChannelSpec:
    return ChannelSpec(participants=[Participant(f"id-{n}", f"name {n}") for n in range(count)], knobs=knobs)


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def test_w10_the_agents_own_turns_are_its_own_and_others_carry_their_names() -> None:
    assert WindowedSummary().project(said(2), "id-a", SPEC) == [
        Message("own", "alice", "1"),
        Message("other", "bob", "2"),
    ]


@pytest.mark.parametrize(("participants", "window"), [(2, 4), (1, 4), (3, 6), (5, 10)])
def test_w10_the_default_window_is_twice_the_participants_and_at_least_four(
    participants: int, window: int
) -> None:
    assert WindowedSummary().window(spec(participants)) == window


def test_w10_older_ones_are_summed_up_in_one_line() -> None:
    shown = WindowedSummary().project(said(9), "id-a", SPEC)

    assert shown[0] == Message("note", "", "Earlier, not shown: 5 messages by alice (3), bob (2).")
    assert texts(shown[1:]) == ["6", "7", "8", "9"]


def test_w10_what_fits_the_window_needs_no_summary() -> None:
    assert texts(WindowedSummary().project(said(4), "id-a", SPEC)) == ["1", "2", "3", "4"]


def test_w10_only_what_somebody_said_is_shown_and_counted() -> None:
    """Context writes and the machinery of turns would crowd the conversation out of the window."""
    noise = [line("id-b", kind, seq=9) for kind in vars(ev).values() if isinstance(kind, str)]
    noise = [one for one in noise if one.event_type not in ev.SUBSTANTIVE]

    assert texts(WindowedSummary().project([*said(4), *noise], "id-a", SPEC)) == ["1", "2", "3", "4"]


def test_c2_context_writes_and_turn_lines_of_a_real_log_are_not_shown() -> None:
    scene = workflow(round_robin(["alice", "bob"]), "alice", "bob")
    scene.accept(writes("bob", set={"n": 1}), says("alice", "one"), packs("bob"), fails("alice"))

    assert texts(FullTranscript().project(scene.log, "alice", scene.spec)) == ["one", "done"]


def test_w10_only_those_addressed_see_a_line() -> None:
    whispered = [line("id-b", data={"text": "psst"}, audience=["id-b"])]

    assert WindowedSummary().project(whispered, "id-a", SPEC) == []
    assert texts(WindowedSummary().project(whispered, "id-b", SPEC)) == ["psst"]


def test_w10_a_packet_shows_its_body() -> None:
    packet = line("id-b", ev.EV_PACKET, {"body": "done", "routing": {"kind": "text"}})

    assert texts(FullTranscript().project([packet], "id-a", SPEC)) == ["done"]


def test_w10_the_default_view_is_the_windowed_summary() -> None:
    assert view_for("id-0", spec()) == WindowedSummary()


def test_w10_a_view_can_be_chosen_per_channel_and_per_agent() -> None:
    """An agent's own goes first; agents may be named."""
    chosen = spec(
        view=views.to_dict(FullTranscript()), views={"name 1": views.to_dict(WindowedSummary(recent_n=2))}
    )

    assert view_for("id-0", chosen) == FullTranscript()
    assert view_for("id-1", chosen) == WindowedSummary(2)


def test_w10_a_window_of_its_own() -> None:
    assert texts(WindowedSummary(2).project(said(5), "id-a", SPEC))[1:] == ["4", "5"]


@pytest.mark.parametrize("recent_n", [0, -1, 1.5, "2"])
def test_w10_an_impossible_window_is_refused(recent_n: Any) -> None:
    with pytest.raises(BadSpec):
        WindowedSummary(recent_n)


@pytest.mark.parametrize(
    ("knobs", "error"),
    [
        ({"view": {"name": "half_transcript", "args": {}}}, UnknownName),
        ({"view": "full_transcript"}, BadGraph),
        ({"view": {"name": "windowed_summary", "args": {"recent_n": 0}}}, BadSpec),
        ({"views": {"zoe": {"name": "full_transcript", "args": {}}}}, UnknownParticipant),
        ({"views": []}, BadSpec),
    ],
)
def test_w10_an_unknown_view_is_an_error_at_open(knobs: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        workflow(round_robin(["alice", "bob"]), "alice", "bob", knobs=knobs)


@pytest.mark.parametrize("turns", [1, 3, 4, 5, 40, KEPT_SAID + 30])
def test_w10_the_window_read_from_where_it_starts_shows_what_reading_everything_shows(turns: int) -> None:
    """A turn's cost must not follow the length of its channel."""
    scene = workflow(round_robin(["alice", "bob"]), "alice", "bob", Participant("ned", "ned", "human"))
    for n in range(turns):
        scene.accept(says(("alice", "bob")[n % 2], str(n)))
        if n % 3 == 0:
            scene.accept(says("ned", f"aside {n}", audience=["bob"] if n % 2 else None))
    view = WindowedSummary()

    since, earlier = view.start(scene.state)
    shown = view.project([one for one in scene.log if one.seq > since], "alice", scene.spec, earlier)

    assert shown == view.project(scene.log, "alice", scene.spec)
    assert turns < 40 or since > len(scene.log) / 2


def test_w10_a_window_larger_than_what_is_kept_is_read_from_the_beginning() -> None:
    scene = workflow(round_robin(["alice", "bob"]), "alice", "bob")
    scene.accept(*(says(("alice", "bob")[n % 2]) for n in range(KEPT_SAID + 20)))

    assert WindowedSummary(KEPT_SAID + 1).start(scene.state) == (0, {})


# --- the state, as one participant may see it ---


def whispered() -> Scene[WorkflowState]:
    """Alice has set `salary` in a packet to bob; cyd has the floor."""
    graph = sequence(["alice", "cyd", "alice"])
    scene = workflow(graph, "alice", "bob", "cyd", knobs={"context_vars": {"open": 1}}, expectations=[])
    data = {"body": "psst", "routing": {"kind": "text"}, "context_updates": {"salary": 42}}
    scene.accept(draft("alice", "packet", data, audience=["bob"]))
    return scene


def seen(scene: Scene[WorkflowState]) -> dict[str, list[str]]:
    return {one: list(context_for(one, scene.state)) for one in ("alice", "bob", "cyd")}


def test_a_packets_context_updates_are_for_its_audience_and_its_sender() -> None:
    scene = whispered()

    assert seen(scene) == {"alice": ["open", "salary"], "bob": ["open", "salary"], "cyd": ["open"]}
    assert scene.replayed() == scene.state


def test_a_state_is_shown_without_what_the_engine_keeps() -> None:
    scene = whispered()
    shown = state_for("bob", scene.state)

    assert (shown.turn_vars, shown.turn_writes, shown.private_vars) == ({}, [], {})
    assert shown.context_vars == {"open": 1, "salary": 42}


def test_a_write_that_is_undone_does_not_show_what_it_replaced() -> None:
    scene = whispered()
    scene.accept(claims("cyd"))
    scene.accept(writes("cyd", set={"salary": 1}, claim=live(scene)))
    scene.accept(hub("turn.released", claim=live(scene)), claims("cyd", "w2"))

    assert scene.state.context_vars["salary"] == 42
    assert seen(scene)["cyd"] == ["open"]


def test_a_variable_that_is_set_for_everybody_is_shown_to_everybody() -> None:
    by_others, by_turn, by_packet = whispered(), whispered(), whispered()
    by_others.accept(writes("alice", set={"salary": 1}))
    by_turn.accept(claims("cyd"))
    by_turn.accept(writes("cyd", set={"salary": 1}, claim=live(by_turn)))
    by_turn.accept(packs("cyd", claim=live(by_turn)))
    by_packet.accept(packs("cyd", updates={"salary": 1}))

    for scene in (by_others, by_turn, by_packet):
        assert seen(scene)["cyd"] == ["open", "salary"]
        assert scene.state.var_audiences == {}


def test_a_variable_that_is_hidden_cannot_be_found_out_by_writing() -> None:
    scene = whispered()
    expects = writes("cyd", expect={"salary": 1}, set={"open": 2})
    refused = scene.refusal(expects, ContextMismatch)
    scene.accept(writes("cyd", append={"salary": "x"}))

    assert refused.found is None
    assert scene.state.context_vars["salary"] == 42
    assert "salary" not in str(state_for("cyd", scene.state))
