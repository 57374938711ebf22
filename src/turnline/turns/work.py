"""A turn in progress: what its performer receives, and what it returns.

    async def perform(work: Work) -> Done | Paused

A performer reads the work and returns. The engine claims the turn, writes the packet or the pause, and
releases what cannot be finished. A performer that has to wait returns `Paused`, or lets the `CallPaused` of
an agent's round pass. Nothing of it stays in memory: when the answer is there, the time has come, or a child
has closed, it is called again and finds what came in `work.lines`. So it is written as a function of what is
on the log.

What it raises fails the turn (T5), except what is wrong with the claim or the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

from turnline.agent.files import File
from turnline.core.claims import Paused
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.event_types import SUBSTANTIVE
from turnline.core.parts import FilePart
from turnline.core.state import State
from turnline.core.views import Floor, Message
from turnline.errors import ChannelQuarantined, ClientClosed, HubClosed, LinkLost, LogError
from turnline.hub.request import OpenRequest
from turnline.hub.seat import Claimed, Reading
from turnline.hub.turns import UNITS, Lane
from turnline.log.base import Bell
from turnline.log.joined import Transaction
from turnline.turns.files import FileSeat, add_file
from turnline.turns.journal import TurnJournal
from turnline.turns.views import last_shown, read_view

if TYPE_CHECKING:
    from turnline.turns.children import Children

__all__ = ["Done", "Paused", "Perform", "Work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The end of a turn. It becomes the packet."""

    data: JsonObject = field(default_factory=dict)
    audience: list[str] | None = None
    is_written: bool = False
    """Whether the performer has written the packet itself, together with work in a database (F7)."""


AWAY: Final = (ChannelQuarantined, ClientClosed, HubClosed, LinkLost, LogError)
"""What is wrong with the log, or with the way to it, is no failure of the turn."""


class LogAway(BaseException):
    """The turn's own log is away: the turn is performed again, and no tool or handler answers for it.

    It is not an `Exception`, so that a tool that catches its own errors does not catch this.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class _OwnLog(AbstractContextManager[None]):
    """It has no state: one object serves all turns."""

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, AWAY):
            raise LogAway(error) from error


_OWN_LOG: Final = _OwnLog()


def own_log() -> AbstractContextManager[None]:
    """Raise what is wrong with the turn's own log as `LogAway`."""
    return _OWN_LOG


class Port(FileSeat, Protocol):
    """What a turn needs of a hub, here or elsewhere."""

    async def open(self, request: OpenRequest) -> str:
        """Open a channel. Raises `DelegationCycle` where one of the asked waits for this turn."""
        ...

    async def state(self, channel_id: str) -> State: ...

    async def read(self, channel_id: str, after: int) -> Reading: ...

    async def close_channel(self, channel_id: str, reason: str) -> None: ...

    async def claim_turn(self, floor: Floor, channel_id: str, *, claim_id: str, alone: bool) -> Claimed:
        """Claim a turn. Raises `TurnTaken`, `OutOfTurn`, `ClaimLost`.

        Again under the same `claim_id`, where no answer came, it is the same claim.
        """
        ...

    async def write(
        self, channel_id: str, draft: Draft, *, within: Transaction | None = None, can_hold: bool = False
    ) -> None:
        """Write a line of a turn (`Claim.draft`): a unit, a packet, a pause, a failure, a sign of life.

        While the log is away it is written again, under the same id; a release, a sign of life and a line
        with a transaction are not. With `can_hold` a hub of this process may record it later.
        """
        ...

    async def wait_unclaimed(self, channel_id: str) -> None:
        """Return when another worker's claim has ended, or that worker can be replaced."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let time pass, by the clock of this side of the link."""
        ...


class Work(Claimed, frozen=True, kw_only=True, dict=True):
    """One performance of a turn: what its claim returned, and what its performer works with."""

    channel_id: str
    turn: int
    speaker: str
    """Whose turn it is: the player itself, or a participant that it plays."""
    port: Port
    lane: Lane
    find_children: Callable[[], Children]
    signs: Bell
    """Rung with every line of the turn: its worker is alive."""

    async def write(
        self,
        event_type: str,
        data: JsonObject,
        *,
        audience: list[str] | None = None,
        within: Transaction | None = None,
        can_hold: bool = False,
    ) -> None:
        """Write a line of the turn, under its claim. For `can_hold` see `Port.write`."""
        draft = self.claim.draft(event_type, data, audience)
        with own_log():
            await self.port.write(self.channel_id, draft, within=within, can_hold=can_hold)
        self.signs.ring()
        if event_type in UNITS:  # A turn that has recorded a unit is not the one that kills processes.
            self.lane.leave(self.channel_id)

    async def record(self, event_type: str, data: JsonObject, *, within: Transaction | None = None) -> None:
        """Record a unit of the turn: after a crash it is not done again (T2, T3)."""
        await self.write(event_type, data, audience=[], within=within)

    @cached_property
    def children(self) -> Children:
        """The channels below this turn."""
        return self.find_children()

    @cached_property
    def journal(self) -> TurnJournal:
        """What the turn has recorded, and what it records."""
        return TurnJournal(self.lines, self.record, self.add_file)

    @property
    def key(self) -> str:
        """The same for every performance of this turn, also after a crash, and for no other one."""
        return f"{self.channel_id}:{self.turn}"

    @property
    def units(self) -> list[Envelope]:
        """What the turn has recorded (T2)."""
        return [one for one in self.lines if one.event_type in UNITS]

    def age_of(self, line: Envelope) -> float:
        """Return how many seconds ago one of `lines` was written. Setting the clock changes nothing."""
        return self.ages[self.lines.index(line)]

    async def add_file(self, file: File) -> FilePart:
        """Keep a file that a unit of the turn refers to. Raises `BadDraft`."""
        with own_log():
            return await add_file(self.port, self.channel_id, file)

    async def messages(self) -> list[Message]:
        """Return what the speaker is shown of the conversation, up to the turn's first unit (W10, N7a)."""
        if self.view is not None:
            return list(self.view)
        with own_log():
            last = last_shown(self.state, self.units)
            return await read_view(self.port.read, self.state, self.speaker, last)

    def heard_since(self) -> list[Envelope]:
        """Return what others said to the speaker since the turn's first unit: interjections (N7a)."""
        after = last_shown(self.state, self.units)
        said = (one for one in self.lines if one.event_type in SUBSTANTIVE and one.seq > after)
        return [one for one in said if one.audience is None or self.speaker in one.audience]


Perform = Callable[[Work], Awaitable[Done | Paused]]
