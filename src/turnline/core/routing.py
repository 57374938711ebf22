"""What a round's tool calls mean for the floor: calls -> the one packet (T4).

Rule: the first routing call that succeeded wins, in the order the calls were
made. A call routes if it returned a `Handoff` or a `Finish`, or if a transition
waits for its tool (`ToolCalled`); a typed return goes before the transition of
the same tool. A call that failed routes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from msgspec import Struct

from turnline.core.envelope import JsonObject


class Handoff(Struct, frozen=True, tag="handoff", tag_field="kind", omit_defaults=True):
    """Returned by a tool: the floor goes to `target`, an id or a name."""

    target: str
    reason: str = ""


class Finish(Struct, frozen=True, tag="finish", tag_field="kind", omit_defaults=True):
    """Returned by a tool: the channel closes."""

    reason: str = "finished"
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """One tool call of a round, and how it ended."""

    tool: str
    succeeded: bool
    returned: Handoff | Finish | None = None
    reason: str = ""
    """The call's `reason` argument, if it had one: it travels with the routing."""


def packet(
    body: str,
    outcomes: Iterable[ToolOutcome] = (),
    *,
    routing_tools: Collection[str] = (),
    context_updates: JsonObject | None = None,
) -> JsonObject:
    """Return the data of the packet that records a round."""
    data: JsonObject = {"body": body, "routing": _routing(outcomes, routing_tools)}
    return data | {"context_updates": context_updates} if context_updates else data


def _routing(outcomes: Iterable[ToolOutcome], routing_tools: Collection[str]) -> JsonObject:
    for outcome in outcomes:
        if not outcome.succeeded:
            continue
        match outcome.returned:
            case Handoff(target=target, reason=reason):
                return _with_reason(
                    {"kind": "handoff", "target": target, "tool": outcome.tool}, reason or outcome.reason
                )
            case Finish(reason=reason, summary=summary):
                return {"kind": "finish", "reason": reason, "summary": summary, "tool": outcome.tool}
        if outcome.tool in routing_tools:
            return _with_reason({"kind": "text", "tool": outcome.tool}, outcome.reason)
    return {"kind": "text"}


def _with_reason(routing: JsonObject, reason: str) -> JsonObject:
    return routing | {"reason": reason} if reason else routing
