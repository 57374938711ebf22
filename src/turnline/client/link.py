"""A link: the way to a hub. `LocalLink` is the one within a process."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Protocol

from turnline.core.channel import ChannelMetadata
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.governance import Passport, Registration, Resume, Rule
from turnline.core.study.spent import Spent
from turnline.hub.delivery import Receiver
from turnline.hub.hub import Hub
from turnline.hub.seat import FileChunk, Peer, Player, Reading, Seat as HubSeat, SeatChannel
from turnline.hub.texts import Listening
from turnline.turns.work import Port


class Seat(Port, Protocol):
    """What one participant can do at a hub; the sender of everything is the participant."""

    @property
    def agent_id(self) -> str: ...

    def new_id(self) -> str:
        """Return a fresh envelope id: sending again under the same one never doubles (E1)."""
        ...

    async def peers(self) -> list[Peer]:
        """Return everybody whom the participant may address."""
        ...

    async def channels(self) -> list[SeatChannel]:
        """Return the open channels the participant is on."""
        ...

    async def post(self, channel_id: str, draft: Draft) -> Envelope: ...

    async def add_file(self, channel_id: str, pieces: AsyncIterable[bytes]) -> tuple[str, int]:
        """Keep a file, to be sent by this participant just after; return its digest and size."""
        ...

    async def read_chunk(self, channel_id: str, seq: int, index: int, number: int) -> FileChunk:
        """Return a chunk of a file of a line that the participant may see."""
        ...

    async def answer_invite(self, channel_id: str, *, rejected_because: str | None = None) -> None: ...

    def listen(self, channel_id: str) -> Listening:
        """Listen to the words of the turns in flight; a context manager."""
        ...

    def is_heard(self, channel_id: str) -> bool:
        """Whether anybody listens to the words of a turn in flight."""
        ...

    def tell_text(self, channel_id: str, text: str, audience: list[str] | None = None) -> None:
        """Tell listeners a piece of what is about to be said; `audience` is that of the packet, by id."""
        ...

    async def read_next(self, channel_id: str, after: int) -> Reading:
        """Return what the participant may see after a line, once there is any; nothing if none will come."""
        ...

    async def metadata(self, channel_id: str) -> ChannelMetadata: ...

    @property
    def player(self) -> Player:
        """The worker that takes turns from this seat."""
        ...

    async def usage(self, channel_id: str) -> Spent:
        """Return what the channel and those below it used."""
        ...

    async def summary(self, channel_id: str) -> JsonObject | None:
        """Return the last summary this agent recorded on the channel."""
        ...

    def leave(self) -> None: ...


class Link(Protocol):
    """The way to a hub."""

    async def register(self, passport: Passport, resume: Resume | None, rule: Rule | None) -> Registration:
        """Register a participant, or find the one of that name. Raises `NameTaken` for another owner's."""
        ...

    async def unregister(self, registration: Registration) -> None:
        """Remove a participant whose seat this link has, or had. Its name is free then."""
        ...

    async def attach(self, registration: Registration, receiver: Receiver) -> Seat:
        """Take the participant's seat; `receiver` is woken when there is something for it."""
        ...

    async def settle(self) -> None:
        """Return once the seats that were left are free."""
        ...


class LocalLink:
    """The way to a hub of the same process."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def register(self, passport: Passport, resume: Resume | None, rule: Rule | None) -> Registration:
        return await self._hub.enrol(passport, resume, rule)

    async def unregister(self, registration: Registration) -> None:
        await self._hub.unregister(registration.agent_id)

    async def attach(self, registration: Registration, receiver: Receiver) -> Seat:
        self._hub.attach(registration.agent_id, receiver)
        return HubSeat(self._hub, registration)

    async def settle(self) -> None:
        """Leaving a seat of this process frees it at once."""
