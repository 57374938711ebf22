"""What a project's Python gives to its flows: nodes, agents, tools, by name.

Two nodes or two agents of one name are a mistake. Two tools of one name are none as long
as no flow names them: each agent may have its own `search`.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from turnline.agent.agent import Agent
from turnline.agent.tool import Tool
from turnline.errors import NameTaken
from turnline.flow.check.problem import every_step
from turnline.flow.definition.steps import AgentStep
from turnline.flow.document import LoadedFlow
from turnline.flow.finding import Finding
from turnline.flow.folder import Folder
from turnline.flow.node import Nodes, marked_in
from turnline.flow.work import Node

SAME_NAME: Final = "TL032"
TWO_TOOLS: Final = "TL033"


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file."""

    file: str
    line: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """What was found."""

    nodes: Mapping[str, Node]
    agents: Mapping[str, Agent]
    tools: Mapping[str, Tool[..., Any]]
    """One of each name."""
    two_tools: Mapping[str, tuple[Place, Place]] = field(default_factory=dict)
    """Names that mean more than one tool, and where two of them are."""
    findings: list[Finding] = field(default_factory=list)


def code_of(modules: Iterable[ModuleType], folder: Folder) -> Code:
    """Return what these modules have."""
    gathering = _Gathering(folder)
    for module in modules:
        gathering.add(module)
    return gathering.code()


def unclear_tools(loaded: LoadedFlow, code: Code) -> Iterator[Finding]:
    """Names of tools in a flow that mean two of them."""
    for path, step in every_step(loaded.flow):
        for place, tool in enumerate(step.agent.tools if isinstance(step, AgentStep) else ()):
            if tool in code.two_tools:
                one, other = code.two_tools[tool]
                message = f"{tool!r} means two tools: {one} and {other}"
                where = loaded.spelling.path((*path, "agent", "tools", place))
                yield loaded.document.finding(TWO_TOOLS, message, where, fix="give one of them another name")


class _Gathering:
    """Goes through modules."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._nodes = Nodes()
        self._agents = dict[str, tuple[Agent, Place]]()
        self._tools = dict[str, tuple[Tool[..., Any], Place]]()
        self._two_tools = dict[str, tuple[Place, Place]]()
        self._findings = list[Finding]()

    def code(self) -> Code:
        return Code(
            nodes=self._nodes.by_name,
            agents={name: agent for name, (agent, _) in self._agents.items()},
            tools={name: tool for name, (tool, _) in self._tools.items()},
            two_tools=self._two_tools,
            findings=self._findings,
        )

    def add(self, module: ModuleType) -> None:
        for function in marked_in(module):
            try:
                self._nodes.add(function)
            except NameTaken as taken:
                first = self._nodes.by_name[taken.name]
                self._same("nodes", taken.name, self._written(first), self._written(function))
        for attribute, value in list(vars(module).items()):
            if isinstance(value, Agent):
                self._add_agent(value, self._assigned(module, attribute))
            elif isinstance(value, Tool):
                self._add_tool(value, self._written(value.function))

    def _add_agent(self, agent: Agent, place: Place) -> None:
        other, first = self._agents.setdefault(agent.name, (agent, place))
        if other is not agent:
            self._same("agents", agent.name, first, place)

    def _add_tool(self, tool: Tool[..., Any], place: Place) -> None:
        other, first = self._tools.setdefault(tool.name, (tool, place))
        if other is not tool and first != place:
            self._two_tools.setdefault(tool.name, (first, place))

    def _same(self, what: str, name: str, first: Place, second: Place) -> None:
        self._findings.append(
            Finding(
                code=SAME_NAME,
                message=f"two {what} are called {name!r}; the other one is {first}",
                file=second.file,
                line=second.line,
                fix="rename one of them",
            )
        )

    def _written(self, function: object) -> Place:
        """Where a function is defined."""
        code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
        return (
            Place("?") if code is None else Place(self._folder.shown(code.co_filename), code.co_firstlineno)
        )

    def _assigned(self, module: ModuleType, attribute: str) -> Place:
        """Where a module gives a value its name."""
        path = Path(module.__file__ or "?")
        for statement in ast.parse(self._folder.read(path)).body:
            targets = ast.walk(statement) if isinstance(statement, ast.Assign | ast.AnnAssign) else ()
            if any(isinstance(one, ast.Name) and one.id == attribute for one in targets):
                return Place(self._folder.shown(path), statement.lineno)
        return Place(self._folder.shown(path))
