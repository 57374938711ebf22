"""One attempt at a step: performed within its time, tried again as its retry says (F5).

attempt(work, perform) -> Done | Paused, and never an exception of the step's own
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from turnline.core.envelope import JsonObject
from turnline.errors import (
    ChannelClosed,
    ChannelQuarantined,
    ClaimLost,
    HubClosed,
    LogError,
    NotDue,
    OutOfTurn,
    ParseFailed,
    TurnlineError,
)
from turnline.expressions import compile_expression
from turnline.flow.work import Done, Paused, Perform, Work

ERROR_CHARACTERS: Final = 500
OVER_FOR_US: Final = (ClaimLost, OutOfTurn, NotDue, ChannelClosed)
"""The turn is somebody else's, or over: what we have of it is dropped."""
NOT_THE_STEPS: Final = (*OVER_FOR_US, ChannelQuarantined, HubClosed, LogError)
"""What is wrong with the claim or the log is no fault of the step: somebody takes it up again."""


async def attempt(work: Work[Any], perform: Perform) -> Done | Paused:
    """Return how the step ended, or that it waits."""
    when = work.step.when
    if when is not None and not compile_expression(when).holds(work.public):
        return Done(body=f"passed over: {when}")
    within = asyncio.timeout(work.step.timeout)
    try:
        async with within:
            done = await perform(work)
        if isinstance(done, Paused):
            done = _within_its_time(work, done)
    except NOT_THE_STEPS:
        raise
    except Exception as error:
        done = failed(_too_long(work) if within.expired() else error)
    settled = settle(work, done) if isinstance(done, Done) else done
    if isinstance(done, Done) and settled is not done and done.commit is not None:
        await done.commit.close()
    return settled


def _within_its_time(work: Work[Any], paused: Paused) -> Paused:
    """A step's `timeout` also counts the time it waits for others, from the attempt's first line on."""
    if work.step.timeout is None:
        return paused
    began = work.history[0].created_at if work.history else work.now
    ends = began + timedelta(seconds=work.step.timeout)
    if work.now >= ends:
        raise _too_long(work)
    return replace(paused, until=ends if paused.until is None else min(ends, paused.until))


def _too_long(work: Work[Any]) -> TimeoutError:
    return TimeoutError(f"the step took longer than its timeout of {work.step.timeout:g} s")


def settle(work: Work[Any], done: Done) -> Done | Paused:
    """Return how the attempt ended, or a pause before the next one, as the step's retry says."""
    retry = work.step.retry
    if retry is None or done.signal not in retry.on or work.attempt >= retry.attempts:
        return done
    seconds = min(retry.backoff * 2.0 ** (work.attempt - 1), retry.max_backoff)
    data: JsonObject = {"signal": done.signal, "attempt": work.attempt}
    if "_last_error" in done.private:
        data["error"] = done.private["_last_error"]
    return Paused(reason="retry", until=work.now + timedelta(seconds=seconds), data=data)


def failed(error: Exception) -> Done:
    """An exception as the end of a step: the signal, and what the next steps are told."""
    kind = "error"
    if isinstance(error, TimeoutError):
        kind = "timeout"
    elif isinstance(error, ParseFailed):
        kind = "parse_error"
    return Done(signal=kind, private={"_last_error": described(error), "_last_error_type": kind})


def described(error: BaseException) -> str:
    """What is said of an exception: its type where its message alone would say too little."""
    text = str(error)[:ERROR_CHARACTERS]
    if not text:
        return type(error).__name__
    is_bare = isinstance(error, KeyError) and not isinstance(error, TurnlineError)
    return f"{type(error).__name__}: {text}" if is_bare else text
