"""Rules, arbiter, listeners: what is asked before, and told after."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnline.core.channel import ChannelMetadata, ChannelSpec
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_CONTEXT_SET, EV_TURN_FAILED
from turnline.core.governance import Passport, Registrar, Registration, Rule
from turnline.errors import BadDraft, BadSpec, Denied
from turnline.hub.governance import Counts, Rates
from turnline.hub.request import OpenRequest
from turnline.hub.seat import Seat
from turnline.log.memory import MemoryLog

from ..logs import OpenLog
from .scenes import A_B, A_B_A, House, add_one, answers, begin, closed, house, quiet, refused


async def ruled(home: House, **fields: Any) -> None:
    """Alice comes under a rule."""
    await home.agent("alice", rule=Rule(**fields))


async def denied(home: House, asked: Any, because: str) -> None:
    """`asked` is refused for this reason; the refusal is audited and nothing was opened."""
    error = await refused(Denied, asked)
    assert because in str(error)
    line = (await home.audited("denied"))[-1]
    assert (line["who"], line["because"]) == (error.who, error.because)


# --- every field of a rule ---


async def test_may_address() -> None:
    async with house(MemoryLog(), "bob", "carol") as home:
        await ruled(home, may_address=["bob"])
        await denied(home, home.talk(to="carol"), "its rule allows only bob")
        assert await home.talk(to="bob")


async def test_addressable_by() -> None:
    async with house(MemoryLog(), "bob", "carol") as home:
        await ruled(home, addressable_by=["bob"])
        await denied(home, home.talk(by="carol", to="alice"), "the rule of 'alice' does not allow it")
        assert await home.talk(by="bob", to="alice")
        assert await home.talk(by="alice", to="carol")


async def test_channel_types() -> None:
    async with house(MemoryLog(), "bob") as home:
        await ruled(home, channel_types=["workflow"])
        await denied(home, home.talk(), "its rule allows only workflow")
        assert await home.open(A_B)


async def test_posts_per_minute() -> None:
    """A minute's worth at once, then one for each that the minute brings back."""
    async with house(MemoryLog(), "bob") as home:
        await ruled(home, posts_per_minute=6)
        channel = await home.talk()
        for _ in range(6):
            await add_one(channel)
        before = await home.wal(channel)
        await denied(home, add_one(channel), "6 posts a minute")
        assert await home.wal(channel) == before

        home.clock.advance(9.9)
        await denied(home, add_one(channel), "6 posts a minute")
        home.clock.advance(0.1)
        await add_one(channel)
        await denied(home, add_one(channel), "6 posts a minute")
        await add_one(home.handle("bob", channel))  # The rule is alice's alone.


async def test_inbox() -> None:
    """So many channels may wait for it at once; a turn taken, or a channel closed, makes room."""
    async with house(MemoryLog(), "bob") as home:
        await ruled(home, inbox=2)
        waiting = [await home.open(A_B_A, by="bob") for _ in range(2)]
        await denied(home, home.talk(by="bob", to="alice"), "its rule allows 2")

        await home.handle("alice", waiting[0]).send("here")
        third = await home.open(A_B_A, by="bob")
        await denied(home, home.open(A_B_A, by="bob"), "its rule allows 2")
        await third.close()
        assert await home.talk(by="bob", to="alice")


async def test_inbox_after_a_restart(open_log: OpenLog) -> None:
    """What is waited for is on the log."""
    async with house(open_log(), "bob") as home:
        await ruled(home, inbox=1)
        await home.open(A_B_A, by="bob")
    async with house(open_log(), "alice", "bob") as home:
        await denied(home, home.talk(by="bob", to="alice"), "its rule allows 1")


async def test_ttl_seconds() -> None:
    """The longest, and what a channel gets that asks for none."""
    async with house(MemoryLog(), "bob") as home:
        await ruled(home, ttl_seconds=100)
        await denied(home, home.talk(ttl=101), "its rule allows 100 s")
        assert (await (await home.talk(ttl=99)).info()).ttl_seconds == 99
        assert (await (await home.talk()).info()).ttl_seconds == 100


async def test_delegation_depth() -> None:
    async with house(MemoryLog(), "bob") as home:
        await ruled(home, delegation_depth=1)
        top = await home.talk()
        child = await home.talk(parent=top.channel_id)
        await denied(home, home.talk(parent=child.channel_id), "its rule allows 1")
        assert await home.talk(by="bob", to="alice", parent=child.channel_id)


def test_there_is_a_test_for_every_field_of_a_rule() -> None:
    """Every field is enforced, or absent."""
    tested = {name.removeprefix("test_") for name in globals()}
    assert set(Rule.__struct_fields__) <= tested


async def test_a_rule_of_none_allows_everything() -> None:
    async with house(MemoryLog(), "bob") as home:
        await ruled(home)
        for _ in range(200):
            await add_one(await home.talk())


# --- the arbiter ---


