"""`turnline run`: one run, without a server."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turnline.client.embedded import Hub
from turnline.core.claims import MAX_CLAIMS
from turnline.core.fold import SUSPECT_CLAIMS
from turnline.errors import BadAnswer, BadDocuments, BadSpec, RunConflict, UnknownName
from turnline.hub.worker import this_host
from turnline.log.sqlite import SqliteLog

from .projects import Called, call, project, turnline

NODES = """
import os, signal
from pathlib import Path
from turnline import node

@node("greet")
def greet(ctx):
    ctx["_secret"] = "hunter2"
    ctx["hello"] = f"Hello {ctx['name']}"
    return ctx

@node("fail")
def fail(ctx):
    raise ValueError("no \\x1b[31mred")

@node("killed_once")
def killed_once(ctx):
    if not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"alive": True}
"""
HEARS_CTRL_C = """
import signal, runpy
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("turnline", run_name="__main__")
"""
"""The program, also where SIGINT is ignored by whoever started the tests: a shell, in the background."""
GREET = """
trigger: {path: /greet, input: {name: {type: string, required: true}, n: integer}}
steps: [{id: greet, runner: greet}]
"""
APPROVE = """
steps:
  - {id: greet, runner: greet}
  - id: approve
    human:
      title: "Greet {{ name }}?"
      show: [name]
      form: {approved: {type: boolean, required: true}, why: string}
  - {id: done, response: {mapping: {approved: approved}}}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(flow: str, **files: str) -> None:
    project(Path(), workflows__it_yaml=flow, nodes__it_py=NODES, **files)


def run(*arguments: str) -> Called:
    return call("run", "workflows/it.yaml", *arguments)


def test_the_steps_are_told_and_the_data_at_the_end() -> None:
    written(GREET)
    done = run("-i", "name=Ann", "-i", "n:=3")

    assert (done.code, done.err) == (0, "")
    first, status, *data = done.out.splitlines()
    assert first.split() == ["greet", "default", "hello=Hello", "Ann"]
    assert status == "succeeded"
    assert json.loads("".join(data)) == {"name": "Ann", "n": 3, "hello": "Hello Ann"}
    assert "hunter2" not in done.out


def test_a_text_is_what_the_field_of_the_input_wants() -> None:
    written(GREET.replace("n: integer", "n: integer, price: number, other: any"))
    told = json.loads(run("-i", "name=7", "-i", "n=3", "-i", "price=19.9", "-i", "other=1", "--json").out)

    assert told["data"] | {"hello": ""} == {"name": "7", "n": 3, "price": 19.9, "other": "1", "hello": ""}


def test_a_text_that_is_no_number_is_refused_by_its_field() -> None:
    written(GREET)
    done = run("-i", "name=Ann", "-i", "n=three")

    assert done.code == 1
    assert "n: expected an integer, found" in done.err


def test_json_is_all_that_is_printed() -> None:
    written(GREET, body_json='{"name": "Ann", "n": 1}')
    told = json.loads(run("--input", "body.json", "-i", "n:=2", "--json").out)

    assert (told["status"], told["data"]["n"]) == ("succeeded", 2)
    assert told["run_id"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-i", "name"], "is no pair"),
        (["-i", "n:=x"], "is no JSON"),
        (["--input", "nowhere.json"], "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_told_before_anything_runs(arguments: list[str], said: str) -> None:
    written(GREET)
    done = run(*arguments)

    assert done.code == 2
    assert said in " ".join(done.err.split())
    assert done.out == ""


def test_f1_input_that_the_trigger_does_not_take_is_refused() -> None:
    written(GREET)
    done = run("-i", "n=3")

    assert done.code == 1
    assert done.err.startswith("failed: invalid_input: ")
    assert "name: " in done.err


def test_f5_a_run_that_fails_says_where_and_why() -> None:
    written("steps: [{id: greet, runner: greet}, {id: bad, runner: fail}]")
    done = run("-i", "name=Ann")

    assert done.code == 1
    assert done.err.startswith("failed at step bad: error: no ")
    assert "\x1b" not in done.err, "a terminal obeys nothing that a run says"


def test_of_several_flows_one_has_to_be_named() -> None:
    each = "{{metadata: {{name: {}}}, spec: {{steps: [{{id: greet, runner: greet}}]}}}}"
    written("\n---\n".join(each.format(name) for name in ("one", "two")))

    unclear = run("-i", "name=Ann")
    assert unclear.code == 2
    assert "several flows: one, two" in " ".join(unclear.err.split())
    assert run("-i", "name=Ann", "--flow", "two").code == 0
    with pytest.raises(UnknownName, match="Did you mean 'two'"):
        run("-i", "name=Ann", "--flow", "tow")


def test_a_projects_folder_runs_its_flow_or_asks_which() -> None:
    written(GREET)
    assert call("run", ".", "-i", "name=Ann").code == 0

    project(Path(), workflows__more_yaml="steps: [{id: greet, runner: greet}]")
    unclear = call("run", ".", "-i", "name=Ann")
    assert unclear.code == 2
    assert "holds several flows: it, more; say which with --flow" in " ".join(unclear.err.split())
    assert call("run", ".", "--flow", "it", "-i", "name=Ann").code == 0

    project(Path(), workflows__asks_yaml=APPROVE)
    waits = call("run", ".", "--flow", "asks", "-i", "name=Ann", "--log", "run.db")
    assert "answer with turnline run . --flow asks --log run.db --run " in waits.out


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("data.yaml", "kind: Test\nmetadata: {name: it}", "data.yaml has no flow; expected a workflow:"),
        (
            "it.py",
            "print(1)",
            "it.py is a Python program; expected a workflow: YAML with `steps:`. Run it with: python it.py",
        ),
        (
            "folder/notes.txt",
            "x",
            "folder has no flow; expected a workflow such as folder/workflows/it.yaml.",
        ),
    ],
)
def test_what_is_not_a_flow_says_what_it_is_and_what_to_do(file: str, text: str, said: str) -> None:
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(text)
    done = call("run", file.removesuffix("/notes.txt"))

    assert done.code == 2
    assert said in " ".join(done.err.split())


