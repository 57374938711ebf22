"""`consulting`: one question, one answer, closed."""

from __future__ import annotations

from typing import Final

from turnline.core.adapter import Manifest
from turnline.core.adapters.turn_taking import TurnTaking
from turnline.core.envelope import Basis, Close, Decision, Envelope, Speak
from turnline.core.state import State
from turnline.core.targets import next_in

CONSULTING_TYPE: Final = "consulting"


class ConsultingAdapter(TurnTaking[State]):
    """Two participants: the opener asks, the other answers."""

    manifest = Manifest(type=CONSULTING_TYPE, max_participants=2)
    state_type = State

    def route(self, state: State, envelope: Envelope) -> Decision:
        if envelope.sender_id != state.creator_id:
            return Close("consulting_complete", Basis(kind="adapter", target="the answer was given"))
        other = next_in(tuple(state.participant_order), state.creator_id)
        return Speak(other, Basis(kind="adapter", target="the question was asked"))
