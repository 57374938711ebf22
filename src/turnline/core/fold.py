"""Fold: (state, envelope) -> the next state. Batch: the envelopes of one draft, folded as they are added.

Rule 1: a fold applies what was decided and decides nothing. It evaluates no
condition, reads no clock, refuses nothing and never raises, so a log written
last year replays to the same state after the rules have been rewritten.

One row per event type in `_FOLDS`; a type without a row changes nothing but the seq.

Rule 2: `decide` fills a batch and returns its envelopes; they are appended together or not
at all. Folding on the way lets a consequence see what led to it (the close sees
the turn), and it is why nothing is ever written that cannot be folded.

The draft's own envelope has the draft's id; a consequence has that id and a
number, so that sending a draft again finds all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from turnline.core import event_types as ev, undo
from turnline.core.channel import ChannelState
from turnline.core.envelope import SCHEMA_VERSION, Close, Decision, Draft, Envelope, JsonObject, Rest, Speak
from turnline.core.event_types import HUB
from turnline.core.json import ids_of, is_number, moment_of, seconds_of
from turnline.core.state import KEPT_SAID, LEASE_SECONDS, RETRY, Claim, Pause, Question, State
from turnline.core.transitions import speaker_of
from turnline.core.variables import applied

FOLD_VERSION: Final = 12
"""Raise it whenever a fold or a state changes: states that an older one folded are not believed."""

SUSPECT_CLAIMS: Final = 3
"""Unexplained claims of one turn, and the turn is a suspect: it runs only alone (N3)."""

S = TypeVar("S", bound=State)


def fold(state: S, envelope: Envelope) -> S:
    """Return the state after `envelope`."""
    incomplete = state.is_incomplete or envelope.is_erased
    state = replace(state, seq=envelope.seq, last_at=envelope.created_at, is_incomplete=incomplete)
    row = _FOLDS.get(envelope.event_type)
    return state if row is None else row(state, envelope)


def taken(state: S, envelope: Envelope) -> S:
    """Return the state with `envelope`'s turn counted, before the floor moves: what conditions see (W2)."""
    variables = state.context_vars
    by_agent = envelope.event_type != ev.EV_TEXT or state.claim is not None
    update, speaker = _packet_update(envelope), speaker_of(envelope)
    if update:
        variables = applied(variables, update)
    return replace(
        state,
        turn_count=state.turn_count + 1,
        agent_turns=state.agent_turns + 1 if by_agent else 0,
        last_speaker_id=speaker,
        order_at=speaker if speaker in state.spec.turn_order else state.order_at,
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
        pauses=0,
        once_units=0,
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
        if state.spec.is_person(envelope.sender_id):
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
    is_others = by == undo.OTHERS
    if is_others and state.var_audiences:  # A write of the turn's own can be undone: its packet decides.
        state = replace(state, var_audiences=_without(state.var_audiences, update))
    if is_others and not state.turn_writes:  # Nothing of the turn's own that could be undone came before.
        return replace(state, context_vars=variables, turn_vars=variables)
    alive = state.alive_seq if is_others else envelope.seq
    writes = [*state.turn_writes, undo.Write(by, update)]
    return replace(state, context_vars=variables, turn_writes=writes, alive_seq=alive)


def _writer(state: State, envelope: Envelope) -> str:
    claim_id, _, call = (envelope.causation_id or "").partition("/")
    is_own = state.claim is not None and claim_id == state.claim.envelope_id
    return undo.own(call) if is_own else undo.OTHERS


def _invited(state: S, envelope: Envelope) -> S:
    return replace(state, created_at=envelope.created_at, awaiting=list(state.spec.invited))


def _accepted(state: S, envelope: Envelope) -> S:
    agent_id = envelope.event_data.get("agent_id")
    return replace(state, awaiting=[one for one in state.awaiting if one != agent_id])


def _opened(state: S, envelope: Envelope) -> S:
    state = replace(state, status=ChannelState.ACTIVE, opened_at=envelope.created_at, spoken_seq=envelope.seq)
    return _moved(state, envelope)


def _forked(state: S, envelope: Envelope) -> S:
    """Keep everything as it was, but nobody works on it yet, and every deadline is measured from here.

    The fork of a run may have another user: then the line has `private_updates`.
    A turn with results of `once` begins where it began, so that the fork finds them (N4).
    """
    at, began = envelope.created_at, state.floor_seq if state.once_units else envelope.seq
    state = _begin_again(state, envelope) if envelope.decision is not None else state
    state = replace(state, claim=None, claims=0, unexplained=0, pause=None, pauses=0, questions={})
    state = replace(state, awaiting=[], warned={}, rested_seconds=0.0, children=0, nested_runs=0)
    state = replace(state, created_at=at, floor_at=at, floor_line=envelope.seq, spoken_at=at)
    data = envelope.event_data
    state = replace(state, forked_by=str(data.get("by", "")), forked_for=str(data.get("for", "")))
    state = replace(state, private_vars=_private(state, envelope))
    is_step = isinstance(envelope.decision, Speak)
    return replace(_moved(state, envelope), floor_seq=began) if is_step else _moved(state, envelope)


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
        lease_seconds=_seconds(data.get("lease_seconds", LEASE_SECONDS)),
        alone=data.get("alone") is True,
    )
    # While a person is asked, no claim counts. From the third on, only a claim made alone does (N3).
    is_asking = any(not one.answer_seq for one in state.questions.values())
    counts = not is_asking and (state.unexplained < SUSPECT_CLAIMS or claim.alone)
    unexplained = state.unexplained + 1 if counts else state.unexplained
    state = replace(
        state, claim=claim, claims=state.claims + 1, unexplained=unexplained, alive_seq=envelope.seq
    )
    return _keep_recorded(state)


