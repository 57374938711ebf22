"""`turnline check`: what it prints, and what it exits with."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from turnline.cli.check import EXAMPLE, check

GOOD = "- {id: a, wait: {for: 1s}}\n"
WARNED = "- {id: a, wait: {for: 1s}, routes: {done: END}}\n"
BAD = "- {id: a, wait: {for: 1s}, routes: {default: END}}\n- {id: b, wait: {for: 1s}}\n"
MISTAKEN = "- {id: a, wiat: {for: 1s}}\n"

DESK = """
from turnline import Agent
from turnline.network import AgentTarget, TerminateTarget, ToolCalled, Transition, TransitionGraph

def escalate() -> str:
    "Ask the other one."

triage = Agent("triage", tools=[escalate])
security = Agent("security")

graph = TransitionGraph(
    "triage", [Transition(ToolCalled("esclate"), AgentTarget("security"))], TerminateTarget("done"), 4
)
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)
app.command(epilog=EXAMPLE)(check)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def turnline_check(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def write(name: str, text: str) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return name


def test_f15_a_folder_without_problems_is_one_line_and_exit_code_0() -> None:
    write("workflows/one.yaml", GOOD)
    assert turnline_check().output == "1 flow, no problems.\n"

    write("workflows/two.yaml", GOOD)
    done = turnline_check(".")
    assert (done.output, done.exit_code) == ("2 flows, no problems.\n", 0)


def test_f15_an_error_is_told_with_its_place_and_what_to_do_and_exit_code_1() -> None:
    done = turnline_check(write("workflows/bad.yaml", BAD))

    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "workflows/bad.yaml:2:3: TL101 no path leads to step 'b'",
        "    do: route a signal to 'b', or take the step out",
        "1 error in 1 file.",
    ]


def test_f15_mistakes_in_one_document_and_lints_of_another_are_one_report() -> None:
    write("workflows/bad.yaml", BAD)
    write("workflows/mistaken.yaml", MISTAKEN)
    done = turnline_check()

    assert done.exit_code == 1
    assert "workflows/bad.yaml:2:3: TL101" in done.stdout
    assert "workflows/mistaken.yaml:1:11: TL011 no key 'wiat' is known here" in done.stdout


def test_f15_a_warning_is_exit_code_0_unless_strict() -> None:
    file = write("workflows/warned.yaml", WARNED)
    lenient, strict = turnline_check(file), turnline_check(file, "--strict")

    assert "warning: TL105 step 'a' never gives the signal 'done'" in lenient.stdout
    assert (lenient.stdout, lenient.exit_code, strict.exit_code) == (strict.stdout, 0, 1)


def test_f15_json_is_the_same_for_scripts() -> None:
    bad, warned, good = write("bad.yaml", BAD), write("warned.yaml", WARNED), write("good.yaml", GOOD)

    told = json.loads(turnline_check(bad, "--json").stdout)
    assert (told["ok"], told["flows"], told["errors"], told["warnings"]) == (False, 1, 1, 0)
    assert told["findings"][0] | {"message": "", "fix": ""} == {
        "code": "TL101",
        "message": "",
        "file": "bad.yaml",
        "line": 2,
        "column": 3,
        "found": "",
        "expected": "",
        "fix": "",
        "severity": "error",
    }
    assert json.loads(turnline_check(warned, "--json").stdout)["ok"] is True
    assert json.loads(turnline_check(warned, "--json", "--strict").stdout)["ok"] is False
    assert json.loads(turnline_check(good, "--json").stdout) == {
        "flows": 1,
        "graphs": 0,
        "ok": True,
        "errors": 0,
        "warnings": 0,
        "findings": [],
    }


def test_f15_of_a_files_project_only_the_names_are_used() -> None:
    write("leads/turnline.yaml", "name: leads\n")
    write("leads/workflows/bad.yaml", BAD)
    good = write("leads/workflows/good.yaml", "- {id: a, workflow: {name: bad, into: x}}\n")
    lost = write("leads/workflows/lost.yaml", "- {id: a, workflow: {name: unheard-of, into: x}}\n")

    assert turnline_check(good).output == "1 flow, no problems.\n"
    assert "lost.yaml:1:28: TL305 no workflow is known as 'unheard-of'" in turnline_check(good, lost).stdout


def test_files_of_two_projects_and_a_folder_are_one_report() -> None:
    one = write("one/turnline.yaml", "name: one\n") and write("one/workflows/a.yaml", BAD)
    two = write("two/turnline.yaml", "name: two\n") and write("two/workflows/a.yaml", BAD)
    write("three/workflows/a.yaml", BAD)
    done = turnline_check(one, two, "three")

    assert done.stdout.splitlines()[-1] == "3 errors in 3 files."


def test_f15_a_secret_in_turnline_yaml_is_found_with_the_folder_and_with_the_file() -> None:
    settings = write("turnline.yaml", "log: postgresql://me:hunter22@db/log\n")

    for given in (".", settings):
        done = turnline_check(given)
        assert done.stdout.startswith("turnline.yaml:1:6: TL401 a secret is written into the document")
        assert (done.exit_code, "hunter22" in done.output) == (1, False)


def test_a_path_that_is_not_there_is_an_error() -> None:
    done = turnline_check("nowhere.yaml")

    assert (done.exit_code, "nowhere.yaml:1:1: TL008" in done.stdout) == (1, True)


def test_a_folder_with_nothing_to_check_is_an_error_on_standard_error() -> None:
    os.mkdir("empty")
    done = turnline_check("empty")

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        "turnline: empty has no document. "
        "Name a file or a project's folder; `turnline new DIR` makes a project.\n"
    )


INSIDE = """
from turnline.network import sequence

def main():
    return sequence(["user", "ada"])
"""


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (
            "support.py",
            INSIDE,
            "makes a graph inside a function (line 5, in main), where it cannot be found. Give",
        ),
        ("other.py", "x = 1", "has no graph at its top level; expected one with a name"),
        ("empty.py", "", "is empty; expected a graph with a name: graph = TransitionGraph(...)."),
    ],
)
def test_a_file_with_nothing_to_check_says_what_it_is_and_what_to_do(file: str, text: str, said: str) -> None:
    done = turnline_check(write(file, text))

    assert done.exit_code == 1
    assert done.stderr.startswith(f"turnline: {file} {said}")


@pytest.mark.parametrize(("text", "what"), [("\n", "is empty"), ("# soon", "has no document")])
def test_an_empty_file_is_one_finding_that_says_what_to_write(text: str, what: str) -> None:
    done = turnline_check(write("it.yaml", text))

    assert done.exit_code == 1
    assert done.stdout.startswith(f"it.yaml:1:1: TL025 the file {what}\n    do: write a workflow into it")


def test_a_python_file_that_is_not_there_is_named_as_that() -> None:
    done = turnline_check("nowhere.py")

    assert done.stdout.startswith("nowhere.py:1:1: TL008 there is no such file")


def test_g102_the_agents_of_a_python_file_say_which_tools_there_are() -> None:
    done = turnline_check(write("desk.py", DESK))

    assert done.exit_code == 1
    assert "desk.py:11" in done.stdout
    assert "G102 graph.transitions[0].when: no participant has a tool 'esclate'" in done.stdout
    assert turnline_check(write("good.py", DESK.replace("esclate", "escalate"))).exit_code == 0


def test_help_has_an_example() -> None:
    assert EXAMPLE in turnline_check("--help").output
