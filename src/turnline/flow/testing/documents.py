"""Test documents -> cases, each with the line it begins at, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from turnline.flow.finding import Finding
from turnline.flow.mistake import Spelling, parsed
from turnline.flow.testing.definition import OUTER_KEYS, Case, is_short, spelled_out
from turnline.flow.yaml_document import Path, YamlDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCase:
    """A case, and where it stands."""

    case: Case
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Cases:
    """What was read from a document."""

    cases: tuple[WrittenCase, ...]
    findings: tuple[Finding, ...]


def cases_in(document: YamlDocument) -> Cases:
    """Return the cases of a document, and the mistakes of those that have any."""
    cases, findings = list[WrittenCase](), list[Finding]()
    for place in _places(document):
        case, wrong = parsed(Case, document, _spelling(document, place))
        findings += wrong
        if case is not None:
            line = document.position(place).line
            cases.append(WrittenCase(case=case, file=document.file, line=line))
    return Cases(tuple(cases), tuple(findings))


def _places(document: YamlDocument) -> Iterator[Path]:
    """Where in a document the cases are: it is one, or a list of them."""
    if isinstance(document.data, list):
        yield from ((number,) for number in range(len(document.data)))
    elif document.data is not None:
        yield ()


def _spelling(document: YamlDocument, place: Path) -> Spelling:
    data = document.data[place[0]] if place else document.data
    if is_short(data):
        return Spelling(spelled_out(data), lambda path: (*place, *_as_short(path)))
    return Spelling(data, lambda path: (*place, *path))


def _as_short(path: Path) -> Path:
    """Where a part of the long shape stands in the short one."""
    return path if not path or path[0] in OUTER_KEYS else path[1:]
