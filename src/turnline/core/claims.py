"""The current turn: who works on it (claims), or what it waits for (pauses).

Claims

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
A question resets the count, and no claim counts while one is open.
From `SUSPECT_CLAIMS` on, only claims made alone count; at `MAX_CLAIMS` a rule for failed turns
takes the turn, or the turn is stuck until an operator retries it. A claim made alone counts whenever its
process dies, also later than `hub.turns.BLAME_SECONDS`: a turn that kills slowly must be stopped too.

Rule 5: a turn that ends without a packet is first abandoned (its context writes are undone), then the
failure or the close is decided. They are two lines because the rules for failed turns, and `why`
afterwards, look at the context without those writes. There is one path: `give_up` for a failure,
`lifecycle` for a close.

Pauses: a turn that waits without anybody working on it (F7)

    turn.paused {"reason", "seconds", "until", "key", "questions", "children", "data"}
    timer.fired, human.answered, turn.resumed   {"pause": seq}   ends it, once

`seconds` are counted from the line, by the hub's timers. `until` is a time of day, and is compared with the
time that people read. `questions` and `children` are what the turn waits for; the first answer and the first
child that closes end the pause. A stuck turn is paused as well; only an operator's `turn.resumed` ends that.

Rule 6: the line that ends a pause names it. A second answer, a timer that comes too late, an answer after
the timer: each finds that the pause is over, and is refused.

Rule 7: the line that ends a pause gives the floor again, so the speaker hears of it as of any other turn.

Rule 8: an answer that is there already ends the pause in the append that begins it (N1b).

Rule 9: a turn that only pauses is given up: `MAX_PAUSES` without a unit, a question or an answer in between,
and one more for each channel below, since each of those closes once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, get_args

from turnline.core import event_types as ev
from turnline.core.envelope import Basis, Draft, Envelope, JsonObject, Speak
from turnline.core.fold import Batch
from turnline.core.json import MAX_SECONDS, ids_of, moment_of, seconds_of
from turnline.core.state import STUCK, Pause, State
from turnline.errors import BadDraft, ClaimLost, NotDue, OutOfTurn, TooManyPauses, TurnTaken, UnknownQuestion

MAX_CLAIMS: Final = 5
"""Unexplained claims of one turn, and the turn is given up."""
MAX_ONCE_UNITS: Final = 1_000
"""Results of `once` that one turn records. More work belongs into turns or steps of its own."""
MAX_PAUSES: Final = 1_000
"""Pauses of one turn in a row, with nothing recorded, asked or answered between them."""

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


def release(batch: Batch[Any]) -> None:
    """The worker stops without a packet; the turn is anybody's again."""
    check_claim(batch.state, batch.draft)
    batch.accept()


def record(batch: Batch[Any]) -> None:
    """A model reply, a tool result or a result of `once` goes on the log (T2, N4), or a sign of life."""
    if batch.draft.claim is None:
        raise ClaimLost(batch.state.channel_id, claim=None, live=_live(batch.state))
    check_claim(batch.state, batch.draft)
    _check_summary(batch.state, batch.draft.event_data)
    if batch.draft.event_type == ev.EV_TURN_ONCE:
        _check_once(batch.state, batch.draft.event_data)
    batch.accept()


def fail(batch: Batch[Any], take_turn: TakeTurn) -> None:
    """The worker gives the turn up."""
    _check_floor(batch.state, batch.draft.event_data)
    check_claim(batch.state, batch.draft)
    data = batch.draft.event_data
    give_up(batch, data.get("error", {}), take_turn, absent=data.get("absent", []))


def give_up(batch: Batch[Any], error: JsonObject, take_turn: TakeTurn, *, absent: Sequence[str] = ()) -> None:
    """Undo the turn's context writes, say that it failed, and move on (T5).

    `absent` are members that were removed from the directory: none of them gets the floor.
    """
    speaker = batch.state.expected_next_speaker
    turn: JsonObject = {"agent_id": speaker, "turn": batch.state.turn}
    batch.write(ev.EV_TURN_ABANDONED, turn, audience=[])
    facts: JsonObject = {"error": error, "claims": batch.state.claims}
    if absent:
        facts["absent"] = list(absent)
    if batch.state.spec.is_played(speaker or ""):  # A flow's next step reads the error.
        facts["private_updates"] = {"_last_error": error.get("message", ""), "_last_error_type": "error"}
    take_turn(batch, batch.next(ev.EV_TURN_FAILED, turn | facts))


