"""What is told of a channel: in a list, by itself, and as it stood at any line of its log."""

from __future__ import annotations

from msgspec import to_builtins

from turnline.core.channel import Participant
from turnline.core.envelope import JsonObject
from turnline.core.state import LONG_AGO, State, WorkflowState, waiting_for
from turnline.flow.verdict import verdict
from turnline.server.channels.facts import Facts
from turnline.server.channels.sight import Sight, public_knobs


def row(state: State) -> JsonObject:
    """A channel in a list."""
    spec = state.spec
    is_run = "flow" in spec.knobs
    found = verdict(state) if is_run and isinstance(state, WorkflowState) else None
    return {
        "channel_id": spec.channel_id,
        "type": spec.type,
        "is_run": is_run,
        "run_status": None if found is None else found.status,
        "error": None if found is None else to_builtins(found.error),
        "participants": members(spec.participants),
        "labels": spec.labels,
        "message": (spec.message or "")[:200],
        "parent_id": spec.parent_id,
        "children": state.children,
        "created_at": state.created_at,
        "updated_at": None if state.last_at == LONG_AGO else state.last_at,
        **standing(state),
    }


def unread_row(facts: Facts) -> JsonObject:
    """A channel in a list whose rules or lines cannot be read."""
    return {
        "channel_id": facts.channel_id,
        "type": facts.type,
        "is_run": facts.is_run,
        "run_status": None,
        "error": None,
        "participants": members(facts.participants),
        "labels": facts.labels,
        "message": facts.message,
        "parent_id": facts.parent_id,
        "created_at": facts.created_at,
        "updated_at": None,
        "status": "quarantined",
    }


def standing(state: State) -> JsonObject:
    """Where a channel stands: who has the floor, and what it waits for."""
    claim = state.claim
    return {
        "seq": state.seq,
        "status": state.status.value,
        "turn_count": state.turn_count,
        "speaker_id": None if state.is_over else state.expected_next_speaker,
        "last_speaker_id": state.last_speaker_id,
        "working": None if claim is None else claim.agent_id,
        "waiting_for": _waiting_for(state),
        "awaiting": state.awaiting,
        "close_reason": state.pending_close_reason or None,
        "closed_at": state.closed_at,
    }


def _waiting_for(state: State) -> JsonObject | None:
    reason = waiting_for(state)
    return {"reason": reason, "until": None if state.pause is None else state.pause.until} if reason else None


def at_line(state: State, sight: Sight) -> JsonObject:
    """A channel as it stood when a line had been written."""
    return {**standing(state), "at": state.last_at, "context_vars": sight.context(state)}


def whole(state: State, sight: Sight) -> JsonObject:
    """A channel by itself."""
    spec = state.spec
    knobs = {key: value for key, value in public_knobs(spec.knobs).items() if key != "graph"}
    return {
        **row(state),
        "creator_id": spec.creator_id,
        "forked_from": to_builtins(spec.forked_from),
        "message": spec.message,
        "knobs": knobs,
        "ttl_seconds": spec.ttl_seconds,
        "expectations": to_builtins(spec.expectations),
        "context_vars": sight.context(state),
    }


def members(participants: list[Participant]) -> list[JsonObject]:
    return [{"id": one.agent_id, "name": one.name, "kind": one.kind} for one in participants]
