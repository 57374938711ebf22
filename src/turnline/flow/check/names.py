"""Names of runners, agents, tools, data models, flows and MCP servers that nobody has (F12, F15)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from turnline.core.study.finding import Path
from turnline.flow.check.problem import Problem, every_step
from turnline.flow.data.definition import ModelDefinition
from turnline.flow.data.versions import problem_with
from turnline.flow.definition import steps as define
from turnline.flow.definition.flow import Flow, ModelUse
from turnline.flow.definition.steps import Step
from turnline.flow.finding import listed, nearest

RUNNER: Final = "TL301"
AGENT: Final = "TL302"
TOOL: Final = "TL303"
MODEL: Final = "TL304"
FLOW: Final = "TL305"
SERVER: Final = "TL306"
UNDECLARED: Final = "TL307"
VERSION: Final = "TL308"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The names a project gives. None: they are not known, and nothing is said about them."""

    runners: Collection[str] | None = None
    agents: Collection[str] | None = None
    agent_tools: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Agent -> the tools it has on a channel."""
    tools: Collection[str] | None = None
    asking_tools: Collection[str] = ()
    """The tools that ask a person: with `approval`, or with `restarts`."""
    asking_agents: Mapping[str, Collection[str] | None] = field(default_factory=dict)
    """Agent -> its own tools that ask a person; None: its `hitl_hook` asks."""
    models: Mapping[str, ModelDefinition] | None = None
    flows: Collection[str] | None = None
    servers: Collection[str] | None = None
    words: Collection[str] | None = None
    """The words of the project's Python files. A node that writes a key names it there, as a rule."""
    node_keys: Collection[str] | None = None
    """The keys that nodes can write; None is any key."""
    definitions: Mapping[str, Flow] = field(default_factory=dict)
    """The flows that can be read, for what they take as input."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A name, where it is used, and the names there are."""

    code: str
    what: str
    name: str
    path: Path
    known: Collection[str] | None
    do: str


def missing_names(flow: Flow, known: Known) -> Iterator[Problem]:
    """Names that a flow uses and the project does not have."""
    for path, step in every_step(flow):
        for use in _uses(step, known):
            if use.known is not None and use.name not in use.known:
                yield _missing(use, path)


def models_used(flow: Flow, known: Known) -> Iterator[Problem]:
    """Data models that nobody has, that have another version, or that a flow uses without a word."""
    path: Path = ("spec", "context", "models")
    for place, use in enumerate(flow.spec.context.models):
        yield from _declared((*path, place), use, known)
    declared = {use.name for use in flow.spec.context.models}
    for where, step in every_step(flow):
        if isinstance(step, define.ModelOpStep) and step.model_op.model not in declared:
            yield _undeclared((*where, "model_op", "model"), step.model_op.model, declared)


def _uses(step: Step, known: Known) -> Iterator[_Use]:
    match step:
        case define.FunctionalStep(runner=runner):
            do = f'write a function with @node("{runner}") in nodes/'
            yield _Use(RUNNER, "node", runner, ("runner",), known.runners, do)
        case define.AgentStep(agent=block):
            if block.name is not None:
                yield _agent(block.name, ("agent", "name"), known)
            for place, tool in enumerate(block.tools):
                do = f"write a function {tool} with @tool"
                yield _Use(TOOL, "tool", tool, ("agent", "tools", place), known.tools, do)
        case define.ChannelStep(channel=block):
            for place, agent in enumerate(block.agents):
                yield _agent(agent, ("channel", "agents", place), known)
        case define.WorkflowStep(workflow=block):
            do = f"write a workflow named {block.name}"
            yield _Use(FLOW, "workflow", block.name, ("workflow", "name"), known.flows, do)
        case define.McpStep(mcp=block) if "://" not in block.server:
            do = f"write {block.server} under mcp_servers: in turnline.yaml"
            yield _Use(SERVER, "MCP server", block.server, ("mcp", "server"), known.servers, do)


def _agent(name: str, path: Path, known: Known) -> _Use:
    return _Use(AGENT, "agent", name, path, known.agents, f"write an Agent named {name!r} in agents/")


def _missing(use: _Use, path: Path) -> Problem:
    known = use.known or ()
    return Problem(
        code=use.code,
        path=(*path, *use.path),
        message=f"no {use.what} is known as {use.name!r}",
        found=use.name,
        expected=listed(known),
        fix=nearest(use.name, known) or use.do,
    )


def _declared(path: Path, use: ModelUse, known: Known) -> Iterator[Problem]:
    if known.models is None:
        return
    if use.name not in known.models:
        do = f"write a ModelDefinition named {use.name} in models/"
        yield _missing(_Use(MODEL, "data model", use.name, ("name",), known.models, do), path)
        return
    mismatch = problem_with(use, known.models)
    if mismatch is not None:
        there = known.models[use.name].version
        yield Problem(
            code=VERSION,
            path=(*path, "version"),
            message=f"the flow was written for {use.name} {use.version}, and the project has {there}",
            found=str(use.version),
            expected=there,
            fix=f"look whether the flow still fits, then write version: {there}",
        )


def _undeclared(path: Path, name: str, declared: Collection[str]) -> Problem:
    return Problem(
        code=UNDECLARED,
        path=path,
        message=f"the flow does not declare the data model {name!r}, so it may not touch it",
        found=name,
        expected=listed(declared),
        fix=nearest(name, declared) or f"add {{name: {name}}} to context.models",
    )
