"""The built-in channel types, and turn-taking, the base of all four.

    workflow       a graph says who is next
    conversation   two participants, free order
    consulting     one question, one answer, closed
    discussion     everybody in turn, in the order of the participants that take turns

Rule 1: refuse first, then compute. `decide` either raises, and nothing happens,
or returns everything the draft brings about.

Rule 2: a line with a decision is a turn; without one it is not. (The decision
that opens the channel is nobody's turn: its basis is `initial`.)

Rule 3: agents alone do not keep a channel busy. Where nothing else ends it, it rests: it stays open, no
participant has the floor, and the next message from a person or a program resumes it.

Rule 4: a channel type says three things: who speaks first, who may speak now, and
where the floor goes after a turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from turnline.core import claims, event_types as ev, lifecycle, questions, variables
from turnline.core.adapter import Adapters, Manifest
from turnline.core.channel import (
    CHILD_MARK,
    ChannelSpec,
    ChannelState,
    Expectation,
    check_id,
    is_child_id,
)
from turnline.core.envelope import Basis, Close, Decision, Draft, Envelope, JsonObject, Rest, Speak
from turnline.core.event_types import body_of, check_packet, check_step_packet, check_text
from turnline.core.expectations import Deadline, check_expectations, check_seconds, deadlines, turn_within
from turnline.core.fold import Batch, fold, taken
from turnline.core.graph import TransitionGraph
from turnline.core.json import normalised
from turnline.core.router import Router
from turnline.core.state import State, WorkflowState
from turnline.core.step_targets import steps_of
from turnline.core.transitions import next_in, speaker_of, turn_order
from turnline.core.variables import MAX_CONTEXT_BYTES
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
_OF_THE_HUB: Final = frozenset({ev.EV_CHANNEL_INVITE, ev.EV_TURN_CLAIMED})
"""A spec, which is checked when a channel is opened, and a claim, which has ids and numbers."""


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

    def decide(self, state: S, draft: Draft, now: datetime) -> tuple[tuple[Envelope, ...], S]:
        check_envelope_id(draft)
        ev.check_event_type(draft.event_type, draft.sender_id)
        if state.is_over and draft.event_type != ev.EV_CHANNEL_FORKED:
            raise ChannelClosed(state.channel_id, reason=state.pending_close_reason)
        batch = Batch(self.fold, state, self._checked(state, draft), now)
        _ROWS.get(draft.event_type, TurnTaking._keep)(self, batch)
        if batch.state.context_vars is not state.context_vars:
            variables.check_size(state.context_vars, batch.state.context_vars, self.context_bytes)
        return tuple(batch.envelopes), batch.state

    def fold(self, state: S, envelope: Envelope) -> S:
        return fold(state, envelope)

    def due(self, state: S, awake_since: datetime) -> Sequence[Deadline]:
        return deadlines(state, self._expectations(state.spec), awake_since)

    def decision_after(self, state: S, envelope: Envelope) -> Decision:
        """Return where the floor goes after a turn that `state` includes; the knob `max_turns` closes."""
        is_failure = envelope.event_type == ev.EV_TURN_FAILED
        decision = self.route_failure(state, envelope) if is_failure else self.route(state, envelope)
        if is_failure and isinstance(decision, Speak):
            absent = envelope.event_data.get("absent", ())
            decision = self._failed(state) if decision.agent_id in absent else decision
        limit = state.spec.knobs.get("max_turns")
        if isinstance(decision, Close) or limit is None or state.turn_count < limit:
            return decision
        return Close("max_turns", Basis(kind="max_turns", target=f"max_turns={limit}"))

    def rest_of_agents(self, state: S, envelope: Envelope) -> Rest | None:
        """Return that the channel rests after an agent's turn: an empty one, or one too many in a row."""
        if not state.agent_turns:
            return None
        said = envelope.event_data
        if not body_of(envelope.event_type, said).strip() and "parts" not in said:
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
        self._require_turn(batch)
        said = batch.next(
            draft.event_type, draft.event_data, sender_id=draft.sender_id, audience=draft.audience
        )
        self._take_turn(batch, said)

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

    def _fork(self, batch: Batch[S]) -> None:
        """The first line of a fork's own. Nobody is asked to accept; a step in progress begins anew."""
        state, floor = batch.state, batch.state.expected_next_speaker or ""
        batch.accept(decision=Speak(floor, Basis(kind="initial")) if state.spec.is_played(floor) else None)
        if state.status not in (ChannelState.PENDING, ChannelState.ACTIVE):
            lifecycle.close(batch, state.pending_close_reason or "ttl_expired")
        elif state.status is ChannelState.PENDING or (state.spec.message is not None and not state.said):
            lifecycle.open_channel(batch, self.first_speaker(state), self._take_turn)

    def _acknowledge(self, batch: Batch[S]) -> None:
        lifecycle.acknowledge(batch, self.first_speaker(batch.state), self._take_turn)

    def _ask(self, batch: Batch[S]) -> None:
        """Accept a question to people. The worker of the turn in progress asks, or a turn below does."""
        self._require_active(batch)
        if batch.draft.sender_id == ev.HUB:
            questions.relay(batch)
            return
        self._require_turn(batch)
        if batch.state.claim is None:  # In a channel that rests every member may speak, and none has a turn.
            raise ClaimLost(batch.state.channel_id, claim=None, live=None)
        questions.ask(batch)

    def _answer(self, batch: Batch[S]) -> None:
        """Accept a person's answer to a question, or the hub's to a turn that waits for a task."""
        self._require_active(batch)
        is_task = "pause" in batch.draft.event_data and batch.draft.sender_id == ev.HUB
        claims.resume(batch) if is_task else questions.answer(batch)

    def _fire(self, batch: Batch[S]) -> None:
        """Time has passed: a question expires, or a pause ends."""
        questions.expire(batch) if "question" in batch.draft.event_data else claims.resume(batch)

    def _claim(self, batch: Batch[S]) -> None:
        claims.refuse_while_paused(batch.state)
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
            claims.stick(batch, error)
            return
        for envelope in failed.envelopes:
            batch.add(envelope)

    def _fail(self, batch: Batch[S]) -> None:
        claims.refuse_while_paused(batch.state)
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
        is_played = spec.is_played(draft.sender_id)
        check_step_packet(draft.event_data) if is_played else check_packet(draft.event_data)

    def _require_active(self, batch: Batch[S]) -> None:
        state, sender = batch.state, batch.draft.sender_id
        if sender != ev.HUB and state.spec.participant(sender) is None:
            names = [one.name for one in state.spec.participants]
            raise NotParticipant(state.channel_id, sender=sender, participants=names)
        if state.status is ChannelState.PENDING:
            raise ChannelPending(state.channel_id, awaiting=state.awaiting)

    def _require_turn(self, batch: Batch[S]) -> None:
        state, draft = batch.state, batch.draft
        if not self.may_speak(state, draft.sender_id):
            speaker = str(state.expected_next_speaker)
            raise OutOfTurn(state.channel_id, sender=draft.sender_id, speaker=speaker)
        claims.refuse_while_paused(state)
        claims.check_claim(state, draft)

    def _is_interjection(self, state: S, draft: Draft) -> bool:
        if draft.interject:
            return not state.is_resting or not state.spec.is_person(draft.sender_id)
        return state.spec.is_person(draft.sender_id) and not self.may_speak(state, draft.sender_id)

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
    others = {name for one in spec.participants if not one.played_by for name in (one.agent_id, one.name)}
    same = next((one.name for one in spec.participants if one.played_by and one.agent_id in others), None)
    if same is not None:
        found = f"a step {same!r} beside a participant of that name"
        raise BadSpec("knobs.graph", found=found, expected="a name of its own for each step")


