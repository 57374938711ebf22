"""H1: the questions of a `run` are printed with the command that answers them, or given to a callback."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest

from tests.hub.scenes import refused
from turnline import Agent, Context, run, run_sync
from turnline.client.questions import OnQuestion
from turnline.core.graph import sequence
from turnline.errors import BadSpec
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call

ADA = sequence(["ada"])
ASKED = "Allow pay with {'amount': 5}? (yes or no)"
SAFETY_SECONDS = 60

PROGRAM = """
from turnline import Agent, run_sync, tool
from turnline.network import sequence
from turnline.testing import ScriptedModel, call


@tool(approval=True)
def pay(amount: int) -> str:
    print(f"paid {amount}", flush=True)
    return "paid"


calls = [call("pay", amount=5), call("pay", amount=6)]
agent = Agent("ada", config=ScriptedModel(calls, "done"), tools=[pay])
print(run_sync(sequence(["ada"]), agents=[agent], message="go", log="sqlite:///run.db", channel_id="c1"))
"""


def paying(paid: list[int], *script: Any) -> Agent:
    agent = Agent("ada", config=ScriptedModel(*(script or (call("pay", amount=5), "done"))))

    @agent.tool(approval=True)
    def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    return agent


def test_an_answer_from_another_terminal_is_taken_at_once(tmp_path: Path) -> None:
    """The program prints the command; the command is run as it is printed, in another folder."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, stdout=-1, stderr=-1, text=True
    ) as program:
        safety = Timer(SAFETY_SECONDS, program.kill)  # A program that prints nothing fails the test.
        safety.start()
        try:
            assert program.stderr is not None
            said = [program.stderr.readline() for _ in range(4)]
            assert said[0].strip() == f"ada asks: {ASKED}"
            for answer in ("no", "yes"):
                line = said[1 if answer == "no" else 3].removeprefix("Answer in another terminal: ")
                command = [sys.executable, "-m", *shlex.split(line.replace(" yes ", f" {answer} "))]
                subprocess.run(command, cwd=elsewhere, check=True, timeout=SAFETY_SECONDS)
            out, _ = program.communicate(timeout=SAFETY_SECONDS)
        finally:
            safety.cancel()
            program.kill()

    assert "turnline channels answer c1 yes --as user --question " in said[1]
    assert out.splitlines()[0] == "paid 6"
    assert "(closed: sequence_complete)" in out


async def test_a_question_on_a_log_in_memory_says_that_nobody_else_can_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await refused(TimeoutError, run(ADA, agents=[paying([])], message="go", timeout=0.2))

    told = capsys.readouterr().err
    assert f"ada asks: {ASKED}" in told
    assert "Nobody else can answer, because the log is in memory." in told
    assert "on_question=input" in told


async def test_what_is_printed_of_a_question_moves_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    agent = Agent("ada", config=ScriptedModel(call("ask"), "done"))

    @agent.tool
    async def ask(context: Context) -> str:
        return await context.input("\x1b[2Jgone\nturnline rm")

    await refused(TimeoutError, run(ADA, agents=[agent], message="go", timeout=0.2))

    assert "ada asks: \ufffd[2Jgone\ufffdturnline rm\n" in capsys.readouterr().err


def test_a_callback_answers_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    asked, paid = list[str](), list[int]()

    def on_question(question: str) -> str:
        asked.append(question)
        return "yes"

    result = run_sync(ADA, agents=[paying(paid)], message="go", on_question=on_question, timeout=30)

    assert (asked, paid, result.text) == ([ASKED], [5], "done")
    assert capsys.readouterr() == ("", "")


async def later(question: str) -> bool:
    await asyncio.sleep(0)
    return True


class Answering:
    """A callable that is neither a function nor a coroutine function."""

    def __call__(self, question: str) -> Awaitable[bool]:
        return later(question)


@pytest.mark.parametrize(
    ("on_question", "paid"),
    [(lambda _: True, [5]), (lambda _: False, []), (lambda _: "no", []), (later, [5]), (Answering(), [5])],
)
async def test_a_callback_may_be_async_and_say_true_or_false(
    on_question: OnQuestion, paid: list[int]
) -> None:
    done: list[int] = []
    await run(ADA, agents=[paying(done)], message="go", on_question=on_question)

    assert done == paid


def no_answer(question: str) -> Any:
    return None


def fails(question: str) -> str:
    raise EOFError("no keyboard")


@pytest.mark.parametrize(
    ("on_question", "error", "told"),
    [
        (no_answer, BadSpec, "on_question is a function that returned a NoneType; expected one that returns"),
        (fails, EOFError, "no keyboard"),
        ("yes", BadSpec, "on_question is a str; expected a function that gets the question"),
    ],
)
async def test_a_callback_that_gives_no_answer_ends_the_run(
    on_question: Any, error: type[Exception], told: str
) -> None:
    paid: list[int] = []
    with pytest.raises(error, match=told):
        await run(ADA, agents=[paying(paid)], message="go", on_question=on_question)

    assert paid == []


async def test_a_callback_without_an_answer_is_told_that_its_question_stays_open() -> None:
    answer: Any = lambda question: None  # noqa: E731
    error = await refused(BadSpec, run(ADA, agents=[paying([])], message="go", on_question=answer))

    assert str(error).endswith("The question stays open on the channel.")


async def test_questions_are_put_one_after_the_other() -> None:
    at_once, most = 0, 0

    async def on_question(question: str) -> bool:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return "6" in question

    paid: list[int] = []
    agent = paying(paid, [call("pay", amount=5), call("pay", amount=6)], "done")
    await run(ADA, agents=[agent], message="go", on_question=on_question)

    assert (paid, most) == ([6], 1)


async def test_a_run_that_resumes_puts_the_question_that_is_open() -> None:
    log, paid = MemoryLog(), list[int]()
    given: dict[str, Any] = {"message": "go", "log": log, "channel_id": "c1"}
    await refused(TimeoutError, run(ADA, agents=[paying(paid)], timeout=0.2, **given))
    asked: list[str] = []

    def on_question(question: str) -> bool:
        asked.append(question)
        return True

    result = await run(ADA, agents=[paying(paid, "done")], on_question=on_question, **given)

    assert (asked, paid, result.text) == ([ASKED], [5], "done")


def test_a_callback_that_never_returns_does_not_hold_up_the_run(tmp_path: Path) -> None:
    """It waits at a keyboard; somebody answers at another terminal."""
    address, paid, over = f"sqlite:///{tmp_path}/run.db", list[int](), Event()

    def on_question(question: str) -> str:
        command = [sys.executable, "-m", "turnline", "channels", "answer", "c1", "yes", "--log", address]
        subprocess.run(command, check=True, timeout=SAFETY_SECONDS, stdout=subprocess.DEVNULL)
        over.wait()
        return "too late"

    try:
        run_sync(
            ADA, agents=[paying(paid)], message="go", log=address, channel_id="c1", on_question=on_question
        )
    finally:
        over.set()  # The thread is the process's; the next test may need every one of them.

    assert paid == [5]
