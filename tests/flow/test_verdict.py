"""F5: one verdict, whoever asks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from turnline.core.channel import ChannelSpec, ChannelState
from turnline.core.state import Pause, WorkflowState
from turnline.flow.verdict import RunError, verdict

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def closed(reason: str, **more: Any) -> WorkflowState:
    return WorkflowState(
        status=ChannelState.CLOSED, pending_close_reason=reason, last_speaker_id="save", **more
    )


def test_f5_success_means_that_the_run_did_not_fail() -> None:
    done = verdict(closed("completed", context_vars={"a": 1}, private_vars={"_last_error": "handled"}))

    assert (done.status, done.data, done.error) == ("succeeded", {"a": 1}, None)


def test_f2_the_response_is_what_the_response_step_shaped() -> None:
    private = {"_response": {"id": 7}, "_response_status": 201}
    done = verdict(closed("completed", context_vars={"a": 1}, private_vars=private))

    assert (done.data, done.http_status) == ({"id": 7}, 201)


@pytest.mark.parametrize(
    ("reason", "private", "error"),
    [
        (
            "step_failed",
            {"_last_error": "boom", "_last_error_type": "timeout"},
            RunError(type="timeout", message="boom", step="save"),
        ),
        ("step_failed", {}, RunError(type="error", message="the step failed", step="save")),
        ("failed", {"_last_error": "boom"}, RunError(type="failed", message="boom", step="save")),
    ],
)
def test_f5_a_failed_run_says_why_and_at_which_step(
    reason: str, private: dict[str, Any], error: RunError
) -> None:
    done = verdict(closed(reason, private_vars=private))

    assert (done.status, done.error) == ("failed", error)


@pytest.mark.parametrize(
    ("reason", "type"),
    [
        ("unrouted_signal", "unrouted_signal"),
        ("max_turns", "max_steps"),
        ("ttl_expired", "timeout"),
        ("cancelled", "cancelled"),
        ("turn_failed", "turn_failed"),
        ("something_else", "something_else"),
    ],
)
def test_f5_every_other_end_is_a_failure_of_its_own_type(reason: str, type: str) -> None:
    done = verdict(closed(reason))

    assert done.status == "failed"
    assert done.error is not None
    assert done.error.type == type


def test_a_run_that_worked_too_long_says_its_limit() -> None:
    spec = ChannelSpec(ttl_seconds=90.0)
    done = verdict(closed("ttl_expired", spec=spec))

    assert done.error is not None
    assert done.error.message == "the run worked longer than its limit of 90 s (limits.timeout)"


def test_f6_a_run_that_is_not_over_runs_or_waits() -> None:
    active = WorkflowState(status=ChannelState.ACTIVE)
    pause = Pause(seq=4, reason="person", at=NOON)

    assert verdict(active).status == "running"
    assert verdict(WorkflowState(status=ChannelState.ACTIVE, pause=pause)).status == "waiting"
