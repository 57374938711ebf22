"""Errors as answers: what Turnline raises on purpose is told, anything else only by a request id."""

from __future__ import annotations

import logging

import pytest

from turnline.errors import (
    AccessBusy,
    BadAnswer,
    ChannelBusy,
    ChannelClosed,
    Denied,
    Forbidden,
    HubClosed,
    LogUnavailable,
    RunConflict,
    RunNotWaiting,
    TaskExpired,
    Unauthenticated,
    UnknownName,
    UnknownRun,
)
from turnline.flow.verdict import RunError
from turnline.server.problems import Answer, answer_to, status_of


def told(error: Exception) -> Answer:
    return answer_to(error, request_id="r-1", where="POST /x\nforged line")


@pytest.mark.parametrize(
    ("error", "status", "type_"),
    [
        (Unauthenticated("no token was sent"), 401, "unauthenticated"),
        (Forbidden("ann", operation="runs.read", resource="r", because="no"), 403, "forbidden"),
        (Denied("ann", what="post", because="no"), 403, "forbidden"),
        (UnknownRun("r"), 404, "not_found"),
        (UnknownName("flow", "x", ()), 404, "not_found"),
        (RunConflict("r", because="is over"), 409, "conflict"),
        (RunNotWaiting("r", what="x"), 409, "conflict"),
        (ChannelClosed("r", reason="completed"), 409, "conflict"),
        (TaskExpired("t"), 410, "expired"),
        (BadAnswer("t", problems=["ok: it is missing"]), 422, "invalid_input"),
        (AccessBusy("3 tokens wait"), 503, "busy"),
        (ChannelBusy("r", waiting=3), 503, "busy"),
        (HubClosed(), 503, "unavailable"),
        (LogUnavailable("sqlite:///secret", because="full"), 503, "unavailable"),
    ],
)
def test_f6_every_error_has_its_status_and_type(error: Exception, status: int, type_: str) -> None:
    answer = told(error)

    assert (answer.status, answer.type) == (status, type_)
    assert set(answer.body()["error"]) >= {"type", "message", "step"}
    assert "secret" not in answer.message
    assert (status == 503) == ("Retry-After" in answer.headers)


def test_what_nobody_raised_on_purpose_is_logged_by_type_on_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = told(KeyError("hunter2"))

    assert (answer.status, answer.more) == (500, {"request_id": "r-1"})
    [line] = caplog.messages
    assert "KeyError" in line
    assert "hunter2" not in line + answer.message
    assert "\n" not in line


@pytest.mark.parametrize(
    ("type_", "status"),
    [
        *((type_, 422) for type_ in ("error", "parse_error", "failed", "unrouted_signal", "max_steps")),
        ("timeout", 504),
        ("cancelled", 409),
    ],
)
def test_f6_a_failed_runs_status_is_decided_by_its_type(type_: str, status: int) -> None:
    assert status_of(RunError(type=type_, message="")) == status