@pytest.mark.parametrize(("text", "what"), [("", "is empty"), ("# soon", "has no document")])
def test_an_empty_file_says_so_and_what_to_write(text: str, what: str) -> None:
    Path("it.yaml").write_text(text)

    with pytest.raises(BadDocuments, match=rf"it.yaml:1:1: TL025 the file {what}\n +do: write a workflow"):
        call("run", "it.yaml")


def test_the_steps_below_a_step_are_told_too() -> None:
    written("steps: [{id: each, for_each: {items: people, as: name, steps: [{id: greet, runner: greet}]}}]")
    told = run("-i", 'people:=["Ann", "Bob"]').out.splitlines()

    assert [line.split()[0] for line in told[:3]] == ["greet", "greet", "each"]
    assert told[0].startswith("    greet")


def test_f7_a_run_that_was_killed_goes_on_behind_its_last_step(tmp_path: Path) -> None:
    written("steps: [{id: greet, runner: greet}, {id: risk, runner: killed_once}]")
    kept = ["run", "workflows/it.yaml", "--log", "it.db", "--run", "r1"]
    first = turnline(*kept, "-i", "name=Ann", cwd=tmp_path)
    second = turnline(*kept, cwd=tmp_path)

    assert first.code == -9
    assert second.code == 0, second.err
    assert second.out.splitlines()[0].split()[0] == "risk", "what was done is not done again"
    assert '"alive": true' in second.out


def test_without_a_terminal_a_run_that_asks_ends_with_3_and_says_how_to_answer() -> None:
    written(APPROVE)
    kept = ["--log", "it.db", "--run", "r1"]
    asked = run(*kept, "-i", "name=Ann")
    answered = run(*kept, "--answer", "approved=yes")
    over = run(*kept)

    assert asked.code == 3
    assert "run r1 waits for a person: Greet Ann?" in asked.out
    command = "turnline run workflows/it.yaml --log it.db --run r1 --answer approved:=true"
    assert f"answer with {command}\n" in asked.out
    assert answered.code == 0
    assert '"approved": true' in answered.out
    assert over.out.splitlines()[0] == "succeeded", "a run that is over is told again"


BOTH = """
kind: Workflow
metadata: {name: it}
spec:
  steps:
    - id: ask
      parallel:
        branches:
          a: [{id: one, human: {title: "Delete a?", form: {sure: {type: boolean, required: true}}}}]
          b: [{id: two, human: {title: "Delete b?", form: {sure: {type: boolean, required: true}}}}]
"""


def test_an_answer_names_its_task_if_several_wait() -> None:
    written(BOTH)
    kept = ["--log", "it.db", "--run", "r1"]
    asked = run(*kept)
    tasks = {one["title"]: one["task_id"] for one in json.loads(run(*kept, "--json").out)["tasks"]}
    with pytest.raises(BadSpec, match=r"one of 2 .*Delete a\?.*--task ID. Nothing was answered"):
        run(*kept, "--answer", "sure=yes")
    second = run(*kept, "--task", tasks["Delete b?"], "--answer", "sure=yes", "--json")

    assert all(f"--task {one} --answer sure:=true\n" in asked.out for one in tasks.values())
    assert [one["title"] for one in json.loads(second.out)["tasks"]] == ["Delete a?"]


