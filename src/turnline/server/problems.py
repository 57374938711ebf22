"""Errors -> a status and a body: the one place that knows both.

    {"success": false, "error": {"type": "not_found", "message": "...", "step": null}}

Rule 1: what an answer says is what Turnline raised on purpose. Of anything else it says
only a request id; the server's own log has its type and place, never its text.

Rule 2: an error about storage or about the inside of the server has a fixed text. Paths
and addresses are nobody's business outside.

Why a failed run is a 422: docs/decisions/http.md.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from turnline.agent.failures import first_line
from turnline.client.told_errors import FIXED_TEXTS
from turnline.core.envelope import JsonObject
from turnline.core.lifecycle import CANCELLED
from turnline.core.state import WorkflowState
from turnline.errors import (
    AccessBusy,
    BadAnswer,
    BadDraft,
    BadQuery,
    BadSpec,
    ChannelBusy,
    ChannelPruned,
    Denied,
    Erased,
    EraseRefused,
    FileTooLarge,
    Forbidden,
    ForgetRefused,
    HubClosed,
    LogError,
    NoAnswer,
    NotAsked,
    OpenFailed,
    Refused,
    RoutingFailed,
    RunConflict,
    RunNotWaiting,
    TaskExpired,
    TurnlineError,
    Unauthenticated,
    UnknownFile,
    UnknownName,
    UnknownRun,
)
from turnline.flow.fields import Problem
from turnline.flow.run import run_knob
from turnline.flow.verdict import TURN_STUCK, RunError

logger = logging.getLogger(__name__)

OK: Final = 200
CREATED: Final = 201
ACCEPTED: Final = 202
NO_CONTENT: Final = 204
BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
METHOD_NOT_ALLOWED: Final = 405
CONFLICT: Final = 409
GONE: Final = 410
TOO_LARGE: Final = 413
WRONG_TYPE: Final = 415
INVALID: Final = 422
TOO_MANY: Final = 429
INTERNAL: Final = 500
UNAVAILABLE: Final = 503
TIMED_OUT: Final = 504


class RequestRefused(TurnlineError):
    """A request that the server itself does not take."""

    def __init__(
        self,
        status: int,
        type: str,
        message: str,
        *,
        problems: Sequence[JsonObject] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.type = type
        self.problems = tuple(problems)
        self.headers = dict(headers or {})
        super().__init__(message)


class Answer(Struct, frozen=True, kw_only=True):
    """A failure as it is told."""

    status: int
    type: str
    message: str
    step: str | None = None
    more: JsonObject = {}
    """What else the error says: `problems`, `request_id`, `run_id`, `reference`."""
    headers: dict[str, str] = {}

    def body(self) -> JsonObject:
        error = {"type": self.type, "message": self.message, "step": self.step, **self.more}
        return {"success": False, "error": error}


def invalid(problems: Sequence[Problem]) -> RequestRefused:
    """What a caller is told of input that is not what it has to be. Locations begin with where it stands."""
    listed = [located(one.location, one.message) for one in problems]
    said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['message']}" for one in listed)
    return RequestRefused(INVALID, "invalid_input", said, problems=listed)


def located(location: Sequence[str | int], message: str) -> JsonObject:
    return {"loc": list(location), "message": message}


def not_found(message: str) -> RequestRefused:
    return RequestRefused(NOT_FOUND, "not_found", message)


def status_of(error: RunError) -> int:
    """The status of a run that failed."""
    return _RUN_STATUS.get(error.type, INVALID)


def answer_to(error: Exception, *, request_id: str, where: str) -> Answer:
    """Return what a caller is told of `error`; what nobody raised on purpose is logged."""
    if isinstance(error, RequestRefused):
        more: JsonObject = {"problems": list(error.problems)} if error.problems else {}
        return Answer(
            status=error.status, type=error.type, message=str(error), more=more, headers=error.headers
        )
    if isinstance(error, BadAnswer):
        problems = [_answer_problem(text) for text in error.problems]
        return Answer(status=INVALID, type="invalid_input", message=str(error), more={"problems": problems})
    if isinstance(error, RoutingFailed):
        logger.warning("request %s (%r) was refused: %s", request_id, where, first_line(str(error)))
    for kind, (status, type_, message, headers) in _KNOWN.items():
        if isinstance(error, kind):
            return Answer(status=status, type=type_, message=message or str(error), headers=headers)
    return _unexpected(error, request_id, where)


def log_failed_run(state: WorkflowState, error: RunError) -> None:
    """Log a run that has failed, with its reason. The run's id finds the rest."""
    at = f" at step {error.step!r}" if error.step else ""
    knob, reason = run_knob(state), first_line(error.message)
    flow = "" if knob is None else f" of flow {knob.name!r}"
    logger.warning("run %s%s failed%s: %s: %s", state.channel_id, flow, at, error.type, reason)


