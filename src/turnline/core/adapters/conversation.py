"""`conversation`: two participants, free order.

The floor goes to the other one after each turn, so that it is told; it is a
hint, not a fence: either may speak at any time.
"""

from __future__ import annotations

from typing import Final

from turnline.core.adapter import Manifest
from turnline.core.adapters.turn_taking import TurnTaking
from turnline.core.envelope import Basis, Decision, Draft, Envelope, Speak
from turnline.core.state import State
from turnline.core.targets import next_in

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
