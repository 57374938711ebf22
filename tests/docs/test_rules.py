"""The rules on docs/design/rules.md, and the numbers that code and tests use for them, are the same."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import DOCS, ROOT

PAGE: Final = DOCS / "design" / "rules.md"
RULE: Final = re.compile(r"^- \*\*([A-Z]\d+[a-z]?)\.\*\* ", re.MULTILINE)
NUMBER: Final = re.compile(r"(?<![\w*%'\"`/.-])([A-Z])(\d{1,2})([a-z]?)(?:-[A-Z]?(\d{1,2}))?(?![\w%'\"-])")
"""A number in prose, `T3`, or the first and last of several, `T2-T5`."""
IN_A_NAME: Final = re.compile(r"test_((?:[a-z]\d{1,2}[a-z]?_)+)")
HAS_TESTS: Final = re.compile(r"/test_\w+\.py$|_contract\.py$")
FEW: Final = 80
MOST_DECISION_PAGES: Final = 8


def rules() -> list[str]:
    """Return the numbers on the page."""
    return RULE.findall(PAGE.read_text())


def numbers_in(text: str) -> set[str]:
    """Return the rule numbers that a piece of prose names."""
    found = set[str]()
    for letter, first, ending, last in NUMBER.findall(text):
        found.add(f"{letter}{first}{ending}")
        found |= {f"{letter}{number}" for number in range(int(first), int(last or 0) + 1)}
    return found


def numbers_in_name(name: str) -> set[str]:
    """Return the rule numbers at the beginning of a test's name: `test_n1a_...`, `test_t3_x10_...`."""
    found = IN_A_NAME.match(name)
    return {one[0].upper() + one[1:] for one in found[1].strip("_").split("_")} if found else set()


def prose_of(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a module, and the strings that document its constants."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def numbers_of(path: Path) -> set[str]:
    """Return the rule numbers that a module names: in prose, and in the names of its tests."""
    source = path.read_text()
    found = {number for text in prose_of(source) for number in numbers_in(text)}
    names = re.findall(r"def (test_\w+)", source)
    return found.union(*map(numbers_in_name, names))


@cache
def places() -> dict[str, set[str]]:
    """Return each number that is used, and the modules that use it."""
    found = defaultdict[str, set[str]](set)
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        for number in numbers_of(path) if path != Path(__file__) else ():
            found[number].add(str(path.relative_to(ROOT)))
    return found


def test_each_number_that_code_or_tests_use_is_a_rule_on_the_page() -> None:
    assert len(places()) > FEW
    assert {number: files for number, files in places().items() if number not in rules()} == {}


def test_each_rule_on_the_page_is_named_by_a_test() -> None:
    tested = {number for number, files in places().items() if any(HAS_TESTS.search(file) for file in files)}

    assert [rule for rule in rules() if rule not in tested] == []


def test_no_rule_is_on_the_page_twice() -> None:
    assert len(rules()) == len(set(rules()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Resume after the last unit (T3).", {"T3"}),
        ("A turn (T2-T5), N1a", {"T2", "T3", "T4", "T5", "N1a"}),
        ("filename*=UTF-8''a%C3%A9 2026-W01-1", set()),
    ],
)
def test_numbers_in_prose(text: str, expected: set[str]) -> None:
    assert numbers_in(text) == expected


def test_numbers_in_the_name_of_a_test() -> None:
    assert numbers_in_name("test_n1a_x17_clocks_stand_still") == {"N1a", "X17"}
    assert numbers_in_name("test_each_rule") == set()


def test_each_number_on_the_pages_of_decisions_is_a_rule() -> None:
    pages = sorted((DOCS / "decisions").glob("*.md"))
    used = {number for page in pages for number in numbers_in(page.read_text())}

    assert len(pages) <= MOST_DECISION_PAGES
    assert used - set(rules()) == set()
