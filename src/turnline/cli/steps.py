"""Telling the steps of a run, and of the runs below it, as they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from turnline.cli.person import as_text
from turnline.cli.plain import plain
from turnline.core import event_types as ev
from turnline.core.envelope import Envelope, JsonObject
from turnline.flow.events import RunEvent, event_of

VALUE_CHARACTERS: Final = 60
_WAITS: Final = {
    "retry": "failed, and is tried again at",
    "time": "waits until",
    "person": "waits for a person",
    "event": "waits for an event",
    "stuck": "is stuck: its process ended each time; retry the run",
}


class StepPrinter:
    """A listener of a hub. Nothing private is told (F2)."""

    def __init__(self, run_id: str, say: Callable[[str], None]) -> None:
        self._say = say
        self._depth = {run_id: 0}

    def __call__(self, line: Envelope) -> None:
        if line.event_type == ev.EV_CHANNEL_INVITE:
            parent = line.event_data.get("parent_id")
            if parent in self._depth:
                self._depth[line.channel_id] = self._depth[parent] + 1
        event = event_of(line) if line.channel_id in self._depth else None
        text = "" if event is None else told(event)
        if text:
            self._say("    " * self._depth[line.channel_id] + text)


def told(event: RunEvent) -> str:
    """One line about what happened; empty for what is not worth one."""
    if event.type == "step_ended":
        words = (f"{event.step:<14}", f"{event.signal:<10}", _changes(event.updates, event.deletes))
        return plain(" ".join(words)).rstrip()
    if event.type == "waiting" and event.reason in _WAITS:
        until = event.until if event.reason in ("retry", "time") else ""
        return plain(f"{event.step:<14} {_WAITS[event.reason]} {until}").rstrip()
    return ""


def _changes(updates: JsonObject, deletes: list[str]) -> str:
    sets = [f"{key}={_short(value)}" for key, value in updates.items()]
    return ", ".join(sets + [f"without {key}" for key in deletes])


def _short(value: object) -> str:
    text = as_text(value)
    return text if len(text) <= VALUE_CHARACTERS else text[: VALUE_CHARACTERS - 1] + "…"
