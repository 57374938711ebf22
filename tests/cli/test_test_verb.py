"""F14: `turnwise test`."""

from __future__ import annotations

import json
from pathlib import Path

from .projects import project, turnwise

FLOW = "steps: [{id: double, runner: double}, {id: ask, agent: {prompt: hello}}]"
NODES = """
from turnwise import node

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


def written(tmp_path: Path, **files: str) -> Path:
    return project(tmp_path, **{"workflows__math_yaml": FLOW, "nodes__math_py": NODES, **files})


def test_f14_all_cases_run_and_a_failing_one_is_told_with_its_line(tmp_path: Path) -> None:
    done = turnwise("test", cwd=written(tmp_path, tests__math_yaml=CASES))

    assert done.returncode == 1
    assert done.stdout.splitlines() == [
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


def test_f14_k_chooses_and_json_is_for_programs(tmp_path: Path) -> None:
    written(tmp_path / "it", tests__math_yaml=CASES)
    done = turnwise("test", "it", "-k", "TWO IS", "--json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["ok"], told["passed"], told["failed"], told["findings"]) == (True, 1, 0, [])
    [case] = told["cases"]
    assert (case["name"], case["file"], case["path"]) == (
        "two is four",
        "it/tests/math.yaml",
        ["double", "ask"],
    )


def test_f14_without_a_test_nothing_has_passed(tmp_path: Path) -> None:
    done = turnwise("test", cwd=written(tmp_path))

    assert done.returncode == 1
    assert "no test was found" in done.stderr


def test_f14_a_mistake_in_a_test_is_told_and_the_others_run(tmp_path: Path) -> None:
    cases = CASES.split("\n\n", maxsplit=1)[0] + "\n- {name: bad, flow: math, stubs: {}}\n"
    done = turnwise("test", cwd=written(tmp_path, tests__math_yaml=cases))

    assert done.returncode == 1
    assert "tests/math.yaml:7:27: " in done.stdout
    assert "did you mean 'stub'?" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 passed."


def test_f14_a_project_with_mistakes_is_not_tested(tmp_path: Path) -> None:
    done = turnwise(
        "test", cwd=written(tmp_path, workflows__bad_yaml="steps: [{id: a}]", tests__math_yaml=CASES)
    )

    assert done.returncode == 1
    assert "workflows/bad.yaml" in done.stderr
    assert "two is four" not in done.stdout


def test_f14_recorded_runs_are_played_again(tmp_path: Path) -> None:
    written(tmp_path, workflows__math_yaml="steps: [{id: double, runner: double}]", tests__none_yaml="[]")
    recorded = turnwise(
        "run", "workflows/math.yaml", "-i", "n:=2", "--record", "tests/two.fixture.json", cwd=tmp_path
    )
    good = turnwise("test", cwd=tmp_path)
    (tmp_path / "nodes" / "math.py").write_text(NODES.replace("* 2", "* 3"))
    changed = turnwise("test", cwd=tmp_path)
    (tmp_path / "tests" / "two.fixture.json").write_text("{")
    damaged = turnwise("test", cwd=tmp_path)

    assert recorded.returncode == 0, recorded.stderr
    assert (good.returncode, good.stdout) == (0, "ok   tests/two.fixture.json:1 recorded run\n1 passed.\n")
    assert changed.returncode == 1
    assert "step 1 (double), updates.n\n        expected: 4\n        found: 6\n" in changed.stdout
    assert damaged.returncode == 1
    assert "FAIL tests/two.fixture.json:1 recorded run" in damaged.stdout
