"""A turn that waits for its children is resumed, also by a hub that cannot use its log at first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.hub.scenes import FailingLog, house, quiet
from tests.turns.scenes import engaged
from turnline.core import event_types as ev
from turnline.core.channel import child_id
from turnline.core.claims import Paused, join_pauses
from turnline.errors import LogUnavailable
from turnline.hub.request import OpenRequest
from turnline.hub.retry import RETRY_SECONDS
from turnline.log.memory import MemoryLog
from turnline.turns.work import Work

AWAY = LogUnavailable("here", because="it is away")


async def wait_for_a_child(work: Work) -> Paused:
    """Open a channel below the turn's own, and wait until it closes."""
    request = OpenRequest(type="conversation", target=["ann"], message="Sure?")
    return Paused(reason="children", children=[await work.children.open("0", request)])


async def wait_for_a_child_or_a_time(work: Work) -> Paused:
    """Wait for a channel below or for a time: people are shown the first reason only."""
    time = Paused(reason="time", seconds=86_400.0)
    return join_pauses([time, await wait_for_a_child(work)])


async def close_the_children_of(
    log: FailingLog, *channel_ids: str, wait: Callable[[Work], Awaitable[Paused]] = wait_for_a_child
) -> None:
    """Leave each channel on the log with a turn that waits for a channel which has closed."""
    async with engaged(log, wait) as scene:
        for channel_id in channel_ids:
            await scene.open(channel_id=channel_id, target=[])
            await scene.paused(channel_id)
            log.fails_on, log.fail_append = channel_id, AWAY  # The hub ends before it can resume the turn.
            await scene.home.people["ann"].channel(child_id(channel_id, 1, "0")).close("agreed")
            await quiet()


@pytest.mark.parametrize("wait", [wait_for_a_child, wait_for_a_child_or_a_time])
async def test_n1_a_turn_whose_child_closed_before_a_restart_is_resumed_once_the_log_can_be_read(
    wait: Callable[[Work], Awaitable[Paused]],
) -> None:
    log = FailingLog()
    await close_the_children_of(log, "a", "b", wait=wait)
    async with house(log, cache_bytes=1) as home:  # So "a" is not in memory.
        log.fails_on, log.fail_read = "a", AWAY
        await home.person("ann")
        await quiet()
        home.clock.advance(RETRY_SECONDS)
        await quiet()
        last = [(await home.hub.read_wal(one))[-1].event_type for one in ("a", "b")]

    assert log.fail_read is None
    assert last == [ev.EV_TURN_RESUMED, ev.EV_TURN_RESUMED]


async def test_n1_a_turn_is_resumed_by_another_hub_although_that_had_forgotten_the_child() -> None:
    """The hub on which the child closed cannot write the line that resumes the turn."""
    shared = MemoryLog()
    log = FailingLog(shared)
    async with (
        engaged(log, wait_for_a_child, follow=True) as scene,
        house(shared, follow=True, cache_bytes=1) as other,
    ):
        await scene.open(channel_id="a", target=[])
        await scene.paused("a")
        await quiet()
        await scene.open(channel_id="b", target=[])
        await scene.paused("b")
        await quiet()
        assert len(await other.hub.list_channels(state="active")) == 4
        log.fails_on, log.fail_append = "a", AWAY
        await scene.home.people["ann"].channel(child_id("a", 1, "0")).close("agreed")
        await quiet()
        types = [one.event_type for one in await other.hub.read_wal("a")]
        still_open = await other.hub.list_channels(state="active")

    assert ev.EV_TURN_RESUMED in types
    assert len(still_open) == 3
