"""A turn in progress, as an `on_turn` handler sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from turnline.agent.performer import current_call
from turnline.client.channel import Channel
from turnline.client.link import Seat
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.routing import packet
from turnline.core.state import State
from turnline.core.views import Message
from turnline.turns.work import Done, Paused, Perform, Work, read_after


class TurnChannel(Channel):
    """The channel of a turn. What is sent through it is part of the turn."""

    def __init__(self, seat: Seat, work: Work, *, on_change: Callable[[State], None] | None = None) -> None:
        """`on_change` gets the channel's state after each send."""
        super().__init__(seat, work.channel_id, claim=work.claim.seq)
        self._work = work
        self._on_change = on_change

    def _call(self) -> str:
        return current_call.get()

    async def send(self, *args: Any, **kwargs: Any) -> Envelope:
        """See `Channel.send`."""
        envelope = await super().send(*args, **kwargs)
        self._work.signs.ring()
        await self.refresh()
        return envelope

    async def refresh(self) -> None:
        """Show the turn's tools the state as it is now."""
        if self._on_change is not None:
            self._on_change(await self.state())


class Turn:
    """A turn in progress."""

    def __init__(self, seat: Seat, work: Work) -> None:
        assert work.gave is not None  # Only a played participant's turn comes without it.
        self.envelope: Envelope = work.gave
        """The line that gave the floor."""
        self.number = work.turn
        self.claim = work.claim
        self.channel: Channel = TurnChannel(seat, work)
        """What is sent through this handle is part of the turn."""
        self.audience: list[str] | None = None
        """Who sees the turn's packet and hears its words, by id or name: None is everyone. Set it first."""
        self._seat = seat
        self._work = work

    async def once(self, key: str, fn: Callable[[], Any]) -> Any:
        """Run `fn` and record its JSON result. After a crash, return the recorded result instead (N4).

        Raises `OnceKeyReused` for a key that was used before in this performance of the turn.
        """
        return await self._work.journal.once(key, fn)

    @property
    def lines(self) -> list[Envelope]:
        """What the turn has on the log: its pauses, what ended them, what it recorded. In order."""
        return list(self._work.lines)

    async def tell(self, text: str) -> None:
        """Tell listeners a piece of what is about to be said. Only the packet's audience hears it."""
        to = self.audience
        if to is not None:
            to = [self._work.state.spec.resolve(name) for name in to]
        self._seat.tell_text(self.channel.channel_id, text, to)

    async def messages(self) -> list[Message]:
        """Return what the participant is shown of the conversation (W10)."""
        return await self._work.messages()

    async def read(self, since: int) -> list[Envelope]:
        """Return everything after line `since` that the participant may see."""
        return await read_after(self._seat.read, self.channel.channel_id, since)


TurnHandler = Callable[[Turn], Awaitable[str | JsonObject | Paused | None]]
"""Returns what was said, or a whole packet's data (`turnline.core.routing.packet`), or None. With `Paused` it
is called again when what it waits for is there."""


def perform_with(handler: TurnHandler, seat: Seat) -> Perform:
    """Return the performer that calls an `on_turn` handler."""

    async def perform(work: Work) -> Done | Paused:
        turn = Turn(seat, work)
        said = await handler(turn)
        if isinstance(said, Paused):
            return replace(said, key="")  # A key is for the steps of a flow; here nothing could name it.
        data = packet(said or "") if said is None or isinstance(said, str) else said
        return Done(data=data, audience=turn.audience)

    return perform
