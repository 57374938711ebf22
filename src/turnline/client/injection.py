"""What a tool of an agent on a channel can ask for: the channel of its turn, and that channel's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from turnline.agent.context import Context
from turnline.agent.inject import Injected, Wanted
from turnline.client.channel import Channel
from turnline.client.link import Seat
from turnline.core.state import State
from turnline.turns.children import Children


@dataclass(frozen=True, slots=True)
class FromTurn(Injected):
    """Marks a parameter that is filled from the turn the tool is called in, by its name in `extras`."""

    what: str

    def resolve(self, wanted: Wanted, context: Context) -> object:
        """What the turn provides under this name; None outside of a channel."""
        return context.extras.get(self.what)


ChannelInject = Annotated[Channel | None, FromTurn("channel")]
"""`async def approve(channel: ChannelInject)`: None outside of a channel."""

ChannelStateInject = Annotated[State | None, FromTurn("state")]
"""`async def count(state: ChannelStateInject)`: None outside of a channel."""

SeatInject = Annotated[Seat, FromTurn("seat")]
"""What the agent can do at its hub; for tools that are called in turns only, as the plugin's are."""

TurnChannelInject = Annotated[Channel, FromTurn("channel")]
"""`ChannelInject`, for tools that are called in turns only."""

ChildrenInject = Annotated[Children, FromTurn("children")]
"""The channels below the turn; for tools that are called in turns only."""
