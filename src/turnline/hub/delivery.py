"""Delivery: who is told, derived from what is on the log.

A receiver is woken with a channel and a seq; it reads from there, at its own
pace, so nothing queues up for a slow one. Whoever has the floor is told by the
line that gave it: also the same speaker again, also the first one. When a
participant attaches, it is told again of every floor and every invitation that
waits for it: this is all there is to recovery.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from turnline.core.channel import ChannelState
from turnline.core.envelope import Envelope, gives_floor_to, visible_to
from turnline.core.event_types import EV_CHANNEL_FORKED
from turnline.core.state import State
from turnline.core.step_targets import STEP_PREFIX
from turnline.errors import NameTaken, TurnlineError
from turnline.hub.entry import Entry


class Receiver(Protocol):
    """What an attached participant gives the hub."""

    def wake(self, channel_id: str, seq: int) -> None:
        """There is something for you on the channel, from `seq` on. Must return at once."""
        ...


@runtime_checkable
class KnowsTools(Protocol):
    """A receiver that can say which tools its participant has."""

    def tools(self) -> Collection[str] | None:
        """Return their names; None if nobody knows."""
        ...


@runtime_checkable
class KnowsEnd(Protocol):
    """A receiver that somebody may wait at."""

    def end(self, error: TurnlineError) -> None:
        """Nothing more will come; `error` says why. Must return at once."""
        ...


class Delivery:
    """Who is attached, who is a member of what, and who is told."""

    def __init__(self, *, follows: bool = False) -> None:
        self._follows = follows
        self._receivers: dict[str, Receiver] = {}
        self._waited_for: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """Participant -> the open channels that wait for it -> the line that says so."""

    def check_free(self, agent_id: str, name: str) -> None:
        """Raise `NameTaken` if the participant is attached here."""
        if agent_id in self._receivers:
            raise NameTaken(
                "participant", name, do="It is attached in this process; detach it, or use its client."
            )

    def attach(self, agent_id: str, name: str, receiver: Receiver) -> None:
        self.check_free(agent_id, name)
        self._receivers[agent_id] = receiver
        for channel_id, seq in list(self._waited_for[agent_id].items()):
            receiver.wake(channel_id, seq)

    def detach(self, agent_id: str) -> None:
        self._receivers.pop(agent_id, None)

    def dismiss(self, error: TurnlineError) -> None:
        """Tell every receiver that nothing more will come."""
        for receiver in list(self._receivers.values()):
            if isinstance(receiver, KnowsEnd):
                receiver.end(error)

    def tools_of(self, agent_id: str) -> Collection[str] | None:
        """Return the names of an attached participant's tools; None if they are not known here."""
        receiver = self._receivers.get(agent_id)
        return receiver.tools() if isinstance(receiver, KnowsTools) else None

    def waited_for(self, agent_id: str) -> int:
        """In how many open channels somebody waits for this participant."""
        return len(self._waited_for[agent_id])

    def observe(self, state: State) -> None:
        """Note who is waited for as things stand."""
        channel_id = state.channel_id
        waits = _waits_for(state)
        for agent_id in state.participant_order:
            if agent_id in waits:
                self._waited_for[agent_id][channel_id] = waits[agent_id]
            else:
                self._waited_for[agent_id].pop(channel_id, None)

    def landed(self, entry: Entry, envelopes: Sequence[Envelope]) -> None:
        """Tell of what has landed on a channel; also of what came before, if nobody was told."""
        if self._follows and entry.told_seq + len(envelopes) < entry.state.seq:
            self.tell_all(entry.state)
        else:
            self.tell(entry.state, envelopes)
        entry.told_seq = entry.state.seq

    def found(self, entry: Entry) -> None:
        """Tell of a channel that others wrote, and of which nobody has been told."""
        self.tell_all(entry.state)
        entry.told_seq = entry.state.seq

    def tell_all(self, state: State) -> None:
        """Wake every attached participant of a channel that was not in memory; it reads what it has not."""
        waits, past = _waits_for(state), state.spec.forked_from
        first = 1 if past is None else past.seq + 1
        for agent_id in state.participant_order:
            receiver = self._receivers.get(agent_id)
            if receiver is not None:
                receiver.wake(state.channel_id, min(first, waits.get(agent_id, first)))
                receiver.wake(state.channel_id, state.seq)

    def tell(self, state: State, envelopes: Sequence[Envelope]) -> None:
        """Wake every attached participant that one of `envelopes` concerns."""
        if any(one.event_type == EV_CHANNEL_FORKED for one in envelopes):
            self.tell_all(state)  # Whoever has the floor was given it by a line of the past.
            return
        for agent_id in state.participant_order:
            receiver = self._receivers.get(agent_id)
            if receiver is None:
                continue
            is_opener = agent_id == state.creator_id
            first = next(
                (e.seq for e in envelopes if concerns(e, agent_id) or (is_opener and is_for_a_step(e))), None
            )
            if first is not None:
                receiver.wake(state.channel_id, first)


def concerns(envelope: Envelope, agent_id: str) -> bool:
    """Whether a participant is told of a line: what others let it see, and what gives it the floor."""
    if gives_floor_to(envelope) == agent_id:
        return True
    return envelope.sender_id != agent_id and visible_to(envelope, agent_id)


def is_for_a_step(envelope: Envelope) -> bool:
    """Whether the floor goes to a step. Whoever opened the channel works on it, and is told."""
    floor = gives_floor_to(envelope)
    return floor is not None and floor.startswith(STEP_PREFIX)


def _waits_for(state: State) -> dict[str, int]:
    if state.status is ChannelState.PENDING:
        return dict.fromkeys(state.awaiting, 1)
    if state.expected_next_speaker is not None and state.pause is None:
        member = state.spec.participant(state.expected_next_speaker)
        is_step = member is not None and member.kind == "step"
        return {state.creator_id if is_step else state.expected_next_speaker: state.floor_seq}
    return {}