def _check_limits(spec: ChannelSpec) -> None:
    limit, on_failure = spec.knobs.get("max_turns"), spec.knobs.get("on_failure", STAY)
    if limit is not None and (type(limit) is not int or limit < 1):
        raise BadSpec("knobs.max_turns", found=repr(limit)[:80], expected="a whole number from 1 on")
    if on_failure not in (STAY, CLOSE):
        raise BadSpec("knobs.on_failure", found=repr(on_failure)[:80], expected=f"{STAY!r} or {CLOSE!r}")


def _normalised(draft: Draft) -> JsonObject:
    """The data as it reads back. What only the hub writes, from values that it has checked, is taken."""
    return draft.event_data if draft.event_type in _OF_THE_HUB else normalised(draft.event_data)


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


def check_envelope_id(draft: Draft) -> None:
    """Refuse what is not an id, and the id of the line that notes a child: others can compute it."""
    check_id(draft.envelope_id, "envelope_id")
    if is_child_id(draft.envelope_id) and draft.event_type != ev.EV_CHANNEL_CHILD:
        raise BadDraft("envelope_id", found=repr(draft.envelope_id), expected=f"an id without {CHILD_MARK!r}")


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
    ev.EV_TURN_ONCE: lambda _, batch: claims.record(batch),
    ev.EV_TURN_FAILED: TurnTaking._fail,
    ev.EV_TURN_PAUSED: lambda _, batch: claims.pause(batch),
    ev.EV_TURN_RESUMED: lambda _, batch: claims.resume(batch),
    ev.EV_TIMER_FIRED: TurnTaking._fire,
    ev.EV_HUMAN_REQUESTED: TurnTaking._ask,
    ev.EV_HUMAN_ANSWERED: TurnTaking._answer,
}


WORKFLOW_TYPE: Final = "workflow"
_ROUTERS: Final = 1024
"""How many compiled graphs are remembered. One that was forgotten is compiled again."""


