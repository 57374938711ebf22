"""A finding: what a lint has found, where, and what to do about it.

    transitions[0]: G202 the rule never fires: its priority puts it behind rules that always win
        found: priority=100
        expected: a priority below 0
        do: ...

A lint knows the graph as data, so it points with a path into `TransitionGraph.to_dict()`. One of
flows points into the definition (`flow.check.problem`); which line of which file that is, others know.
Codes never change their meaning; docs/lint.md has a page of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]

Path = tuple[str | int, ...]
"""The way to a part of the data: `("transitions", 2, "when")`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    code: str
    path: Path
    message: str
    found: str = ""
    expected: str = ""
    fix: str
    """What to do. Nobody is told of a problem without being told that."""
    severity: Severity = "error"

    @property
    def where(self) -> str:
        """The path as a program would write it: `transitions[2].when`."""
        return spelled(self.path)

    def __str__(self) -> str:
        level = "" if self.severity == "error" else f"{self.severity}: "
        details = (("found", self.found), ("expected", self.expected), ("do", self.fix))
        said = [f"{self.where}: {level}{self.code} {self.message}"]
        return "\n".join([*said, *(f"    {name}: {text}" for name, text in details if text)])


def spelled(path: Path) -> str:
    """Return a path as a program would write it."""
    parts = (f"[{one}]" if isinstance(one, int) else f".{one}" for one in path)
    return "".join(parts).removeprefix(".") or "the graph"
