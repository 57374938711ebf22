"""The page of what the seeds state: up to date, complete, and every test it names exists."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from docs.seed_coverage import (
    PAGE,
    ROOT,
    Document,
    exists,
    lines_of,
    load,
    main,
    page,
    problems,
    read,
    unproved,
)

SEEDS: Final = ROOT.parent / "shared" / "seeds"
THIS: Final = "tests/docs/test_seed_coverage.py"
WITHIN_SECONDS: Final = 60.0
HERE: Final = f"{THIS}::test_a_named_test_is_a_function_of_its_file"


def one(**statement: Any) -> tuple[Document, ...]:
    section = {"section": "Colours", "statements": [{"says": "Snow is white.", "at": 7, **statement}]}
    return read([{"document": "000", "title": "Snow", "sections": [section]}])


def test_the_page_is_what_the_data_says() -> None:
    assert PAGE.read_text() == page(load()), "run: python -m docs.seed_coverage"


def test_every_statement_has_tests_that_exist_or_a_reason() -> None:
    assert problems(load()) == []


def test_check_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["--check"]), main(["--chekc"])) == (0, 1)
    assert "expected none, --check or --run" in capsys.readouterr().err


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the seeds are not beside the project")
@pytest.mark.parametrize("document", load(), ids=lambda one: one.number)
def test_no_line_of_a_seed_is_passed_over(document: Document) -> None:
    (file,) = SEEDS.glob(f"{document.number}_*.txt")
    lines = file.read_text().splitlines()
    written = {number for number, line in enumerate(lines, start=1) if line.strip()}
    stated = {number for statement in document.statements for number in statement.lines}
    silent = lines_of(document.states_nothing)

    assert written <= stated | silent
    assert stated <= set(range(1, len(lines) + 1))
    assert not stated & silent


def test_every_statement_has_a_test_that_needs_no_seeds() -> None:
    """Where the seeds are not beside the project, their samples are skipped, and nothing is left unproved."""
    needy = ("tests/test_seeds.py", "tests/flow/test_seed_003.py")
    statements = [statement for document in load() for statement in document.statements]

    assert [one.says for one in statements if all(test.startswith(needy) for test in one.tests)] == []


@pytest.mark.parametrize(
    ("test", "found"),
    [
        (HERE, True),
        ("tests/agent/test_agent.py::test_nobody_wrote_this", False),
        ("tests/agent/test_nowhere.py::test_it", False),
        (f"{THIS}::one", False),
    ],
)
def test_a_named_test_is_a_function_of_its_file(test: str, found: bool) -> None:
    assert exists(test) is found


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        ({}, "no test and no reason"),
        ({"tests": [f"{THIS}::test_gone"]}, "there is no test"),
        ({"tests": [HERE], "decision": "routing#priority-order"}, "without `but`"),
        ({"tests": [HERE], "decision": "weather", "but": "It rains."}, "no decision 'weather'"),
    ],
)
def test_what_is_wrong_with_the_data_is_told_with_its_place(statement: dict[str, Any], wrong: str) -> None:
    (problem,) = problems(one(**statement))

    assert problem.startswith("seed 000, line 7: ")
    assert wrong in problem


def test_what_is_not_done_is_listed_first() -> None:
    written = page(one(not_done="It melts."))

    assert "1 statements: 0 hold as they stand, 0 are decided differently, 1 are not done" in written
    assert "## Not done\n\n- Seed 000, line 7: Snow is white. It melts.\n" in written


@pytest.mark.parametrize(
    ("first", "second", "proved"),
    [
        ({"passed"}, {"passed"}, True),
        ({"passed"}, {"skipped"}, True),
        ({"passed"}, {"passed", "failed"}, False),
        ({"skipped"}, {"skipped"}, False),
        ({"skipped"}, set(), False),
    ],
)
def test_a_statement_is_proved_if_one_of_its_tests_passed_and_none_failed(
    first: set[str], second: set[str], proved: bool
) -> None:
    documents = one(tests=["a", "b"])

    assert (unproved(documents, {"a": first, "b": second}) == []) is proved


SAMPLE: Final = """
import pytest
@pytest.mark.parametrize("n", [1, 2])
def test_even(n): assert n % 2 == 0
def test_skipped(): pytest.skip()
@pytest.fixture
def broken(): raise LookupError
def test_broken(broken): pass
def test_unasked(): pass
"""
PROGRAM: Final = """
import sys, pytest
from docs.seed_coverage import Outcomes
outcomes = Outcomes()
pytest.main(["-q", "-p", "no:asyncio", "-c", "pytest.ini", *sys.argv[1:]], plugins=[outcomes])
print(dict(sorted((test, sorted(how)) for test, how in outcomes.of.items())))
"""


def test_outcomes_are_those_of_the_named_tests_over_all_parameters(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(SAMPLE)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "conftest.py").touch()
    (tmp_path / "other" / "test_other.py").write_text("def test_other(): pass\n")
    named = [f"test_it.py::{name}" for name in ("test_even", "test_skipped", "test_broken")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "other/test_other.py::test_other", *named],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=WITHIN_SECONDS,
    )

    assert ast.literal_eval(done.stdout.splitlines()[-1]) == {
        "other/test_other.py::test_other": ["passed"],
        "test_it.py::test_broken": ["failed"],
        "test_it.py::test_even": ["failed", "passed"],
        "test_it.py::test_skipped": ["skipped"],
    }
