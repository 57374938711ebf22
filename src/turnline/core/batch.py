"""A batch: the envelopes one draft brings about, folded as they are added.

`decide` fills one and returns its envelopes; they are appended together or not
at all. Folding on the way lets a consequence see what led to it (the close sees
the turn), and it is why nothing is ever written that cannot be folded.

The draft's own envelope has the draft's id; a consequence has that id and a
number, so that sending a draft again finds all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from turnline.core.envelope import SCHEMA_VERSION, Decision, Draft, Envelope, JsonObject
from turnline.core.event_types import HUB
from turnline.core.state import State

S = TypeVar("S", bound=State)


class Batch(Generic[S]):
    """Envelopes in the making. Lives within one `decide`."""

    def __init__(self, fold: Callable[[S, Envelope], S], state: S, draft: Draft, now: datetime) -> None:
        self.state = state
        self.draft = draft
        self.envelopes: list[Envelope] = []
        self._fold = fold
        self.accepted_at = max(now, state.last_at)
        """When all of it is accepted."""

    def next(
        self,
        event_type: str,
        event_data: JsonObject,
        *,
        sender_id: str = HUB,
        audience: list[str] | None = None,
        decision: Decision | None = None,
    ) -> Envelope:
        """Return the envelope that would come next; nothing is added."""
        number = len(self.envelopes)
        return Envelope(
            schema_version=SCHEMA_VERSION,
            envelope_id=f"{self.draft.envelope_id}-{number}" if number else self.draft.envelope_id,
            channel_id=self.state.channel_id,
            seq=self.state.seq + 1,
            sender_id=sender_id,
            event_type=event_type,
            event_data=event_data,
            audience=audience,
            causation_id=self.draft.causation_id,
            priority=self.draft.priority,
            created_at=self.accepted_at,
            decision=decision,
            traceparent=self.draft.traceparent,
        )

    def add(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)
        self.state = self._fold(self.state, envelope)

    def write(
        self,
        event_type: str,
        event_data: JsonObject,
        *,
        audience: list[str] | None = None,
        decision: Decision | None = None,
    ) -> None:
        """Add a line the hub writes."""
        self.add(self.next(event_type, event_data, audience=audience, decision=decision))

    def accept(self, *, decision: Decision | None = None) -> None:
        """Add the draft as it stands."""
        draft = self.draft
        self.add(
            self.next(
                draft.event_type,
                draft.event_data,
                sender_id=draft.sender_id,
                audience=draft.audience,
                decision=decision,
            )
        )