def _keep_recorded(state: S) -> S:
    """Undo the context writes after the turn's last recorded unit: they will be made again (T3)."""
    if not state.turn_writes or not undo.has_own(state.turn_writes):
        return state
    stays = undo.kept(state.turn_writes)
    return replace(state, turn_writes=stays, context_vars=undo.written(state.turn_vars, stays))


def _released(state: S, envelope: Envelope) -> S:
    return replace(state, claim=None, unexplained=0)


def _abandoned(state: S, envelope: Envelope) -> S:
    settled = undo.written(state.turn_vars, undo.others(state.turn_writes))
    return replace(state, claim=None, context_vars=settled, turn_vars=settled, turn_writes=[])


def _begin_again(state: S, envelope: Envelope) -> S:
    """Undo what the turn wrote, except in functions that `once` does not run again (N4)."""
    stays = [one for one in state.turn_writes if one.by in (undo.OTHERS, undo.ONCE)]
    if not undo.has_own(stays):
        return _abandoned(state, envelope)
    return replace(state, claim=None, turn_writes=stays, context_vars=undo.written(state.turn_vars, stays))


def _paused(state: S, envelope: Envelope) -> S:
    data = envelope.event_data
    pause = Pause(
        seq=envelope.seq,
        reason=str(data.get("reason", "")),
        at=envelope.created_at,
        seconds=seconds_of(data.get("seconds")),
        moment=moment_of(data.get("until")),
        key=str(data.get("key", "")),
        questions=ids_of(data.get("questions")),
        children=ids_of(data.get("children")),
    )
    if pause.reason == RETRY:  # The next attempt may make other calls: a yes to one of these is not for them.
        settled = replace(_begin_again(state, envelope), questions={})
    else:
        settled = _keep_recorded(state)
    return replace(settled, claim=None, claims=0, unexplained=0, pause=pause, pauses=state.pauses + 1)


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
        group=str(data.get("group", "")),
        at=envelope.created_at,
        expires=seconds_of(data.get("expires")),
        call=str(data.get("call", "")),
        position=position if isinstance(position, int) else 1,
    )
    questions = {**state.questions, str(data.get("request_id", "")): question}
    return replace(state, questions=questions, unexplained=0, pauses=0)


def _answered(state: S, envelope: Envelope) -> S:
    request_id = str(envelope.event_data.get("request_id", ""))
    question = state.questions.get(request_id)
    if question is None:
        return _resumed(state, envelope)
    return replace(_end_question(state, envelope, request_id, question), pauses=0)


