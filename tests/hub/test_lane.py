"""N3: a suspect runs alone, and the turns beside it lose little time."""

from __future__ import annotations

import asyncio

import pytest

from tests.hub.scenes import quiet
from turnline.core.claims import MAX_CLAIMS
from turnline.core.fold import SUSPECT_CLAIMS
from turnline.hub.turns import BLAME_SECONDS, HELD_LOOK_SECONDS, LIVED_SECONDS, Held, Lane
from turnline.testing import ManualClock

SUSPECT = SUSPECT_CLAIMS


def lane_that_lived(clock: ManualClock, seconds: float = LIVED_SECONDS[-1]) -> Lane:
    lane = Lane(clock)
    clock.advance(seconds)
    return lane


def hold(lane: Lane, channel_id: str, unexplained: int = 0) -> Held:
    with pytest.raises(Held) as held:
        lane.enter(channel_id, channel_id, unexplained)
    return held.value


def test_ordinary_turns_start_beside_each_other() -> None:
    lane = Lane(ManualClock())

    assert [lane.enter(name, name, 0) for name in ("a", "b", "c")] == [False, False, False]


def test_a_suspect_waits_until_its_process_has_lived_longer_for_each_death() -> None:
    clock = ManualClock()
    lane = Lane(clock)

    assert [hold(lane, "a", SUSPECT + n).seconds for n in range(2)] == list(LIVED_SECONDS[:2])
    clock.advance(LIVED_SECONDS[0])
    assert lane.enter("a", "a", SUSPECT) is True


def test_a_suspect_starts_only_when_no_other_turn_can_be_blamed() -> None:
    lane = lane_that_lived(ManualClock())
    lane.enter("busy", "busy", 0)

    assert hold(lane, "a", SUSPECT).seconds == BLAME_SECONDS
    lane.leave("busy", "busy")

    assert lane.enter("a", "a", SUSPECT) is True


def test_nothing_starts_beside_a_suspect_until_it_ends() -> None:
    lane = lane_that_lived(ManualClock())
    lane.enter("a", "a", SUSPECT)

    hold(lane, "b")
    hold(lane, "c", SUSPECT)
    lane.leave("a", "a")

    assert lane.enter("b", "b", 0) is False


def test_nothing_starts_beside_a_suspect_until_it_records_a_unit() -> None:
    lane = lane_that_lived(ManualClock())
    lane.enter("a", "a", SUSPECT)
    hold(lane, "b")

    lane.leave("a")

    assert lane.enter("b", "b", 0) is False


def test_a_suspect_holds_the_others_back_for_a_minute_at_most() -> None:
    clock = ManualClock()
    lane = lane_that_lived(clock)
    lane.enter("a", "a", SUSPECT)

    assert hold(lane, "b").seconds == BLAME_SECONDS
    clock.advance(BLAME_SECONDS)

    assert lane.enter("b", "b", 0) is False


def test_a_turn_that_has_run_for_a_minute_does_not_keep_a_suspect_waiting() -> None:
    clock = ManualClock()
    lane = lane_that_lived(clock)
    lane.enter("long", "long", 0)

    clock.advance(BLAME_SECONDS)

    assert lane.enter("a", "a", SUSPECT) is True


def test_turns_that_were_held_back_start_before_the_next_suspect() -> None:
    lane = lane_that_lived(ManualClock())
    lane.enter("a", "a", SUSPECT)
    hold(lane, "b")
    lane.leave("a", "a")

    hold(lane, "next", SUSPECT)

    assert lane.enter("b", "b", 0) is False


def test_a_turn_that_is_given_up_by_its_next_claim_waits_for_nothing() -> None:
    lane = Lane(ManualClock())

    assert lane.enter("a", "a", MAX_CLAIMS) is False


def test_a_turn_that_gave_up_waiting_holds_no_suspect_back() -> None:
    lane = lane_that_lived(ManualClock())
    lane.enter("a", "a", SUSPECT)
    hold(lane, "b")
    lane.leave("b", "b")
    lane.leave("a", "a")

    assert lane.enter("next", "next", SUSPECT) is True


def test_another_visit_to_the_same_channel_does_not_end_the_turn_that_runs() -> None:
    lane = lane_that_lived(ManualClock())
    lane.enter("a", "first", SUSPECT)

    lane.leave("a", "stale")

    hold(lane, "b")


def test_a_claim_comes_with_the_floor_only_while_no_other_suspect_runs() -> None:
    lane = lane_that_lived(ManualClock())
    lane.enter("a", "a", SUSPECT)

    assert (lane.is_free_for("a"), lane.is_free_for("b")) == (True, False)


async def test_a_held_turn_is_woken_when_the_suspect_ends() -> None:
    lane = lane_that_lived(ManualClock())
    lane.enter("a", "a", SUSPECT)
    waiting = asyncio.create_task(lane.wait(hold(lane, "b")))
    await asyncio.sleep(0)

    lane.leave("a", "a")

    await waiting


async def test_a_held_turn_looks_at_its_channel_now_and_then() -> None:
    """Another process may have taken the turn: its place in the lane would keep others waiting."""
    clock = ManualClock()
    lane = lane_that_lived(clock)
    lane.enter("a", "a", SUSPECT)
    waiting = asyncio.create_task(lane.wait(hold(lane, "b")))
    await quiet()

    clock.advance(HELD_LOOK_SECONDS)

    await asyncio.wait_for(waiting, 10)
