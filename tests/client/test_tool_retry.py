"""`@tool(retry=...)` on a channel: attempts are on the log, bounded, and survive a crash."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client.stage import begun, played, stage, told
from tests.hub.scenes import add_one, closed, quiet, until
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.tool import ToolRetry, tool
from turnline.client.injection import ChannelInject, ChannelStateInject
from turnline.core.graph import sequence
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call

AT_ONCE = ToolRetry(attempts=3, backoff_seconds=0)


class Flaky:
    """A tool that fails some times, and notes each attempt."""

    def __init__(self, failures: int) -> None:
        self.keys: list[str] = []
        self.seen: list[Any] = []
        self._failures = failures

    async def pay(self, context: Context, channel: ChannelInject, state: ChannelStateInject) -> str:
        assert channel is not None
        assert state is not None
        self.seen.append(state.context_vars.get("n"))
        self.keys.append(context.idempotency_key)
        await add_one(channel)
        if len(self.keys) <= self._failures:
            raise ConnectionError(f"attempt {len(self.keys)}")
        return "paid"


async def test_the_model_is_told_only_how_the_last_attempt_ended() -> None:
    flaky, model = Flaky(2), ScriptedModel(call("pay"), "done")
    async with stage(Agent("ada", config=model, tools=[tool(flaky.pay, retry=AT_ONCE)])) as home:
        channel = await played(home)
        wal = await home.wal(channel)

    entries = [one.event_data["entry"] for one in wal if one.event_type == "turn.tool"]
    assert told(model) == ["paid"]
    assert [one["text"] for one in entries] == [
        "ConnectionError: attempt 1",
        "ConnectionError: attempt 2",
        "paid",
    ]
    assert len(flaky.keys) == 3
    assert len(set(flaky.keys)) == 1


async def test_what_a_failed_attempt_wrote_into_the_context_is_undone_before_the_next() -> None:
    flaky = Flaky(2)
    agent = Agent("ada", config=ScriptedModel(call("pay"), "done"), tools=[tool(flaky.pay, retry=AT_ONCE)])
    async with stage(agent) as home:
        result = await (await played(home)).result()

    assert flaky.seen == [None, None, None]
    assert result.context_vars == {"n": 1}


async def test_when_the_attempts_are_used_up_the_model_is_told_the_error() -> None:
    flaky, model = Flaky(9), ScriptedModel(call("pay"), "sorry")
    async with stage(Agent("ada", config=model, tools=[tool(flaky.pay, retry=AT_ONCE)])) as home:
        await played(home)

    assert told(model) == ["ConnectionError: attempt 3"]
    assert len(flaky.keys) == 3


async def test_a_tool_that_succeeds_in_the_end_reports_nothing_and_one_that_fails_reports_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for failures, reports in ((2, []), (9, ["tool 'pay' failed: ConnectionError: attempt 3"])):
        flaky, model = Flaky(failures), ScriptedModel(call("pay"), "done")
        caplog.clear()
        async with stage(Agent("ada", config=model, tools=[tool(flaky.pay, retry=AT_ONCE)])) as home:
            await played(home)

        assert [one.getMessage().partition("\n")[0] for one in caplog.records] == reports


async def test_the_pause_between_attempts_runs_on_the_hubs_clock() -> None:
    flaky = Flaky(1)
    retry = ToolRetry(attempts=2, backoff_seconds=30)
    agent = Agent("ada", config=ScriptedModel(call("pay"), "done"), tools=[tool(flaky.pay, retry=retry)])
    async with stage(agent) as home:
        channel = await begun(home)
        await until(lambda: len(flaky.keys) == 1)
        await quiet()
        assert len(flaky.keys) == 1
        home.clock.advance(30)
        await closed(channel)

    assert len(flaky.keys) == 2


async def test_a_resumed_turn_does_not_get_the_attempts_again() -> None:
    """Attempt 1 is on the log, the worker is dropped in attempt 2: the next worker has attempts 2 and 3."""
    log, entered, ran = MemoryLog(), asyncio.Event(), list[int]()

    async def stuck() -> str:
        ran.append(1)
        if len(ran) == 2:
            entered.set()
            await asyncio.Event().wait()
        raise ConnectionError("no")

    model = ScriptedModel(call("stuck"), "sorry")
    async with stage(Agent("ada", config=model, tools=[tool(stuck, retry=AT_ONCE)]), log=log) as home:
        await begun(home, channel_id="story")
        await entered.wait()
    async with stage(Agent("ada", config=model, tools=[tool(stuck, retry=AT_ONCE)]), log=log) as home:
        channel = home.people["user"].channel("story")
        await closed(channel)
        wal = await home.wal(channel)

    entries = [one.event_data["entry"] for one in wal if one.event_type == "turn.tool"]
    assert [one.get("attempt") for one in entries] == [1, 2, None]
    assert len(ran) == 4


PROGRAM = """
import os, signal, sys
from pathlib import Path
import turnline
from turnline.core.graph import sequence
from turnline.testing import ScriptedModel, call

notes, log = Path(sys.argv[1]), sys.argv[2]

@turnline.tool(retry=turnline.ToolRetry(attempts=3, backoff_seconds=0))
def pay(context: turnline.Context) -> str:
    with notes.open("a") as file:
        file.write(context.idempotency_key + "\\n")
    made = len(notes.read_text().splitlines())
    if made == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if made < 4:
        raise ConnectionError("not yet")
    return "paid"

model = ScriptedModel(lambda messages: call("pay") if len(messages) == 1 else "done")
agent = turnline.Agent("ada", config=model, tools=[pay])
result = turnline.run_sync(sequence(["user", "ada"]), agents=[agent], message="go", log=log, channel_id="c")
print(result.text)
"""


def test_a_process_killed_between_attempts_resumes_with_the_next_attempt(tmp_path: Path) -> None:
    notes, log = tmp_path / "notes", f"sqlite:///{tmp_path}/log.db"
    lives = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(notes), log],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        for _ in range(2)
    ]

    keys = notes.read_text().splitlines()
    assert lives[0].returncode == -signal.SIGKILL
    assert lives[1].stdout.strip() == "done", lives[1].stderr
    assert len(keys) == 4
    assert len(set(keys)) == 1


async def test_a_person_is_asked_once_whatever_the_number_of_attempts() -> None:
    """Of the approval and of a tool's own question."""
    asked, ran = list[str](), list[str]()

    def person(prompt: str) -> str:
        asked.append(prompt)
        return "yes"

    @tool(approval=True, retry=AT_ONCE)
    async def pay(context: Context) -> str:
        ran.append(await context.input("From which account?"))
        if len(ran) < 3:
            raise ConnectionError("no")
        return "paid"

    model = ScriptedModel(call("pay"), "done")
    async with stage(Agent("ada", config=model, tools=[pay], hitl_hook=person)) as home:
        await played(home, sequence(["user", "ada"]))

    assert told(model) == ["paid"]
    assert len(ran) == 3
    assert len(asked) == 2
