"""Deadlines: what falls due on a channel, and when.

    deadlines(state, awake_since) -> the moments at which the hub has to post something

Rule 1: time enters as envelopes. A deadline is computed from the state; when it
passes, the hub posts the draft it names, and `decide` checks that the moment it
speaks of is still the current one. So it fires once, whoever posts it.

Rule 2: expectations that the user did not write rest while people are waited for (N1a): a person has the
floor, or the turn in progress has asked one. They are measured from the last answer then.

Rule 3: an outage expires nothing. Deadlines are measured from `awake_since`, when
the hub began to serve, where that is later than the moment itself; a TTL leaves
the participants `GRACE_SECONDS` after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from turnline.core.channel import ChannelState, Expectation
from turnline.core.envelope import JsonObject
from turnline.core.event_types import (
    EV_CHANNEL_CLOSED,
    EV_CHANNEL_EXPIRED,
    EV_CHANNEL_INVITE_REJECT,
    EV_EXPECTATION_VIOLATED,
    EV_TIMER_FIRED,
    EV_TURN_FAILED,
)
from turnline.core.json import MAX_SECONDS, is_number
from turnline.core.state import EVENT, LONG_AGO, PERSON, State, has_open_question
from turnline.errors import BadSpec, UnknownName

GRACE_SECONDS: Final = 60.0
INVITE_TIMEOUT: Final = "invite_timeout"
TTL_EXPIRED: Final = "ttl_expired"
REMOVED: Final = "the participant was unregistered"
HANDLERS: Final = ("warn", "auto_close")


class Deadline(Struct, frozen=True, kw_only=True):
    """At `at`, unless the channel has moved on, the hub posts this."""

    at: datetime
    event_type: str
    event_data: JsonObject
    claim: int | None = None
    """The live claim that the draft ends."""
    line: int = 1
    """The line whose time `at` is measured from."""
    follows_wall: bool = False
    """`at` is a time of day: it is compared with the time people read, and a clock that is set moves it."""


class Moment(Struct, frozen=True):
    """What an expectation is measured from."""

    seq: int
    """The line that began it: it is warned of once."""
    at: datetime
    line: int
    """The line whose time `at` is; a pause that ends makes it a later one."""


def turn_within(seconds: float, handler: str = "warn") -> Expectation:
    """Whoever has the floor takes the turn within so many seconds."""
    return Expectation("turn_within", seconds, handler)


def reply_within(seconds: float, handler: str = "warn") -> Expectation:
    """After a turn, the next one comes within so many seconds."""
    return Expectation("reply_within", seconds, handler)


def max_silence(seconds: float, handler: str = "warn") -> Expectation:
    """Somebody says something, interjections included, at least every so many seconds."""
    return Expectation("max_silence", seconds, handler)


def acks_within(seconds: float, handler: str = "warn") -> Expectation:
    """Everybody invited answers within so many seconds."""
    return Expectation("acks_within", seconds, handler)


def check_expectations(expectations: Iterable[Expectation]) -> None:
    """Refuse unknown names, unknown handlers and impossible times (W11)."""
    for one in expectations:
        if one.name not in _MOMENTS:
            raise UnknownName("expectation", one.name, _MOMENTS)
        if one.handler not in HANDLERS:
            raise UnknownName("expectation handler", one.handler, HANDLERS)
        check_seconds(one.seconds, f"{one.name}.seconds")


def check_seconds(value: object, field: str) -> None:
    """Refuse a time that no deadline can be computed from."""
    if not is_number(value) or not 0 < value <= MAX_SECONDS:
        raise BadSpec(field, found=repr(value)[:80], expected=f"a number above 0, at most {MAX_SECONDS:g}")


def deadlines(state: State, expectations: Iterable[Expectation], awake_since: datetime) -> list[Deadline]:
    """Return everything that can fall due as things stand, soonest first."""
    if state.is_over or not state.seq:
        return []
    due = [*_lifetime(state, awake_since), *_violations(state, expectations, awake_since)]
    due += [*_pause(state, awake_since), *_questions(state, awake_since)]
    return sorted(due, key=lambda deadline: deadline.at)


def absences(state: State, removed: Collection[str]) -> list[Deadline]:
    """Return what is due because a participant that the channel waits for was removed from the directory.

    An invitation counts as rejected. A turn fails, and so does a step of a creator that was removed; a rule
    for failed turns takes it, unless that rule gives the floor to a removed participant. A paused turn
    fails when its pause ends.
    """
    if not removed or state.is_over or not state.seq or state.pause is not None:
        return []
    if state.status is ChannelState.PENDING:
        data = [{"agent_id": one, "reason": REMOVED} for one in state.awaiting if one in removed]
        return [_now(EV_CHANNEL_INVITE_REJECT, one) for one in data[:1]]
    absent = [one.agent_id for one in state.spec.participants if one.player in removed]
    if state.expected_next_speaker not in absent:
        return []
    error = {"type": "ParticipantRemoved", "message": REMOVED}
    turn: JsonObject = {"agent_id": state.expected_next_speaker, "turn": state.turn}
    claim = None if state.claim is None else state.claim.seq
    return [_now(EV_TURN_FAILED, {**turn, "error": error, "absent": absent}, claim)]


def _now(event_type: str, data: JsonObject, claim: int | None = None) -> Deadline:
    return Deadline(at=LONG_AGO, event_type=event_type, event_data=data, claim=claim)


def current_moment(state: State, name: str) -> Moment | None:
    """What the expectation is measured from as things stand; None if nothing is expected."""
    measure = _MOMENTS.get(name)
    return None if measure is None else measure(state)


def _lifetime(state: State, awake_since: datetime) -> Iterable[Deadline]:
    spec = state.spec
    if state.status is ChannelState.PENDING:
        at = max(state.created_at, awake_since) + timedelta(seconds=spec.ack_timeout_seconds)
        yield Deadline(at=at, event_type=EV_CHANNEL_CLOSED, event_data={"reason": INVITE_TIMEOUT})
    if spec.ttl_seconds is not None and state.pause is None:
        ends = state.created_at + timedelta(seconds=spec.ttl_seconds + state.rested_seconds)
        if ends < awake_since + timedelta(seconds=GRACE_SECONDS) and state.created_at < awake_since:
            ends = awake_since + timedelta(seconds=GRACE_SECONDS)
        yield Deadline(at=ends, event_type=EV_CHANNEL_EXPIRED, event_data={"reason": TTL_EXPIRED})


def _pause(state: State, awake_since: datetime) -> Iterable[Deadline]:
    """A turn that waits is taken up again. Whom it waits for was perhaps shut out while nobody served."""
    pause = state.pause
    if pause is None:
        return
    data: JsonObject = {"pause": pause.seq}
    if pause.seconds is not None:
        at = pause.at + timedelta(seconds=pause.seconds)
        if pause.reason in (PERSON, EVENT) and pause.at < awake_since:
            at = max(at, awake_since + timedelta(seconds=GRACE_SECONDS))
        yield Deadline(at=at, event_type=EV_TIMER_FIRED, event_data=data, line=pause.seq)
    if pause.moment is not None:
        yield Deadline(
            at=pause.moment, event_type=EV_TIMER_FIRED, event_data=data, line=pause.seq, follows_wall=True
        )


def _questions(state: State, awake_since: datetime) -> Iterable[Deadline]:
    """Questions expire. The people who are asked were perhaps shut out while nobody served.

    One that goes up expires where the people are.
    """
    for request_id, one in state.questions.items():
        if one.answer_seq or one.expires is None or one.goes_up:
            continue
        at = one.at + timedelta(seconds=one.expires)
        if one.at < awake_since:
            at = max(at, awake_since + timedelta(seconds=GRACE_SECONDS))
        data: JsonObject = {"question": request_id}
        yield Deadline(at=at, event_type=EV_TIMER_FIRED, event_data=data, line=one.seq)


def _violations(
    state: State, expectations: Iterable[Expectation], awake_since: datetime
) -> Iterable[Deadline]:
    moments = dict[str, Moment | None]()  # Several expectations may be measured from one.
    for index, one in enumerate(expectations):
        if one.name not in moments:
            moments[one.name] = current_moment(state, one.name)
        moment = moments[one.name]
        if moment is None or (state.warned and state.warned.get(str(index)) == moment.seq):
            continue
        yield Deadline(
            at=max(moment.at, awake_since) + timedelta(seconds=one.seconds),
            event_type=EV_EXPECTATION_VIOLATED,
            event_data={
                "expectation": index,
                "name": one.name,
                "seconds": one.seconds,
                "handler": one.handler,
                "since": moment.seq,
            },
            line=moment.line,
        )


def _turn(state: State) -> Moment | None:
    """A paused turn is not late: its clock stands still (N1a)."""
    waits = state.status is ChannelState.ACTIVE and state.expected_next_speaker is not None
    if not waits or state.pause is not None:
        return None
    at, line = state.floor_at, state.floor_line
    if state.spec.expectations is None:
        if state.spec.is_person(state.expected_next_speaker or "") or has_open_question(state):
            return None
        for one in state.questions.values():
            if one.answered_at is not None:
                at, line = max((at, line), (one.answered_at, one.answer_seq))
    return Moment(state.floor_seq, at, line)


def _reply(state: State) -> Moment | None:
    return _turn(state) if state.turn_count else None


def _silence(state: State) -> Moment | None:
    if state.status is not ChannelState.ACTIVE or state.pause is not None:
        return None
    times = ((state.spoken_at, state.spoken_seq), (state.opened_at, 1), (state.floor_at, state.floor_line))
    at, line = max(times)
    return Moment(state.spoken_seq, at, line)


def _acks(state: State) -> Moment | None:
    return Moment(1, state.created_at, 1) if state.status is ChannelState.PENDING else None


_MOMENTS: Final[dict[str, Callable[[State], Moment | None]]] = {
    "turn_within": _turn,
    "reply_within": _reply,
    "max_silence": _silence,
    "acks_within": _acks,
}
