"""Fold: (state, envelope) -> the next state.

Rule: a fold applies what was decided and decides nothing. It evaluates no
condition, reads no clock, refuses nothing and never raises, so a log written
last year replays to the same state after the rules have been rewritten.

One row per event type in `_FOLDS`; a type without a row changes nothing but the seq.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from turnline.core import event_types as ev
from turnline.core.channel import ChannelState
from turnline.core.conditions import speaker_of
from turnline.core.envelope import Close, Envelope, JsonObject, Rest, Speak
from turnline.core.pauses import moment_of, seconds_of
from turnline.core.state import KEPT_SAID, RETRY, Claim, Pause, Question, State
from turnline.core.undo import ATTEMPT, OTHERS, Write, has_own, kept, others, own, recorded, without, written
from turnline.core.variables import applied, is_number

FOLD_VERSION: Final = 6
"""Raise it whenever a fold or a state changes: states that an older one folded are not believed."""

SUSPECT_CLAIMS: Final = 3
"""Unexplained claims of one turn, and the turn is a suspect: it runs only alone (N3)."""

S = TypeVar("S", bound=State)


def fold(state: S, envelope: Envelope) -> S:
    """Return the state after `envelope`."""
    state = replace(state, seq=envelope.seq, last_at=envelope.created_at)
    row = _FOLDS.get(envelope.event_type)
    return state if row is None else row(state, envelope)


def taken(state: S, envelope: Envelope) -> S:
    """Return the state with `envelope`'s turn counted, before the floor moves: what conditions see (W2)."""
    variables = state.context_vars
    by_agent = envelope.event_type != ev.EV_TEXT or state.claim is not None
    update = _packet_update(envelope)
    if update:
        variables = applied(variables, update)
    return replace(
        state,
        turn_count=state.turn_count + 1,
        agent_turns=state.agent_turns + 1 if by_agent else 0,
        last_speaker_id=speaker_of(envelope),
        last_envelope_id=envelope.envelope_id,
        context_vars=variables,
        var_audiences=_audiences(state, envelope, update, variables),
        turn_vars=variables,
        turn_writes=[],
        private_vars=_private(state, envelope),
        claim=None,
        claims=0,
        unexplained=0,
        pause=None,
        questions={},
        spoken_seq=envelope.seq,
        spoken_at=envelope.created_at,
    )


def _said(state: S, envelope: Envelope) -> S:
    if envelope.audience is None:
        who = envelope.sender_id
        said = [*state.said[1 - KEPT_SAID :], (envelope.seq, who)]
        state = replace(state, said=said, said_by=state.said_by | {who: state.said_by.get(who, 0) + 1})
    if envelope.decision is None or envelope.decision.by.kind == "initial":
        # An interjection, or the opening words of somebody who does not have the floor: not a turn.
        state = replace(state, spoken_seq=envelope.seq, spoken_at=envelope.created_at)
        member = state.spec.participant(envelope.sender_id)
        if member is not None and member.kind == "human":
            state = replace(state, agent_turns=0)
        return _moved(state, envelope)
    return _moved(taken(state, envelope), envelope)


def _moved(state: S, envelope: Envelope) -> S:
    match envelope.decision:
        case Speak(agent_id=agent_id):
            return replace(
                state,
                expected_next_speaker=agent_id,
                floor_seq=envelope.seq,
                floor_at=envelope.created_at,
                floor_line=envelope.seq,
            )
        case Rest():
            return replace(state, expected_next_speaker=None)
        case Close(reason=reason):
            return replace(
                state, expected_next_speaker=None, pending_close_reason=reason, status=ChannelState.CLOSING
            )
        case _:
            return state


def _context_set(state: S, envelope: Envelope) -> S:
    update = envelope.event_data
    variables = applied(state.context_vars, update)
    by = _writer(state, envelope)
    if by == OTHERS and state.var_audiences:  # A write of the turn's own can be undone: its packet decides.
        state = replace(state, var_audiences=_without(state.var_audiences, update))
    if by == OTHERS and not state.turn_writes:  # Nothing of the turn's own that could be undone came before.
        return replace(state, context_vars=variables, turn_vars=variables)
    alive = state.alive_seq if by == OTHERS else envelope.seq
    writes = [*state.turn_writes, Write(by, update)]
    return replace(state, context_vars=variables, turn_writes=writes, alive_seq=alive)


def _writer(state: State, envelope: Envelope) -> str:
    claim_id, _, call = (envelope.causation_id or "").partition("/")
    is_own = state.claim is not None and claim_id == state.claim.envelope_id
    return own(call) if is_own else OTHERS


