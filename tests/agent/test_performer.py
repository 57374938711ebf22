"""T2, T3, K1: a round is done: the model asked, tools called, both written down. No time passes here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from turnline.agent.context import Context, RunOnce
from turnline.agent.inject import Variable
from turnline.agent.journal import Entry, Recorded
from turnline.agent.messages import ModelReply, ToolCall, ToolMessage, UserMessage
from turnline.agent.performer import MAX_PAUSE_SECONDS, CallSite, Performer
from turnline.agent.round import Check, Outcome, ToolAnswer, start_round
from turnline.agent.tool import Tool, ToolRetry, tool
from turnline.agent.tool_result import ToolOutput
from turnline.agent.toolbox import Toolbox
from turnline.core.routing import Handoff, ToolOutcome
from turnline.errors import BadTool, MissingVariable, ModelError
from turnline.testing import ScriptedModel, call
from turnline.threads import call_user

BUSY = ModelError("m", because="it is overloaded", transient=True, status=529)
WRONG_KEY = ModelError("m", because="the key is wrong", transient=False, status=401)


class Scene:
    """A round's surroundings, and everything that happened in them in order."""

    def __init__(self, *script: Any, tools: Sequence[Any] = (), **given: Any) -> None:
        self.happened: list[str] = []
        self.written: list[Entry] = []
        self.pauses: list[float] = []
        self.model = ScriptedModel(*script)
        self.performer = Performer(
            agent="ada",
            model=self.model,
            instructions="",
            toolbox=Toolbox(tools),
            context=given.pop("context", Context()),
            key="talk",
            journal=self,
            sleep=self.sleep,
            **given,
        )

    async def record(self, entry: Entry, files: object = ()) -> tuple[()]:
        await asyncio.sleep(0)
        self.happened.append("reply" if isinstance(entry, ModelReply) else f"answer {entry.text}")
        self.written.append(entry)
        return ()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def perform(self, check: Check | None = None) -> Outcome:
        return await self.performer.perform(start_round("ada", [UserMessage(text="go")], check=check))

    def told(self) -> list[str]:
        return [one.text for one in self.model.requests[-1].messages if isinstance(one, ToolMessage)]


def with_step(*script: Any, **given: Any) -> Scene:
    """A scene whose one tool notes when it runs."""
    noted: list[str] = []

    @tool
    async def step(n: int) -> str:
        noted.append(f"ran {n}")
        return str(n)

    scene = Scene(*script, tools=[step], **given)
    scene.happened = noted
    return scene


# --- T2: what is done is written down before the next thing is begun ---


async def test_t2_each_reply_and_each_answer_is_written_before_the_next_call() -> None:
    scene = with_step(call("step", n=1), call("step", n=2), "done")
    await scene.perform()

    assert scene.happened == ["reply", "ran 1", "answer 1", "reply", "ran 2", "answer 2"]


async def test_t2_a_round_of_one_reply_writes_nothing() -> None:
    scene = Scene("done")

    assert (await scene.perform()).text == "done"
    assert scene.written == []


async def test_t2_a_reply_that_has_to_be_repaired_is_written_before_the_model_is_asked_again() -> None:
    scene = Scene("41", "42")
    await scene.perform(check=lambda text: "" if text == "42" else "it is not 42.")

    assert [one.text for one in scene.written] == ["41"]


async def test_t2_what_cannot_be_written_down_stops_the_round() -> None:
    scene = with_step(call("step", n=1), "done")

    class Full:
        async def record(self, entry: Entry, files: object = ()) -> tuple[()]:
            raise OSError("no space left")

    performer = Performer(
        agent="ada",
        model=scene.model,
        instructions="",
        toolbox=scene.performer.toolbox,
        context=Context(),
        journal=Full(),
    )
    with pytest.raises(OSError, match="no space"):
        await performer.perform(start_round("ada", [UserMessage(text="go")]))
    assert scene.happened == []


# --- T3: what is written down is not done again ---


async def test_t3_a_round_goes_on_after_its_last_entry_wherever_it_stopped() -> None:
    whole = with_step(call("step", n=1), [call("step", n=2), call("step", n=3)], "done")
    expected = await whole.perform()
    replies = [one for one in whole.written if isinstance(one, ModelReply)]

    for stop in range(len(whole.written) + 1):
        known = whole.written[:stop]
        asked = sum(isinstance(one, ModelReply) for one in known)
        rest = with_step(*replies[asked:], "done", recorded=Recorded(known))
        outcome = await rest.perform()

        ran = {one.text for one in known if isinstance(one, ToolAnswer)}
        assert (outcome.text, outcome.outcomes, outcome.usage) == (
            expected.text,
            expected.outcomes,
            expected.usage,
        )
        assert len(rest.model.requests) == 3 - asked
        assert {n for n in "123" if f"ran {n}" in rest.happened} == set("123") - ran
        assert known + rest.written == whole.written