def _fired(state: S, envelope: Envelope) -> S:
    request_id = str(envelope.event_data.get("question", ""))
    question = state.questions.get(request_id)
    if question is None:
        return _resumed(state, envelope)
    return _end_question(state, envelope, request_id, replace(question, is_expired=True))


def _end_question(state: S, envelope: Envelope, request_id: str, question: Question) -> S:
    ended = replace(question, answer_seq=envelope.seq, answered_at=envelope.created_at)
    return replace(state, questions={**state.questions, request_id: ended})


def _recorded(state: S, envelope: Envelope) -> S:
    entry = envelope.event_data.get("entry")
    call = entry.get("call_id") if isinstance(entry, dict) else None
    of = call if envelope.event_type == ev.EV_TURN_TOOL and isinstance(call, str) else None
    state = replace(state, alive_seq=envelope.seq, unexplained=0, pauses=0)
    if of is not None and isinstance(entry, dict) and entry.get("type") == undo.ATTEMPT:
        stays = undo.without(state.turn_writes, of)
        return replace(state, turn_writes=stays, context_vars=undo.written(state.turn_vars, stays))
    return replace(state, turn_writes=undo.recorded(state.turn_writes, of))


def _ran_once(state: S, envelope: Envelope) -> S:
    """Keep what the function wrote. What came before it is written again: the turn's code runs again."""
    data = envelope.event_data
    of = f"{data.get('call', '')}{undo.ONCE_MARK}{data.get('key', '')}"
    state = replace(state, alive_seq=envelope.seq, unexplained=0, pauses=0, once_units=state.once_units + 1)
    return replace(state, turn_writes=undo.recorded(state.turn_writes, of, by=undo.ONCE))


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
    """Return the private keys after a step's packet, or after the first line of a fork."""
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
    ev.EV_TURN_ONCE: _ran_once,
    ev.EV_TURN_PAUSED: _paused,
    ev.EV_TURN_RESUMED: _resumed,
    ev.EV_TIMER_FIRED: _fired,
    ev.EV_HUMAN_REQUESTED: _asked,
    ev.EV_HUMAN_ANSWERED: _answered,
    ev.EV_TURN_ABANDONED: _abandoned,
    ev.EV_TURN_FAILED: _failed,
    ev.EV_EXPECTATION_VIOLATED: _violated,
}


class Batch(Generic[S]):
    """Envelopes in the making. Lives within one `decide`."""

    def __init__(self, fold: Callable[[S, Envelope], S], state: S, draft: Draft, now: datetime) -> None:
        self.state = state
        self.draft = draft
        self.envelopes: list[Envelope] = []
        self._fold = fold
        self.accepted_at = max(now, state.last_at)
        """When all of it is accepted."""

    def next(
        self,
        event_type: str,
        event_data: JsonObject,
        *,
        sender_id: str = HUB,
        audience: list[str] | None = None,
        decision: Decision | None = None,
    ) -> Envelope:
        """Return the envelope that would come next; nothing is added."""
        number = len(self.envelopes)
        return Envelope(
            schema_version=SCHEMA_VERSION,
            envelope_id=f"{self.draft.envelope_id}-{number}" if number else self.draft.envelope_id,
            channel_id=self.state.channel_id,
            seq=self.state.seq + 1,
            sender_id=sender_id,
            event_type=event_type,
            event_data=event_data,
            audience=audience,
            causation_id=self.draft.causation_id,
            priority=self.draft.priority,
            created_at=self.accepted_at,
            decision=decision,
            traceparent=self.draft.traceparent,
        )

    def add(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)
        self.state = self._fold(self.state, envelope)

    def write(
        self,
        event_type: str,
        event_data: JsonObject,
        *,
        audience: list[str] | None = None,
        decision: Decision | None = None,
    ) -> None:
        """Add a line the hub writes."""
        self.add(self.next(event_type, event_data, audience=audience, decision=decision))

    def accept(self, *, decision: Decision | None = None) -> None:
        """Add the draft as it stands."""
        draft = self.draft
        self.add(
            self.next(
                draft.event_type,
                draft.event_data,
                sender_id=draft.sender_id,
                audience=draft.audience,
                decision=decision,
            )
        )
