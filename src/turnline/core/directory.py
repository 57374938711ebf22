"""The directory: who is registered, folded from a channel of its own.

participant.registered   {agent_id, passport, resume, rule}; again, with changes, it replaces
participant.removed      {agent_id}
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Struct

from turnline.core.envelope import Envelope
from turnline.core.governance import Registration
from turnline.errors import UnknownParticipant

DIRECTORY_CHANNEL: Final = "_directory"
EV_PARTICIPANT_REGISTERED: Final = "participant.registered"
EV_PARTICIPANT_REMOVED: Final = "participant.removed"

_SLUG_CHARACTERS: Final = 40


class Directory(Struct, frozen=True):
    """Who is registered, after `seq` lines."""

    seq: int = 0
    by_id: dict[str, Registration] = {}
    ids_by_name: dict[str, str] = {}

    def resolve(self, name: str) -> Registration:
        """Return who is known by this id or name."""
        found = self.find(name)
        if found is None:
            raise UnknownParticipant(name, self.ids_by_name)
        return found

    def find(self, name: str) -> Registration | None:
        return self.by_id.get(name) or self.named(name)

    def named(self, name: str) -> Registration | None:
        return self.by_id.get(self.ids_by_name.get(name, ""))


def fold_directory(directory: Directory, envelope: Envelope) -> Directory:
    """Return the directory after `envelope`."""
    match envelope.event_type:
        case "participant.registered":
            new = msgspec.convert(envelope.event_data, Registration)
            by_id = directory.by_id | {new.agent_id: new}
        case "participant.removed":
            gone = envelope.event_data.get("agent_id")
            by_id = {agent_id: one for agent_id, one in directory.by_id.items() if agent_id != gone}
        case _:
            by_id = directory.by_id
    names = {one.name: agent_id for agent_id, one in by_id.items()}
    return Directory(envelope.seq, by_id, names)


def readable_id(name: str, suffix: str) -> str:
    """An id a person recognises in a log: the name's letters, and something unique."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:_SLUG_CHARACTERS].strip("-")
    return f"{slug or 'participant'}-{suffix}"
