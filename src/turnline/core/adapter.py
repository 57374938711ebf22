"""The adapter: the rules of one channel type.

    initial(spec)                    -> the state before the first envelope
    decide(state, draft, now)        -> the envelopes to append, together or not at all
    fold(state, envelope)            -> the next state
    due(state, awake_since)          -> what falls due, soonest first

Four pure functions and a manifest. `adapters.turn_taking.TurnTaking` is the
usual base: it knows invitations, claims, context variables and deadlines, and
asks its subclass only where the floor goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from turnline.core.channel import ChannelSpec, Expectation
from turnline.core.envelope import Draft, Envelope
from turnline.core.expectations import Deadline
from turnline.core.state import State
from turnline.errors import NameTaken, UnknownName

S = TypeVar("S", bound=State)


class Manifest(Struct, frozen=True, kw_only=True):
    """What a channel type is, as data."""

    type: str
    min_participants: int = 2
    max_participants: int | None = None
    knobs: frozenset[str] = frozenset()
    """The options `open` takes for this type, beyond those every channel takes."""
    required_knobs: frozenset[str] = frozenset()
    expectations: tuple[Expectation, ...] = ()
    """What is expected where `open` says nothing."""


class Adapter(Protocol[S]):
    """The rules of one channel type."""

    manifest: Manifest
    state_type: type[S]
    """What a snapshot of this type's state is read back as."""

    def initial(self, spec: ChannelSpec) -> S:
        """Return the state before the first envelope. Cheap, and needs no registered class (E5)."""
        ...

    def decide(self, state: S, draft: Draft, now: datetime) -> tuple[tuple[Envelope, ...], S]:
        """Return everything `draft` brings about, and the state after it. Raises `Refused`."""
        ...

    def fold(self, state: S, envelope: Envelope) -> S:
        """Return the state after `envelope`. Evaluates nothing, never raises."""
        ...

    def due(self, state: S, awake_since: datetime) -> Sequence[Deadline]:
        """Return what falls due as things stand, soonest first."""
        ...


AnyAdapter = Adapter[Any]


class Adapters:
    """Channel type -> its rules."""

    def __init__(self, known: Sequence[AnyAdapter] = ()) -> None:
        self._by_type: dict[str, AnyAdapter] = {}
        for adapter in known:
            self.register(adapter)

    def register(self, adapter: AnyAdapter) -> None:
        name = adapter.manifest.type
        if name in self._by_type:
            raise NameTaken("channel type", name, do="Give your adapter's manifest another type.")
        self._by_type[name] = adapter

    def get(self, channel_type: str) -> AnyAdapter:
        if channel_type not in self._by_type:
            raise UnknownName("channel type", channel_type, self._by_type)
        return self._by_type[channel_type]
