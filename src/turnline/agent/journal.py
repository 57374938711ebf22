"""A journal: where a round's replies and tool answers are written down before it goes on (T2).

A round outside of a channel needs none. On a channel the journal is the log:
what an earlier attempt of the same turn recorded is answered from it, so no
recorded model call is paid twice and no recorded tool runs twice (T3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from turnline.agent.files import File
from turnline.agent.messages import ModelReply, ToolCall
from turnline.agent.round import ToolAnswer, ToolAttempt
from turnline.core.parts import FilePart

Entry = ModelReply | ToolAnswer | ToolAttempt


class Journal(Protocol):
    """Where a round is written down."""

    async def record(self, entry: Entry, files: Sequence[File] = ()) -> Sequence[FilePart]:
        """Write `entry` down, and the files of a tool's answer before it; return those as they are kept.

        When this returns it survives a crash, and the round may go on. Raises `BadDraft` for a file that
        cannot be kept.
        """
        ...


class Unwritten:
    """The journal of a round that nobody has to take up again."""

    async def record(self, entry: Entry, files: Sequence[File] = ()) -> Sequence[FilePart]:
        """Forget it."""
        return ()


class Recorded:
    """What an earlier attempt of the round has written down, handed out once."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        known = list(
            entries
        )  # Lists: an empty deque takes 600 bytes more, and each turn in progress has one.
        self._replies = [entry for entry in known if isinstance(entry, ModelReply)][::-1]
        self._answers = {entry.call_id: entry for entry in known if isinstance(entry, ToolAnswer)}
        self._attempts = {entry.call_id: entry.attempt for entry in known if isinstance(entry, ToolAttempt)}

    def reply(self) -> ModelReply | None:
        return self._replies.pop() if self._replies else None

    def answer(self, call: ToolCall) -> ToolAnswer | None:
        return self._answers.pop(call.call_id, None)

    def attempts(self, call: ToolCall) -> int:
        """Return how many attempts of `call` have failed so far."""
        return self._attempts.pop(call.call_id, 0)
