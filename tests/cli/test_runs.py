"""`turnline runs`: look at runs, follow them, ask why, retry them, write them down."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flow.stage import stage
from tests.hub.scenes import die
from tests.hub.test_tree import services
from turnline.errors import BadAnswer, BadQuery, BadSpec, RunNotWaiting, UnknownRun
from turnline.log.sqlite import SqliteLog

from .projects import call, project

NODES = """
from pathlib import Path
from turnline import node

@node("greet")
def greet(ctx):
    ctx["_secret"] = "hunter2"
    ctx["hello"] = f"Hello {ctx['name']}"
    return ctx

@node("save")
def save(ctx):
    if not Path("mended").exists():
        raise ValueError("the disk is full")
    return {"saved": True} | ({"by": ctx["_user_id"]} if "_user_id" in ctx else {})
"""
FLOW = """
kind: Workflow
metadata: {name: main}
spec:
  steps:
  - {id: greet, runner: greet, routes: {default: save}}
  - {id: save, runner: save}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one run that has failed, on its own log."""
    monkeypatch.chdir(tmp_path)
    project(tmp_path, nodes__it_py=NODES, workflows__main_yaml=FLOW)
    (tmp_path / ".turnline").mkdir()
    done = call("run", "workflows/main.yaml", "-i", "name=Ann", "--log", ".turnline/log.db", "--run", "r1")
    assert done.code == 1
    return tmp_path


ASKS = """
kind: Workflow
metadata: {name: asks}
spec:
  steps:
  - {id: ask, human: {title: "Sure?", form: {sure: boolean}}}
  - {id: greet, runner: greet}
"""


def test_a_run_that_waits_for_a_person_is_answered_and_goes_on(folder: Path) -> None:
    (folder / "workflows" / "asks.yaml").write_text(ASKS)
    begun = call("run", "workflows/asks.yaml", "-i", "name=Ann", "--log", ".turnline/log.db", "--run", "r2")
    assert begun.code == 3
    with pytest.raises(BadAnswer, match="sure: expected true or false"):
        call("runs", "answer", "r2", "-i", "sure=perhaps")
    done = of("answer", "r2", "-i", "sure=yes")

    assert (done["status"], done["data"]["hello"], done["data"]["sure"]) == ("succeeded", "Hello Ann", True)


def test_a_run_that_waits_for_nobody_cannot_be_answered(folder: Path) -> None:
    with pytest.raises(RunNotWaiting, match="r1"):
        call("runs", "answer", "r1", "-i", "sure:=true")


AGENT = """
from turnline import Agent, tool
from turnline.testing import ScriptedModel, call

@tool(approval=True)
def pay(amount: int) -> str:
    return f"paid {amount}"

def reply(messages):
    return [call("pay", amount=5), call("pay", amount=7)] if len(messages) == 1 else "done"

buyer = Agent("buyer", config=ScriptedModel(reply), tools=[pay])
"""
BUYS = """
kind: Workflow
metadata: {name: buys}
spec:
  steps:
  - {id: buy, agent: {name: buyer, prompt: go, ask: {group: ops}}}
