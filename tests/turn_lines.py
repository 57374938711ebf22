"""What a worker writes of a turn, one line at a time; and a turn that an engine takes."""

from __future__ import annotations

from turnline.client.link import Seat
from turnline.client.turn import TurnHandler, perform_with
from turnline.core import event_types as ev
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.state import Claim
from turnline.core.views import Floor, floor_for
from turnline.turns.engine import Engine
from turnline.turns.work import Perform, Port


async def claim(
    seat: Port | Seat, channel_id: str, turn: int, *, by: str, claim_id: str, alone: bool = False
) -> Claim:
    """Claim a turn of the participant `by`."""
    floor = Floor(speaker=by, turn=turn, seq=0)
    return (await seat.claim_turn(floor, channel_id, claim_id=claim_id, alone=alone)).claim


async def claim_own(seat: Seat, channel_id: str, turn: int, *, claim_id: str = "") -> Claim:
    """Claim a turn of the seat's own participant."""
    return await claim(seat, channel_id, turn, by=seat.agent_id, claim_id=claim_id or seat.new_id())


async def record(seat: Seat, channel_id: str, taken: Claim, event_type: str, data: JsonObject) -> None:
    """Record a unit of the turn."""
    await seat.write(channel_id, taken.draft(event_type, data, []))


async def release(seat: Seat, channel_id: str, taken: Claim) -> None:
    """Release the claim."""
    await seat.write(channel_id, taken.draft(ev.EV_TURN_RELEASED, {}))


async def fail(seat: Seat, channel_id: str, taken: Claim, error: JsonObject) -> None:
    """Give the turn up."""
    await seat.write(channel_id, taken.draft(ev.EV_TURN_FAILED, {"error": error}))


async def take_turn(seat: Seat, gave: Envelope, handler: TurnHandler) -> None:
    """Let an engine of its own take the turn that a line gave; when this is cancelled, it is released."""
    await perform_turn(seat, gave, perform_with(handler, seat))


async def perform_turn(seat: Seat, gave: Envelope, perform: Perform) -> None:
    """Do the same with a performer."""
    floor = floor_for(seat.agent_id, await seat.state(gave.channel_id))
    if floor is None:
        return
    engine = Engine(seat, seat.player, lambda _: perform)
    try:
        await engine.take(gave.channel_id, floor)
    finally:
        await engine.stop()
