"""Delegating: ask a peer, wait for its answer, continue the turn (T7).

    alice's turn: delegate("bob", "...")  ->  a `consulting` channel below hers  ->  bob's turn

Rule 1: the channel's id follows from the turn and the call's idempotency key, and only that turn can open
it. While the peer works the turn is paused. When the channel closes the call runs again, finds the channel
and reads the answer (N2).

Rule 2: whatever keeps the peer from answering (a rule, a circle, its own failure, the time) is a failed tool
call, which the model is told of in one line. Of the peer's own error it is told the type only.

Rule 3: a question of the peer goes up. The channel of a delegation has no person, and people of the channels
above are not made members of it: members see all that is said there, and may speak on it and close it. The
hub asks the question on the channel of the turn that delegates, for that turn, and copies the answer down
(`hub.tree`, rule 6), or asks the group of the flow's step above. Where there is neither, the peer's turn
fails with `NobodyToAsk`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Final

from pydantic import Field

from turnline.agent.context import Context
from turnline.client.injection import ChildrenInject, SeatInject
from turnline.core.claims import Paused
from turnline.core.expectations import turn_within
from turnline.errors import NoAnswer
from turnline.hub.request import OpenRequest
from turnline.turns.children import ANSWERED, consultation

ANSWER_SECONDS: Final = 480.0
"""How long an agent has for its answer. Its own waits do not count, and a person has no limit (N1a)."""


async def delegate(
    to: Annotated[str, Field(description="The peer's name, as `peers` lists it.")],
    task: Annotated[str, Field(description="Everything the peer needs to know; it sees nothing else.")],
    *,
    children: ChildrenInject,
    context: Context,
    seat: SeatInject,
) -> str | Paused:
    """Ask another agent to do something, wait until it has, and get its answer.

    It does not see this conversation: put everything it needs into the task.
    """

    async def request() -> OpenRequest:
        is_person = any(one.kind == "human" and to in (one.name, one.agent_id) for one in await seat.peers())
        return consultation(to, task, [] if is_person else [turn_within(ANSWER_SECONDS, "auto_close")])

    place = asked_place(context.idempotency_key)
    state = await children.find_or_open(place, request)
    if not state.is_over:
        return Paused(reason="children", children=[state.channel_id])
    if state.pending_close_reason != ANSWERED:
        error = await children.last_error(place)
        raise NoAnswer(to, channel_id=state.channel_id, reason=state.pending_close_reason, error=error)
    return await children.last_words(place)


def asked_place(idempotency_key: str) -> str:
    """Return the place, among the children of its turn, of the channel that one call of `delegate` opens."""
    return f"ask-{blake2b(idempotency_key.encode(), digest_size=12).hexdigest()}"


def derived_id(what: str, idempotency_key: str) -> str:
    """Return an id for what one tool call makes: the same when the call runs again."""
    return f"{what}-{blake2b(idempotency_key.encode(), digest_size=16).hexdigest()}"
