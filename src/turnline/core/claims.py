"""Claims: who works on the current turn.

Rule 1: a turn has at most one live claim, and only a packet that names it is
accepted while it lives (T1, T6). A worker that slept through a takeover is
refused, whatever its clock says. So is a participant that names another one's claim.

Rule 2: `decide` does not know whether a worker is dead. Whoever takes over says
which claim it replaces, and what it last heard of it; if that claim is no longer the
live one it lost the race, and if there is a later sign of life it was wrong.

Rule 3: a new claim resumes the turn after its last recorded entry (T3): the
context writes up to there stay, later ones are undone, for they will be made
again. Giving up the turn undoes them all (T5).

Rule 4: a turn is given up only for what it did itself (N3). A claim that is replaced
although nothing was recorded, paused or released after it is unexplained: its process died.
From `SUSPECT_CLAIMS` on, only claims made alone count; at `MAX_CLAIMS` a rule for failed turns
takes the turn, or the turn is stuck until an operator retries it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from turnline.core import event_types as ev
from turnline.core.batch import Batch
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.state import State
from turnline.errors import BadDraft, ClaimLost, OutOfTurn, TurnTaken

MAX_CLAIMS: Final = 5
"""Unexplained claims of one turn, and the turn is given up."""
LEASE_SECONDS: Final = 60.0
"""How long a worker elsewhere may be silent before it is replaced."""

TakeTurn = Callable[[Batch[Any], Envelope], None]
"""Decides where the floor goes after an envelope, and adds it with all that follows."""


def check_free(state: State, data: JsonObject) -> None:
    """Refuse a claim on a turn that another worker has, or that is over."""
    _check_floor(state, data)
    live = state.claim
    believed = data.get("replaces"), data.get("heard", state.alive_seq)
    if live is not None and believed != (live.seq, state.alive_seq):
        raise TurnTaken(state.channel_id, turn=state.turn, worker=live.worker)


def unexplained_error(state: State) -> JsonObject:
    """Describe why a suspect is given up."""
    message = f"its process ended {state.unexplained} times while it worked on this turn"
    return {"type": "TooManyClaims", "message": message}


def claim_next(batch: Batch[Any]) -> None:
    """Whoever brought the floor to a step goes on with it, if it said so: the claim is in the same append."""
    state, worker = batch.state, batch.draft.goes_on
    member = state.spec.participant(state.expected_next_speaker or "")
    if worker and member is not None and member.kind == "step":
        data = {"agent_id": member.agent_id, "worker": worker, "turn": state.turn}
        batch.write(ev.EV_TURN_CLAIMED, data | {"lease_seconds": LEASE_SECONDS}, audience=[])


def release(batch: Batch[Any]) -> None:
    """The worker stops without a packet; the turn is anybody's again."""
    check_claim(batch.state, batch.draft)
    batch.accept()


def record(batch: Batch[Any]) -> None:
    """A model reply or a tool result of the round goes on the log (T2), or that the worker is alive."""
    if batch.draft.claim is None:
        raise ClaimLost(batch.state.channel_id, claim=None, live=_live(batch.state))
    check_claim(batch.state, batch.draft)
    _check_summary(batch.state, batch.draft.event_data)
    batch.accept()


def fail(batch: Batch[Any], take_turn: TakeTurn) -> None:
    """The worker gives the turn up."""
    _check_floor(batch.state, batch.draft.event_data)
    check_claim(batch.state, batch.draft)
    give_up(batch, batch.draft.event_data.get("error", {}), take_turn)


def give_up(batch: Batch[Any], error: JsonObject, take_turn: TakeTurn) -> None:
    """Undo the turn's context writes, say that it failed, and move on (T5)."""
    turn: JsonObject = {"agent_id": batch.state.expected_next_speaker, "turn": batch.state.turn}
    batch.write(ev.EV_TURN_ABANDONED, turn, audience=[])
    facts: JsonObject = {"error": error, "claims": batch.state.claims}
    member = batch.state.spec.participant(batch.state.expected_next_speaker or "")
    if member is not None and member.kind == "step":  # What a flow's next step reads of the error.
        facts["private_updates"] = {"_last_error": error.get("message", ""), "_last_error_type": "error"}
    take_turn(batch, batch.next(ev.EV_TURN_FAILED, turn | facts))


def check_claim(state: State, draft: Draft) -> None:
    """Refuse a draft that is not made under the live claim, by the participant whose claim it is.

    The hub's own processes write for any participant: they name no `claimant`.
    """
    live, by = _live(state), draft.claimant if draft.sender_id == ev.HUB else draft.sender_id
    if draft.claim != live:
        raise ClaimLost(state.channel_id, claim=draft.claim, live=live)
    if state.claim is not None and by not in ("", state.claim.agent_id):
        raise ClaimLost(state.channel_id, claim=draft.claim, live=None)


def check_has_turn(state: State, agent_id: str) -> None:
    """Refuse to show a turn's model replies and tool results to anyone but the participant that has it."""
    if state.expected_next_speaker != agent_id:
        raise OutOfTurn(state.channel_id, sender=agent_id, speaker=str(state.expected_next_speaker))


def _check_summary(state: State, data: JsonObject) -> None:
    """Refuse a summary for another participant: that one would read it as its own words."""
    summary = data.get("summary")
    by = None if state.claim is None else state.claim.agent_id
    if isinstance(summary, dict) and summary.get("agent_id") != by:
        found = "another participant's"
        raise BadDraft("event_data.summary.agent_id", found=found, expected="that of the turn's speaker")


def _check_floor(state: State, data: JsonObject) -> None:
    agent_id = str(data.get("agent_id"))
    if agent_id != state.expected_next_speaker or data.get("turn", state.turn) != state.turn:
        raise OutOfTurn(state.channel_id, sender=agent_id, speaker=str(state.expected_next_speaker))


def _live(state: State) -> int | None:
    return None if state.claim is None else state.claim.seq
