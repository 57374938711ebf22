"""Questions to a person that cannot be asked, or cannot be answered as they are meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turnline.flow.check.names import Known
from turnline.flow.check.problem import Problem, every_step
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import AgentBlock, AgentStep, ChannelStep, HumanStep
from turnline.flow.finding import listed, nearest

NOTHING_ASKED: Final = "TL106"
NO_SUCH_FIELD: Final = "TL107"
NOBODY_ASKED: Final = "TL109"


def questions(flow: Flow) -> Iterator[Problem]:
    """Human steps that ask for nothing, or take their signal from a field they do not ask for."""
    for path, step in every_step(flow):
        if not isinstance(step, HumanStep):
            continue
        block = step.human
        if block.signal_from is not None and block.signal_from not in block.form:
            yield Problem(
                code=NO_SUCH_FIELD,
                path=(*path, "human", "signal_from"),
                message=f"the form has no field {block.signal_from!r}, so the signal is always 'default'",
                found=block.signal_from,
                expected=listed(block.form),
                fix=nearest(block.signal_from, block.form) or f"add {block.signal_from!r} to the form",
            )
        elif not block.form:
            yield Problem(
                code=NOTHING_ASKED,
                path=(*path, "human"),
                message=f"step {step.id!r} asks a person for nothing: any answer but an empty one is refused",
                expected="a form",
                fix="add form: {approved: boolean}, or use a wait step if nobody has to decide",
                severity="warning",
            )


def unasked_people(flow: Flow, known: Known) -> Iterator[Problem]:
    """Steps of agents with a tool that asks a person, and without `ask`: a call of the tool fails."""
    for path, step in every_step(flow):
        if not isinstance(step, AgentStep | ChannelStep) or step.asks is not None:
            continue
        asking = _asking_tools(step, known)
        if asking:
            yield Problem(
                code=NOBODY_ASKED,
                path=(*path, step.kind),
                message=f"tool {asking[0]!r} asks a person, and step {step.id!r} does not say whom",
                expected="ask",
                fix=f"add ask: {{group: ops}} to the {step.kind}, with the group that answers",
            )


def _asking_tools(step: AgentStep | ChannelStep, known: Known) -> list[str]:
    if isinstance(step, ChannelStep):
        return [tool for name in step.channel.agents for tool in known.asking_agents.get(name) or ()]
    block = step.agent
    named = step.id if block == AgentBlock() else block.name or ""
    own = known.asking_agents.get(named, ())
    if own is None:
        return []
    return [*(tool for tool in block.tools if tool in known.asking_tools), *own]
