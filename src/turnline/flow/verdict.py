"""What became of a run: the one answer that HTTP, streams and the runs API all give (F5).

Pure: a function of the run's state.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from turnline.core.channel import ChannelFilter, ChannelRow
from turnline.core.envelope import JsonObject
from turnline.core.lifecycle import CANCELLED
from turnline.core.router import OUT_OF_STEPS
from turnline.core.state import CHILDREN, STUCK, WorkflowState, has_open_question
from turnline.flow.context import public

COMPLETED: Final = "completed"
"""The one close reason that is a success."""
STEP_FAILED: Final = "step_failed"
UNROUTED: Final = "unrouted_signal"
FAILED: Final = "failed"
"""The flow itself said FAIL."""
TURN_STUCK: Final = "turn_stuck"
"""A step that ended its process again and again waits for an operator's retry (N3)."""

RunStatus = Literal["running", "waiting", "stuck", "succeeded", "failed"]
STATUSES: Final[tuple[RunStatus, ...]] = get_args(RunStatus)

_RUNS: Final = ChannelFilter(is_run=True)
_OPEN_RUNS: Final = ChannelFilter(is_run=True, is_closed=False)
FILTERS: Final[dict[str, ChannelFilter]] = {
    "": _RUNS,
    "running": replace(_OPEN_RUNS, is_waiting=False),
    "waiting": replace(_OPEN_RUNS, is_waiting=True),
    "stuck": replace(_OPEN_RUNS, waiting_for=[STUCK, CHILDREN]),
    "succeeded": ChannelFilter(is_run=True, is_closed=True, close_codes=[COMPLETED]),
    "failed": ChannelFilter(is_run=True, is_closed=True, but_close_codes=[COMPLETED]),
    CANCELLED: ChannelFilter(is_run=True, is_closed=True, close_codes=[CANCELLED]),
}
"""What a list is asked for -> what the index is asked for; "": every run.

A run that waits for a stuck one is stuck as well. A cancelled run is one of those that failed.
"""
LISTED: Final = tuple(status for status in FILTERS if status)
"""What a list of runs can be asked for."""


class RunError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a run failed."""

    type: str
    message: str
    step: str | None = None


class Verdict(Struct, frozen=True, kw_only=True):
    """Where a run stands."""

    status: RunStatus
    data: JsonObject
    """What the caller gets: the response step's payload, or the public context."""
    http_status: int = 200
    error: RunError | None = None


def verdict(state: WorkflowState) -> Verdict:
    """Return where the run stands."""
    response = state.private_vars.get("_response")
    data = response if isinstance(response, dict) else public(state.context_vars)
    if state.is_stuck:
        return Verdict(status="stuck", data=data, error=stuck_error(state))
    if not state.is_over:
        waits = state.pause is not None or has_open_question(state)
        return Verdict(status="waiting" if waits else "running", data=data)
    if state.pending_close_reason == COMPLETED:
        given = state.private_vars.get("_response_status")
        return Verdict(status="succeeded", data=data, http_status=given if isinstance(given, int) else 200)
    return Verdict(status="failed", data=data, error=_error(state))


def row_status(row: ChannelRow) -> RunStatus:
    """Return where a run stands, as the index has it. It knows nothing of stuck runs below."""
    if row.is_closed:
        return "succeeded" if row.close_code == COMPLETED else "failed"
    if row.waiting_for == STUCK:
        return "stuck"
    return "waiting" if row.waiting_for else "running"


def public_error(state: WorkflowState, told: Verdict, *, reference: str) -> RunError | None:
    """Return why the run failed, for a caller who may not read it: the type, and where an operator looks.

    What a step raised may hold anything that the step knew. `reference` leads an operator to it.
    """
    error = told.error
    if error is None or state.pending_close_reason not in (STEP_FAILED, FAILED):
        return error
    message = f"The run failed. The server's log has the reason; its reference is {reference}."
    return RunError(type=error.type, message=message)


def stuck_error(state: WorkflowState) -> RunError:
    """Describe the step that a run, or one below it, is stuck in."""
    step = state.expected_next_speaker or ""
    message = (
        f"Its process ended each time it took step {step!r} of run {state.channel_id!r}. "
        f"Fix the cause, then retry the run."
    )
    return RunError(type=TURN_STUCK, message=message, step=step or None)


def _error(state: WorkflowState) -> RunError:
    reason = state.pending_close_reason
    step = state.last_speaker_id
    last = state.private_vars.get("_last_error")
    if reason == STEP_FAILED:
        kind = state.private_vars.get("_last_error_type")
        return RunError(type=str(kind or "error"), message=str(last or "the step failed"), step=step)
    if reason == FAILED:
        return RunError(type=FAILED, message=str(last or "the flow ended with FAIL"), step=step)
    if reason == "ttl_expired":
        limit = f"the run worked longer than its limit of {state.spec.ttl_seconds or 0:g} s (limits.timeout)"
        return RunError(type="timeout", message=limit, step=step)
    if reason == "max_turns":
        limit = f"the run took more steps than its limit of {_max_steps(state)}"
        return RunError(type="max_steps", message=limit, step=step)
    kind, message = _REASONS.get(reason, (reason or "failed", f"the run ended with {reason!r}"))
    return RunError(type=kind, message=message, step=step)


def _max_steps(state: WorkflowState) -> object:
    graph = state.spec.knobs.get("graph")
    return graph.get("max_turns", "its graph") if isinstance(graph, dict) else "its graph"


_REASONS: Final = {
    UNROUTED: (UNROUTED, "the step ended with a signal that no route takes"),
    OUT_OF_STEPS: (OUT_OF_STEPS, "the conditions cost more steps than one decision has"),
    CANCELLED: (CANCELLED, "the run was cancelled"),
}
"""Close reason -> what a caller is told."""
