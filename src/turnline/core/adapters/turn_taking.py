"""What every channel with turns has in common.

Rule 1: refuse first, then compute. `decide` either raises, and nothing happens,
or returns everything the draft brings about.

Rule 2: a line with a decision is a turn; without one it is not. (The decision
that opens the channel is nobody's turn: its basis is `initial`.)

Rule 3: agents alone do not keep a channel busy. Where nothing else ends it, it rests: it stays open, nobody
has the floor, and the next message from a person or a program resumes it.

Rule 4: a subclass says three things: who speaks first, who may speak now, and
where the floor goes after a turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from turnline.core import claims, event_types as ev, lifecycle, pauses, questions, variables
from turnline.core.adapter import Manifest
from turnline.core.batch import Batch
from turnline.core.channel import ChannelSpec, ChannelState, Expectation, check_id
from turnline.core.envelope import Basis, Close, Decision, Draft, Envelope, JsonObject, Rest, Speak
from turnline.core.expectations import Deadline, check_expectations, check_seconds, deadlines
from turnline.core.fold import fold, taken
from turnline.core.json import normalised
from turnline.core.packet import body_of, check_packet, check_step_packet, check_text
from turnline.core.state import State
from turnline.core.views import context_for, view_for
from turnline.errors import (
    BadDraft,
    BadSpec,
    ChannelClosed,
    ChannelPending,
    ClaimLost,
    NotParticipant,
    NotYet,
    OutOfTurn,
)

S = TypeVar("S", bound=State)

MAX_AGENT_TURNS: Final = 50
"""Turns of agents without a message from a person or a program; then a conversation or discussion rests."""
STAY: Final = "stay"
CLOSE: Final = "close"
"""What a failed turn that no rule takes does to its channel: it rests, or it closes."""
_COMMON_KNOBS: Final = frozenset({"context_vars", "view", "views", "max_turns", "on_failure"})
_MOST_PRIORITY: Final = 2**31


class TurnTaking(ABC, Generic[S]):
    """The base of the built-in adapters; see `turnline.core.adapter.Adapter`."""

    manifest: Manifest
    state_type: type[S]
    on_failure: str = STAY
    """What a failed turn does to a channel whose knob `on_failure` says nothing."""
    context_bytes: int = variables.MAX_CONTEXT_BYTES
    """Of the context variables of one channel."""

    # What a subclass says.

    def first_speaker(self, state: S) -> str:
        """Who has the floor when the channel opens."""
        return state.creator_id

    def may_speak(self, state: S, sender_id: str) -> bool:
        """Whether `sender_id` can take the turn as things stand."""
        return sender_id == state.expected_next_speaker or state.is_resting

    @abstractmethod
    def route(self, state: S, envelope: Envelope) -> Decision:
        """Where the floor goes after `envelope`, which `state` includes."""

    def route_failure(self, state: S, envelope: Envelope) -> Decision:
        """Where the floor goes after `envelope`, which says that a turn was given up (T5)."""
        return self._failed(state)

    def check_spec(self, state: S) -> None:
        """Refuse knobs that only this channel type understands."""

    # The four functions.

    def initial(self, spec: ChannelSpec) -> S:
        variables_given = spec.knobs.get("context_vars", {})
        return self.state_type(
            spec=spec,
            participant_order=[one.agent_id for one in spec.participants],
            creator_id=spec.creator_id,
            context_vars=variables_given,
            turn_vars=variables_given,
        )

    def decide(self, state: S, draft: Draft, now: datetime) -> tuple[Envelope, ...]:
        check_id(draft.envelope_id, "envelope_id")
        ev.check_event_type(draft.event_type, draft.sender_id)
        if state.is_over and draft.event_type != ev.EV_CHANNEL_FORKED:
            raise ChannelClosed(state.channel_id, reason=state.pending_close_reason)
        batch = Batch(self.fold, state, self._checked(state, draft), now)
        _ROWS.get(draft.event_type, TurnTaking._keep)(self, batch)
        variables.check_size(state.context_vars, batch.state.context_vars, self.context_bytes)
        return tuple(batch.envelopes)

    def fold(self, state: S, envelope: Envelope) -> S:
        return fold(state, envelope)

    def due(self, state: S, awake_since: datetime) -> Sequence[Deadline]:
        return deadlines(state, self._expectations(state.spec), awake_since)

    def decision_after(self, state: S, envelope: Envelope) -> Decision:
        """Return where the floor goes after a turn that `state` includes; the knob `max_turns` closes."""
        is_failure = envelope.event_type == ev.EV_TURN_FAILED
        decision = self.route_failure(state, envelope) if is_failure else self.route(state, envelope)
        limit = state.spec.knobs.get("max_turns")
        if isinstance(decision, Close) or limit is None or state.turn_count < limit:
            return decision
        return Close("max_turns", Basis(kind="max_turns", target=f"max_turns={limit}"))

    def rest_of_agents(self, state: S, envelope: Envelope) -> Rest | None:
        """Return that the channel rests after an agent's turn: an empty one, or one too many in a row."""
        if not state.agent_turns:
            return None
        if not body_of(envelope.event_type, envelope.event_data).strip():
            return Rest(Basis(kind="empty_reply"))
        if state.agent_turns >= MAX_AGENT_TURNS and state.spec.knobs.get("max_turns") is None:
            return Rest(Basis(kind="agent_turns", target=f"agent_turns={state.agent_turns}"))
        return None

    def _failed(self, state: S) -> Decision:
        """Return what a failed turn does that no rule takes."""
        if state.spec.knobs.get("on_failure", self.on_failure) == CLOSE:
            return Close("turn_failed", Basis(kind="turn_failed"))
        return Rest(Basis(kind="turn_failed", target=f"on_failure={STAY}"))

    # What each kind of draft brings about.

    def _speak(self, batch: Batch[S]) -> None:
        state, draft = batch.state, batch.draft
        self._check_said(state.spec, draft)
        self._require_active(batch)
        if self._is_interjection(state, draft):
            if draft.event_type != ev.EV_TEXT:
                found = f"a {draft.event_type!r} without the floor"
                raise BadDraft("event_type", found=found, expected="a text; only a turn can be a packet")
            if state.claim is not None:
                raise NotYet(state.channel_id, sender=draft.sender_id, speaker=state.claim.agent_id)
            batch.accept()
            return
        if not self.may_speak(state, draft.sender_id):
            raise OutOfTurn(
                state.channel_id, sender=draft.sender_id, speaker=str(state.expected_next_speaker)
            )
        pauses.refuse_while_paused(state)
        claims.check_claim(state, draft)
        said = batch.next(
            draft.event_type, draft.event_data, sender_id=draft.sender_id, audience=draft.audience
        )
        self._take_turn(batch, said)
        if _is_step(state.spec, draft.sender_id):
            claims.claim_next(batch)

    def _take_turn(self, batch: Batch[S], envelope: Envelope) -> None:
        """Add `envelope` with the decision about the floor, and the close if that is the decision."""
        seen = taken(replace(batch.state, seq=envelope.seq, last_at=envelope.created_at), envelope)
        decision = self.decision_after(seen, envelope)
        batch.add(replace(envelope, decision=decision))
        if isinstance(decision, Close):
            lifecycle.close(batch, decision.reason)

    def _set_context(self, batch: Batch[S]) -> None:
        self._require_active(batch)
        if batch.draft.claim is not None:
            claims.check_claim(batch.state, batch.draft)
        # What the sender may not see, `expect` and its error must not tell.
        sender, state = batch.draft.sender_id, batch.state
        seen = state.context_vars if sender == ev.HUB else context_for(sender, state)
        variables.check(state.channel_id, seen, batch.draft.event_data)
        batch.accept()

    def _keep(self, batch: Batch[S]) -> None:
        """An application's own type, a task: kept and delivered."""
        self._require_active(batch)
        batch.accept()

    def _invite(self, batch: Batch[S]) -> None:
        self._check_spec(batch.state)
        lifecycle.invite(batch, self.first_speaker(batch.state), self._take_turn)
        claims.claim_next(batch)

    def _fork(self, batch: Batch[S]) -> None:
        """The first line of a fork's own. Nobody is asked to accept; a step in progress begins anew."""
        state, floor = batch.state, batch.state.expected_next_speaker or ""
        batch.accept(decision=Speak(floor, Basis(kind="initial")) if _is_step(state.spec, floor) else None)
        if state.status not in (ChannelState.PENDING, ChannelState.ACTIVE):
            lifecycle.close(batch, state.pending_close_reason or "ttl_expired")
        elif state.status is ChannelState.PENDING or (state.spec.message is not None and not state.said):
            lifecycle.open_channel(batch, self.first_speaker(state), self._take_turn)

    def _acknowledge(self, batch: Batch[S]) -> None:
        lifecycle.acknowledge(batch, self.first_speaker(batch.state), self._take_turn)

    def _ask(self, batch: Batch[S]) -> None:
        """A question to people: only whoever works on the turn in progress asks."""
        self._require_active(batch)
        state, sender = batch.state, batch.draft.sender_id
        if not self.may_speak(state, sender):
            raise OutOfTurn(state.channel_id, sender=sender, speaker=str(state.expected_next_speaker))
        pauses.refuse_while_paused(state)
        if state.claim is None:  # In a channel that rests anyone may speak, but nobody has a turn.
            raise ClaimLost(state.channel_id, claim=batch.draft.claim, live=None)
        claims.check_claim(state, batch.draft)
        questions.ask(batch)

    def _answer(self, batch: Batch[S]) -> None:
        """A person's answer to a question; or the hub's, to a turn that waits for a task."""
        self._require_active(batch)
        is_task = "pause" in batch.draft.event_data and batch.draft.sender_id == ev.HUB
        pauses.resume(batch) if is_task else questions.answer(batch)

    def _claim(self, batch: Batch[S]) -> None:
        pauses.refuse_while_paused(batch.state)
        claims.check_free(batch.state, batch.draft.event_data)
        if batch.state.unexplained < claims.MAX_CLAIMS:
            batch.accept()
        else:
            self._end_suspect(batch)

    def _end_suspect(self, batch: Batch[S]) -> None:
        """Let a rule for failed turns take the turn; without one it is stuck (N3)."""
        error = claims.unexplained_error(batch.state)
        failed = Batch(self.fold, batch.state, batch.draft, batch.accepted_at)
        claims.give_up(failed, error, self._take_turn)
        if any(
            one.decision is not None and one.decision.by.kind == "turn_failed" for one in failed.envelopes
        ):
            pauses.stick(batch, error)
            return
        for envelope in failed.envelopes:
            batch.add(envelope)

    def _fail(self, batch: Batch[S]) -> None:
        pauses.refuse_while_paused(batch.state)
        claims.fail(batch, self._take_turn)

    # Checks.

    def _checked(self, state: S, draft: Draft) -> Draft:
        """The draft as it will be read back, under the live claim's id if it was made under a claim."""
        check_header(draft)
        data = _normalised(draft)
        audience = None if draft.audience is None else [_addressed(state.spec, one) for one in draft.audience]
        cause = _cause(draft, state)
        return replace(draft, event_data=data, audience=audience, causation_id=cause)

    def _check_said(self, spec: ChannelSpec, draft: Draft) -> None:
        if draft.event_type == ev.EV_TEXT:
            check_text(draft.event_data)
            return
        is_step = _is_step(spec, draft.sender_id)
        check_step_packet(draft.event_data) if is_step else check_packet(draft.event_data)

    def _require_active(self, batch: Batch[S]) -> None:
        state, sender = batch.state, batch.draft.sender_id
        if sender != ev.HUB and state.spec.participant(sender) is None:
            names = [one.name for one in state.spec.participants]
            raise NotParticipant(state.channel_id, sender=sender, participants=names)
        if state.status is ChannelState.PENDING:
            raise ChannelPending(state.channel_id, awaiting=state.awaiting)

    def _is_interjection(self, state: S, draft: Draft) -> bool:
        if draft.interject:
            return not state.is_resting or not _is_person(state.spec, draft.sender_id)
        return _is_person(state.spec, draft.sender_id) and not self.may_speak(state, draft.sender_id)

    def _expectations(self, spec: ChannelSpec) -> Sequence[Expectation]:
        return self.manifest.expectations if spec.expectations is None else spec.expectations

    def _check_spec(self, state: S) -> None:
        spec, manifest = state.spec, self.manifest
        _check_participants(spec, manifest)
        known = manifest.knobs | _COMMON_KNOBS
        if spec.knobs.keys() - known:
            unknown = ", ".join(sorted(spec.knobs.keys() - known))
            raise BadSpec(
                "knobs",
                found=f"an object with the unknown key {unknown}",
                expected=f"only {', '.join(sorted(known))}",
            )
        if manifest.required_knobs - spec.knobs.keys():
            missing = sorted(manifest.required_knobs - spec.knobs.keys())
            raise BadSpec(
                "knobs", found=f"without {missing}", expected=f"them for a {manifest.type!r} channel"
            )
        if not isinstance(state.context_vars, dict):
            raise BadSpec(
                "knobs.context_vars", found=f"a {type(state.context_vars).__name__}", expected="an object"
            )
        variables.check_keys(state.context_vars, "knobs.context_vars")
        variables.check_size({}, state.context_vars, self.context_bytes)
        check_expectations(self._expectations(spec))
        check_seconds(spec.ack_timeout_seconds, "ack_timeout")
        if spec.ttl_seconds is not None:
            check_seconds(spec.ttl_seconds, "ttl")
        _check_limits(spec)
        for participant in spec.participants:
            view_for(participant.agent_id, spec)
        self.check_spec(state)


