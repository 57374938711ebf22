"""`examples/support_desk`: it checks, its tests pass, and its one command plays it as a user sees it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from tests.cli.projects import call
from turnline.flow.project import load_project
from turnline.server.runtime import runtime_of
from turnline.testing import ModelServer

FOLDER = Path(__file__).parents[2] / "examples" / "support_desk"
PATIENCE_SECONDS = 60.0
ANSWER = "Order 1042 was charged twice. I propose to pay 19.90 back; a supervisor decides."


@asynccontextmanager
async def desk(*arguments: str, **environ: str) -> AsyncIterator[Process]:
    known = {key: value for key, value in os.environ.items() if key != "TURNLINE_MODEL"}
    command = [sys.executable, str(FOLDER / "desk.py"), "--port", "0", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, env={**known, **environ}, preexec_fn=_hear_ctrl_c
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _hear_ctrl_c() -> None:
    """What a shell starts in the background ignores it, and so does whatever that starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def lines_until(process: Process, wanted: str) -> list[str]:
    """Everything it says, up to the line that begins so."""
    assert process.stdout is not None
    said = [""]
    while not said[-1].startswith(wanted):
        line = await process.stdout.readline()
        assert line, said
        said.append(line.decode().rstrip())
    return said


async def all_of(process: Process) -> list[str]:
    out, _ = await process.communicate()
    return out.decode().splitlines()


async def answer_in_the_studio(address: str) -> str:
    """What a supervisor's browser sends; returns the task's title."""
    server, _, token = address.partition("/studio#token=")
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=server, headers=headers, trust_env=False) as browser:
        assert (await browser.get("/studio")).status_code == 200
        [task] = (await browser.get("/tasks")).json()["data"]["tasks"]
        told = {"answer": {"approved": True, "note": "quite right"}}
        assert (await browser.post(f"/tasks/{task['task_id']}/answer", json=told)).status_code == 200
    return str(task["title"])


def test_nothing_is_wrong_with_it_and_its_tests_pass() -> None:
    checked, tested = call("check", str(FOLDER)), call("test", str(FOLDER))

    assert checked.code == 0, checked.out
    assert (tested.code, tested.out.splitlines()[-1]) == (0, "3 passed.")


async def test_one_command_plays_it_without_a_key() -> None:
    async with desk("--answer", "yes", "--log", "memory:") as process:
        said = await all_of(process)

    assert process.returncode == 0
    assert said[2:] == [
        "customer: I was charged twice.",
        "triage: Billing will look at this.",
        f"billing: {ANSWER}",
        "a supervisor is asked: Pay 19.9 back for order 1042?",
        "sam: yes",
        f"succeeded: {json.dumps({'answer': ANSWER, 'refunded': 19.9})}",
    ]


async def test_a_supervisor_answers_in_the_studio_and_ctrl_c_ends_it() -> None:
    async with desk("--log", "memory:") as process:
        said = await lines_until(process, "Answer it in the studio")
        title = await answer_in_the_studio(said[1].removeprefix("The studio: "))
        paid = (await lines_until(process, "Look around"))[-2]
        process.send_signal(signal.SIGINT)
        rest = await all_of(process)

    assert title == "Pay 19.9 back for order 1042?"
    assert paid.endswith('"refunded": 19.9}')
    assert (process.returncode, rest) == (0, ["closed."])


async def test_what_waits_for_the_supervisor_outlives_the_process(tmp_path: Path) -> None:
    log = f"sqlite:///{tmp_path}/desk.db"
    async with desk("--log", log) as process:
        await lines_until(process, "Answer it in the studio")
        process.kill()
        await process.wait()

    async with runtime_of(load_project(FOLDER), log_address=log, grace_seconds=0) as runtime:
        [task] = await runtime.tasks.list()
        await runtime.tasks.answer(task.task_id, {"approved": False}, by="sam")
        verdict = await runtime.runs.wait(task.run_id)

    assert (verdict.status, verdict.data) == ("succeeded", {"answer": ANSWER, "refunded": 0})


async def test_with_live_the_model_is_asked() -> None:
    """A server that speaks the provider's wire format stands in for the provider."""
    with ModelServer("Please restart it.") as server:
        environ = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
        async with desk("--live", "openai:any", "--answer", "no", "--log", "memory:", **environ) as process:
            said = await all_of(process)

    assert said[-2] == "triage: Please restart it."
    assert said[-1] == 'succeeded: {"answer": "Please restart it.", "refunded": 0}'
    assert "charged twice" in server.requests[0].json["messages"][-1]["content"]


def test_its_readme_is_short() -> None:
    assert len((FOLDER / "README.md").read_text().splitlines()) <= 10
