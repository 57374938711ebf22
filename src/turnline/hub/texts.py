"""The words of a turn in flight, for whoever listens: told as they come, and kept nowhere.

They are not on the log; the packet is. A listener that does not keep up misses
some, and finds all of them in the packet.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from turnline.log.base import Bell

MAX_UNHEARD: Final = 1000


class TurnText(Struct, frozen=True, kw_only=True):
    """A piece of what somebody is about to say."""

    channel_id: str
    agent_id: str
    text: str
    audience: list[str] | None = None
    """Who will see the packet: None is everyone. Others do not hear the words."""


def is_for(agent_id: str, words: TurnText) -> bool:
    """Return whether a participant may hear the words: they are for whom the packet is."""
    return words.audience is None or agent_id in words.audience or agent_id == words.agent_id


class Listening:
    """One listener's place. `take` gives what has come since."""

    def __init__(self, texts: Texts, channel_id: str, may_hear: Callable[[TurnText], bool]) -> None:
        self.bell = Bell()
        self._may_hear = may_hear
        self._texts = texts
        self._channel_id = channel_id
        self._heard: deque[TurnText] = deque(maxlen=MAX_UNHEARD)

    def __enter__(self) -> Listening:
        self._texts.listeners[self._channel_id].append(self)
        return self

    def __exit__(self, *_: object) -> None:
        listeners = self._texts.listeners[self._channel_id]
        listeners.remove(self)
        if not listeners:
            del self._texts.listeners[self._channel_id]

    def hear(self, text: TurnText) -> None:
        if self._may_hear(text):
            self._heard.append(text)
            self.bell.ring()

    def take(self) -> list[TurnText]:
        taken = list(self._heard)
        self._heard.clear()
        return taken


class Texts:
    """Who listens to which channel."""

    def __init__(self) -> None:
        self.listeners: defaultdict[str, list[Listening]] = defaultdict(list)

    def is_heard(self, channel_id: str) -> bool:
        return channel_id in self.listeners

    def tell(self, text: TurnText) -> None:
        for listener in self.listeners.get(text.channel_id, ()):
            listener.hear(text)
