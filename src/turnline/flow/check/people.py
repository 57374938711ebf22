"""Questions to a person that cannot be answered as they are meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turnline.flow.check.problem import Problem, every_step
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import HumanStep
from turnline.flow.finding import listed, nearest

NOTHING_ASKED: Final = "TL106"
NO_SUCH_FIELD: Final = "TL107"


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
