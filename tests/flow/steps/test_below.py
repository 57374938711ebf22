"""How far the children of a step are, and which to open: decided without opening anything."""

from __future__ import annotations

from typing import Literal

import pytest

from turnline.core.channel import ChannelState
from turnline.core.state import WorkflowState
from turnline.flow.steps.below import Outcome, Progress
from turnline.flow.verdict import RunError

OPEN = WorkflowState(status=ChannelState.ACTIVE)
SUCCEEDED = WorkflowState(status=ChannelState.CLOSED, pending_close_reason="completed")
FAILED = WorkflowState(status=ChannelState.CLOSED, pending_close_reason="step_failed")


@pytest.mark.parametrize(
    ("progress", "count", "at_once", "expected"),
    [
        (Progress(), 0, 8, []),
        (Progress(), 5, 8, [0, 1, 2, 3, 4]),
        (Progress(), 5, 2, [0, 1]),
        (Progress(opened=2, open=(0, 1)), 5, 2, []),
        (Progress(opened=2, open=(1,)), 5, 2, [2]),
        (Progress(opened=2), 5, 2, [2, 3]),
        (Progress(opened=4), 5, 2, [4]),
        (Progress(opened=5, open=(4,)), 5, 2, []),
        (Progress(opened=5, open=(1, 2, 3)), 9, 2, []),
    ],
)
def test_so_many_are_opened_as_there_is_room_for_in_order(
    progress: Progress, count: int, at_once: int, expected: list[int]
) -> None:
    assert list(progress.to_open(count, at_once=at_once, on_error="fail")) == expected


@pytest.mark.parametrize(("on_error", "expected"), [("fail", []), ("collect", [3, 4])])
def test_behind_one_that_failed_nothing_is_opened_unless_errors_are_collected(
    on_error: Literal["fail", "collect"], expected: list[int]
) -> None:
    progress = Progress(opened=3, failed=1)

    assert list(progress.to_open(9, at_once=2, on_error=on_error)) == expected


def test_what_was_opened_is_open_until_it_is_seen_closed() -> None:
    assert Progress(opened=2, open=(1,)).with_opened(range(2, 4)) == Progress(opened=4, open=(1, 2, 3))


def test_what_is_seen_counts_as_open_closed_or_failed() -> None:
    progress = Progress(opened=3)

    assert progress.with_seen(1, OPEN) == Progress(opened=3, open=(1,))
    assert progress.with_seen(1, SUCCEEDED) == progress
    assert progress.with_seen(1, FAILED) == Progress(opened=3, failed=1)


def test_the_first_failure_is_the_one_of_the_lowest_place_whenever_it_is_seen() -> None:
    assert Progress().with_seen(2, FAILED).with_seen(1, FAILED).with_seen(3, FAILED).failed == 1


def test_an_outcome_that_is_collected_is_the_data_or_the_error() -> None:
    error = RunError(type="timeout", message="too long")

    assert Outcome({"a": 1}).as_data() == {"a": 1}
    assert Outcome({}, error).as_data() == {"error": {"type": "timeout", "message": "too long", "step": None}}