def check_claim(state: State, draft: Draft) -> None:
    """Refuse a draft that is not made under the live claim, by the participant whose claim it is.

    The player of a participant works under its claim. The hub's own processes write for any participant: they
    name no `claimant`.
    """
    live, by = _live(state), draft.claimant or ("" if draft.sender_id == ev.HUB else draft.sender_id)
    if draft.claim != live:
        raise ClaimLost(state.channel_id, claim=draft.claim, live=live)
    if state.claim is not None and draft.claim_id not in ("", state.claim.envelope_id):
        raise ClaimLost(state.channel_id, claim=draft.claim, live=None)
    if state.claim is None or not by:
        return
    holder = state.claim.agent_id
    if by not in (holder, state.spec.player_of(holder)) or draft.sender_id not in (ev.HUB, holder):
        raise ClaimLost(state.channel_id, claim=draft.claim, live=None)


def _check_summary(state: State, data: JsonObject) -> None:
    """Refuse a summary for another participant: that one would read it as its own words."""
    summary = data.get("summary")
    by = None if state.claim is None else state.claim.agent_id
    if isinstance(summary, dict) and summary.get("agent_id") != by:
        found = "another participant's"
        raise BadDraft("event_data.summary.agent_id", found=found, expected="that of the turn's speaker")


def _check_once(state: State, data: JsonObject) -> None:
    if not ev.is_name(data.get("key")):
        expected = f"printable text of at most {ev.MAX_NAME_CHARACTERS} characters"
        raise BadDraft("event_data.key", found=repr(data.get("key"))[:80], expected=expected)
    if "result" not in data:
        raise BadDraft("event_data.result", found="missing", expected="what the function returned")
    if state.once_units >= MAX_ONCE_UNITS:
        expected = f"at most {MAX_ONCE_UNITS} results of `once` in one turn"
        raise BadDraft("event_type", found=f"{ev.EV_TURN_ONCE!r} once more", expected=expected)


def _check_floor(state: State, data: JsonObject) -> None:
    agent_id = str(data.get("agent_id"))
    if agent_id != state.expected_next_speaker or data.get("turn", state.turn) != state.turn:
        raise OutOfTurn(state.channel_id, sender=agent_id, speaker=str(state.expected_next_speaker))


def _live(state: State) -> int | None:
    return None if state.claim is None else state.claim.seq


Reason = Literal["retry", "time", "person", "event", "children"]

MAX_AWAITED: Final = 10_000
"""Questions, or channels below, that one pause may wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """What a turn waits for. It is performed again when one of these is there."""

    reason: Reason
    """What people are shown."""
    seconds: float | None = None
    """At most so long, counted from the line that says so. A clock that is set changes nothing."""
    until: datetime | None = None
    """A time of day, by the clock that people read."""
    times_out: bool = False
    """After `seconds` the step's own `timeout` is over: its signal is `timeout`."""
    key: str = ""
    """What the answer to a task, or the event, has to name. For `human` and `wait` steps of a flow only."""
    questions: Sequence[str] = ()
    """Questions, by request id."""
    children: Sequence[str] = ()
    """Channels below, by id."""
    data: JsonObject = field(default_factory=dict)
    """For people who read the log: the form of a human task, for example."""

    def as_data(self) -> JsonObject:
        """Return the data of the line that says so."""
        said: JsonObject = {"reason": self.reason, "seconds": self.seconds, "times_out": self.times_out}
        said |= {"until": None if self.until is None else self.until.isoformat(), "key": self.key}
        said |= {"questions": list(self.questions), "children": list(self.children), "data": self.data}
        return {key: value for key, value in said.items() if value or (key == "seconds" and value == 0)}


def join_pauses(pauses: Sequence[Paused]) -> Paused:
    """Return the pause of a turn that waits for several things at once. The first of them ends it."""
    first = pauses[0]
    if len(pauses) == 1:
        return first
    reasons = {one.reason for one in pauses}
    return Paused(
        reason="person" if "person" in reasons else first.reason,
        seconds=min((one.seconds for one in pauses if one.seconds is not None), default=None),
        until=min((one.until for one in pauses if one.until is not None), default=None),
        key=next((one.key for one in pauses if one.key), ""),
        questions=list(dict.fromkeys(id_ for one in pauses for id_ in one.questions)),
        children=list(dict.fromkeys(id_ for one in pauses for id_ in one.children)),
        data={key: value for one in pauses for key, value in one.data.items()},
    )


