"""The life of a channel: invited, opened, closed.

Rule: whatever ends a channel and `channel.closed` are one append, and nothing
follows it (L3). A turn in flight when the channel ends is abandoned with it.
"""

from __future__ import annotations

from typing import Any, Final

from turnline.core import event_types as ev
from turnline.core.channel import CHILD_MARK, ChannelState, is_child_id, turn_of
from turnline.core.claims import TakeTurn
from turnline.core.envelope import Basis, JsonObject, Speak
from turnline.core.expectations import INVITE_TIMEOUT, current_moment
from turnline.core.fold import Batch
from turnline.core.state import State
from turnline.core.undo import has_own
from turnline.errors import Denied, NotDue, NotParticipant, TooManyRuns

CANCELLED: Final = "cancelled"
"""The reason with which an operator, or a channel above, closes one."""

AnyBatch = Batch[Any]


def invite(batch: AnyBatch, first_speaker: str, take_turn: TakeTurn) -> None:
    """The first line of a channel; with nobody to ask, it opens at once."""
    if batch.state.seq:
        raise NotDue(batch.state.channel_id, timer="the invitation")
    batch.accept()
    if not batch.state.awaiting:
        open_channel(batch, first_speaker, take_turn)


def acknowledge(batch: AnyBatch, first_speaker: str, take_turn: TakeTurn) -> None:
    """Somebody accepts; with the last one the channel opens, in the same append (L1)."""
    _check_awaited(batch.state, batch.draft.event_data)
    batch.accept()
    if not batch.state.awaiting:
        open_channel(batch, first_speaker, take_turn)


def reject(batch: AnyBatch) -> None:
    """Somebody declines: the channel closes."""
    _check_awaited(batch.state, batch.draft.event_data)
    batch.accept()
    close(batch, "invite_rejected")


def open_channel(batch: AnyBatch, first_speaker: str, take_turn: TakeTurn) -> None:
    """Open, give the floor to the first speaker, and say the creator's opening words (W6)."""
    spec = batch.state.spec
    floor = Speak(first_speaker, Basis(kind="initial"))
    if spec.message is None:
        batch.write(ev.EV_CHANNEL_OPENED, {}, decision=floor)
    elif first_speaker == spec.creator_id:
        batch.write(ev.EV_CHANNEL_OPENED, {}, decision=floor)
        take_turn(batch, batch.next(ev.EV_TEXT, {"text": spec.message}, sender_id=spec.creator_id))
    else:
        batch.write(ev.EV_CHANNEL_OPENED, {})
        opening = {"text": spec.message}
        batch.add(batch.next(ev.EV_TEXT, opening, sender_id=spec.creator_id, decision=floor))


def add_child(batch: AnyBatch) -> None:
    """Note a channel that is about to be opened below this one, or a run of a flow further below.

    The line comes first, so a channel that has closed gets no children, and every child is on the log
    of its parent. Runs of flows count against the limit of the top channel.
    """
    spec = batch.state.spec
    _check_opener(batch.state, batch.draft.event_data)
    if batch.draft.event_data.get("run") is True and batch.state.nested_runs >= spec.max_runs:
        raise TooManyRuns(batch.state.channel_id, limit=spec.max_runs)
    batch.accept()


def _check_opener(state: State, data: JsonObject) -> None:
    """Refuse an id that `child_id` makes to all but the participant whose turn it is: others can compute it.

    The turn of a step is its player's. A line that names the `parent` is for that parent to check.
    """
    child, by = str(data.get("child")), str(data.get("by"))
    if not is_child_id(child) or "parent" in data:
        return
    is_player = by == state.spec.player_of(state.expected_next_speaker or "")
    if is_player and turn_of(child, state.channel_id) == state.turn:
        return
    because = f"ids with {CHILD_MARK!r} are for channels that the turn in progress opens below its own"
    raise Denied(by, what=f"open the channel {child!r} below {state.channel_id!r}", because=because)


def close(batch: AnyBatch, reason: str, **facts: object) -> None:
    """The last word. A turn in progress is abandoned: what it wrote never counted."""
    if batch.state.claim is not None or has_own(batch.state.turn_writes):
        batch.write(ev.EV_TURN_ABANDONED, _turn(batch.state), audience=[])
    batch.write(ev.EV_CHANNEL_CLOSED, {"reason": reason, **facts})


def close_on_request(batch: AnyBatch) -> None:
    """Somebody, or the invitation's deadline, ends the channel."""
    data = batch.draft.event_data
    reason = str(data.get("reason") or "closed")
    if reason == INVITE_TIMEOUT and batch.state.status is not ChannelState.PENDING:
        raise NotDue(batch.state.channel_id, timer=INVITE_TIMEOUT)
    facts = {"by": data["by"]} if data.get("by") else {}
    if reason == INVITE_TIMEOUT:
        facts["awaiting"] = list(batch.state.awaiting)
    close(batch, reason, **facts)


def expire(batch: AnyBatch) -> None:
    """The channel's time is up."""
    batch.accept()
    close(batch, str(batch.draft.event_data.get("reason", "ttl_expired")))


def violate(batch: AnyBatch) -> None:
    """An expectation's deadline passed: tell it, and close if that is what its handler says (W11)."""
    data = batch.draft.event_data
    name, since = str(data.get("name")), data.get("since")
    moment = current_moment(batch.state, name)
    told = batch.state.warned.get(str(data.get("expectation"))) == since
    if moment is None or moment.seq != since or told:
        raise NotDue(batch.state.channel_id, timer=name)
    batch.accept()
    if data.get("handler") == "auto_close":
        close(batch, f"expectation_violated:{name}")


def _check_awaited(state: State, data: JsonObject) -> None:
    agent_id = str(data.get("agent_id"))
    if agent_id not in state.spec.invited:
        raise NotParticipant(state.channel_id, sender=agent_id, participants=state.spec.invited)
    if agent_id not in state.awaiting:
        raise NotDue(state.channel_id, timer=f"the invitation of {agent_id}")


def _turn(state: State) -> JsonObject:
    return {"agent_id": state.expected_next_speaker, "turn": state.turn}
