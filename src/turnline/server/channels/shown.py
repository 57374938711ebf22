"""What is told of a channel: in a list, by itself, and as it stood at any line of its log."""

from __future__ import annotations

from typing import Final

from msgspec import to_builtins

from turnline.core.channel import ChannelRow, Participant
from turnline.core.envelope import JsonObject
from turnline.core.state import LONG_AGO, State, WorkflowState, waiting_for
from turnline.flow.runs import ListedRun
from turnline.flow.verdict import verdict
from turnline.server.channels.facts import Facts
from turnline.server.channels.sight import Sight, public_knobs

QUARANTINED: Final = "quarantined"
"""The word for a channel that cannot be read."""


def row(state: State) -> JsonObject:
    """What is told of a channel in one line."""
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


def listed(row: ChannelRow, facts: Facts, run: ListedRun | None) -> JsonObject:
    """A channel in a list, as the index has it. `run` is what the list knows of a run."""
    return {
        **_known(row, facts),
        "run_status": None if run is None else run.status,
        "error": None if run is None else to_builtins(run.error),
        "updated_at": row.updated_at,
        "seq": row.seq,
        "status": row.status.value,
        "turn_count": row.turn_count,
        "speaker_id": row.speaker_id or None,
        "last_speaker_id": row.last_speaker_id or None,
        "waiting_for": {"reason": row.waiting_for} if row.waiting_for else None,
        "close_reason": row.close_code or None,
        "closed_at": row.closed_at,
    }


def unread_row(row: ChannelRow, facts: Facts | None) -> JsonObject:
    """A channel in a list whose rules or lines cannot be read."""
    unknown = {"run_status": None, "error": None, "updated_at": None}
    return {**_known(row, facts), **unknown, "status": QUARANTINED}


def _known(row: ChannelRow, facts: Facts | None) -> JsonObject:
    return {
        "channel_id": row.channel_id,
        "type": row.type,
        "is_run": bool(row.flow) if facts is None else facts.is_run,
        "participants": [] if facts is None else members(facts.participants),
        "labels": row.labels,
        "message": "" if facts is None else facts.message,
        "parent_id": row.parent_id or None,
        "created_at": row.created_at,
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