def _invited(state: S, envelope: Envelope) -> S:
    return replace(state, created_at=envelope.created_at, awaiting=list(state.spec.invited))


def _accepted(state: S, envelope: Envelope) -> S:
    agent_id = envelope.event_data.get("agent_id")
    return replace(state, awaiting=[one for one in state.awaiting if one != agent_id])


def _opened(state: S, envelope: Envelope) -> S:
    state = replace(state, status=ChannelState.ACTIVE, opened_at=envelope.created_at, spoken_seq=envelope.seq)
    return _moved(state, envelope)


def _forked(state: S, envelope: Envelope) -> S:
    """Everything is as it was, but nobody works on it yet, and every deadline is measured from here."""
    at = envelope.created_at
    state = _abandoned(state, envelope) if envelope.decision is not None else state
    state = replace(state, claim=None, claims=0, unexplained=0, pause=None, questions={}, awaiting=[])
    state = replace(state, warned={}, rested_seconds=0.0, children=0, nested_runs=0)
    state = replace(state, created_at=at, floor_at=at, floor_line=envelope.seq, spoken_at=at)
    state = replace(state, forked_by=str(envelope.event_data.get("by", "")))
    return _moved(state, envelope)


def _child(state: S, envelope: Envelope) -> S:
    data = envelope.event_data
    runs = state.nested_runs + (data.get("run") is True)
    return replace(state, children=state.children + ("parent" not in data), nested_runs=runs)


def _expired(state: S, envelope: Envelope) -> S:
    return replace(state, status=ChannelState.EXPIRED)


def _closed(state: S, envelope: Envelope) -> S:
    return replace(
        state,
        status=ChannelState.EXPIRED if state.status is ChannelState.EXPIRED else ChannelState.CLOSED,
        expected_next_speaker=None,
        pending_close_reason=str(envelope.event_data.get("reason", "")),
        closed_at=envelope.created_at,
        claim=None,
        pause=None,
        questions={},
    )


def _claimed(state: S, envelope: Envelope) -> S:
    data = envelope.event_data
    claim = Claim(
        seq=envelope.seq,
        envelope_id=envelope.envelope_id,
        agent_id=str(data.get("agent_id", "")),
        worker=str(data.get("worker", "")),
        lease_seconds=_seconds(data.get("lease_seconds")),
        alone=data.get("alone") is True,
    )
    # From the third on, only a claim made alone says anything about this turn (N3).
    counts = state.unexplained < SUSPECT_CLAIMS or claim.alone
    unexplained = state.unexplained + 1 if counts else state.unexplained
    state = replace(
        state, claim=claim, claims=state.claims + 1, unexplained=unexplained, alive_seq=envelope.seq
    )
    return _keep_recorded(state)


def _keep_recorded(state: S) -> S:
    """Undo the context writes after the turn's last recorded unit: they will be made again (T3)."""
    if not has_own(state.turn_writes):
        return state
    stays = kept(state.turn_writes)
    return replace(state, turn_writes=stays, context_vars=written(state.turn_vars, stays))


def _released(state: S, envelope: Envelope) -> S:
    return replace(state, claim=None, unexplained=0)


def _abandoned(state: S, envelope: Envelope) -> S:
    settled = written(state.turn_vars, others(state.turn_writes))
    return replace(state, claim=None, context_vars=settled, turn_vars=settled, turn_writes=[])


def _paused(state: S, envelope: Envelope) -> S:
    data = envelope.event_data
    pause = Pause(
        seq=envelope.seq,
        reason=str(data.get("reason", "")),
        at=envelope.created_at,
        seconds=seconds_of(data.get("seconds")),
        moment=moment_of(data.get("until")),
        key=str(data.get("key", "")),
    )
    settled = _abandoned(state, envelope) if pause.reason == RETRY else _keep_recorded(state)
    return replace(settled, claim=None, claims=0, unexplained=0, pause=pause)


def _resumed(state: S, envelope: Envelope) -> S:
    if state.pause is None or envelope.event_data.get("pause") != state.pause.seq:
        return state
    rested = (envelope.created_at - state.pause.at).total_seconds()
    return replace(
        state,
        pause=None,
        rested_seconds=state.rested_seconds + rested,
        floor_at=envelope.created_at,
        floor_line=envelope.seq,
    )


def _asked(state: S, envelope: Envelope) -> S:
    data = envelope.event_data
    position = data.get("position")
    question = Question(
        seq=envelope.seq,
        asked_by=envelope.sender_id,
        people=envelope.audience or [],
        call=str(data.get("call", "")),
        position=position if isinstance(position, int) else 1,
    )
    return replace(state, questions={**state.questions, str(data.get("request_id", "")): question})


