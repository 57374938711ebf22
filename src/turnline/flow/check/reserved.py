"""Keys that start with `_` belong to the engine: a document neither writes nor shows them (F1, F2).

Most are refused when a document is read. These are in JSON of the user's own, where the
engine would drop them without a word to the author.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from turnline.core.study.finding import Path
from turnline.flow.check.problem import Problem, every_step
from turnline.flow.context import is_private
from turnline.flow.definition import steps as define
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import Step

WRITTEN: Final = "TL202"
SHOWN: Final = "TL203"


def reserved_keys(flow: Flow) -> Iterator[Problem]:
    """Reserved keys, wherever a document names keys of its own."""
    spec = flow.spec
    yield from _written(("spec", "context", "defaults"), spec.context.defaults)
    if spec.trigger is not None:
        yield from _written(("spec", "trigger", "input"), spec.trigger.input or ())
    for path, step in every_step(flow):
        for where, names in _named_by(step):
            yield from _written((*path, *where), names)
        if isinstance(step, define.HumanStep):
            yield from _shown((*path, "human", "show"), step.human.show)


def _named_by(step: Step) -> Iterator[tuple[Path, Iterable[str]]]:
    """Where a step names keys that it writes, hands on or answers with."""
    match step:
        case define.AgentStep(agent=block):
            yield ("agent", "output", "schema"), block.output.schema_ or ()
        case define.ApiCallStep(api_call=block):
            yield ("api_call", "output", "schema"), block.output.schema_ or ()
        case define.McpStep(mcp=block):
            yield ("mcp", "output", "schema"), block.output.schema_ or ()
        case define.HumanStep(human=block):
            yield ("human", "form"), block.form
        case define.ResponseStep(response=block):
            yield ("response", "mapping"), block.mapping
        case define.WorkflowStep(workflow=block):
            yield ("workflow", "input"), block.input or ()
        case define.ChannelStep(channel=block):
            yield ("channel", "context"), block.context


def _written(path: Path, names: Iterable[str]) -> Iterator[Problem]:
    for name in filter(is_private, names):
        yield Problem(
            code=WRITTEN,
            path=(*path, name),
            of_key=True,
            message=f"{name!r} is reserved: what is written here never arrives",
            found=name,
            expected="a key that does not start with '_'",
            fix=f"call it {name.lstrip('_') or 'something else'!r}",
        )


def _shown(path: Path, names: Iterable[str]) -> Iterator[Problem]:
    for place, name in enumerate(names):
        if is_private(name):
            yield Problem(
                code=SHOWN,
                path=(*path, place),
                message=f"{name!r} is reserved: it is shown to nobody",
                found=name,
                expected="a key that does not start with '_'",
                fix="take it out, or let a step copy what may be shown to a key of its own",
            )
