"""Twins: the same world with one guard taken out. Each of them has to be found out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tests.faults.simulation.store import OUTSIDE, Reach
from turnline.client.link import LocalLink
from turnline.core.envelope import Envelope
from turnline.core.governance import Registration
from turnline.core.state import Claim
from turnline.errors import TurnTaken
from turnline.hub.hub import Hub
from turnline.hub.seat import Seat


class CarelessReach(Reach):
    """Whatever was appended meanwhile, what is sent goes behind it."""

    def write(self, channel_id: str, envelopes: Sequence[Envelope], after: int) -> None:
        if not channel_id.startswith("_"):
            after = len(self.store.log.records.get(channel_id, ()))
            envelopes = [replace(one, seq=after + n) for n, one in enumerate(envelopes, 1)]
        super().write(channel_id, envelopes, after)


class HastyReach(Reach):
    """It says so before it has written, so that what follows is told before the line is there."""

    async def append(self, channel_id: str, envelopes: Sequence[Envelope], *, after: int) -> None:
        if channel_id.startswith("_"):
            await super().append(channel_id, envelopes, after=after)
            return
        self.note(channel_id, envelopes)
        seconds = self.store.seconds(self.store.weather.slow_seconds)
        arguments = channel_id, list(envelopes), after
        self.store.loop.call_later(seconds, self._written, *arguments, context=OUTSIDE)

    def _written(self, channel_id: str, envelopes: Sequence[Envelope], after: int) -> None:
        if len(self.store.log.records.get(channel_id, ())) == after and not self.is_cut:
            self.write(channel_id, envelopes, after)


class ForgetfulSeat(Seat):
    """What an earlier attempt of the turn has recorded is not looked at."""

    async def recorded(self, channel_id: str) -> list[Envelope]:
        return []


class DeafSeat(Seat):
    """It works on a turn that somebody else has."""

    async def claim(self, channel_id: str, turn: int, *, envelope_id: str = "", alone: bool = False) -> Claim:
        try:
            return await super().claim(channel_id, turn, envelope_id=envelope_id, alone=alone)
        except TurnTaken:
            live = (await self.state(channel_id)).claim
            if live is None:
                raise
            return live


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