def pause(batch: Batch[Any]) -> None:
    """The worker lets go: the turn waits."""
    state, draft = batch.state, batch.draft
    if draft.claim is None or state.claim is None:
        raise ClaimLost(state.channel_id, claim=draft.claim, live=None)
    check_claim(state, draft)
    if draft.event_data.get("reason") not in get_args(Reason):
        found, expected = repr(draft.event_data.get("reason"))[:80], ", ".join(get_args(Reason))
        raise BadDraft("event_data.reason", found=found, expected=f"one of {expected}")
    if state.pauses >= MAX_PAUSES + state.children:
        raise TooManyPauses(state.channel_id, limit=MAX_PAUSES)
    until, seconds = draft.event_data.get("until"), draft.event_data.get("seconds")
    if until is not None and moment_of(until) is None:
        raise BadDraft(
            "event_data.until", found=repr(until)[:80], expected="a time with its offset, as ISO text"
        )
    if seconds is not None and seconds_of(seconds) is None:
        expected = f"a number from 0 to {MAX_SECONDS:g}"
        raise BadDraft("event_data.seconds", found=repr(seconds)[:80], expected=expected)
    for awaited in ("questions", "children"):
        _check_ids(draft.event_data.get(awaited, []), f"event_data.{awaited}")
    awaited_children = len(ids_of(draft.event_data.get("children")))
    if awaited_children > state.children:  # The hub looks at each of them, so nobody may invent them.
        expected = f"at most the {state.children} channels that were opened below this one"
        raise BadDraft("event_data.children", found=f"{awaited_children} ids", expected=expected)
    unknown = [one for one in ids_of(draft.event_data.get("questions")) if one not in state.questions]
    if unknown:
        raise UnknownQuestion(state.channel_id, request_id=unknown[0])
    batch.add(batch.next(draft.event_type, draft.event_data, sender_id=draft.sender_id, audience=[]))
    if any(state.questions[one].answer_seq for one in ids_of(draft.event_data.get("questions"))):
        end_by_answer(batch)


def resume(batch: Batch[Any]) -> None:
    """What the turn waited for has come."""
    state, draft = batch.state, batch.draft
    live = state.pause
    if live is None or draft.event_data.get("pause") != live.seq:
        raise NotDue(state.channel_id, timer=f"the pause {draft.event_data.get('pause')}")
    if live.reason == STUCK and draft.event_type != ev.EV_TURN_RESUMED:
        raise NotDue(state.channel_id, timer=f"the stuck turn {live.seq}")
    if draft.event_type == ev.EV_TIMER_FIRED and not _can_have_ended(live, batch.accepted_at):
        raise NotDue(state.channel_id, timer=f"the pause {live.seq}")
    batch.accept(decision=_floor_again(state))


def end_by_answer(batch: Batch[Any]) -> None:
    """Resume the turn: an answer that it waits for is on the log."""
    state = batch.state
    assert state.pause is not None
    data = {"pause": state.pause.seq}
    batch.write(ev.EV_TURN_RESUMED, data, audience=[], decision=_floor_again(state))


def stick(batch: Batch[Any], error: JsonObject) -> None:
    """Pause the turn until an operator retries it; what it recorded stays (N3)."""
    turn: JsonObject = {"agent_id": batch.state.expected_next_speaker, "turn": batch.state.turn}
    batch.write(ev.EV_TURN_PAUSED, turn | {"reason": STUCK, "data": {"error": error}})


def refuse_while_paused(state: State) -> None:
    """Nobody works on a turn that waits."""
    if state.pause is not None:
        raise NotDue(state.channel_id, timer=f"the turn paused at {state.pause.seq}")


def _floor_again(state: State) -> Speak:
    return Speak(state.expected_next_speaker or "", Basis(kind="retry" if state.is_stuck else "resume"))


def _check_ids(value: object, field: str) -> None:
    if not isinstance(value, list) or len(value) > MAX_AWAITED or len(ids_of(value)) != len(value):
        expected = f"a list of at most {MAX_AWAITED} ids"
        raise BadDraft(field, found=repr(value)[:80], expected=expected)


def _can_have_ended(pause: Pause, now: datetime) -> bool:
    """Return whether a timer may end the pause. How many seconds have passed is known to the hub alone."""
    return pause.seconds is not None or (pause.moment is not None and pause.moment <= now)
