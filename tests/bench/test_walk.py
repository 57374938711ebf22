"""What one piece of work costs: the counts of `bench/walk.py`, which no machine and no clock changes.

Appends and round trips are exact: one more is a regression that users pay for. Files, room changes and
`hub.state` calls are upper limits. A change that needs more of them says why in its commit.
"""

from __future__ import annotations

import walk

POST_ROOM_CHANGES = 40
POST_FILES = 30
AGENT_FILES = 70
FLOW_FILES = 82
REMOTE_FILES = 83
AGENT_STATES = 6


async def test_a_post_crosses_few_rooms_on_its_way_to_the_next_handler() -> None:
    counts = (await walk.walk_post()).counts

    assert counts["room changes"] <= POST_ROOM_CHANGES
    assert counts["files"] <= POST_FILES
    assert counts["hub.state"] <= 1


async def test_a_post_and_the_claim_of_the_next_turn_are_one_append() -> None:
    assert (await walk.walk_post()).counts["appends"] == 1


async def test_opening_a_channel_of_attached_participants_is_one_append() -> None:
    assert (await walk.walk_opening()).counts["appends"] == 1


async def test_a_turn_with_one_tool_costs_three_appends_beside_the_post() -> None:
    assert (await walk.walk_agent()).counts["appends"] == 1 + 3


async def test_a_turn_without_tools_costs_one_append_beside_the_post() -> None:
    assert (await walk.walk_agent(has_tool=False)).counts["appends"] == 1 + 1


async def test_a_turn_asks_for_the_state_of_its_channel_at_most_six_times() -> None:
    """The reader of the result is counted too."""
    assert (await walk.walk_agent()).counts["hub.state"] <= AGENT_STATES


async def test_a_turn_a_run_and_a_remote_turn_touch_few_files() -> None:
    """Merge modules that are one idea before you raise a limit."""
    assert (await walk.walk_agent()).counts["files"] <= AGENT_FILES
    assert (await walk.walk_flow()).counts["files"] <= FLOW_FILES
    assert (await walk.walk_remote()).counts["files"] <= REMOTE_FILES


async def test_a_run_of_two_steps_costs_three_appends() -> None:
    assert (await walk.walk_flow()).counts["appends"] == 3


async def test_a_run_of_two_pure_steps_that_is_recorded_at_its_end_costs_one_append() -> None:
    assert (await walk.walk_flow(durability="end")).counts["appends"] == 1


async def test_a_remote_turn_with_one_tool_makes_four_round_trips() -> None:
    """claim, write, write, write (N5)."""
    assert (await walk.walk_remote()).counts["round trips"] == 4


async def test_a_remote_turn_without_tools_makes_two_round_trips() -> None:
    assert (await walk.walk_remote(has_tool=False)).counts["round trips"] == 2