def _check_participants(spec: ChannelSpec, manifest: Manifest) -> None:
    count = len(spec.participants)
    most = manifest.max_participants
    if count < manifest.min_participants or (most is not None and count > most):
        wanted = str(most) if most == manifest.min_participants else f"{manifest.min_participants} or more"
        raise BadSpec("target", found=f"{count} participants, the opener included", expected=wanted)
    if spec.participant(ev.HUB) is not None:
        raise BadSpec("target", found=f"{ev.HUB!r}", expected="participants; that id is the hub's own")
    if len({one.agent_id for one in spec.participants}) != count:
        raise BadSpec(
            "target", found="somebody twice", expected="each participant once; the opener is one already"
        )


def _check_limits(spec: ChannelSpec) -> None:
    limit, on_failure = spec.knobs.get("max_turns"), spec.knobs.get("on_failure", STAY)
    if limit is not None and (type(limit) is not int or limit < 1):
        raise BadSpec("knobs.max_turns", found=repr(limit)[:80], expected="a whole number from 1 on")
    if on_failure not in (STAY, CLOSE):
        raise BadSpec("knobs.on_failure", found=repr(on_failure)[:80], expected=f"{STAY!r} or {CLOSE!r}")


def _normalised(draft: Draft) -> JsonObject:
    """The data as it reads back. What a channel is opened with has been checked with its spec."""
    if draft.event_type != ev.EV_CHANNEL_INVITE:
        return normalised(draft.event_data)
    knobs = draft.event_data.get("knobs")
    rest = normalised({key: value for key, value in draft.event_data.items() if key != "knobs"})
    return rest if knobs is None else {**rest, "knobs": knobs}


