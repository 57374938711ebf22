"""The envelope: one line of a channel's log.

Somebody writes a `Draft`. The channel's rules turn an acceptable draft into
one or more `Envelope`s, which add what a draft cannot know: its place in the
log, the time it was accepted, and what the rules made of it. A line that has
been written is history, so all of them are frozen.

This module knows nothing about graphs, agents or storage.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

SCHEMA_VERSION: Final = 2
"""The version this code writes and reads. `codec` refuses others."""

JsonObject = dict[str, Any]
"""A JSON object. `Any` because JSON is what the user makes it; `json.normalised` checks it."""


class Basis(Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True):
    """What a decision rests on: the answer to "why did the floor move?" (W7)."""

    kind: str
    """One of: `initial`, `transition`, `default`, `handoff`, `finish`, `max_turns`, `out_of_steps`,
    `turn_failed`, `retry`, `resume`, `adapter`, `empty_reply`, `agent_turns`."""
    index: int | None = None
    """Which transition of the graph, as the graph lists them."""
    condition: str = ""
    target: str = ""


class Speak(Struct, gc=False, frozen=True, tag="speak", tag_field="kind"):
    """The floor goes to one participant."""

    agent_id: str
    by: Basis


class Close(Struct, gc=False, frozen=True, tag="close", tag_field="kind"):
    """The channel ends."""

    reason: str
    by: Basis


class Rest(Struct, gc=False, frozen=True, tag="rest", tag_field="kind"):
    """No participant has the floor. The channel stays open until a person or program says something."""

    by: Basis


Decision = Speak | Close | Rest


class Draft(Struct, frozen=True, kw_only=True):
    """What somebody asks to append; it has no place in the log yet."""

    envelope_id: str
    sender_id: str
    event_type: str
    event_data: JsonObject = {}
    audience: list[str] | None = None
    causation_id: str | None = None
    priority: int = 0
    traceparent: str | None = None
    interject: bool = False
    """Say it without having the floor; it moves neither the floor nor the turn count (W9)."""
    claim: int | None = None
    """The seq of the claim this draft was made under; the fence against a worker that was replaced (T1)."""
    claim_id: str = ""
    """The id of that claim's line, if known: a claim that was held and dropped leaves its seq to another."""
    claimant: str = ""
    """Who works under the claim, where the hub or a played participant is the sender (T1)."""
    call: str = ""
    """The tool call of the round in which it was made; its context writes stand and fall with it (T3)."""


class Envelope(
    Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True, rename={"schema_version": "v"}
):
    """One accepted line of a channel's log."""

    schema_version: int
    envelope_id: str
    """Unique on its channel; the sender may choose it, so that sending again never doubles."""
    channel_id: str
    seq: int
    """Position in the channel's log. The first line is 1; there are no gaps."""
    sender_id: str
    event_type: str
    event_data: JsonObject = {}
    audience: list[str] | None = None
    """Who is told: None is everyone, an empty list nobody."""
    causation_id: str | None = None
    priority: int = 0
    created_at: datetime
    """When the hub accepted it. Never runs backwards within a channel, and never orders."""
    decision: Decision | None = None
    """What the rules made of it. None: nobody's turn changed, so this line is not a turn."""
    traceparent: str | None = None
    is_erased: bool = False
    """Its content was erased. What is left of it says who wrote which kind of line, and when (Y1)."""


def visible_to(envelope: Envelope, agent_id: str) -> bool:
    """Whether `agent_id`, a participant, may see what is in `envelope`."""
    return envelope.audience is None or agent_id in envelope.audience or envelope.sender_id == agent_id


def gives_floor_to(envelope: Envelope) -> str | None:
    """Who has the floor because of `envelope`; None if it did not give it to anybody."""
    return envelope.decision.agent_id if isinstance(envelope.decision, Speak) else None


def shown_to(envelope: Envelope, agent_id: str) -> Envelope | None:
    """What `agent_id` gets of `envelope`: all, nothing, or only that it has the floor now."""
    if visible_to(envelope, agent_id):
        return envelope
    return replace(envelope, event_data={}) if gives_floor_to(envelope) == agent_id else None
