"""`channel`: a conversation between agents of the project, with its own graph, as one step.

Whatever reason the graph closes with is a success; a turn that failed, time that ran
out and an invitation that was not accepted are not.
"""

from __future__ import annotations

from typing import Final

from turnline.core.claims import Paused
from turnline.core.envelope import JsonObject
from turnline.core.lifecycle import CANCELLED
from turnline.core.state import State
from turnline.errors import ChildFailed
from turnline.flow.conversation import graph_of
from turnline.flow.definition.steps import ChannelStep
from turnline.flow.steps.below import wait_for
from turnline.flow.values import filled, render
from turnline.flow.work import StepResult, StepWork

PLACE: Final = "channel"
_FAILURES: Final = frozenset({"turn_failed", "ttl_expired", CANCELLED})
_KINDS_OF_FAILURE: Final = ("expectation_violated:", "invite_")


async def perform(work: StepWork[ChannelStep]) -> StepResult | Paused:
    """Open the conversation; return its last words when it has closed."""
    state = await work.children.state(PLACE)
    if state is None:
        await _begin(work)
    if state is None or not state.is_over:
        return wait_for(work, [PLACE])
    if is_failure(state.pending_close_reason):
        reason = state.pending_close_reason
        message = f"the conversation closed with {reason!r}"
        raise ChildFailed(f"the channel of step {work.step.id!r}", error_type=reason, message=message)
    return StepResult(updates=_left(work.step, state, await work.children.last_words(PLACE)))


def is_failure(reason: str) -> bool:
    """Whether a conversation that closed for this reason did not come to its end."""
    return reason in _FAILURES or reason.startswith(_KINDS_OF_FAILURE)


async def _begin(work: StepWork[ChannelStep]) -> None:
    block = work.step.channel
    await work.children.converse(
        PLACE,
        list(dict.fromkeys(block.agents)),
        graph_of(block).to_dict(),
        render(block.message, work.public, at="channel.message"),
        filled(block.context, work.public, at="channel.context"),
    )


def _left(step: ChannelStep, state: State, last_words: str) -> JsonObject:
    block = step.channel
    variables = {
        key: state.context_vars[name] for name, key in block.map.items() if name in state.context_vars
    }
    return variables | {block.into or step.id: last_words}