class Judge:
    """Says no to what it is told to."""

    def __init__(self) -> None:
        self.no: set[str] = set()
        self.asked: list[str] = []

    async def may_open(self, opener: Registration, spec: ChannelSpec) -> None:
        self._decide(opener, f"open {spec.type}")

    async def may_post(self, sender: Registration, draft: Draft, channel: ChannelMetadata) -> None:
        self._decide(sender, f"post {draft.event_type} at {channel.seq}")

    def _decide(self, who: Registration, what: str) -> None:
        self.asked.append(f"{who.name}: {what}")
        if what.split(maxsplit=1)[0] in self.no:
            raise Denied(who.name, what=what, because="the judge says so")


async def test_the_arbiter_is_asked_before_a_channel_opens() -> None:
    judge = Judge()
    async with house(MemoryLog(), "alice", "bob", arbiter=judge) as home:
        judge.no = {"open"}
        await denied(home, home.talk(), "the judge says so")
        assert await home.hub.list_channels() == []

        judge.no = set()
        await home.talk()
        assert judge.asked == ["alice: open conversation"] * 2


async def test_the_arbiter_is_asked_before_a_post() -> None:
    judge = Judge()
    async with house(MemoryLog(), "alice", "bob", arbiter=judge) as home:
        channel = await home.talk()
        before = await home.wal(channel)
        judge.no = {"post"}
        await denied(home, channel.send("hello"), "the judge says so")
        assert await home.wal(channel) == before
        assert (await home.audited("denied"))[-1]["channel_id"] == channel.channel_id

        judge.no = set()
        await channel.send("hello")
        assert judge.asked[1:] == [f"alice: post text at {before[-1].seq}"] * 2


async def test_the_arbiter_is_not_asked_about_what_the_hub_writes() -> None:
    judge = Judge()
    async with house(MemoryLog(), "alice", "bob", arbiter=judge) as home:
        channel = await home.talk()
        judge.no = {"post"}
        await channel.close()

        assert judge.asked == ["alice: open conversation"]


# --- listeners ---


async def test_listeners_are_told_of_everything_in_the_order_of_the_log() -> None:
    heard: list[Envelope] = []
    later: list[Envelope] = []
    async with house(MemoryLog(), "alice", "bob", listeners=[heard.append]) as home:
        channel = await home.open(A_B, message="hello")
        home.hub.add_listener(later.append)
        await home.handle("bob", channel).send("bye")

        lines = await home.wal(channel)
        assert heard == lines
        assert later == lines[-2:]


async def test_a_listener_that_raises_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Envelope] = []

    def broken(envelope: Envelope) -> None:
        raise RuntimeError("a fault in the listener")

    async with house(MemoryLog(), "alice", "bob", listeners=[broken, heard.append]) as home:
        channel = await home.open(A_B, message="hello")
        await home.handle("bob", channel).send("bye")

        assert heard == await home.wal(channel)
        assert "a fault in the listener" in caplog.text


async def test_a_listener_sees_what_is_already_on_the_log() -> None:
    log = MemoryLog()
    seen: list[bool] = []
    async with house(log, "alice", "bob") as home:
        home.hub.add_listener(lambda e: seen.append(len(log.records[e.channel_id]) >= e.seq))
        await asyncio.gather(*(home.open(A_B) for _ in range(5)))

        assert len(seen) == 15
        assert all(seen)


# --- quotas ---


@pytest.mark.parametrize("many", [{"set": {"big": "x" * 2_000}}, {"append": {"list": "x" * 2_000}}])
async def test_the_context_of_a_channel_has_a_limit_with_a_name(many: JsonObject) -> None:
    async with house(MemoryLog(), "alice", "bob", context_bytes=1_000) as home:
        channel = await home.talk()
        error = await refused(BadDraft, channel.send(event_type=EV_CONTEXT_SET, event_data=many))
        await channel.send(event_type=EV_CONTEXT_SET, event_data={"set": {"small": 1}})
        context = (await channel.state()).context_vars

    assert "context_bytes" in str(error)
    assert context == {"small": 1}


async def test_a_packet_whose_updates_do_not_fit_fails_its_turn_and_is_not_tried_for_ever() -> None:
    async with house(MemoryLog(), "alice", "bob", context_bytes=1_000) as home:
        home["bob"].on_turn(answers({"body": "here", "context_updates": {"big": "x" * 2_000}}))
        channel = await home.open(A_B)
        await channel.send("your turn")
        await closed(channel)
        failure = [one for one in await home.wal(channel) if one.event_type == EV_TURN_FAILED]

    assert len(failure) == 1
    assert "context_bytes" in str(failure[0].event_data)


async def test_a_channel_is_not_opened_with_a_context_that_is_too_large() -> None:
    async with house(MemoryLog(), "alice", "bob", context_bytes=100) as home:
        error = await refused(BadDraft, home.talk(knobs={"context_vars": {"big": "x" * 200}}))

    assert "context_bytes" in str(error)