class WorkflowAdapter(TurnTaking[WorkflowState]):
    """Two or more participants; turn order by `TransitionGraph`."""

    manifest = Manifest(
        type=WORKFLOW_TYPE,
        knobs=frozenset({"graph", "flow"}),
        required_knobs=frozenset({"graph"}),
        expectations=(turn_within(120, "warn"), turn_within(600, "auto_close")),
    )
    state_type = WorkflowState
    on_failure = CLOSE

    def __init__(self) -> None:
        self._routers: OrderedDict[str, Router] = OrderedDict()

    def initial(self, spec: ChannelSpec) -> WorkflowState:
        graph = spec.knobs.get("graph", {})
        state = super().initial(spec)
        flow = spec.knobs.get("flow")
        private = flow.get("private") if isinstance(flow, dict) else None
        return msgspec.structs.replace(
            state,
            graph_data=graph,
            graph_key=_key(spec),
            private_vars=private if isinstance(private, dict) else {},
        )

    def first_speaker(self, state: WorkflowState) -> str:
        return self.router(state).initial_speaker

    def route(self, state: WorkflowState, envelope: Envelope) -> Decision:
        return self.router(state).route(state, envelope)

    def route_failure(self, state: WorkflowState, envelope: Envelope) -> Decision:
        decision = self.router(state).route(state, envelope)
        return self._failed(state) if decision.by.kind == "turn_failed" else decision

    def check_spec(self, state: WorkflowState) -> None:
        self.router(state).check_turns(state.spec)

    def router(self, state: WorkflowState) -> Router:
        """The channel's graph, compiled at its first use (W1)."""
        router = self._routers.get(state.graph_key)
        if router is None:
            graph = TransitionGraph.loads(state.graph_data)
            steps_of(graph)
            router = self._routers[state.graph_key] = Router(graph, state.spec)
            if len(self._routers) > _ROUTERS:
                self._routers.popitem(last=False)
        return router


def _key(spec: ChannelSpec) -> str:
    """Equal for channels with the same graph among the same participants."""
    told = msgspec.json.encode([spec.knobs.get("graph"), spec.participants])
    return blake2b(told, digest_size=16).hexdigest()


CONVERSATION_TYPE: Final = "conversation"


class ConversationAdapter(TurnTaking[State]):
    """Two participants, free order."""

    manifest = Manifest(type=CONVERSATION_TYPE, max_participants=2)
    state_type = State

    def may_speak(self, state: State, sender_id: str) -> bool:
        # While the other one works on its turn, a further word waits for that packet.
        return sender_id == state.expected_next_speaker or state.claim is None

    def route(self, state: State, envelope: Envelope) -> Decision:
        other = next_in(tuple(state.participant_order), envelope.sender_id)
        speak = Speak(other, Basis(kind="adapter", target="the other participant"))
        return self.rest_of_agents(state, envelope) or speak

    def _is_interjection(self, state: State, draft: Draft) -> bool:
        return super()._is_interjection(state, draft) or not self.may_speak(state, draft.sender_id)


CONSULTING_TYPE: Final = "consulting"


class ConsultingAdapter(TurnTaking[State]):
    """Two participants: the opener asks, the other answers."""

    manifest = Manifest(type=CONSULTING_TYPE, max_participants=2)
    state_type = State

    def route(self, state: State, envelope: Envelope) -> Decision:
        if envelope.sender_id != state.creator_id:
            return Close("consulting_complete", Basis(kind="adapter", target="the answer was given"))
        other = next_in(tuple(state.participant_order), state.creator_id)
        return Speak(other, Basis(kind="adapter", target="the question was asked"))


DISCUSSION_TYPE: Final = "discussion"
ORDERING_ROUND_ROBIN: Final = "round_robin"


class DiscussionAdapter(TurnTaking[State]):
    """Two or more participants, round robin, until a participant closes it or it rests."""

    manifest = Manifest(type=DISCUSSION_TYPE, knobs=frozenset({"ordering"}))
    state_type = State

    def route(self, state: State, envelope: Envelope) -> Decision:
        following = next_in(turn_order(state), speaker_of(envelope))
        speak = Speak(following, Basis(kind="adapter", target="the next in order"))
        return self.rest_of_agents(state, envelope) or speak

    def check_spec(self, state: State) -> None:
        ordering = state.spec.knobs.get("ordering", ORDERING_ROUND_ROBIN)
        if ordering != ORDERING_ROUND_ROBIN:
            raise BadSpec("knobs.ordering", found=repr(ordering), expected=repr(ORDERING_ROUND_ROBIN))


def built_in(*, context_bytes: int = MAX_CONTEXT_BYTES) -> Adapters:
    """Return the built-in channel types; the caller may register more."""
    known = (WorkflowAdapter(), ConversationAdapter(), ConsultingAdapter(), DiscussionAdapter())
    for adapter in known:
        adapter.context_bytes = context_bytes
    return Adapters(known)