def _answered(state: S, envelope: Envelope) -> S:
    request_id = str(envelope.event_data.get("request_id", ""))
    question = state.questions.get(request_id)
    if question is None:
        return _resumed(state, envelope)
    answered = replace(question, answer_seq=envelope.seq)
    return replace(state, questions={**state.questions, request_id: answered})


def _recorded(state: S, envelope: Envelope) -> S:
    entry = envelope.event_data.get("entry")
    call = entry.get("call_id") if isinstance(entry, dict) else None
    of = call if envelope.event_type == ev.EV_TURN_TOOL and isinstance(call, str) else None
    state = replace(state, alive_seq=envelope.seq, unexplained=0)
    if of is not None and isinstance(entry, dict) and entry.get("type") == ATTEMPT:
        stays = without(state.turn_writes, of)
        return replace(state, turn_writes=stays, context_vars=written(state.turn_vars, stays))
    return replace(state, turn_writes=recorded(state.turn_writes, of))


def _renewed(state: S, envelope: Envelope) -> S:
    return replace(state, alive_seq=envelope.seq)


def _failed(state: S, envelope: Envelope) -> S:
    return _moved(taken(state, envelope), envelope)


def _violated(state: S, envelope: Envelope) -> S:
    data = envelope.event_data
    since = data.get("since")
    told = {str(data.get("expectation")): since if isinstance(since, int) else 0}
    return replace(state, warned=state.warned | told)


def _packet_update(envelope: Envelope) -> JsonObject:
    data, update = envelope.event_data, JsonObject()
    if envelope.event_type != ev.EV_PACKET:
        return update
    if data.get("context_deletes"):
        update["delete"] = data["context_deletes"]
    if data.get("context_updates"):
        update["set"] = data["context_updates"]
    return update


def _audiences(
    state: State, envelope: Envelope, update: JsonObject, variables: JsonObject
) -> dict[str, list[str]]:
    """Return who may see which variable after a packet: what it sets is for its audience."""
    found = state.var_audiences
    for write in state.turn_writes if found else ():
        found = _without(found, write.update)
    if found:
        found = {key: to for key, to in _without(found, update).items() if key in variables}
    if envelope.audience is None:
        return found
    to = list(dict.fromkeys((envelope.sender_id, *envelope.audience)))
    return found | dict.fromkeys(update.get("set", {}), to)


def _without(audiences: dict[str, list[str]], update: JsonObject) -> dict[str, list[str]]:
    """Return `audiences` without the variables that an update to everybody sets."""
    written = update.get("set")
    return {key: to for key, to in audiences.items() if not isinstance(written, dict) or key not in written}


def _private(state: State, envelope: Envelope) -> dict[str, Any]:
    """The private keys after a step's packet."""
    updates, deletes = (envelope.event_data.get(key) for key in ("private_updates", "private_deletes"))
    if not updates and not deletes:
        return state.private_vars
    gone = deletes if isinstance(deletes, list) else ()
    kept = {key: value for key, value in state.private_vars.items() if key not in gone}
    return kept | updates if isinstance(updates, dict) else kept


def _seconds(value: object) -> float:
    return float(value) if is_number(value) else 0.0


_FOLDS: Final[dict[str, Callable[[Any, Envelope], Any]]] = {
    ev.EV_TEXT: _said,
    ev.EV_PACKET: _said,
    ev.EV_CONTEXT_SET: _context_set,
    ev.EV_CHANNEL_INVITE: _invited,
    ev.EV_CHANNEL_INVITE_ACK: _accepted,
    ev.EV_CHANNEL_OPENED: _opened,
    ev.EV_CHANNEL_FORKED: _forked,
    ev.EV_CHANNEL_CHILD: _child,
    ev.EV_CHANNEL_EXPIRED: _expired,
    ev.EV_CHANNEL_CLOSED: _closed,
    ev.EV_TURN_CLAIMED: _claimed,
    ev.EV_TURN_RELEASED: _released,
    ev.EV_TURN_RENEWED: _renewed,
    ev.EV_TURN_MODEL: _recorded,
    ev.EV_TURN_TOOL: _recorded,
    ev.EV_TURN_PAUSED: _paused,
    ev.EV_TURN_RESUMED: _resumed,
    ev.EV_TIMER_FIRED: _resumed,
    ev.EV_HUMAN_REQUESTED: _asked,
    ev.EV_HUMAN_ANSWERED: _answered,
    ev.EV_TURN_ABANDONED: _abandoned,
    ev.EV_TURN_FAILED: _failed,
    ev.EV_EXPECTATION_VIOLATED: _violated,
}
