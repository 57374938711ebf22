"""Delegating: ask a peer, wait for its answer, go on with the turn (T7).

    alice's turn: delegate("bob", "...")  ->  a `consulting` channel below hers  ->  bob's turn

Rule 1: the channel's id follows from the call's idempotency key. A turn that is
taken up again after a crash opens nothing anew: it waits for the channel that is
there, or reads the answer that was given meanwhile.

Rule 2: whatever keeps the peer from answering (a rule, a circle, its own failure,
the time) is a failed tool call, told to the model in one line.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Final

from pydantic import Field

from turnline.agent.context import Context
from turnline.client.channel import Channel
from turnline.client.injection import SeatInject, TurnChannelInject
from turnline.core.adapters import CONSULTING_TYPE
from turnline.core.adapters.turn_taking import CLOSE
from turnline.core.expectations import turn_within
from turnline.errors import NoAnswer
from turnline.hub.request import OpenRequest

ANSWER_SECONDS: Final = 480.0
"""How long a peer has for its answer: less than a turn may take (W11), so that the asker can still say so."""

_ANSWERED: Final = "consulting_complete"


async def delegate(
    to: Annotated[str, Field(description="The peer's name, as `peers` lists it.")],
    task: Annotated[str, Field(description="Everything the peer needs to know; it sees nothing else.")],
    *,
    seat: SeatInject,
    channel: TurnChannelInject,
    context: Context,
) -> str:
    """Ask another agent to do something, wait until it has, and get its answer.

    It does not see this conversation: put everything it needs into the task.
    """
    request = OpenRequest(
        type=CONSULTING_TYPE,
        target=[to],
        message=task,
        knobs={"on_failure": CLOSE},
        expectations=[turn_within(ANSWER_SECONDS, "auto_close")],
        channel_id=derived_id("ask", context.idempotency_key),
        parent_id=channel.channel_id,
    )
    asked = Channel(seat, await seat.open(request))
    ended = await asked.result()
    if ended.reason != _ANSWERED:
        raise NoAnswer(to, channel_id=asked.channel_id, reason=ended.reason)
    return ended.text


def derived_id(what: str, idempotency_key: str) -> str:
    """Return an id for what one tool call makes: the same when the call runs again."""
    return f"{what}-{blake2b(idempotency_key.encode(), digest_size=16).hexdigest()}"
