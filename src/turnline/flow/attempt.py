"""One attempt at a step: performed within its time, tried again as its retry says (F5).

attempt(work, perform) -> Done | Paused, and never an exception of the step's own
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from turnline.agent.failures import is_bug, report_failure
from turnline.agent.variables import masked
from turnline.core.envelope import JsonObject
from turnline.errors import (
    AddressRefused,
    BadAddress,
    ChannelClosed,
    ChannelQuarantined,
    ClaimLost,
    HubClosed,
    LogError,
    ModelError,
    NotDue,
    OutOfTurn,
    ParseFailed,
    TurnlineError,
)
from turnline.expressions import compile_expression
from turnline.flow.compile import ERRORS
from turnline.flow.run import OF_THE_RUN
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
        done = failed(work, _too_long(work) if within.expired() else error)
    else:
        if isinstance(done, Done) and done.signal in ERRORS:
            reason = done.private.get("_last_error") or f"it ended with the signal {done.signal!r}"
            report_failure(_step_of(work), None, masked(str(reason), _hidden(work)))
    settled = settle(work, done) if isinstance(done, Done) else done
    if isinstance(done, Done) and settled is not done and done.commit is not None:
        await done.commit.close()
    return settled


def _within_its_time(work: Work[Any], paused: Paused) -> Paused:
    """A step's `timeout` also counts the time it waits for others, from the attempt's first line on."""
    if work.step.timeout is None:
        return paused
    left = work.step.timeout - work.elapsed_seconds
    if left <= 0:
        raise _too_long(work)
    if paused.seconds is not None and paused.seconds <= left:
        return paused
    return replace(paused, seconds=left, times_out=True)


def _too_long(work: Work[Any]) -> TimeoutError:
    return TimeoutError(f"the step took longer than its timeout of {work.step.timeout:g} s")


def settle(work: Work[Any], done: Done) -> Done | Paused:
    """Return how the attempt ended, or a pause before the next one, as the step's retry says."""
    retry = work.step.retry
    if retry is None or done.is_final or work.attempt >= retry.attempts:
        return done
    if not retry.repeats(done.signal, done.status):
        return done
    seconds = min(retry.backoff * 2.0 ** (work.attempt - 1), retry.max_backoff)
    data: JsonObject = {"signal": done.signal, "attempt": work.attempt}
    if "_last_error" in done.private:
        data["error"] = done.private["_last_error"]
    return Paused(reason="retry", seconds=seconds, data=data)


def failed(work: Work[Any], error: Exception) -> Done:
    """Return an exception as the end of a step: the signal, and the text for the next steps.

    Values of keys with `_` are masked in the text. The operator gets a report.
    """
    kind = "error"
    if isinstance(error, TimeoutError):
        kind = "timeout"
    elif isinstance(error, ParseFailed):
        kind = "parse_error"
    text = masked(described(error), _hidden(work))
    named = type(error).__name__
    is_named = text.startswith(named) or not is_bug(error)
    report_failure(_step_of(work), error, text if is_named else f"{named}: {text}")
    return Done(
        signal=kind,
        private={"_last_error": text, "_last_error_type": kind},
        status=error.status if isinstance(error, ModelError) else None,
        is_final=isinstance(error, AddressRefused | BadAddress),
    )


def _step_of(work: Work[Any]) -> str:
    return f"step {work.step.id!r} of run {work.run_id} (flow {work.flow.name!r})"


def _hidden(work: Work[Any]) -> JsonObject:
    """What no text may show: the values of keys with `_` that are not the engine's report of the run."""
    return {key: value for key, value in work.private.items() if key not in OF_THE_RUN}


def described(error: BaseException) -> str:
    """Return the message of an exception, with its type where the message alone says too little."""
    text = _shortened(str(error))
    if not text:
        return type(error).__name__
    is_bare = isinstance(error, KeyError) and not isinstance(error, TurnlineError)
    return f"{type(error).__name__}: {text}" if is_bare else text


def _shortened(text: str) -> str:
    """Cut the middle of a long text: the error of a nested run ends with its cause."""
    if len(text) <= ERROR_CHARACTERS:
        return text
    half = ERROR_CHARACTERS // 2
    return f"{text[: half - 1]}…{text[-half:]}"
