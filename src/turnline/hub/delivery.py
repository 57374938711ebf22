"""Delivery: who is told, derived from what is on the log.

A receiver is woken with a notice (`core.views`) and reads at its own pace, so nothing queues up for a slow
one. When a participant attaches, it gets a notice of every floor, every invitation and every question that
waits for it: this is all there is to recovery. Of a channel that the hub has not read yet only the index
says who it waits for (Y8); the hub reads it when one of them attaches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from turnline.core.channel import ChannelRow, ChannelSpec
from turnline.core.envelope import Envelope
from turnline.core.fold import SUSPECT_CLAIMS
from turnline.core.state import State
from turnline.core.views import Floor, Notice, list_all, list_notices, list_waits
from turnline.errors import NameTaken, TurnlineError
from turnline.hub.channels import Entry


class Receiver(Protocol):
    """What an attached participant gives the hub."""

    def wake(self, notice: Notice) -> None:
        """Take the notice. Must return at once."""
        ...


@runtime_checkable
class TakesTurns(Protocol):
    """A receiver that works on turns in this process."""

    def offer(self, channel_id: str, floor: Floor) -> str:
        """Return the worker that claims the turn together with its floor; empty if none can."""
        ...

    def withdraw(self, channel_id: str) -> None:
        """Take the offer back: the claim has not landed."""
        ...


@runtime_checkable
class DecidesInvites(Protocol):
    """A receiver that decides on invitations by itself."""

    def decide_invite(self, spec: ChannelSpec) -> Awaitable[str | None] | None:
        """Accept at once with None, or return what comes to why the invitation is rejected; None accepts.

        Raises `Undecided`: the participant decides later, when it has read the invitation.
        """
        ...


class Undecided(Exception):
    """The participant decides on the invitation when it has read it."""


@runtime_checkable
class KnowsTools(Protocol):
    """A receiver that can say which tools its participant has."""

    def tools(self) -> Collection[str] | None:
        """Return their names; None if nobody knows."""
        ...


@runtime_checkable
class KnowsEnd(Protocol):
    """A receiver that others may wait at."""

    def end(self, error: TurnlineError) -> None:
        """Note that nothing more will come; `error` says why. Must return at once."""
        ...


class Delivery:
    """Who is attached, who is a member of what, and who is told."""

    def __init__(self, *, follows: bool = False) -> None:
        self._follows = follows
        self._receivers: dict[str, Receiver] = {}
        self._workers: dict[str, TakesTurns] = {}
        """The receivers that take turns. A protocol is slow to look for, so it is looked for once."""
        self._waited_for: defaultdict[str, dict[str, Notice | None]] = defaultdict(dict)
        """participant id -> {channel id: what the open channel waits for; None: it has not been read}"""

    def check_free(self, agent_id: str, name: str) -> None:
        """Raise `NameTaken` if the participant is attached here."""
        if agent_id in self._receivers:
            raise NameTaken(
                "participant", name, do="It is attached in this process; detach it, or use its client."
            )

    def attach(self, agent_id: str, name: str, receiver: Receiver) -> list[str]:
        """Wake the receiver for what waits for it. Return the waiting channels that have to be read first."""
        self.check_free(agent_id, name)
        self._receivers[agent_id] = receiver
        if isinstance(receiver, TakesTurns):
            self._workers[agent_id] = receiver
        known = list(self._waited_for[agent_id].items())
        self._wake_one(agent_id, (notice for _, notice in known if notice is not None))
        return [channel_id for channel_id, notice in known if notice is None]

    def remind(self, agent_id: str, states: Iterable[State]) -> list[Notice]:
        """Wake a participant for what waits for it on channels that were read. Return the suspects among it.

        A suspect is for `wake_suspects`: it must not hold back turns that are not (N3).
        """
        notices = list[Notice]()
        for state in states:
            self.observe(state)
            notice = self._waited_for[agent_id].get(state.channel_id)
            notices += [] if notice is None else [notice]
        self._wake_one(agent_id, (one for one in notices if not _is_suspect(one)))
        return [one for one in notices if _is_suspect(one)]

    def wake_suspects(self, agent_id: str, notices: Iterable[Notice]) -> None:
        """Wake a participant for the suspects that `remind` returned."""
        self._wake_one(agent_id, notices)

    def is_attached(self, agent_id: str) -> bool:
        """Return whether the participant has a receiver in this process."""
        return agent_id in self._receivers

    def detach(self, agent_id: str) -> None:
        self._receivers.pop(agent_id, None)
        self._workers.pop(agent_id, None)

    def dismiss(self, error: TurnlineError) -> None:
        """Tell every receiver that nothing more will come."""
        for receiver in list(self._receivers.values()):
            if isinstance(receiver, KnowsEnd):
                receiver.end(error)

    def tools_of(self, agent_id: str) -> Collection[str] | None:
        """Return the names of an attached participant's tools; None if they are not known here."""
        receiver = self._receivers.get(agent_id)
        return receiver.tools() if isinstance(receiver, KnowsTools) else None

    def decide_invite(self, agent_id: str, spec: ChannelSpec) -> Awaitable[str | None] | None:
        """See `DecidesInvites.decide_invite`. Raises `Undecided` for a participant that is not here, too."""
        receiver = self._receivers.get(agent_id)
        if not isinstance(receiver, DecidesInvites):
            raise Undecided
        return receiver.decide_invite(spec)

    def offer(self, player: str, channel_id: str, floor: Floor) -> str:
        """Return the worker of this process that claims the turn with its floor; empty if none does."""
        worker = self._workers.get(player)
        return "" if worker is None else worker.offer(channel_id, floor)

    def withdraw(self, player: str, channel_id: str) -> None:
        """Take the offer back: the claim has not landed."""
        if (worker := self._workers.get(player)) is not None:
            worker.withdraw(channel_id)

    def waited_for(self, agent_id: str) -> int:
        """In how many open channels somebody waits for this participant."""
        return len(self._waited_for[agent_id])

    def waiting_for(self, agent_id: str) -> list[str]:
        """Return the open channels that wait for this participant."""
        return list(self._waited_for[agent_id])

    def expect(self, row: ChannelRow) -> None:
        """Note who is waited for on a channel that has not been read."""
        for agent_id in row.waits_for:
            self._waited_for[agent_id][row.channel_id] = None

    def observe(self, state: State) -> None:
        """Note who is waited for as things stand."""
        channel_id, waits = state.spec.channel_id, list_waits(state)
        for agent_id in state.participant_order:
            if agent_id in waits:
                self._waited_for[agent_id][channel_id] = waits[agent_id]
            else:
                self._waited_for[agent_id].pop(channel_id, None)

    def landed(self, entry: Entry, envelopes: Sequence[Envelope]) -> None:
        """Tell of what has landed on a channel; also of what came before, if nobody was told."""
        if self._follows and entry.told_seq + len(envelopes) < entry.state.seq:
            self._wake(list_all(entry.state, self._receivers))
        else:
            self._wake(list_notices(entry.state, envelopes, self._receivers))
        entry.told_seq = entry.state.seq

    def wake_workers(self, state: State, envelopes: Sequence[Envelope]) -> None:
        """Tell those who take turns in this process of lines that are not recorded yet."""
        self._wake(list_notices(state, envelopes, self._workers))

    def found(self, entry: Entry) -> None:
        """Tell of a channel that others wrote, and of which nobody has been told."""
        self._wake(list_all(entry.state, self._receivers))
        entry.told_seq = entry.state.seq

    def _wake(self, notices: Mapping[str, Notice]) -> None:
        for agent_id, notice in notices.items():
            self._wake_one(agent_id, (notice,))

    def _wake_one(self, agent_id: str, notices: Iterable[Notice]) -> None:
        for notice in notices:
            if (receiver := self._receivers.get(agent_id)) is not None:
                receiver.wake(notice)


def _is_suspect(notice: Notice) -> bool:
    return notice.floor is not None and notice.floor.unexplained >= SUSPECT_CLAIMS
