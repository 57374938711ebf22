"""The packet: the one draft that records a round or a step.

{"body": "...", "routing": {"kind": ...}, "context_updates": {...}, "context_deletes": [...], "usage": {...}}

"format": "json" says that the body is the JSON of an answer that has a type (A2).

A step of a flow may also keep private keys for the run: "private_updates", "private_deletes" (F2).

kind      also in routing
text      tool (a tool that succeeded and that some transition waits for), reason
handoff   target, tool, reason
finish    reason, summary, tool
signal    signal, reason
"""

from __future__ import annotations

from typing import Final

from turnline.core.envelope import JsonObject
from turnline.core.variables import check_keys
from turnline.errors import BadDraft

_KEYS: Final = frozenset({"body", "format", "routing", "context_updates", "context_deletes", "usage"})
JSON: Final = "json"
_PRIVATE: Final = frozenset({"private_updates", "private_deletes"})
_ROUTING: Final = {
    "text": ({"kind", "tool", "reason"}, ""),
    "handoff": ({"kind", "target", "tool", "reason"}, "target"),
    "finish": ({"kind", "reason", "summary", "tool"}, ""),
    "signal": ({"kind", "signal", "reason"}, "signal"),
}
"""kind -> the keys it may have, and the one it must have."""


def check_text(data: JsonObject) -> None:
    """Refuse the data of a `text` that has no text."""
    if not isinstance(data.get("text"), str):
        raise BadDraft("event_data.text", found=_kind(data.get("text")), expected="text")


def check_packet(data: JsonObject, *, keys: frozenset[str] = _KEYS) -> None:
    """Refuse the data of a `packet` that is not one."""
    unknown = data.keys() - keys
    if unknown:
        raise BadDraft(
            "event_data", found=f"with {sorted(unknown)}", expected=f"only {', '.join(sorted(keys))}"
        )
    if not isinstance(data.get("body", ""), str):
        raise BadDraft("event_data.body", found=_kind(data["body"]), expected="text")
    if data.get("format", JSON) != JSON:
        raise BadDraft("event_data.format", found=repr(data["format"])[:80], expected=repr(JSON))
    updates = data.get("context_updates", {})
    if not isinstance(updates, dict):
        raise BadDraft("event_data.context_updates", found=_kind(updates), expected="an object")
    check_keys(updates, "event_data.context_updates")
    deletes = data.get("context_deletes", [])
    if not isinstance(deletes, list) or not all(isinstance(key, str) for key in deletes):
        raise BadDraft("event_data.context_deletes", found=_kind(deletes), expected="a list of keys")
    check_keys(deletes, "event_data.context_deletes")
    if not isinstance(data.get("usage", {}), dict):
        raise BadDraft("event_data.usage", found=_kind(data["usage"]), expected="an object")
    _check_routing(data.get("routing", {"kind": "text"}))


def check_step_packet(data: JsonObject) -> None:
    """Refuse the packet of a step that is not one; what is private has a `_`, as nothing else has."""
    check_packet(data, keys=_KEYS | _PRIVATE)
    for field in sorted(_PRIVATE & data.keys()):
        expected = dict if field == "private_updates" else list
        named = data[field]
        if not isinstance(named, expected) or not all(
            isinstance(k, str) and k.startswith("_") for k in named
        ):
            raise BadDraft(
                f"event_data.{field}", found=repr(type(named)), expected="keys that start with '_'"
            )


def body_of(event_type: str, data: JsonObject) -> str:
    """What somebody said, as text."""
    return str(data.get("body" if event_type == "packet" else "text", ""))


def _check_routing(routing: object) -> None:
    if not isinstance(routing, dict) or routing.get("kind") not in _ROUTING:
        found = repr(routing)[:80]
        raise BadDraft(
            "event_data.routing",
            found=found,
            expected=f"an object whose kind is one of {', '.join(_ROUTING)}",
        )
    allowed, required = _ROUTING[routing["kind"]]
    if routing.keys() - allowed:
        raise BadDraft(
            "event_data.routing", found=f"with {sorted(routing)}", expected=f"only {sorted(allowed)}"
        )
    for key, value in routing.items():
        if not isinstance(value, str):
            raise BadDraft(f"event_data.routing.{key}", found=_kind(value), expected="text")
    if required and not routing.get(required):
        raise BadDraft(f"event_data.routing.{required}", found="missing", expected="text")


def _kind(value: object) -> str:
    return "missing" if value is None else f"a {type(value).__name__}"
