"""E1: sending again under the same envelope id never doubles."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_TEXT
from turnline.core.state import LEASE_SECONDS
from turnline.errors import EnvelopeIdReused, LogUnavailable, TurnTaken

from ..logs import OpenLog
from .scenes import A_B, A_B_A, FailingLog, add_one, draft, house, refused, types


async def test_sending_again_is_answered_with_the_first_result(open_log: OpenLog) -> None:
    """E1: also when the floor has moved on, and after the channel has closed."""
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open(A_B)
        first = await channel.send("hello", envelope_id="once")
        again = await channel.send("hello", envelope_id="once")
        await home.handle("bob", channel).send("bye")
        after_the_end = await channel.send("hello", envelope_id="once")

        assert first == again == after_the_end
        assert (await home.types(channel)).count(EV_TEXT) == 2


async def test_sending_again_finds_all_of_the_first_result(open_log: OpenLog) -> None:
    """E1: the close that followed from the draft is part of its result."""
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open(A_B)
        await channel.send("hello")
        last = draft(home["bob"], envelope_id="last")
        first = await home.hub.post(channel.channel_id, last)

        assert types(first) == ["text", "channel.closed"]
        assert await home.hub.post(channel.channel_id, last) == first


async def test_one_id_with_other_content_is_refused(open_log: OpenLog) -> None:
    """E1, R4."""
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open(A_B_A)
        said = await channel.send("hello", envelope_id="once")

        for sending in (channel.send("good bye", envelope_id="once"), add_one(channel, envelope_id="once")):
            error = await refused(EnvelopeIdReused, sending)
            assert error.seq == said.seq


@pytest.mark.parametrize("times", [2, 5])
async def test_one_draft_sent_several_times_at_once_counts_once(open_log: OpenLog, times: int) -> None:
    """E1: a sender that gave up waiting tries again while the first is still on its way."""
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open()
        same = [add_one(channel, envelope_id="same") for _ in range(times)]
        answers = await asyncio.gather(add_one(channel), *same, add_one(channel))

        assert all(one == answers[1] for one in answers[1:-1])
        assert (await channel.state()).context_vars == {"n": 3}


async def test_the_id_of_a_consequence_can_be_taken(open_log: OpenLog) -> None:
    """E1: the close that `last` brings about would be `last-1`. The draft is refused, the channel lives."""
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open(A_B)
        taken = await add_one(channel, envelope_id="last-1")
        await channel.send("hello")
        error = await refused(EnvelopeIdReused, home.handle("bob", channel).send("bye", envelope_id="last"))

        assert (error.envelope_id, error.seq) == ("last-1", taken.seq)
        await home.handle("bob", channel).send("bye")
        assert (await channel.info()).close_reason == "sequence_complete"


async def test_an_append_that_landed_though_it_failed_is_found_when_sent_again() -> None:
    """E1, R1: an error from a commit leaves open whether it was written."""

    class LostAnswer(FailingLog):
        async def append(
            self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
        ) -> None:
            error, self.fail_append = self.fail_append, None
            await super().append(channel_id, envelopes, after=after, row=row)
            if error is not None:
                raise error

    log = LostAnswer()
    async with house(log, "alice", "bob") as home:
        channel = await home.open()
        log.fail_append = LogUnavailable("here", because="the connection was lost")
        await refused(LogUnavailable, add_one(channel, envelope_id="once"))
        await add_one(channel, envelope_id="once")

        assert (await channel.state()).context_vars == {"n": 1}


async def test_e1_a_claim_made_again_under_its_id_is_the_same_claim(open_log: OpenLog) -> None:
    """Also where it had replaced another one."""
    async with house(open_log(), "alice", "bob") as home:
        channel = await home.open(A_B)
        claim = partial(home.hub.turns.claim, channel.channel_id, home["alice"].agent_id, turn=1)
        await claim(worker="gone:1:1/a", envelope_id="one")
        await refused(TurnTaken, claim(worker="gone:1:1/b", envelope_id="early"))
        home.clock.advance(LEASE_SECONDS)
        second = await claim(worker="gone:1:1/b", envelope_id="two")

        assert await claim(worker="gone:1:1/b", envelope_id="two") == second
        assert (await home.types(channel)).count("turn.claimed") == 2
