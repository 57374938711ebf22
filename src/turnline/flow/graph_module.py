"""The graphs of a Python file: what its module calls by a name and is a `TransitionGraph`.

The file is executed, as `python FILE` would be but for `__main__`. So nobody reads a file
like this that was not asked for by its own name.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from turnline.agent.agent import Agent
from turnline.agent.network_tools import NETWORK_TOOLS, tool_names
from turnline.core.graph import TransitionGraph
from turnline.core.study.lint import lint
from turnline.flow.finding import Finding
from turnline.flow.folder import Folder, Unreadable
from turnline.flow.modules import Modules


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedGraph:
    """A graph, what it is called, and where that is said."""

    name: str
    graph: TransitionGraph
    file: str
    line: int
    tools: Mapping[str, frozenset[str]]
    """Of the agents that the file gives a name: who has which."""

    @property
    def findings(self) -> list[Finding]:
        """The traps of the graph; the path into it is part of the message."""
        return [
            Finding(
                code=one.code,
                message=f"{self.name}.{one.where}: {one.message}",
                file=self.file,
                line=self.line,
                found=one.found,
                expected=one.expected,
                fix=one.fix,
                severity=one.severity,
            )
            for one in lint(self.graph, tools=self.tools)
        ]


def graphs_of(path: Path) -> tuple[list[NamedGraph], list[Finding]]:
    """Execute a Python file; return its graphs, in their order, and why it could not be executed."""
    file = path.resolve()
    shown = Path(os.path.relpath(file.parent)) if not path.is_absolute() else file.parent
    folder = Folder(file.parent, shown_as=shown)
    try:
        folder.read(file)
    except Unreadable as error:
        return [], [error.finding]
    modules, findings = Modules(folder).load([file])
    agents = [one for module in modules for one in vars(module).values() if isinstance(one, Agent)]
    tools = {one.name: tool_names(one, *NETWORK_TOOLS) for one in agents}
    found = [
        NamedGraph(name=name, graph=value, file=str(path), line=line, tools=tools)
        for module in modules
        for name, line in _lines(file).items()
        if isinstance(value := getattr(module, name, None), TransitionGraph)
    ]
    return found, findings


def _lines(file: Path) -> Mapping[str, int]:
    """Where each name of a module is first given a value."""
    lines: dict[str, int] = {}
    for statement in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(statement, ast.Name) and isinstance(statement.ctx, ast.Store):
            lines[statement.id] = min(lines.get(statement.id, statement.lineno), statement.lineno)
    return dict(sorted(lines.items(), key=lambda one: one[1]))