def _answer_problem(text: str) -> JsonObject:
    where, colon, message = text.partition(": ")
    return located(["body", "answer", *where.split(".")] if colon else ["body", "answer"], message or text)


def _unexpected(error: Exception, request_id: str, where: str) -> Answer:
    frames = traceback.extract_tb(error.__traceback__)
    at = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
    logger.error("request %s (%r) ended with %s at %s", request_id, where, type(error).__name__, at)
    return Answer(
        status=INTERNAL,
        type="internal_error",
        message=f"something is wrong with the server; its log knows this request as {request_id}.",
        more={"request_id": request_id},
    )


_AGAIN: Final = {"Retry-After": "1"}
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="turnline"'}
_PRUNED: Final = "a channel or run of this id was here and was pruned. Choose another id or idempotency key."
_BUSY: Final = "too much is going on; send it again later."

_KNOWN: Final[dict[type[Exception], tuple[int, str, str, dict[str, str]]]] = {
    Unauthenticated: (401, "unauthenticated", "", _CHALLENGE),
    Forbidden: (403, "forbidden", "", {}),
    Denied: (403, "forbidden", "", {}),
    NotAsked: (403, "forbidden", "", {}),
    AccessBusy: (UNAVAILABLE, "busy", _BUSY, _AGAIN),
    ChannelBusy: (UNAVAILABLE, "busy", _BUSY, _AGAIN),
    UnknownRun: (NOT_FOUND, "not_found", "", {}),
    ChannelPruned: (CONFLICT, "conflict", _PRUNED, {}),
    UnknownName: (NOT_FOUND, "not_found", "", {}),
    UnknownFile: (NOT_FOUND, "not_found", "", {}),
    RunConflict: (CONFLICT, "conflict", "", {}),
    RunNotWaiting: (CONFLICT, "conflict", "", {}),
    TaskExpired: (GONE, "expired", "", {}),
    BadSpec: (TOO_LARGE, "too_large", "", {}),
    FileTooLarge: (TOO_LARGE, "too_large", "", {}),
    BadDraft: (BAD_REQUEST, "bad_request", "", {}),
    BadQuery: (BAD_REQUEST, "bad_request", "", {}),
    RoutingFailed: (CONFLICT, "conflict", FIXED_TEXTS[RoutingFailed], {}),
    Refused: (CONFLICT, "conflict", "", {}),
    EraseRefused: (CONFLICT, "conflict", "", {}),
    ForgetRefused: (CONFLICT, "conflict", "", {}),
    Erased: (CONFLICT, "conflict", "", {}),
    OpenFailed: (CONFLICT, "conflict", "", {}),
    NoAnswer: (INVALID, "no_answer", "", {}),
    HubClosed: (
        UNAVAILABLE,
        "unavailable",
        "the server is not serving at the moment; send it again.",
        _AGAIN,
    ),
    LogError: (UNAVAILABLE, "unavailable", "the log cannot be used at the moment; send it again.", _AGAIN),
}
"""Error -> status, type, text (empty: its own), headers. The first that fits counts.

`BadSpec` is what opening a run says of input that was good JSON: it does not fit on one line of the log.
"""

_RUN_STATUS: Final = {"timeout": TIMED_OUT, CANCELLED: CONFLICT, TURN_STUCK: INTERNAL}
"""The type of a failed run's error -> its status, where it is not 422."""