def _is_person(spec: ChannelSpec, sender_id: str) -> bool:
    member = spec.participant(sender_id)
    return member is not None and member.kind == "human"


def _is_step(spec: ChannelSpec, sender_id: str) -> bool:
    member = spec.participant(sender_id)
    return member is not None and member.kind == "step"


def _cause(draft: Draft, state: State) -> str | None:
    """What caused the draft. The tag that undoes a write with its turn is ours, whatever is sent (T5)."""
    given, live = draft.causation_id, state.claim
    if live is None:
        return given
    if draft.event_type == ev.EV_CONTEXT_SET:
        if draft.claim is not None:
            return f"{live.envelope_id}/{draft.call}" if draft.call else live.envelope_id
        return None if given is not None and given.partition("/")[0] == live.envelope_id else given
    return live.envelope_id if draft.claim is not None and given is None else given


def check_header(draft: Draft) -> None:
    """Refuse what would not read back: E2 holds for every field."""
    if type(draft.priority) is not int or not -_MOST_PRIORITY <= draft.priority <= _MOST_PRIORITY:
        raise BadDraft(
            "priority", found=repr(draft.priority)[:80], expected=f"a whole number up to {_MOST_PRIORITY}"
        )
    for field, value in (("causation_id", draft.causation_id), ("traceparent", draft.traceparent)):
        if value is not None and not ev.is_name(value):
            raise BadDraft(field, found=repr(value)[:80], expected="printable text of one line, or None")
    if not isinstance(draft.audience, list | None):
        raise BadDraft(
            "audience", found=repr(draft.audience)[:80], expected="a list of participants, or None"
        )


