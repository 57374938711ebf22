"""`turnwise run`: one run, without a server."""

from __future__ import annotations

import json
import os
import pty
from pathlib import Path

import pytest

from turnwise.cli.person import value_of

from .projects import project, turnwise

NODES = """
import os, signal
from pathlib import Path
from turnwise import node

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
GREET = """
trigger: {path: /greet, input: {name: {type: string, required: true}, n: integer}}
steps: [{id: greet, runner: greet}]
"""
APPROVE = """
steps:
  - {id: greet, runner: greet}
  - id: approve
    human: {title: "Greet {{ name }}?", show: [name], form: {approved: {type: boolean, required: true}, why: string}}
  - {id: done, response: {mapping: {approved: approved}}}
"""


def written(tmp_path: Path, flow: str, **files: str) -> Path:
    return project(tmp_path, workflows__it_yaml=flow, nodes__it_py=NODES, **files)


def test_the_steps_are_told_and_the_data_at_the_end(tmp_path: Path) -> None:
    done = turnwise("run", "workflows/it.yaml", "-i", "name=Ann", "-i", "n:=3", cwd=written(tmp_path, GREET))

    assert (done.returncode, done.stderr) == (0, "")
    first, status, *data = done.stdout.splitlines()
    assert first.split() == ["greet", "default", "hello=Hello", "Ann"]
    assert status == "succeeded"
    assert json.loads("".join(data)) == {"name": "Ann", "n": 3, "hello": "Hello Ann"}
    assert "hunter2" not in done.stdout


def test_json_is_all_that_is_printed(tmp_path: Path) -> None:
    written(tmp_path, GREET, body_json='{"name": "Ann", "n": 1}')
    done = turnwise("run", "workflows/it.yaml", "--input", "body.json", "-i", "n:=2", "--json", cwd=tmp_path)

    told = json.loads(done.stdout)
    assert (told["status"], told["data"]["n"]) == ("succeeded", 2)
    assert told["run_id"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-i", "name"], "is no pair"),
        (["-i", "n:=x"], "is no JSON"),
        (["--input", "nowhere.json"], "cannot be read"),
        (["--flow", "itt"], "Did you mean 'it'?"),
    ],
)
def test_what_cannot_be_read_is_told_before_anything_runs(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = turnwise("run", "workflows/it.yaml", *arguments, cwd=written(tmp_path, GREET))

    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert done.stdout == ""


def test_f1_input_that_the_trigger_does_not_take_is_refused(tmp_path: Path) -> None:
    done = turnwise("run", "workflows/it.yaml", "-i", "n=3", cwd=written(tmp_path, GREET))

    assert done.returncode == 1
    assert done.stderr.startswith("failed: invalid_input: ")
    assert "name: " in done.stderr


def test_f5_a_run_that_fails_says_where_and_why(tmp_path: Path) -> None:
    flow = "steps: [{id: greet, runner: greet}, {id: bad, runner: fail}]"
    done = turnwise("run", "workflows/it.yaml", "-i", "name=Ann", cwd=written(tmp_path, flow))

    assert done.returncode == 1
    assert done.stderr.startswith("failed at step bad: error: no ")
    assert "\x1b" not in done.stderr, "a terminal obeys nothing that a run says"


def test_of_several_flows_one_has_to_be_named(tmp_path: Path) -> None:
    two = "\n---\n".join(
        f"{{metadata: {{name: {name}}}, spec: {{steps: [{{id: greet, runner: greet}}]}}}}"
        for name in ("one", "two")
    )
    written(tmp_path, two)
    unclear = turnwise("run", "workflows/it.yaml", "-i", "name=Ann", cwd=tmp_path)
    named = turnwise("run", "workflows/it.yaml", "-i", "name=Ann", "--flow", "two", cwd=tmp_path)

    assert unclear.returncode == 2
    assert "several flows: one, two" in unclear.stderr.replace("\n", " ")
    assert named.returncode == 0


def test_f7_a_run_that_was_killed_goes_on_behind_its_last_step(tmp_path: Path) -> None:
    flow = "steps: [{id: greet, runner: greet}, {id: risk, runner: killed_once}]"
    written(tmp_path, flow)
    first = turnwise(
        "run", "workflows/it.yaml", "-i", "name=Ann", "--log", "it.db", "--run", "r1", cwd=tmp_path
    )
    second = turnwise("run", "workflows/it.yaml", "--log", "it.db", "--run", "r1", cwd=tmp_path)

    assert first.returncode == -9
    assert second.returncode == 0, second.stderr
    assert second.stdout.splitlines()[0].split()[0] == "risk", "what was done is not done again"
    assert '"alive": true' in second.stdout


def test_without_a_terminal_a_run_that_asks_ends_with_3_and_says_how_to_answer(tmp_path: Path) -> None:
    written(tmp_path, APPROVE)
    asked = turnwise(
        "run", "workflows/it.yaml", "-i", "name=Ann", "--log", "it.db", "--run", "r1", cwd=tmp_path
    )
    answered = turnwise(
        "run",
        "workflows/it.yaml",
        "--log",
        "it.db",
        "--run",
        "r1",
        "--answer",
        "approved:=true",
        cwd=tmp_path,
    )

    assert asked.returncode == 3
    assert "run r1 waits for a person: Greet Ann?" in asked.stdout
    command = "turnwise run workflows/it.yaml --log it.db --run r1 --answer approved:=true"
    assert f"answer with {command}\n" in asked.stdout
    assert answered.returncode == 0, answered.stderr
    assert '"approved": true' in answered.stdout


def test_a_run_that_asks_and_is_not_kept_says_so(tmp_path: Path) -> None:
    done = turnwise("run", "workflows/it.yaml", "-i", "name=Ann", cwd=written(tmp_path, APPROVE))
    told = turnwise("run", "workflows/it.yaml", "-i", "name=Ann", "--json", cwd=tmp_path)

    assert (done.returncode, told.returncode) == (3, 3)
    assert "nothing of it is kept" in done.stderr
    [task] = json.loads(told.stdout)["tasks"]
    assert (task["title"], task["form"]["approved"]["type"]) == ("Greet Ann?", "boolean")


def test_an_answer_that_the_form_does_not_take_is_told(tmp_path: Path) -> None:
    done = turnwise(
        "run",
        "workflows/it.yaml",
        "-i",
        "name=Ann",
        "--answer",
        "approved=perhaps",
        cwd=written(tmp_path, APPROVE),
    )

    assert done.returncode == 1
    assert "approved: " in done.stderr


def test_at_a_terminal_the_person_is_asked_until_the_form_takes_the_answer(tmp_path: Path) -> None:
    terminal, end = pty.openpty()
    os.write(terminal, b"perhaps\n\nyes\nshe is nice\n")
    try:
        done = turnwise(
            "run", "workflows/it.yaml", "-i", "name=Ann", cwd=written(tmp_path, APPROVE), stdin=end
        )
    finally:
        os.close(terminal)
        os.close(end)

    assert done.returncode == 0, done.stderr
    assert "approved (yes or no)" in done.stdout
    assert "why (string, may be left empty)" in done.stdout
    assert '"approved": true' in done.stdout


def test_a_run_without_a_log_touches_no_database(tmp_path: Path) -> None:
    model = "{kind: ModelDefinition, metadata: {name: Lead}, spec: {fields: {name: string}}}"
    flow = """
    context: {models: [{name: Lead}]}
    steps: [{id: keep, model_op: {model: Lead, op: add, values: {name: "{{ name }}"}}}]
    """
    written(tmp_path, flow, models__lead_yaml=model, turnwise_yaml="database: sqlite:///real.db")
    done = turnwise("run", "workflows/it.yaml", "-i", "name=Ann", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("**/*.db"))


@pytest.mark.parametrize(
    ("said", "kind", "value"),
    [
        ("yes", "boolean", True),
        ("N", "boolean", False),
        ("perhaps", "boolean", "perhaps"),
        ("3", "integer", 3),
        ("3", "string", "3"),
        ("[1]", "array", [1]),
        ("x", "any", "x"),
    ],
)
def test_what_is_typed_is_read_as_the_field_takes_it(said: str, kind: str, value: object) -> None:
    assert value_of(said, kind) == value