"""


def test_the_questions_of_an_agent_step_are_listed_and_answered_one_by_one(folder: Path) -> None:
    (folder / "agents").mkdir()
    (folder / "agents" / "buyer.py").write_text(AGENT)
    (folder / "workflows" / "buys.yaml").write_text(BUYS)
    begun = call("run", "workflows/buys.yaml", "--log", ".turnline/log.db", "--run", "r3")
    assert begun.code == 3
    first, second = of("tasks", "--group", "ops")
    listed = call("runs", "tasks").out
    assert all(f'arguments: {{"amount":{amount}}}' in listed for amount in (5, 7))
    assert of("tasks", "--group", "sales") == []
    with pytest.raises(BadSpec, match=first["task_id"]):
        call("runs", "answer", "r3", "-i", "answer=yes")
    waits = call("runs", "answer", "r3", "--task", first["task_id"], "-i", "answer=yes", "--json")
    assert waits.code == 3
    with pytest.raises(RunNotWaiting):
        call("runs", "answer", "r3", "--task", first["task_id"], "-i", "answer=no")
    done = of("answer", "r3", "-i", "answer=no")

    assert (done["status"], done["data"]["buy"]) == ("succeeded", "done")
    assert second["show"] == {"tool": "pay", "arguments": {"amount": 7}}


def test_a_fork_of_a_run_has_its_past_and_what_is_no_run_cannot_be_forked(folder: Path) -> None:
    forked = of("fork", "r1", "--at", "3")
    shown = of("show", forked["run_id"])

    assert forked["forked_from"] == "r1"
    assert shown["run_id"] == forked["run_id"]
    with pytest.raises(UnknownRun):
        call("runs", "fork", "nothing", "--at", "3")


def of(verb: str, *arguments: str) -> Any:
    done = call("runs", verb, *arguments, "--json")
    assert done.code == 0, done
    told = json.loads(done.out)
    return told["runs"] if verb == "list" else told


def test_list_and_show_tell_where_a_run_stands_and_nothing_private(folder: Path) -> None:
    (one,) = of("list")
    shown = of("show", "r1")

    assert (one["run_id"], one["flow"], one["status"], one["step"]) == ("r1", "main", "failed", "save")
    assert shown["data"] == {"name": "Ann", "hello": "Hello Ann"}
    assert [event["step"] for event in shown["events"] if event["type"] == "step_ended"] == ["greet", "save"]
    assert "the disk is full" in call("runs", "list").out
    for verb in ("show", "tail", "why"):
        told = call("runs", verb, "r1").out + call("runs", verb, "r1", "--json").out
        assert "hunter2" not in told
        assert "_secret" not in told
    assert of("list", "--flow", "other") == []


def test_runs_are_listed_in_pages_and_by_every_filter(folder: Path) -> None:
    (folder / "mended").touch()
    for name in ("r2", "r3"):
        call("run", "workflows/main.yaml", "-i", "name=Bob", "--log", ".turnline/log.db", "--run", name)
    first = json.loads(call("runs", "list", "--limit", "2", "--json").out)
    rest = json.loads(call("runs", "list", "--after", first["next"], "--json").out)

    assert [one["run_id"] for one in (*first["runs"], *rest["runs"])] == ["r3", "r2", "r1"]
    assert rest["next"] is None
    assert f"--after {first['next']}" in call("runs", "list", "--limit", "2").err
    for options, expected in {
        ("--status", "failed"): ["r1"],
        ("--status", "succeeded", "--limit", "1"): ["r3"],
        ("--since", "1h"): ["r3", "r2", "r1"],
        ("--until", "1h"): [],
        ("--label", "flow=main", "--label", "none=such"): [],
        ("--participant", "save", "--flow", "main", "--status", "failed"): ["r1"],
    }.items():
        assert [one["run_id"] for one in of("list", *options)] == expected, options
    with pytest.raises(BadQuery, match="since is 'soon'; expected a time"):
        call("runs", "list", "--since", "soon")


def test_runs_are_cancelled_one_by_one_and_the_exit_code_says_if_one_was_not(folder: Path) -> None:
    (folder / "workflows" / "asks.yaml").write_text(ASKS)
    asking = "r2"
    call("run", "workflows/asks.yaml", "-i", "name=Ann", "--log", ".turnline/log.db", "--run", asking)
    done = call("runs", "cancel", "r1", asking, "nowhere", "--json")
    again = call("runs", "cancel", asking)

    assert (done.code, again.code) == (1, 1)
    results = {one["id"]: one.get("result") or one["error"]["type"] for one in json.loads(done.out)}
    assert results == {"r1": "RunConflict", asking: "cancelled", "nowhere": "UnknownRun"}
    assert of("show", asking)["error"]["type"] == "cancelled"


def test_a_bulk_cancel_lists_first_and_cancels_what_the_filters_leave(folder: Path) -> None:
    (folder / "workflows" / "asks.yaml").write_text(ASKS)
    for name in ("r2", "r3"):
        call("run", "workflows/asks.yaml", "-i", "name=Ann", "--log", ".turnline/log.db", "--run", name)
    dry = call("runs", "cancel", "--status", "waiting", "--limit", "1", "--json")
    done = call("runs", "cancel", "--status", "waiting", "--limit", "1", "--yes", "--json")
    rest = call("runs", "cancel", "--status", "waiting", "--yes", "--json")

    assert (dry.code, [one["run_id"] for one in json.loads(dry.out)["runs"]]) == (0, ["r3"])
    assert "nothing was cancelled; with --yes 1 run would be." in dry.err
    assert json.loads(done.out) == [{"id": "r3", "result": "cancelled"}]
    assert json.loads(rest.out) == [{"id": "r2", "result": "cancelled"}]


@pytest.mark.parametrize("options", [[], ["r1", "--status", "waiting"], ["--flow", "main"], ["r1", "--yes"]])
def test_a_cancel_is_of_named_runs_or_of_a_list(folder: Path, options: list[str]) -> None:
    done = call("runs", "cancel", *options)

    assert done.code == 2
    assert "Give IDs, or --status with filters." in done.err


def test_a_bulk_retry_lists_first_and_then_retries_each_once(folder: Path) -> None:
    call("run", "workflows/main.yaml", "-i", "name=Bob", "--log", ".turnline/log.db", "--run", "r2")
    dry = call("runs", "retry", "--status", "failed", "--flow", "main", "--json")
    none = json.loads(call("runs", "retry", "--status", "failed", "--until", "1h", "--json").out)
    failed = call("runs", "retry", "--status", "failed", "--limit", "1", "--yes", "--json")
    (folder / "mended").touch()
    done = call("runs", "retry", "--status", "failed", "--yes", "--json")
    again = call("runs", "retry", "--status", "failed", "--yes", "--json")

    assert (dry.code, [one["run_id"] for one in json.loads(dry.out)["runs"]]) == (0, ["r2", "r1"])
    assert "nothing was retried; with --yes 2 runs would be." in dry.err
    assert none == {"runs": []}
    (first,) = json.loads(failed.out)
    assert (failed.code, first["id"], first["error"]["message"]) == (1, "r2", "the disk is full")
    # The retry of r2 has failed, so that one is retried, and r1.
    assert (done.code, {one["id"] for one in json.loads(done.out)}) == (0, {"r1", first["run_id"]})
    assert (again.code, json.loads(again.out)) == (0, [])


def test_a_bulk_retry_continues_after_a_run_that_fails_again(folder: Path) -> None:
    (folder / "mended").touch()
    call("run", "workflows/main.yaml", "--log", ".turnline/log.db", "--run", "r2")
    done = call("runs", "retry", "--status", "failed", "--yes")

    assert done.code == 1
    assert [line.split()[0] for line in done.out.splitlines()] == ["r2", "r1"]
    assert done.out.splitlines()[1].endswith(": succeeded")
    assert done.err.startswith("r2: ")


def test_a_list_of_runs_says_when_they_began_and_ended(folder: Path) -> None:
    (run,) = json.loads(call("runs", "list", "--json").out)["runs"]
    shown = call("runs", "list").out

    began, ended = (run[key][:16].replace("T", " ") for key in ("started_at", "ended_at"))
    assert f"{began}  {ended}" in shown


def test_a_bulk_retry_takes_cancelled_runs_only_if_they_are_asked_for(folder: Path) -> None:
    (folder / "workflows" / "asks.yaml").write_text(ASKS)
    call("run", "workflows/asks.yaml", "-i", "name=Ann", "--log", ".turnline/log.db", "--run", "r2")
    call("runs", "cancel", "r2")

    def list_retried(status: str) -> list[str]:
        found = json.loads(call("runs", "retry", "--status", status, "--json").out)
        return [one["run_id"] for one in found["runs"]]

    assert list_retried("failed") == ["r1"]
    assert list_retried("cancelled") == ["r2"]


@pytest.mark.parametrize(
    "options", [[], ["r1", "--status", "failed"], ["--status", "failed", "--step", "save"], ["--yes"]]
)
def test_a_retry_is_of_one_run_or_of_a_list(folder: Path, options: list[str]) -> None:
    done = call("runs", "retry", *options)

    assert done.code == 2
    assert "Give an ID, or --status" in done.err


def test_channels_of_a_run_show_nothing_private_either(folder: Path) -> None:
    for verb in ("show", "tail"):
        told = call("channels", verb, "r1", "--json").out
        assert "hunter2" not in told
        assert "_secret" not in told


def test_tail_tells_the_steps_and_ends_with_the_run(folder: Path) -> None:
    lines = call("runs", "tail", "r1").out.splitlines()

    assert "greet" in lines[0]
    assert 'hello="Hello Ann"' in lines[0] or "hello=Hello Ann" in lines[0]
    assert "ended: " in lines[-1]
    told = [json.loads(line) for line in call("runs", "tail", "r1", "--json").out.splitlines()]
    assert told[-1]["type"] == "ended"


def test_why_says_which_route_was_taken(folder: Path) -> None:
    greeted = next(event["seq"] for event in of("show", "r1")["events"] if event["type"] == "step_ended")
    told = of("why", "r1", str(greeted))

    assert [rule["kind"] for rule in told["rules"] if rule.get("decided")] == ["transition"]
    assert "the floor goes to save" in told["summary"]


def test_retry_goes_on_from_the_step_and_says_how_it_ended(folder: Path) -> None:
    again = call("runs", "retry", "r1", "--json")
    assert (again.code, json.loads(again.out)["status"]) == (1, "failed")
    (folder / "mended").touch()
    told = json.loads(call("runs", "retry", "r1", "--json").out)

    assert (told["status"], told["retry_of"]) == ("succeeded", "r1")
    assert told["data"] == {"name": "Ann", "hello": "Hello Ann", "saved": True}


def test_a_retry_is_of_the_user_that_the_operator_names(folder: Path) -> None:
    (folder / "mended").touch()
    told = json.loads(call("runs", "retry", "r1", "--as", "eve", "--json").out)

    assert told["data"]["by"] == "eve"


def test_n3_a_stuck_run_is_listed_and_a_retry_continues_the_same_one(folder: Path) -> None:
    log = folder / ".turnline" / "log.db"

    async def stick() -> None:
        entered = asyncio.Event()

        async def never(ctx: dict[str, Any]) -> None:
            entered.set()
            await asyncio.Event().wait()

        async with stage(FLOW, log=SqliteLog(log), greet=never, save=never) as house:
            await house.runs.start("main", {"name": "Ann"}, run_id="r2")
            await entered.wait()
        await die(SqliteLog(log), "r2", "greet", is_found=True)

    asyncio.run(stick())
    (folder / "mended").touch()
    stuck = [(one["run_id"], one["status"]) for one in of("list", "--status", "stuck")]
    again = of("retry", "r2")

    assert stuck == [("r2", "stuck")]
    assert (again["run_id"], again["status"], again["data"]["hello"]) == ("r2", "succeeded", "Hello Ann")


def test_show_counts_what_fan_out_and_nested_runs_used(folder: Path) -> None:
    async def hold() -> None:
        async with stage(log=SqliteLog(folder / ".turnline" / "log.db"), services=services()) as house:
            await house.runs.start("main", {}, run_id="r2")
            await house.ended("r2")

    asyncio.run(hold())
    usage = of("show", "r2")["usage"]

    assert (usage["requests"], usage["cost"], usage["below"]["requests"]) == (6, 3.0, 5)


def test_an_exported_run_is_played_by_turnline_test(folder: Path) -> None:
    (folder / "tests").mkdir()
    assert call("runs", "export", "r1", "-o", "tests/failed.fixture.json").code == 0

    assert "hunter2" not in Path("tests/failed.fixture.json").read_text()
    assert call("test").out.splitlines()[-1] == "1 passed."


def test_a_run_that_is_not_there_is_named(folder: Path) -> None:
    for verb in ("show", "tail", "why", "export"):
        with pytest.raises(UnknownRun, match="'r2'"):
            call("runs", verb, "r2")


@pytest.mark.parametrize("verb", ["list", "show", "tail", "why", "cancel", "retry", "export"])
def test_every_verb_has_an_example(verb: str) -> None:
    assert "Example: turnline runs " in call("runs", verb, "--help").out


def test_help_of_the_verbs_reads_no_flows() -> None:
    heavy = "{'pydantic', 'jinja2', 'starlette', 'fastapi', 'sqlalchemy', 'pydantic_ai', 'rich.console'}"
    code = f"import sys, turnline.cli; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