def _addressed(spec: ChannelSpec, name: object) -> str:
    names = spec.names()
    if not isinstance(name, str) or name not in names:
        known = ", ".join(one.name for one in spec.participants)
        raise BadDraft("audience", found=f"{name!r}", expected=f"participants of this channel: {known}")
    return names[name]


_ROWS: Final[dict[str, Callable[[TurnTaking[Any], Batch[Any]], None]]] = {
    ev.EV_TEXT: TurnTaking._speak,
    ev.EV_PACKET: TurnTaking._speak,
    ev.EV_CONTEXT_SET: TurnTaking._set_context,
    ev.EV_CHANNEL_INVITE: TurnTaking._invite,
    ev.EV_CHANNEL_INVITE_ACK: TurnTaking._acknowledge,
    ev.EV_CHANNEL_FORKED: TurnTaking._fork,
    ev.EV_CHANNEL_CHILD: lambda _, batch: lifecycle.add_child(batch),
    ev.EV_CHANNEL_INVITE_REJECT: lambda _, batch: lifecycle.reject(batch),
    ev.EV_CHANNEL_CLOSED: lambda _, batch: lifecycle.close_on_request(batch),
    ev.EV_CHANNEL_EXPIRED: lambda _, batch: lifecycle.expire(batch),
    ev.EV_EXPECTATION_VIOLATED: lambda _, batch: lifecycle.violate(batch),
    ev.EV_TURN_CLAIMED: TurnTaking._claim,
    ev.EV_TURN_RELEASED: lambda _, batch: claims.release(batch),
    ev.EV_TURN_RENEWED: lambda _, batch: claims.record(batch),
    ev.EV_TURN_MODEL: lambda _, batch: claims.record(batch),
    ev.EV_TURN_TOOL: lambda _, batch: claims.record(batch),
    ev.EV_TURN_FAILED: TurnTaking._fail,
    ev.EV_TURN_PAUSED: lambda _, batch: pauses.pause(batch),
    ev.EV_TURN_RESUMED: lambda _, batch: pauses.resume(batch),
    ev.EV_TIMER_FIRED: lambda _, batch: pauses.resume(batch),
    ev.EV_HUMAN_REQUESTED: TurnTaking._ask,
    ev.EV_HUMAN_ANSWERED: TurnTaking._answer,
}
