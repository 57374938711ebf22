"""Findings: what is wrong with a project's documents, where, and what to do about it.

    workflows/lead.yaml:12:7: TL011 no key 'promt' is known here
        found: promt
        expected: model, name, output, prompt, system, tools
        do: did you mean 'prompt'?

A `Report` collects the findings of all files; nobody stops at the first. What a text
became when its `${VARIABLES}` were filled in is never shown: the text as it was written is.

Codes never change their meaning. Those of `flow.check` begin at TL101; these are of reading:

    TL001  not YAML                               TL002  not text
    TL003  too large, too deep                    TL004  a key that is written twice
    TL005  an anchor, an alias, a merge key, a tag  TL006  a key that is no text
    TL007  a number that JSON has not             TL008  a file that cannot be read
    TL009  a document of an unknown kind          TL010  a workflow without a name
    TL011  unknown key                            TL012  missing key
    TL013  unknown kind of step                   TL014  a value that cannot be
    TL015  not a duration                         TL016  two steps of one id
    TL017  a route to nowhere                     TL018  two workflows of one name
    TL019  two workflows for one request          TL020  not a graph
    TL021  a variable that is not set             TL022  not a variable
    TL023  a secret as a variable of a workflow   TL024  two kinds in one step
    TL025  an empty file
    TL031  a Python file that cannot be imported  TL032  two nodes or agents of one name
    TL033  a tool's name that means two tools
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Final

from turnline.core.envelope import JsonObject
from turnline.core.study.finding import Severity
from turnline.errors import BadDocuments

MAX_LINE_CHARACTERS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    code: str
    message: str
    file: str
    """As whoever asked would write it."""
    line: int = 1
    column: int = 1
    """Both from 1, in characters."""
    found: str = ""
    expected: str = ""
    fix: str = ""
    """What to do; the nearest known name, where there is one."""
    severity: Severity = "error"

    def __str__(self) -> str:
        level = "" if self.severity == "error" else f"{self.severity}: "
        said = [f"{self.file}:{self.line}:{self.column}: {level}{self.code} {self.message}"]
        details = (("found", self.found), ("expected", self.expected), ("do", self.fix))
        return "\n".join(
            _line(one) for one in said + [f"    {name}: {text}" for name, text in details if text]
        )


class Report:
    """The findings of all files, each once, in the order of a reader."""

    def __init__(self, findings: Iterable[Finding] = ()) -> None:
        self._findings = dict.fromkeys(findings)

    def add(self, *findings: Finding) -> None:
        self._findings.update(dict.fromkeys(findings))

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(sorted(self._findings, key=_place))

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.severity == "warning")

    def __bool__(self) -> bool:
        """Whether there is anything in it."""
        return bool(self._findings)

    def __str__(self) -> str:
        """The report for people, with a last line that counts; empty if nothing was found."""
        return "\n".join([*map(str, self.findings), self._sum()]) if self else ""

    def to_dict(self) -> JsonObject:
        """Return the report for programs."""
        return {
            "ok": not self.errors,
            "errors": len(self.errors),
            "warnings": len(self.warnings),
            "findings": [asdict(one) for one in self.findings],
        }

    def raise_if_bad(self) -> None:
        """Raise `BadDocuments` if there is an error; a warning is none."""
        if self.errors:
            raise BadDocuments(str(self), findings=[asdict(one) for one in self.findings])

    def _sum(self) -> str:
        files = {one.file for one in self._findings}
        counts = [_count(len(self.errors), "error"), _count(len(self.warnings), "warning")]
        return f"{' and '.join(filter(None, counts))} in {_count(len(files), 'file')}."


def nearest(name: str, known: Iterable[str]) -> str:
    """What to do about an unknown name: the nearest known one, as a question; empty if none is near."""
    by_plain = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), by_plain, n=1)
    return f"did you mean {by_plain[near[0]]!r}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Names as they are shown where one of them was expected."""
    return ", ".join(sorted(names)) or "none"


def _line(text: str) -> str:
    """One line for a terminal: a document may hold anything, and nothing of it is a command."""
    shown = "".join(one if one.isprintable() else " " for one in text[: MAX_LINE_CHARACTERS + 1])
    return shown if len(shown) <= MAX_LINE_CHARACTERS else shown[: MAX_LINE_CHARACTERS - 1] + "…"


def _place(one: Finding) -> tuple[str, int, int, str, str]:
    return one.file, one.line, one.column, one.code, one.message


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}" if number else ""
