"""Names that nobody has: participants (G101), tools (G102); names of those who take no turns (G104)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Final

from turnline.core.router import INITIAL, floors_of
from turnline.core.study.finding import Finding, Path
from turnline.core.study.lint.case import Case, inside
from turnline.core.transitions import ToolCalled

UNKNOWN_NAME: Final = "G101"
UNKNOWN_TOOL: Final = "G102"
NO_TURNS: Final = "G104"


def unknown_names(case: Case) -> Iterator[Finding]:
    """Names that are not among the participants that were given."""
    known = [one.name for one in case.cast.spec.participants if one.agent_id not in case.cast.unknown]
    for path, name in names_with_paths(case):
        if name in case.cast.unknown:
            yield Finding(
                code=UNKNOWN_NAME,
                path=path,
                message=f"nobody is called {name!r}",
                found=name,
                expected=", ".join(known) or "a participant",
                fix=nearest(name, known) or f"invite {name!r}, or name somebody who takes part",
            )


def unknown_tools(case: Case) -> Iterator[Finding]:
    """`ToolCalled` of a tool that no participant has."""
    known = case.cast.every_tool
    for path, condition in _conditions(case) if known is not None else ():
        if isinstance(condition, ToolCalled) and condition.tool_name not in (known or ()):
            name = condition.tool_name
            yield Finding(
                code=UNKNOWN_TOOL,
                path=path,
                message=f"no participant has a tool {name!r}: the rule never fires",
                found=name,
                expected=", ".join(sorted(known or ())) or "a tool that somebody has",
                fix=nearest(name, known or ()) or f"give somebody the tool {name!r}, or take the rule out",
            )


def floors_without_turns(case: Case) -> Iterator[Finding]:
    """Targets that give the floor to a participant that takes no turns; `open` refuses them (N9)."""
    spec = case.cast.spec
    for path, name in floors_of(case.graph, case.cast.opener):
        member = spec.participant(spec.names().get(name, ""))
        if member is not None and not member.takes_turns and path != INITIAL:
            yield Finding(
                code=NO_TURNS,
                path=path,
                message=f"{member.name!r} gets the floor but takes no turns",
                found=name,
                expected="a participant that takes turns",
                fix=f"let the rule lead to somebody else, or let {member.name!r} take turns",
            )


def nearest(name: str, known: Collection[str]) -> str:
    """The nearest known name, as a question; empty if none is near."""
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else ""


def names_with_paths(case: Case) -> Iterator[tuple[Path, str]]:
    """Everybody the graph names, and where."""
    graph = case.graph
    yield ("initial_speaker",), graph.initial_speaker
    for path, condition in _conditions(case):
        yield from _named(condition, path)
    for index, transition in enumerate(graph.transitions):
        yield from _named(transition.then, ("transitions", index, "then"))
    yield from _named(graph.default_target, ("default_target",))


def _conditions(case: Case) -> Iterator[tuple[Path, Any]]:
    for index, transition in enumerate(case.graph.transitions):
        yield from inside(transition.when, ("transitions", index, "when"))


def _named(thing: object, path: Path) -> Iterator[tuple[Path, str]]:
    agent_fields = getattr(thing, "agent_fields", ())
    for f in fields(thing) if agent_fields else ():  # type: ignore[arg-type]  # registered things are dataclasses
        value: Any = getattr(thing, f.name)
        at = (*path, "args", f.name)
        if f.name in agent_fields and isinstance(value, str):
            yield at, value
        elif f.name in agent_fields and value is not None:
            yield from (((*at, place), one) for place, one in enumerate(value))
