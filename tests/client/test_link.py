"""A link: the way to a hub. What is promised here, a link over a network keeps as well."""

from __future__ import annotations

from tests.hub.scenes import A_B, draft, house, refused
from turnwise.client.link import Link, LocalLink, Seat
from turnwise.core.governance import Passport
from turnwise.errors import NameTaken, UnknownParticipant
from turnwise.hub.request import OpenRequest
from turnwise.log.memory import MemoryLog


class Deaf:
    """A receiver that does not listen."""

    def wake(self, channel_id: str, seq: int) -> None: ...


async def test_a_seat_is_taken_after_registering_and_free_after_leaving() -> None:
    async with house(MemoryLog()) as home:
        link: Link = LocalLink(home.hub)
        alice = await link.register(Passport(name="alice"), None, None)
        seat: Seat = await link.attach(alice, Deaf())
        await refused(NameTaken, link.attach(alice, Deaf()))
        seat.leave()

        assert (await link.attach(alice, Deaf())).agent_id == alice.agent_id


async def test_whoever_is_not_registered_has_no_seat() -> None:
    async with house(MemoryLog()) as home, house(MemoryLog(), "alice") as elsewhere:
        stranger = elsewhere.hub.participant("alice")
        await refused(UnknownParticipant, LocalLink(home.hub).attach(stranger, Deaf()))


async def test_a_seat_is_all_that_a_participant_needs() -> None:
    async with house(MemoryLog(), "bob") as home:
        link: Link = LocalLink(home.hub)
        seat = await link.attach(await link.register(Passport(name="alice"), None, None), Deaf())
        request = OpenRequest(type="workflow", target=["bob"], knobs={"graph": A_B.to_dict()})
        channel_id = await seat.open(request)
        claim = await seat.claim(channel_id, 1)
        await seat.release(channel_id, claim.seq)
        said = await seat.post(channel_id, draft(home["bob"], envelope_id=seat.new_id()))
        await seat.close_channel(channel_id, "enough")
        reading = await seat.read(channel_id, 0)

        assert said.sender_id == seat.agent_id
        assert (await seat.metadata(channel_id)).close_reason == "enough"
        assert (await seat.state(channel_id)).turn_count == 1
        assert [e.event_type for e in reading.envelopes] == ["channel.opened", "text", "channel.closed"]
        assert reading.seq == len(await home.hub.read_wal(channel_id))
