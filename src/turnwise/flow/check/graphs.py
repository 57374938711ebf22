"""Graphs in documents: whole files (`TransitionGraph.to_dict()`), and those of `channel` steps (F15).

What cannot be a graph is TW020; the traps of one that can are those of `core.study.lint`,
with their own codes (docs/lint.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from typing import Final

from turnwise.core.channel import Participant
from turnwise.core.graph import TransitionGraph
from turnwise.core.study.finding import Path
from turnwise.core.study.lint import lint
from turnwise.errors import TurnwiseError
from turnwise.flow.check.names import Known
from turnwise.flow.check.problem import Problem, every_step
from turnwise.flow.conversation import graph_of
from turnwise.flow.definition.flow import Flow
from turnwise.flow.definition.steps import ChannelStep
from turnwise.flow.finding import Finding
from turnwise.flow.yaml_document import YamlDocument

NO_GRAPH: Final = "TW020"
AgentTools = Mapping[str, Collection[str]]
_OPENER: Final = Participant("the-flow", "the flow", "step")
"""Who opens the conversation of a `channel` step."""


def graph_in(document: YamlDocument) -> tuple[TransitionGraph | None, list[Finding]]:
    """The graph that a document is, or why it is none."""
    try:
        return TransitionGraph.loads(document.data), []
    except TurnwiseError as error:
        return None, [document.finding(NO_GRAPH, _said(error), (), fix=_FIX)]


def traps_in(document: YamlDocument, tools: AgentTools) -> list[Finding]:
    """What is wrong with a document that holds a graph."""
    graph, findings = graph_in(document)
    if graph is None:
        return findings
    try:
        traps = lint(graph, tools=tools)
    except (TurnwiseError, TypeError) as error:  # Of a value that no condition or target can have.
        return [document.finding(NO_GRAPH, _said(error), (), fix=_FIX)]
    for one in traps:
        found = document.finding(
            one.code,
            one.message,
            one.path,
            found=one.found,
            expected=one.expected,
            fix=one.fix,
            severity=one.severity,
        )
        findings.append(found)
    return findings


def conversations(flow: Flow, known: Known) -> Iterator[Problem]:
    """What is wrong with the graphs of a flow's `channel` steps."""
    for path, step in every_step(flow):
        if isinstance(step, ChannelStep) and step.channel.graph is not None:
            yield from _traps(step, (*path, "channel", "graph"), known.agent_tools)


def _traps(step: ChannelStep, path: Path, tools: AgentTools) -> Iterator[Problem]:
    try:
        graph = graph_of(step.channel)
    except TurnwiseError as error:
        yield Problem(code=NO_GRAPH, path=path, message=_said(error), fix=_FIX)
        return
    members: list[str | Participant] = [*step.channel.agents, _OPENER]
    for one in lint(graph, participants=members, opener=_OPENER.agent_id, tools=tools):
        yield Problem(**asdict(one) | {"path": (*path, *one.path)})


def _said(error: Exception) -> str:
    return str(error).removesuffix(" The channel was not opened.").rstrip(".")


_FIX: Final = "write what TransitionGraph.to_dict() gives; register classes of your own first"
