"""`discussion`: everybody in turn, in the order of the participants that take turns."""

from __future__ import annotations

from typing import Final

from turnline.core.adapter import Manifest
from turnline.core.adapters.turn_taking import TurnTaking
from turnline.core.conditions import speaker_of
from turnline.core.envelope import Basis, Decision, Envelope, Speak
from turnline.core.state import State
from turnline.core.targets import next_in, turn_order
from turnline.errors import BadSpec

DISCUSSION_TYPE: Final = "discussion"
ORDERING_ROUND_ROBIN: Final = "round_robin"


class DiscussionAdapter(TurnTaking[State]):
    """Two or more participants, round robin, until a participant closes it or it rests."""

    manifest = Manifest(type=DISCUSSION_TYPE, knobs=frozenset({"ordering"}))
    state_type = State

    def route(self, state: State, envelope: Envelope) -> Decision:
        following = next_in(turn_order(state), speaker_of(envelope))
        speak = Speak(following, Basis(kind="adapter", target="the next in order"))
        return self.rest_of_agents(state, envelope) or speak

    def check_spec(self, state: State) -> None:
        ordering = state.spec.knobs.get("ordering", ORDERING_ROUND_ROBIN)
        if ordering != ORDERING_ROUND_ROBIN:
            raise BadSpec("knobs.ordering", found=repr(ordering), expected=repr(ORDERING_ROUND_ROBIN))