def test_a_run_is_started_once_under_its_id() -> None:
    written(GREET)
    kept = ["--log", "it.db", "--run", "r1"]
    run(*kept, "-i", "name=Ann")

    with pytest.raises(RunConflict):
        run(*kept, "-i", "name=Bob")


def test_a_run_that_asks_and_is_not_kept_says_so() -> None:
    written(APPROVE)
    done, told = run("-i", "name=Ann"), run("-i", "name=Ann", "--json")

    assert (done.code, told.code) == (3, 3)
    assert "nothing of it is kept" in done.err
    assert "answer with" not in done.out
    [task] = json.loads(told.out)["tasks"]
    assert (task["title"], task["form"]["approved"]["type"]) == ("Greet Ann?", "boolean")


def test_an_answer_that_the_form_does_not_take_is_told() -> None:
    written(APPROVE)

    with pytest.raises(BadAnswer, match="approved: "):
        run("-i", "name=Ann", "--answer", "approved=perhaps")


def test_at_a_terminal_the_person_is_asked_until_the_form_takes_the_answer(tmp_path: Path) -> None:
    written(APPROVE)
    terminal, end = pty.openpty()
    os.write(terminal, b"perhaps\n\nyes\nshe is nice\n")
    try:
        done = turnline("run", "workflows/it.yaml", "-i", "name=Ann", cwd=tmp_path, stdin=end)
    finally:
        os.close(terminal)
        os.close(end)

    assert done.code == 0, done.err
    assert done.out.count("approved (yes or no)") == 2
    assert "why (string, may be left empty)" in done.out
    assert '"approved": true' in done.out


