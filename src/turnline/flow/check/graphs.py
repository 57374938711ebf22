"""Graphs in documents: whole files (`TransitionGraph.to_dict()`), and those of `channel` steps (F15).

What cannot be a graph is TL020; the traps of one that can are those of `core.study.lint`,
with their own codes (docs/lint.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from typing import Final

from turnline.core.channel import Participant
from turnline.core.graph import TransitionGraph
from turnline.core.study.finding import Path
from turnline.core.study.lint import lint
from turnline.errors import TurnlineError
from turnline.flow.check.names import Known
from turnline.flow.check.problem import Problem, every_step
from turnline.flow.conversation import graph_of
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import ChannelStep
from turnline.flow.finding import Finding
from turnline.flow.yaml_document import YamlDocument

NO_GRAPH: Final = "TL020"
AgentTools = Mapping[str, Collection[str]]
_OPENER: Final = Participant("the-flow", "the flow", "step", takes_turns=False)
"""Who opens the conversation of a `channel` step."""


def graph_in(document: YamlDocument) -> tuple[TransitionGraph | None, list[Finding]]:
    """The graph that a document is, or why it is none."""
    try:
        return TransitionGraph.loads(document.data), []
    except TurnlineError as error:
        return None, [document.finding(NO_GRAPH, _said(error), (), fix=_FIX)]


def traps_in(document: YamlDocument, tools: AgentTools) -> list[Finding]:
    """What is wrong with a document that holds a graph."""
    graph, findings = graph_in(document)
    if graph is None:
        return findings
    try:
        traps = lint(graph, tools=tools)
    except (TurnlineError, TypeError) as error:  # Of a value that no condition or target can have.
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
    except TurnlineError as error:
        yield Problem(code=NO_GRAPH, path=path, message=_said(error), fix=_FIX)
        return
    members: list[str | Participant] = [*step.channel.agents, _OPENER]
    for one in lint(graph, participants=members, opener=_OPENER.agent_id, tools=tools):
        yield Problem(**asdict(one) | {"path": (*path, *one.path)})


def _said(error: Exception) -> str:
    return str(error).removesuffix(" The channel was not opened.").rstrip(".")


_FIX: Final = "write what TransitionGraph.to_dict() gives; register classes of your own first"
