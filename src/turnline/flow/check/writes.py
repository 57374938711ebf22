"""The context keys a step can write, as far as its definition shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from turnline.flow.check.names import Known
from turnline.flow.data.definition import foreign_key
from turnline.flow.definition import steps as define
from turnline.flow.definition.steps import Output, Step


@dataclass(frozen=True, slots=True)
class Keys:
    """Context keys that may be there."""

    names: frozenset[str] = frozenset()
    is_open: bool = False
    """Whether any other may be there as well."""

    @classmethod
    def of(cls, *names: str | None) -> Keys:
        return cls(frozenset(name for name in names if name is not None))

    def __or__(self, other: Keys) -> Keys:
        return Keys(self.names | other.names, self.is_open or other.is_open)

    def __contains__(self, key: str) -> bool:
        return self.is_open or key in self.names


NOTHING: Final = Keys()
ANYTHING: Final = Keys(is_open=True)


def union(many: Iterable[Keys]) -> Keys:
    found = NOTHING
    for one in many:
        found |= one
    return found


def writes(step: Step, known: Known) -> Keys:
    """Return what the step can leave in the context."""
    write = _WRITES.get(type(step))
    return NOTHING if write is None else write(step, known)


def left_behind(steps: Sequence[Step], known: Known) -> Keys:
    """Return what a list of inner steps can leave: what they wrote, or their response."""
    return union(
        _response(step) if isinstance(step, define.ResponseStep) else writes(step, known) for step in steps
    )


def _response(step: define.ResponseStep) -> Keys:
    # Without a mapping it is the context as it is: nothing that was not there.
    return Keys.of(*step.response.mapping)


def _output(output: Output, step_id: str) -> Keys:
    named = Keys.of(*output.map.values(), output.key)
    if output.map or output.key is not None:
        return named
    match output.format:
        case "text":
            return Keys.of(step_id)
        case "signal":
            return NOTHING
    if output.schema_ is not None:
        return Keys.of(*output.schema_)
    return ANYTHING


def _agent(step: define.AgentStep) -> Keys:
    block = step.agent
    answer = _output(block.output, step.id)
    # A tool may set any key; so may those of an agent that is defined elsewhere.
    has_tools = block.tools or block.name is not None or block == define.AgentBlock()
    return answer | ANYTHING if has_tools else answer


def _node(known: Known) -> Keys:
    return ANYTHING if known.node_keys is None else Keys.of(*known.node_keys)


def _into(key: str | None) -> Keys:
    """Where what came goes: under one key, or merged, whatever it is."""
    return ANYTHING if key is None else Keys.of(key)


def _row(step: define.ModelOpStep, known: Known) -> Keys:
    block = step.model_op
    if block.op == "remove":
        return NOTHING
    if block.into is not None:
        return Keys.of(block.into)
    if block.op == "list":
        return Keys.of(step.id)
    model = (known.models or {}).get(block.model)
    if model is None:
        return ANYTHING
    return Keys.of(*model.fields, *map(foreign_key, model.spec.outgoing))


def _branches(step: define.ParallelStep, known: Known) -> Keys:
    block = step.parallel
    if block.into is not None:
        return Keys.of(block.into)
    left = union(left_behind(branch, known) for branch in block.branches.values())
    # A branch that failed, and is collected, stands under its name.
    return left | Keys.of(*block.branches) if block.on_error == "collect" else left


_WRITES: Final[Mapping[type, Callable[[Any, Known], Keys]]] = {
    define.FunctionalStep: lambda step, known: _node(known),
    define.AgentStep: lambda step, known: _agent(step),
    define.ApiCallStep: lambda step, known: _output(step.api_call.output, step.id),
    define.McpStep: lambda step, known: _output(step.mcp.output, step.id),
    define.ModelOpStep: _row,
    define.HumanStep: lambda step, known: Keys.of(*step.human.form),
    define.ForEachStep: lambda step, known: Keys.of(step.for_each.into),
    define.ParallelStep: _branches,
    define.WorkflowStep: lambda step, known: _into(step.workflow.into),
    define.WaitStep: lambda step, known: NOTHING if step.wait.event is None else _into(step.wait.into),
    define.ChannelStep: lambda step, known: Keys.of(*step.channel.map.values(), step.channel.into or step.id),
}
"""The kinds of step that write, and what. A router writes nothing, nor does a response."""
