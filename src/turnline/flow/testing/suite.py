"""A suite: every case and every fixture of a project, played one after the other, and what came of it.

FAIL tests/leads.yaml:12 a hot lead is escalated
    data.score
        expected: 91
        found: 80
3 passed, 1 failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from textwrap import indent
from typing import Final

import msgspec

from turnline.agent.failures import collected_failures
from turnline.core.envelope import JsonObject
from turnline.errors import BadDocuments
from turnline.flow.testing.case import Surroundings, run_case
from turnline.flow.testing.documents import WrittenCase
from turnline.flow.testing.problem import Problem
from turnline.flow.testing.replay import replay

_DEEPER: Final = "    "


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFixture:
    """The file of a recorded run."""

    file: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a case or a fixture ended."""

    name: str
    file: str
    line: int
    path: tuple[str, ...]
    problems: tuple[Problem, ...]
    failures: tuple[str, ...] = ()
    """Why steps and tools failed, a bug with a short traceback; none if it passed."""

    @property
    def passed(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        mark = "ok  " if self.passed else "FAIL"
        details = [indent(str(one), _DEEPER) for one in (*self.problems, *self.failures)]
        return "\n".join([f"{mark} {self.file}:{self.line} {self.name}", *details])


@dataclass(frozen=True, slots=True)
class SuiteReport:
    """How all of them ended."""

    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        return all(one.passed for one in self.results)

    def summary(self) -> str:
        """The last line."""
        passed = sum(one.passed for one in self.results)
        failed = len(self.results) - passed
        return f"{passed} passed, {failed} failed." if failed else f"{passed} passed."

    def to_dict(self) -> JsonObject:
        """Return the report for programs."""
        passed = sum(one.passed for one in self.results)
        cases = [{**asdict(one), "passed": one.passed} for one in self.results]
        return {
            "ok": self.passed,
            "passed": passed,
            "failed": len(self.results) - passed,
            "cases": msgspec.to_builtins(cases),
        }


def chosen(
    cases: Iterable[WrittenCase], fixtures: Iterable[WrittenFixture], text: str
) -> tuple[list[WrittenCase], list[WrittenFixture]]:
    """Those whose name or file has `text` in it, in whatever case."""
    wanted = text.lower()
    return (
        [one for one in cases if wanted in f"{one.file} {one.case.name}".lower()],
        [one for one in fixtures if wanted in one.file.lower()],
    )


async def run_suite(
    cases: Sequence[WrittenCase], fixtures: Sequence[WrittenFixture], around: Surroundings
) -> SuiteReport:
    """Play all of them. What is wrong with one is no reason to leave out another."""
    results = [await _with_failures(_case(one, around)) for one in cases]
    results += [await _with_failures(_fixture(one, around)) for one in fixtures]
    return SuiteReport(tuple(results))


async def _with_failures(playing: Awaitable[Result]) -> Result:
    """Return the result; one that is not as expected with the failures on its way."""
    with collected_failures() as failures:
        result = await playing
    return result if result.passed else replace(result, failures=tuple(failures))


async def _case(written: WrittenCase, around: Surroundings) -> Result:
    done = await run_case(written.case, around)
    return Result(
        name=written.case.name, file=written.file, line=written.line, path=done.path, problems=done.problems
    )


async def _fixture(written: WrittenFixture, around: Surroundings) -> Result:
    path, problems = tuple[str, ...](), tuple[Problem, ...]()
    try:
        done = await replay(msgspec.json.decode(written.content), around)
        path, problems = done.path, done.problems
    except (BadDocuments, msgspec.DecodeError, UnicodeDecodeError) as error:
        problems = (Problem(what="the file", found=str(error), expected="what `export_run` wrote"),)
    return Result(name="recorded run", file=written.file, line=1, path=path, problems=problems)


def told(report: SuiteReport) -> Iterator[str]:
    """The report for people, line by line."""
    yield from map(str, report.results)
    yield report.summary()