class User:
    """A user of a server, with agents of their own."""

    def __init__(self, home: House, *agents: Registration) -> None:
        self._home = home
        self._agents = agents

    @property
    def agent_id(self) -> str:
        return self._agents[0].agent_id

    async def open(self, agent: int = 0) -> str:
        """Open a conversation with bob; return its id."""
        request = OpenRequest(type="conversation", target=["bob"])
        return await self._home.hub.open_channel(request, self._agents[agent].agent_id)


async def user(home: House, name: str) -> User:
    passports = [Passport(name=f"{name}-{number}", owner=name) for number in (1, 2)]
    by = Registrar(name)
    return User(home, *[await home.hub.enrol(one, None, None, by=by) for one in passports])


async def test_a_user_has_a_limit_of_open_channels_over_all_their_agents_and_closing_one_makes_room() -> None:
    async with house(MemoryLog(), "bob", "carol", open_channels_per_user=2) as home:
        ann, ben = await user(home, "ann"), await user(home, "ben")
        first = await ann.open(0)
        await ann.open(1)
        await denied(home, ann.open(0), "open_channels_per_user")
        await denied(home, ann.open(1), "has 2 open channels")
        await ben.open()
        for _ in range(3):
            await home.talk(by="bob", to="carol")  # The project has no quota.
        await home.hub.write(first, EV_CHANNEL_CLOSED, {"reason": "enough"})
        await ann.open(1)


async def test_channels_opened_at_the_same_moment_do_not_pass_the_limit() -> None:
    async with house(MemoryLog(), "bob", open_channels_per_user=3) as home:
        ann = await user(home, "ann")
        outcomes = await asyncio.gather(*(ann.open() for _ in range(20)), return_exceptions=True)

    assert sum(isinstance(one, Denied) for one in outcomes) == 17


async def test_a_hub_that_is_opened_again_counts_what_is_open() -> None:
    log = MemoryLog()
    async with house(log, "bob", open_channels_per_user=1) as home:
        await (await user(home, "ann")).open()
    async with house(log, "bob", open_channels_per_user=1) as home:
        await denied(home, (await user(home, "ann")).open(), "open_channels_per_user")


async def test_a_fork_counts_for_the_user_who_made_it() -> None:
    """A member cannot use up the places of the user who opened the channel."""
    async with house(MemoryLog(), "bob", open_channels_per_user=3) as home:
        ann, ben = await user(home, "ann"), await user(home, "ben")
        request = OpenRequest(type="discussion", target=["bob", "ben-1"], channel_id="talk")
        opening = begin(home.hub.open_channel(request, ann.agent_id))
        await quiet()
        await Seat(home.hub, home.hub.participant("ben-1")).answer_invite("talk")
        channel_id = await opening
        forks = [await home.hub.fork(channel_id, at=3, by="ben-1") for _ in range(3)]
        await denied(home, home.hub.fork(channel_id, at=3, by="ben-1"), "open_channels_per_user")

        await ann.open()
        await home.hub.write(forks[0], EV_CHANNEL_CLOSED, {"reason": "enough"})
        await ben.open()


async def test_a_user_opens_no_run_of_a_flow() -> None:
    """Runs count against the limits of the run above, and only a server starts them."""
    async with house(MemoryLog(), "bob") as home:
        ann = await user(home, "ann")
        channel_id = await ann.open()
        knobs = {"graph": A_B.to_dict(), "flow": {}}
        for parent_id in (None, channel_id):
            forged = OpenRequest(type="workflow", target=["bob"], knobs=knobs, parent_id=parent_id)
            await denied(home, home.hub.open_channel(forged, ann.agent_id), "only a server starts runs")

        assert (await home.hub.state(channel_id)).nested_runs == 0


async def test_a_parent_notes_no_child_that_is_refused() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        before = await channel.state()
        bad = OpenRequest(
            type="discussion", target=["bob"], knobs={"graph": {}}, parent_id=channel.channel_id
        )
        await refused(BadSpec, home.hub.open_channel(bad, home["alice"].agent_id))

        assert (await channel.state()).seq == before.seq


def test_a_user_or_address_without_anything_counted_takes_no_memory() -> None:
    counts = Counts()
    counts["ann"] += 1
    counts["ann"] -= 1
    counts.subtract(["1.1.1.1"])
    counts["1.1.1.1"] += 1

    assert not counts


def test_the_rate_of_a_removed_participant_is_forgotten() -> None:
    rates, rule = Rates(), Rule(posts_per_minute=1)
    ann = Registration(agent_id="ann-1", passport=Passport(name="ann"), rule=rule)
    rates.spend(ann, 0.0)
    with pytest.raises(Denied, match="1 posts a minute"):
        rates.spend(ann, 0.0)

    rates.forget("ann-1")

    rates.spend(ann, 0.0)