async def test_t3_a_repaired_reply_that_is_recorded_is_not_paid_twice() -> None:
    scene = Scene("42", recorded=Recorded([ModelReply(text="41")]))
    outcome = await scene.perform(check=lambda text: "" if text == "42" else "it is not 42.")

    assert (outcome.text, len(scene.model.requests), scene.written) == ("42", 1, [])


async def test_t3_the_idempotency_key_is_of_the_call_and_the_same_when_it_runs_again() -> None:
    keys: list[str] = []

    async def pay(context: Context) -> str:
        keys.append(context.idempotency_key)
        return "paid"

    reply = ModelReply(calls=[ToolCall(call_id="a", tool="pay"), ToolCall(call_id="b", tool="pay")])
    await Scene(reply, "ok", tools=[pay]).perform()
    await Scene("ok", tools=[pay], recorded=Recorded([reply])).perform()

    assert sorted(keys[:2]) == sorted(keys[2:]) == ["talk:a:pay", "talk:b:pay"]


# --- transient failures ---


async def test_a_transient_failure_is_tried_again_with_growing_pauses() -> None:
    scene = Scene(BUSY, BUSY, BUSY, "up again", attempts=4, backoff_seconds=0.5)

    assert (await scene.perform()).text == "up again"
    assert scene.pauses == [0.5, 1.0, 2.0]


async def test_the_provider_says_how_long_to_wait_within_a_limit() -> None:
    later = ModelError("m", because="slow down", transient=True, status=429, retry_after_seconds=7)
    never = ModelError("m", because="slow down", transient=True, status=429, retry_after_seconds=86_400)
    scene = Scene(later, never, "up again")

    assert (await scene.perform()).text == "up again"
    assert scene.pauses == [7, MAX_PAUSE_SECONDS]


async def test_a_provider_that_wants_no_pause_is_asked_at_once() -> None:
    now = ModelError("m", because="try again", transient=True, status=503, retry_after_seconds=0)
    scene = Scene(now, "up again")
    await scene.perform()

    assert scene.pauses == [0]


async def test_after_the_last_attempt_the_failure_is_raised() -> None:
    scene = Scene(BUSY, BUSY, BUSY, "too late", attempts=3)

    with pytest.raises(ModelError) as raised:
        await scene.perform()
    assert raised.value is BUSY
    assert (len(scene.model.requests), len(scene.pauses)) == (3, 2)


async def test_a_failure_that_stays_is_not_tried_again() -> None:
    scene = Scene(WRONG_KEY, "never said")

    with pytest.raises(ModelError):
        await scene.perform()
    assert (len(scene.model.requests), scene.pauses) == (1, [])


async def test_each_request_of_a_round_has_its_own_attempts() -> None:
    scene = with_step(BUSY, call("step", n=1), BUSY, "done", attempts=2)

    assert (await scene.perform()).text == "done"


# --- K1: several calls ---


async def test_k1_calls_of_one_reply_run_at_once() -> None:
    """Each waits for the other: one after the other, they would wait for ever."""
    first, second = asyncio.Event(), asyncio.Event()

    async def left() -> str:
        first.set()
        await second.wait()
        return "left"

    async def right() -> str:
        second.set()
        await first.wait()
        return "right"

    scene = Scene([call("left"), call("right")], "ok", tools=[left, right])
    async with asyncio.timeout(60):
        await scene.perform()

    assert scene.told() == ["left", "right"]


async def test_k1_answers_are_written_as_they_come_and_told_in_the_order_of_the_calls() -> None:
    done = asyncio.Event()

    async def slow() -> str:
        await done.wait()
        return "slow"

    async def fast() -> str:
        done.set()
        return "fast"

    scene = Scene([call("slow"), call("fast")], "ok", tools=[slow, fast])
    await scene.perform()

    assert scene.happened == ["reply", "answer fast", "answer slow"]
    assert scene.told() == ["slow", "fast"]


async def test_a_developers_error_stops_the_other_calls() -> None:
    stopped = asyncio.Event()

    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "unreachable"

    async def lacking() -> str:
        raise MissingVariable("lacking", kind="variable", key="x")

    scene = Scene([call("wait"), call("lacking")], tools=[wait, lacking])
    with pytest.raises(MissingVariable):
        await asyncio.wait_for(scene.perform(), 10)
    assert stopped.is_set()


async def test_k1_a_tool_that_is_cancelled_from_within_is_told_to_the_model() -> None:
    """Else the turn would seem to be stopped by a shutdown, and wait for a restart that never comes."""

    async def gives_up() -> None:
        raise asyncio.CancelledError

    scene = Scene(call("gives_up"), "so be it", tools=[gives_up])
    outcome = await scene.perform()

    assert (outcome.text, scene.told()) == (
        "so be it",
        ["CancelledError: the tool was cancelled from within"],
    )


