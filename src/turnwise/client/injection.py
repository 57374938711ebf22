"""What a tool of an agent on a channel can ask for: the channel of its turn, and that channel's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from turnwise.client.channel import Channel
from turnwise.core.state import State


@dataclass(frozen=True, slots=True)
class FromTurn:
    """Marks a parameter that is filled from the turn the tool is called in."""

    what: str


ChannelInject = Annotated[Channel | None, FromTurn("channel")]
"""`async def approve(channel: ChannelInject)`: None outside of a channel."""

ChannelStateInject = Annotated[State | None, FromTurn("state")]
"""`async def count(state: ChannelStateInject)`: None outside of a channel."""