def test_whoever_is_asked_may_go_away_and_come_back(tmp_path: Path) -> None:
    written(APPROVE)
    kept = ["workflows/it.yaml", "--log", "it.db", "--run", "r1"]
    command = [sys.executable, "-c", HEARS_CTRL_C, "run", *kept, "-i", "name=Ann"]
    terminal, end = pty.openpty()
    with subprocess.Popen(command, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = b""
        while b"approved (yes or no)" not in told:
            piece = os.read(process.stdout.fileno(), 1024)
            assert piece, "it ended before it asked"
            told += piece
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    os.close(terminal)
    os.close(end)

    assert process.returncode == 130
    assert b"stopped; go on with turnline run workflows/it.yaml --log it.db --run r1\n" in said
    assert run(*kept[1:], "--answer", "approved:=false").code == 0


def test_a_run_that_waits_for_an_event_ends_with_3() -> None:
    written("steps: [{id: paid, wait: {event: paid}}]")
    done = run()

    assert done.code == 3
    assert "waits for an event" in done.out


def test_a_run_without_a_log_touches_no_database(tmp_path: Path) -> None:
    model = "{kind: ModelDefinition, metadata: {name: Lead}, spec: {fields: {name: string}}}"
    flow = """
    context: {models: [{name: Lead}]}
    steps: [{id: keep, model_op: {model: Lead, op: add, values: {name: "{{ name }}"}}}]
    """
    written(flow, models__lead_yaml=model, turnline_yaml="database: sqlite:///real.db")

    assert run("-i", "name=Ann").code == 0
    assert not list(tmp_path.glob("**/*.db"))
    assert run("-i", "name=Ann", "--log", "it.db").code == 0
    assert {path.name for path in tmp_path.glob("*.db")} == {"real.db", "it.db"}


def test_a_bug_in_a_node_shows_file_line_and_a_short_traceback(tmp_path: Path) -> None:
    written("steps: [{id: greet, runner: greet}, {id: fail, runner: fail}]")
    done = turnline("run", "workflows/it.yaml", "-i", "name=Ann", cwd=tmp_path)

    assert done.code == 1
    assert "step 'fail' of run" in done.err
    assert f'File "{tmp_path}/nodes/it.py", line 14, in fail' in done.err
    assert "raise ValueError(" in done.err
    assert done.err.count("File ") == 1
    assert "\x1b" not in done.err
    assert done.err.splitlines()[-1].startswith("failed at step fail: error: no")


def test_keys_with_an_underscore_are_masked_in_the_report_and_in_the_error(tmp_path: Path) -> None:
    nodes = """
from turnline import node

@node("put")
def put(ctx):
    ctx["_token"] = "hunter2-hunter2"

@node("tell")
def tell(ctx):
    raise ValueError(f"refused {ctx['_token']}")
"""
    project(
        Path(), workflows__it_yaml="steps: [{id: a, runner: put}, {id: b, runner: tell}]", nodes__it_py=nodes
    )
    done = turnline("run", "workflows/it.yaml", cwd=tmp_path)

    assert "refused ***" in done.err
    assert "hunter2" not in done.out + done.err


def test_a_failure_that_a_route_takes_is_told_with_its_reason(tmp_path: Path) -> None:
    flow = """
steps:
  - {id: ask, agent: {prompt: hello}, routes: {error: greet}}
  - {id: greet, runner: greet}
"""
    written(flow)
    done = turnline("run", "workflows/it.yaml", "-i", "name=Ann", cwd=tmp_path)

    assert done.code == 0
    assert "step 'ask' of run" in done.err
    assert "has no model. Give it one" in done.err
    assert "File " not in done.err


def test_an_api_call_that_fails_says_why(tmp_path: Path) -> None:
    call_it = "{url: 'http://127.0.0.1:9/', allow_private: true}"
    written(f"steps: [{{id: call, api_call: {call_it}, routes: {{error: END}}}}]")
    done = turnline("run", "workflows/it.yaml", cwd=tmp_path)

    assert "step 'call' of run" in done.err
    assert "failed: GET" in done.err


def test_a_run_that_is_stuck_is_told_with_the_command_that_retries_it() -> None:
    async def die_again() -> None:
        hub = await Hub.open(SqliteLog("run.db"), ttl_sweep_interval=0)
        for place in range(1, MAX_CLAIMS):
            worker = f"{this_host()}:999999999:1/agent"
            await hub.turns.claim("r1", "it", worker=worker, turn=1, alone=place >= SUSPECT_CLAIMS)
        await hub.close()

    written("steps: [{id: it, runner: killed_once}]")
    kept = ("workflows/it.yaml", "--log", "run.db", "--run", "r1")
    assert turnline("run", *kept, cwd=Path()).code == -signal.SIGKILL
    asyncio.run(die_again())

    stuck = turnline("run", *kept, cwd=Path())
    first, second = stuck.err.splitlines()[-2:]
    assert (stuck.code, first.split(":")[0]) == (1, "stuck at step it")
    command = second.partition("retry with ")[2].split()
    assert command[:4] == ["turnline", "runs", "retry", "r1"]
    assert turnline(*command[1:], cwd=Path()).code == 0


FILED = """
trigger:
  path: /filed
  input: {plan: {type: file, required: true, max: 20}, pages: {type: array, items: file}}
steps: [{id: count, runner: count}]
"""
COUNT = """
from turnline.flow.node import node

@node("count")
def count(ctx):
    files = [ctx["plan"], *ctx.get("pages", [])]
    return {"sizes": [len(ctx["_read_file"](one).read()) for one in files]}
"""


def test_a_field_that_is_a_file_takes_a_path() -> None:
    project(Path(), workflows__it_yaml=FILED, nodes__it_py=COUNT)
    for name, size in (("plan.pdf", 12), ("1.png", 3), ("2.png", 4), ("large.pdf", 21)):
        Path(name).write_bytes(b"x" * size)
    done = run("-i", "plan=plan.pdf", "-i", 'pages:=["1.png", "2.png"]', "--json")
    one = run("-i", "plan=plan.pdf", "-i", "pages=1.png", "--json")
    large = run("-i", "plan=large.pdf")
    absent = run("-i", "plan=other.pdf")
    missing = run()

    told = json.loads(done.out)["data"]
    assert told["sizes"] == [12, 3, 4]
    assert (told["plan"]["name"], told["plan"]["media_type"]) == ("plan.pdf", "application/pdf")
    assert json.loads(one.out)["data"]["sizes"] == [12, 3]
    assert (large.code, "plan: expected at most 20 bytes" in large.err) == (1, True)
    assert (absent.code, "'other.pdf' cannot be read for 'plan'" in absent.err) == (2, True)
    assert (missing.code, "plan: it is missing; expected a file" in missing.err) == (1, True)


def test_a_recorded_run_whose_nodes_read_no_bytes_of_its_file_is_a_test() -> None:
    node = COUNT.partition("    files =")[0] + '    return {"size": ctx["plan"]["size"]}\n'
    project(Path(), workflows__it_yaml=FILED, nodes__it_py=node)
    Path("plan.pdf").write_bytes(b"plan")
    Path("tests").mkdir()
    assert run("-i", "plan=plan.pdf", "--record", "tests/one.fixture.json").code == 0

    assert call("test", ".").out.splitlines()[-1] == "1 passed."
