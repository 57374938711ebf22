"""Twins: the same world with one guard taken out. Each of them has to be found out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.faults.simulation.store import OUTSIDE, Reach
from turnline.client.link import LocalLink
from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.core.governance import Registration
from turnline.core.state import State
from turnline.core.views import Floor, Notice
from turnline.errors import TurnTaken
from turnline.hub.hub import Hub
from turnline.hub.posting import Posting
from turnline.hub.seat import Claimed, Seat
from turnline.hub.tree import Tree
from turnline.hub.turns import Lane
from turnline.turns.engine import Engine


class CarelessReach(Reach):
    """Whatever was appended meanwhile, what is sent goes behind it."""

    def write(
        self, channel_id: str, envelopes: Sequence[Envelope], after: int, row: ChannelRow | None
    ) -> None:
        if not channel_id.startswith("_"):
            after = len(self.store.log.records.get(channel_id, ()))
            envelopes = [replace(one, seq=after + n) for n, one in enumerate(envelopes, 1)]
        super().write(channel_id, envelopes, after, row)


class HastyReach(Reach):
    """It says so before it has written, so that what follows is told before the line is there."""

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        if channel_id.startswith("_"):
            await super().append(channel_id, envelopes, after=after, row=row)
            return
        self.note(channel_id, envelopes)
        seconds = self.store.seconds(self.store.weather.slow_seconds)
        arguments = channel_id, list(envelopes), after, row
        self.store.loop.call_later(seconds, self._written, *arguments, context=OUTSIDE)

    def _written(
        self, channel_id: str, envelopes: Sequence[Envelope], after: int, row: ChannelRow | None
    ) -> None:
        if len(self.store.log.records.get(channel_id, ())) == after and not self.is_cut:
            self.write(channel_id, envelopes, after, row)


class ForgetfulSeat(Seat):
    """What an earlier attempt of the turn has recorded is not looked at."""

    async def claim_turn(self, floor: Floor, channel_id: str, *, claim_id: str, alone: bool) -> Claimed:
        claimed = await super().claim_turn(floor, channel_id, claim_id=claim_id, alone=alone)
        return replace(claimed, lines=[], ages=[])


class DeafSeat(Seat):
    """It works on a turn that somebody else has."""

    async def claim_turn(self, floor: Floor, channel_id: str, *, claim_id: str, alone: bool) -> Claimed:
        try:
            return await super().claim_turn(floor, channel_id, claim_id=claim_id, alone=alone)
        except TurnTaken:
            state = await self.state(channel_id)
            if state.claim is None:
                raise
            return Claimed(claim=state.claim, state=state, lines=[])


class _OddLink(LocalLink):
    seat: type[Seat]

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._odd_hub = hub

    async def attach(self, registration: Registration, receiver: Any) -> Seat:
        self._odd_hub.attach(registration.agent_id, receiver)
        return self.seat(self._odd_hub, registration)


class ForgetfulLink(_OddLink):
    seat = ForgetfulSeat


class DeafLink(_OddLink):
    seat = DeafSeat


# Guards of the engine. Each function takes one out.


def lose_resumes(patch: pytest.MonkeyPatch) -> None:
    """N1: a floor that comes while the channel's task is still ending is forgotten."""
    wake = Engine.wake

    def forget(self: Engine, notice: Notice) -> None:
        if notice.channel_id not in self._tasks:
            wake(self, notice)

    patch.setattr(Engine, "wake", forget)


def forget_parents(patch: pytest.MonkeyPatch) -> None:
    """N1: a channel that closes does not resume the turn that waits for it."""

    async def never(self: Tree, child: str, parent_id: str) -> bool:
        return False

    patch.setattr(Tree, "_has_closed", never)


def leave_questions_below(patch: pytest.MonkeyPatch) -> None:
    """N2: a question of a delegated peer does not go up."""

    async def relay(self: Tree, parent: State, children: Iterable[str]) -> None:
        return

    patch.setattr(Tree, "_relay", relay)


def run_suspects_beside_others(patch: pytest.MonkeyPatch) -> None:
    """N3: a suspect's claim counts as made alone, although others run beside it."""

    def enter(self: Lane, channel_id: str, visit: str, unexplained: int, now: float) -> None:
        self._running[channel_id] = (visit, now)

    patch.setattr(Lane, "_enter_alone", enter)


def keep_offers(patch: pytest.MonkeyPatch) -> None:
    """N6: an offer is not withdrawn where the append that has its claim is refused."""
    patch.setattr(Posting, "_withdraw", lambda self, claim, state: None)
