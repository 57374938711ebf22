"""Seed coverage: `seed-coverage.yaml` made into a page, and checked.

    python -m docs.seed_coverage           write the page
    python -m docs.seed_coverage --check   the page is up to date, and every test it names exists
    python -m docs.seed_coverage --run     the same, and every test it names passes

Rule 1: a statement has tests, or says why it is not done. One that we decided differently has tests as well:
of what we do.

Rule 2: a statement is proved when none of its tests fails and one of them passes. A test that is skipped
proves nothing (those that cut samples out of the seeds are, where the seeds are not beside the project).
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
DATA: Final = ROOT / "docs" / "seed-coverage.yaml"
PAGE: Final = ROOT / "docs" / "seed-coverage.md"

INTRODUCTION: Final = """\
# Seed coverage

Turnline grew from five documents, the seeds: 000 to 004. This page lists what they state, in our words, with
the lines of the document and the tests that prove it. Where we decided differently, the statement says so and
why, and links the decision; its tests are then of what we do.

{total} statements: {proved} hold as they stand, {decided} are decided differently, {open} are not done.

The page is made from `docs/seed-coverage.yaml`:

```sh
python -m docs.seed_coverage           # write this page
python -m docs.seed_coverage --check   # it is up to date, and every test it names exists
python -m docs.seed_coverage --run     # every test it names passes
```
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Something that a user of the seeds could rely on."""

    says: str
    at: str
    """The lines of its document: `17`, `22-27`, `4, 39`."""
    tests: tuple[str, ...] = ()
    decision: str = ""
    """The page and the heading of `docs/decisions` that say what we do instead: `routing#turn-limit`."""
    but: str = ""
    """What we do instead, and why, in a sentence."""
    not_done: str = ""

    @property
    def lines(self) -> set[int]:
        return lines_of(self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Statements under one heading of a document."""

    title: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A seed: what it states, and the lines in which it states nothing (headings, links, imports)."""

    number: str
    title: str
    states_nothing: str
    sections: tuple[Section, ...]

    @property
    def statements(self) -> Iterator[Statement]:
        for section in self.sections:
            yield from section.statements


def lines_of(text: str) -> set[int]:
    """The numbers that `4, 7-9` stands for."""
    pairs = (part.strip().partition("-") for part in str(text).split(",") if part.strip())
    return {line for first, _, last in pairs for line in range(int(first), int(last or first) + 1)}


def read(data: Iterable[Mapping[str, Any]]) -> tuple[Document, ...]:
    return tuple(
        Document(
            number=one["document"],
            title=one["title"],
            states_nothing=one.get("states_nothing", ""),
            sections=tuple(map(_section, one["sections"])),
        )
        for one in data
    )


def _section(data: Mapping[str, Any]) -> Section:
    statements = (
        Statement(**{**one, "at": str(one["at"]), "tests": tuple(one.get("tests", ()))})
        for one in data["statements"]
    )
    return Section(title=data["section"], statements=tuple(statements))


def load() -> tuple[Document, ...]:
    return read(yaml.safe_load(DATA.read_text()))


def page(documents: Iterable[Document]) -> str:
    documents = tuple(documents)
    everything = [one for document in documents for one in document.statements]
    kinds = Counter(_kind(one) for one in everything)
    parts = [
        INTRODUCTION.format(
            total=len(everything), proved=kinds["proved"], decided=kinds["decided"], open=kinds["open"]
        )
    ]
    unfinished = [(d.number, one) for d in documents for one in d.statements if one.not_done]
    if unfinished:
        lines = (f"- Seed {number}, {_where(one)}: {one.says} {one.not_done}\n" for number, one in unfinished)
        parts.append("## Not done\n\n" + "".join(lines))
    for document in documents:
        parts.append(f"## {document.number}: {document.title}\n")
        for section in document.sections:
            parts.append(f"### {section.title}\n\n" + "".join(map(_entry, section.statements)))
    return "\n".join(parts)


def _kind(statement: Statement) -> str:
    if statement.not_done:
        return "open"
    return "decided" if statement.but else "proved"


def _where(statement: Statement) -> str:
    return f"{'lines' if len(statement.lines) > 1 else 'line'} {statement.at}"


def _entry(statement: Statement) -> str:
    lines = [f"- {statement.says} ({_where(statement)})\n"]
    if statement.but:
        file, _, anchor = statement.decision.partition("#")
        link = f" See [{anchor}](decisions/{file}.md#{anchor})." if anchor else ""
        lines.append(f"    - **Decided differently:** {statement.but}{link}\n")
    if statement.not_done:
        lines.append(f"    - **Not done:** {statement.not_done}\n")
    lines += [f"    - `{test}`\n" for test in statement.tests]
    return "".join(lines)


def problems(documents: Iterable[Document]) -> list[str]:
    """What is wrong with the data: a line each."""
    found = list[str]()
    for document in documents:
        for one in document.statements:
            where = f"seed {document.number}, {_where(one)}"
            if not one.tests and not one.not_done:
                found.append(f"{where}: no test and no reason. Name a test, or say `not_done`.")
            if one.decision and not one.but:
                found.append(f"{where}: a decision without `but`. Say what we do instead.")
            if one.decision and one.decision not in decisions():
                found.append(f"{where}: there is no decision {one.decision!r} in docs/decisions.")
            found += [f"{where}: there is no test {test!r}." for test in one.tests if not exists(test)]
    return found


@cache
def decisions() -> frozenset[str]:
    """Return every decision, as `page#heading`."""
    return frozenset(
        f"{file.stem}#{heading.lower().replace(' ', '-')}"
        for file in (ROOT / "docs" / "decisions").glob("*.md")
        for heading in re.findall(r"^## (.+)$", file.read_text(), re.MULTILINE)
    )


def exists(test: str) -> bool:
    """Whether `tests/x/test_y.py::test_z` is a function of that file, or `::TestX::test_z` a method in it."""
    path, _, name = test.partition("::")
    return name in _tests_of(path)


@cache
def _tests_of(path: str) -> frozenset[str]:
    if not (ROOT / path).is_file():
        return frozenset()
    tree = ast.parse((ROOT / path).read_text())
    inside = [(f"{one.name}::", one.body) for one in tree.body if isinstance(one, ast.ClassDef)]
    return frozenset(
        f"{prefix}{one.name}"
        for prefix, body in [("", tree.body), *inside]
        for one in body
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name.startswith("test_")
    )


@dataclass(slots=True, eq=False)
class Outcomes:
    """A pytest plugin: how the runs of each test ended, whatever its parameters."""

    of: dict[str, set[str]] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.of.setdefault(report.nodeid.partition("[")[0], set()).add(report.outcome)


def unproved(documents: Iterable[Document], outcomes: Mapping[str, set[str]]) -> list[str]:
    """The statements that these outcomes do not prove (rule 2): a line each."""
    found = list[str]()
    for document in documents:
        for one in document.statements:
            ended = {test: outcomes.get(test, set()) for test in one.tests}
            failed = [test for test, how in ended.items() if "failed" in how]
            passed = any("passed" in how for how in ended.values())
            if failed or (one.tests and not passed):
                why = f"{', '.join(failed)} failed" if failed else "none of its tests passed"
                found.append(f"seed {document.number}, {_where(one)}: {why}.")
    return found


def run(documents: tuple[Document, ...]) -> list[str]:
    """Run exactly the tests that are named."""
    import pytest  # noqa: PLC0415 - only this verb needs it.

    tests = sorted({test for document in documents for one in document.statements for test in one.tests})
    outcomes = Outcomes()
    os.chdir(ROOT)
    ended = pytest.main(["-q", *tests], plugins=[outcomes])
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return [f"pytest broke off: {ended!r}."]
    skipped = sum(how == {"skipped"} for how in outcomes.of.values())
    print(f"{len(tests)} tests named, {skipped} of them skipped")
    return unproved(documents, outcomes.of)


def main(verbs: list[str]) -> int:
    documents = load()
    match verbs:
        case []:
            PAGE.write_text(page(documents))
            found = problems(documents)
        case ["--check"] | ["--run"]:
            found = problems(documents)
            if not PAGE.is_file() or PAGE.read_text() != page(documents):
                found.append("docs/seed-coverage.md is out of date. Run: python -m docs.seed_coverage")
            if verbs == ["--run"] and not found:
                found = run(documents)
        case _:
            found = [f"unknown arguments {' '.join(verbs)!r}; expected none, --check or --run."]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
