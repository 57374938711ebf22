"""`human`: ask a person, wait, write the answer into the context.

The task is a pause, and the pause's data is all that whoever shows tasks has to know. An
answer is read by `read_answer`, here as where it is posted, so that neither takes what
the other refuses.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from turnline.core import event_types as ev
from turnline.core.claims import Paused
from turnline.core.envelope import Envelope, JsonObject
from turnline.errors import BadStepValue
from turnline.flow.context import from_outside
from turnline.flow.definition.fields import Fields
from turnline.flow.definition.steps import HumanStep
from turnline.flow.fields import check
from turnline.flow.pauses import object_of, waited
from turnline.flow.task import form_as_data, task_id
from turnline.flow.values import render
from turnline.flow.work import DEFAULT, StepResult, StepWork

EXPIRED: Final = "expired"


async def perform(work: StepWork[HumanStep]) -> StepResult | Paused:
    """Ask; then return what was answered, or that nobody did in time."""
    match waited(work.history, "person"):
        case None:
            return _task(work)
        case Paused() as still:
            return still
        case Envelope(event_type=ev.EV_HUMAN_ANSWERED, event_data=data):
            return _answered(work, data)
    return _expired(work.step)


def read_answer(form: Fields, answer: JsonObject) -> tuple[JsonObject, list[str], list[str]]:
    """Return what the answer comes to, the reserved keys that were dropped, and what is wrong with it."""
    ours, dropped = from_outside(answer)
    clean, problems = check(form, ours, extra=False)
    return clean, dropped, [str(problem) for problem in problems]


def _task(work: StepWork[HumanStep]) -> Paused:
    block = work.step.human
    return Paused(
        reason="person",
        key=task_id(work.run_id, work.turn),
        seconds=block.expires,
        data={
            "title": render(block.title, work.public, at="human.title"),
            "description": render(block.description, work.public, at="human.description"),
            "show": {key: work.public[key] for key in block.show if key in work.public},
            "form": form_as_data(block.form),
            "group": block.group,
        },
    )


def _answered(work: StepWork[HumanStep], data: JsonObject) -> StepResult:
    block = work.step.human
    answer, dropped, problems = read_answer(block.form, object_of(data, "answer"))
    if dropped:
        work.dropped("human", dropped)
    if problems:
        raise BadStepValue("the answer", found="; ".join(problems), expected="what the form asks for")
    return StepResult(
        signal=_signal(answer, block.signal_from), updates=answer, body=f"answered by {data.get('by')}"
    )


def _signal(answer: JsonObject, field: str | None) -> str:
    """The field's value as a document spells it: `true`, `3`, a text as it is."""
    value = None if field is None else answer.get(field)
    if value is None or value == "":
        return DEFAULT
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _expired(step: HumanStep) -> StepResult:
    if EXPIRED in step.routes:
        return StepResult(signal=EXPIRED, body="nobody answered in time")
    seconds = min(one for one in (step.human.expires, step.timeout, math.inf) if one is not None)
    raise TimeoutError(
        f"nobody answered step {step.id!r} in {seconds:g} s; route its signal 'expired' to go on."
    )
