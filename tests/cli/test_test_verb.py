"""F14: `turnline test`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnline.errors import BadDocuments

from .projects import call, project

FLOW = "steps: [{id: double, runner: double}, {id: ask, agent: {prompt: hello}}]"
NODES = """
from turnline import node

@node("double")
def double(ctx):
    return {"n": ctx["n"] * 2}
"""
CASES = """
- name: two is four
  flow: math
  given: {n: 2}
  stub: {ask: {updates: {said: hi}}}
  expect: {data_exactly: {n: 4, said: hi}}

- name: three is seven
  flow: math
  given: {n: 3}
  stub: {ask: {updates: {said: hi}}}
  expect: {data: {n: 7}, path: [double]}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(folder: str = ".", **files: str) -> None:
    project(Path(folder), **{"workflows__math_yaml": FLOW, "nodes__math_py": NODES, **files})


def test_f14_all_cases_run_and_a_failing_one_is_told_with_its_line() -> None:
    written(tests__math_yaml=CASES)
    done = call("test")

    assert done.code == 1
    assert done.out.splitlines() == [
        "ok   tests/math.yaml:2 two is four",
        "FAIL tests/math.yaml:8 three is seven",
        "    path",
        '        expected: ["double"]',
        '        found: ["double","ask"]',
        "    data.n",
        "        expected: 7",
        "        found: 6",
        "1 passed, 1 failed.",
    ]


def test_f14_k_chooses_and_json_is_for_programs() -> None:
    written("it", tests__math_yaml=CASES)
    done = call("test", "it", "-k", "TWO IS", "--json")

    assert done.code == 0
    told = json.loads(done.out)
    assert (told["ok"], told["passed"], told["failed"], told["findings"]) == (True, 1, 0, [])
    [case] = told["cases"]
    assert (case["name"], case["line"], case["path"]) == ("two is four", 2, ["double", "ask"])
    assert case["file"] == "it/tests/math.yaml"


def test_f14_one_file_may_be_named() -> None:
    written("it", tests__math_yaml=CASES, tests__good_yaml=CASES.split("\n\n", maxsplit=1)[0])
    done = call("test", "it/tests/good.yaml")

    assert (done.code, done.out) == (0, "ok   it/tests/good.yaml:2 two is four\n1 passed.\n")


def test_f14_without_a_test_nothing_has_passed() -> None:
    written()
    done = call("test")

    assert done.code == 1
    assert "no test was found" in done.err


def test_f14_a_mistake_in_a_test_is_told_and_the_others_run() -> None:
    written(tests__math_yaml=CASES.split("\n\n", maxsplit=1)[0] + "\n- {name: bad, flow: math, stubs: {}}\n")
    done, told = call("test"), json.loads(call("test", "--json").out)

    assert done.code == 1
    assert "tests/math.yaml:7:27: " in done.out
    assert "did you mean 'stub'?" in done.out
    assert done.out.splitlines()[-1] == "1 passed."
    assert (told["ok"], told["passed"], [one["line"] for one in told["findings"]]) == (False, 1, [7])


def test_f14_a_project_with_mistakes_is_not_tested() -> None:
    written(workflows__bad_yaml="steps: [{id: a}]", tests__math_yaml=CASES)

    with pytest.raises(BadDocuments, match=r"workflows/bad\.yaml:1:"):
        call("test")


def test_f14_recorded_runs_are_played_again() -> None:
    written(workflows__math_yaml="steps: [{id: double, runner: double}]", tests__none_yaml="[]")
    recorded = call("run", "workflows/math.yaml", "-i", "n:=2", "--record", "tests/two.fixture.json")
    good = call("test")
    assert call("test", "-k", "three").out == "0 passed.\n"
    Path("nodes/math.py").write_text(NODES.replace("* 2", "* 3"))
    changed = call("test")
    Path("tests/two.fixture.json").write_text("{")
    damaged = call("test")

    assert recorded.code == 0
    assert (good.code, good.out) == (0, "ok   tests/two.fixture.json:1 recorded run\n1 passed.\n")
    assert changed.code == 1
    assert "step 1 (double), updates.n\n        expected: 4\n        found: 6\n" in changed.out
    assert damaged.code == 1
    assert "FAIL tests/two.fixture.json:1 recorded run" in damaged.out


BUG = """
from turnline import node

@node("double")
def double(ctx):
    return {"n": ctx["n"] + None}
"""


def test_a_bug_in_a_node_is_shown_with_its_place_under_the_case_that_fails() -> None:
    expected = "- {name: it fails, flow: math, given: {n: 1}, expect: {status: failed}}"
    written(tests__math_yaml=CASES, tests__more_yaml=expected, nodes__math_py=BUG)
    done = call("test", "-k", "two")
    passed = call("test", "-k", "it fails")

    assert "    step 'double' of run case (flow 'math') failed: TypeError: unsupported operand" in done.out
    assert 'nodes/math.py", line 6, in double' in done.out
    assert passed.out == "ok   tests/more.yaml:1 it fails\n1 passed.\n"