async def test_a_round_that_is_cancelled_ends_and_writes_no_answer() -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    scene = Scene(call("wait"), tools=[wait])
    work = asyncio.create_task(scene.perform())
    await begun.wait()
    work.cancel()

    with pytest.raises(asyncio.CancelledError):
        await work
    assert scene.happened == ["reply"]


async def test_a_failed_call_is_told_and_does_not_route() -> None:
    async def fails() -> Handoff:
        raise LookupError("nobody there")

    scene = Scene([call("fails"), call("missing")], "ok", tools=[fails])
    outcome = await scene.perform()

    assert scene.told()[0] == "LookupError: nobody there"
    assert "there is no tool 'missing'" in scene.told()[1]
    assert [one.succeeded for one in outcome.outcomes] == [False, False]


async def test_a_bug_in_a_tool_is_logged_with_file_line_and_code_without_variables(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def look(key: Annotated[str, Variable("key")]) -> str:
        raise ValueError(f"no lamp for {key}")

    scene = Scene(call("look"), "sorry", tools=[look], context=Context(variables={"key": "hunter2-hunter2"}))
    await scene.perform()
    (record,) = caplog.records

    assert scene.told() == ["ValueError: no lamp for ***"]
    assert record.getMessage().startswith("tool 'look' failed: ValueError: no lamp for ***\n")
    assert f'File "{__file__}"' in record.getMessage()
    assert "in look" in record.getMessage()
    assert "hunter2" not in record.getMessage()


async def test_a_bug_in_the_validator_of_an_argument_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    def check(where: str) -> str:
        raise KeyError(where)

    @tool
    def look(where: Annotated[str, AfterValidator(check)]) -> str:
        return where

    await Scene(call("look", where="here"), "sorry", tools=[look]).perform()
    (record,) = caplog.records

    assert "in check" in record.getMessage()


async def test_wrong_arguments_of_a_model_are_not_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    scene = with_step(call("step", n="often"), "sorry")
    await scene.perform()

    assert "wrong arguments" in scene.told()[0]
    assert caplog.records == []


async def test_what_a_tool_returned_is_reviewed_before_it_counts() -> None:
    async def hand_over() -> Handoff:
        return Handoff("nobody")

    def review(output: ToolOutput) -> ToolOutput:
        return ToolOutput(text="there is no nobody", failed=True)

    scene = Scene(call("hand_over"), "ok", tools=[hand_over], review=review)
    outcome = await scene.perform()

    assert outcome.outcomes == (ToolOutcome(tool="hand_over", succeeded=False),)
    assert scene.told() == ["there is no nobody"]


# --- approval ---


class Person:
    """Answers what it is asked, one after the other."""

    def __init__(self, *answers: str) -> None:
        self.asked: list[tuple[str, str]] = []
        self._answers = list(answers)

    async def __call__(self, site: CallSite, prompt: str, timeout: float | None) -> str:
        self.asked.append((site.place, prompt))
        return self._answers.pop(0)


def paying(paid: list[int]) -> Tool[..., Any]:
    @tool(approval=True)
    async def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    return pay


@pytest.mark.parametrize("answer", ["yes", "Y", " OK\n", "approve"])
async def test_h1_a_call_that_needs_approval_runs_after_a_yes(answer: str) -> None:
    paid: list[int] = []
    scene = Scene(call("pay", amount=5), "ok", tools=[paying(paid)], ask_person=Person(answer))
    await scene.perform()

    assert (paid, scene.told()) == ([5], ["paid"])


@pytest.mark.parametrize("answer", ["no", "", "maybe", "yes but only half of it"])
async def test_h1_anything_but_a_yes_declines_and_the_model_is_told(answer: str) -> None:
    paid: list[int] = []
    scene = Scene(call("pay", amount=5), "ok", tools=[paying(paid)], ask_person=Person(answer))
    outcome = await scene.perform()

    assert (paid, scene.told()) == ([], ["a person declined this call of 'pay'."])
    assert [one.succeeded for one in outcome.outcomes] == [False]


async def test_h1_a_yes_is_for_exactly_that_call_with_exactly_these_arguments() -> None:
    paid: list[int] = []
    person = Person("yes", "no", "yes")
    calls = [call("pay", amount=5), call("pay", amount=5), call("pay", amount=7)]
    await Scene(calls, "ok", tools=[paying(paid)], ask_person=person).perform()

    assert paid == [5, 7]
    assert [prompt for _, prompt in person.asked] == [
        f"Allow pay with {{'amount': {amount}}}? (yes or no)" for amount in (5, 5, 7)
    ]
    assert len({key for key, _ in person.asked}) == 3


# --- retry: a tool that raises is tried again before the model is told ---


def failing(error: Exception, retry: Any) -> tuple[Tool[..., Any], list[int]]:
    ran: list[int] = []

    @tool(retry=retry)
    async def broken(n: int = 0) -> str:
        ran.append(n)
        raise error

    return broken, ran


async def test_the_pauses_between_a_tools_attempts_double_up_to_their_limit() -> None:
    broken, ran = failing(
        OSError("down"), ToolRetry(attempts=5, backoff_seconds=2.0, max_backoff_seconds=5.0)
    )
    scene = Scene(call("broken"), "done", tools=[broken])
    await scene.perform()

    assert scene.pauses == [2.0, 4.0, 5.0, 5.0]
    assert (len(ran), scene.told()) == (5, ["OSError: down"])


async def test_only_the_errors_that_a_tools_retry_names_are_retried() -> None:
    broken, ran = failing(ValueError("wrong"), ToolRetry(attempts=3, on=(OSError, TimeoutError)))
    scene = Scene(call("broken"), "done", tools=[broken])
    await scene.perform()

    assert (len(ran), scene.pauses) == (1, [])


async def test_wrong_arguments_are_told_to_the_model_at_once() -> None:
    broken, ran = failing(OSError("down"), 3)
    scene = Scene(call("broken", n="many"), "done", tools=[broken])
    await scene.perform()

    assert (ran, scene.pauses) == ([], [])
    assert scene.told()[0].startswith("wrong arguments")


async def test_a_cancelled_round_stops_between_attempts() -> None:
    broken, ran = failing(OSError("down"), 3)
    scene = Scene(call("broken"), "done", tools=[broken])
    begun = asyncio.Event()

    async def sleep(seconds: float) -> None:
        begun.set()
        await asyncio.Event().wait()

    performer = replace(scene.performer, sleep=sleep)
    task = asyncio.ensure_future(performer.perform(start_round("ada", [UserMessage(text="go")])))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(ran) == 1


@pytest.mark.parametrize(
    "retry",
    [
        0,
        -1,
        101,
        True,
        "3",
        ToolRetry(attempts=0),
        ToolRetry(backoff_seconds=-1),
        ToolRetry(on=BaseException),  # type: ignore[arg-type]
    ],
)
def test_a_retry_that_makes_no_sense_is_refused_when_the_tool_is_made(retry: Any) -> None:
    with pytest.raises(BadTool, match="retry"):
        failing(OSError("down"), retry)


def test_a_tool_made_of_a_tool_keeps_its_retry() -> None:
    broken, _ = failing(OSError("down"), 4)

    assert tool(broken, name="other").retry == ToolRetry(attempts=4)
    assert tool(broken, retry=2).retry == ToolRetry(attempts=2)


# --- N4: `context.once` ---


class Results:
    """The `once` of calls, in memory. As on a channel, an attempt uses a key once."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], Any] = {}

    def once_for(self, place: str) -> RunOnce:
        used = set[str]()

        async def once(key: str, fn: Callable[[], Any]) -> Any:
            assert key not in used
            used.add(key)
            if (place, key) not in self.known:
                self.known[place, key] = await call_user(fn)
            return self.known[place, key]

        return once


async def test_n4_each_call_has_keys_of_its_own_at_its_place() -> None:
    @tool
    async def count(n: int, context: Context) -> str:
        return str(await context.once("k", lambda: n))

    results = Results()
    scene = Scene([call("count", n=1), call("count", n=2)], call("count", n=3), "done", tools=[count])
    scene.performer = replace(scene.performer, once=results.once_for)
    await scene.perform()

    assert [place.partition("-")[0] for place, _ in results.known] == ["1.1", "1.2", "2.1"]
    assert list(results.known.values()) == [1, 2, 3]


async def test_n4_a_resumed_round_finds_the_results_whatever_id_the_model_gives_the_call() -> None:
    ran = list[int]()

    @tool
    async def count(n: int, context: Context) -> str:
        return str(await context.once("k", lambda: ran.append(n)))

    results = Results()
    for call_id in ("first", "second"):
        asked = ToolCall(call_id=call_id, tool="count", arguments={"n": 1})
        scene = Scene(asked, "done", tools=[count], once=results.once_for)
        await scene.perform()

    assert (ran, len(results.known)) == ([1], 1)


async def test_n4_a_further_attempt_of_a_call_gets_the_result_of_the_first() -> None:
    ran, tries = list[str](), list[int]()

    @tool(retry=2)
    async def pay(context: Context) -> str:
        tries.append(1)
        receipt = await context.once("pay", lambda: ran.append("pay") or "paid")  # type: ignore[func-returns-value]
        if len(tries) == 1:
            raise OSError("the line is down")
        return str(receipt)

    scene = Scene(call("pay"), "done", tools=[pay], once=Results().once_for)
    await scene.perform()

    assert (ran, len(tries), scene.told()) == (["pay"], 2, ["paid"])
