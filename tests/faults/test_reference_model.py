"""X12: random drafts through hub, SQLite and restarts add up to what folding the log from scratch
does, and to what a small reference model says.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.faults.counts import RANDOM_HISTORIES, STEPS_OF_A_HISTORY
from tests.faults.reference import Model
from tests.turn_lines import claim_own, fail
from turnline.client.channel import Channel
from turnline.core.adapters import built_in
from turnline.core.channel import ChannelSpec
from turnline.core.event_types import EV_CONTEXT_SET, EV_PACKET
from turnline.errors import Refused
from turnline.log.sqlite import SqliteLog
from turnline.network import AgentClient, Hub, HubClient, HumanClient, LocalLink, Passport, State, round_robin
from turnline.testing import ManualClock

NAMES = ["ada", "bob", "cyd"]
MAX_TURNS = 7

names = st.sampled_from(NAMES)
keys = st.sampled_from(["x", "y", "n"])
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3)
updates = st.one_of(
    st.builds(lambda k, v: {"set": {k: v}}, st.sampled_from(["x", "y"]), st.integers(-3, 3) | TEXTS),
    st.builds(lambda k: {"delete": [k]}, keys),
    st.builds(lambda n: {"increment": {"n": n}}, st.integers(-5, 5)),
    st.builds(lambda v: {"delete": ["x"], "set": {"x": v}}, st.booleans()),
)


class RandomHistory(RuleBasedStateMachine):
    """One channel on one SQLite file; every rule is something somebody does to it."""

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.model = Model(NAMES, MAX_TURNS)
        self.claim: int | None = None
        self.do(self.start())
        self.do(self.user.open("workflow", NAMES, self.knobs(), channel_id="c", expectations=[]))

    async def start(self) -> None:
        # What is tested here is the order of things; tests/faults/test_sigkill.py tests the disk.
        log = SqliteLog(Path(self.folder.name) / "log.db", durability="process")
        self.hub = await Hub.open(log, ttl_sweep_interval=0, clock=self.clock)
        self.client = HubClient(LocalLink(self.hub))
        self.agents: dict[str, AgentClient] = {
            name: await self.client.register(passport=Passport(name=name)) for name in NAMES
        }
        self.user: HumanClient = await self.client.register_human(Passport(name="user", kind="human"))

    async def stop(self) -> None:
        await self.client.close()
        await self.hub.close()

    def knobs(self) -> dict[str, Any]:
        return {"graph": round_robin(NAMES, MAX_TURNS).to_dict()}

    def do(self, what: Any) -> Any:
        return self.runner.run(what)

    def handle(self, name: str) -> Channel:
        return self.agents[name].channel("c")

    def in_turn(self) -> Channel:
        assert self.model.floor is not None
        return Channel(self.agents[self.model.floor].seat, "c", claim=self.claim)

    @rule(name=names, update=st.none() | st.builds(lambda v: {"x": v}, st.integers(0, 3)))
    def somebody_sends_a_packet(self, name: str, update: dict[str, Any] | None) -> None:
        data = {"body": f"{name} speaks", **({"context_updates": update} if update else {})}
        allowed = self.model.open and name == self.model.floor
        channel = self.in_turn() if allowed else self.handle(name)
        if self.accepted(channel.send(event_type=EV_PACKET, event_data=data)):
            assert allowed
            self.model.speak({"set": update or {}})
            self.claim = None
        else:
            assert not allowed

    @rule(name=names, update=updates)
    def an_observer_writes_context(self, name: str, update: dict[str, Any]) -> None:
        sent = self.handle(name).send(event_type=EV_CONTEXT_SET, event_data=update, audience=[])
        if self.accepted(sent):
            self.model.write(update, in_turn=False)

    @precondition(lambda self: self.model.open and self.model.claimed)
    @rule(update=updates)
    def the_speaker_writes_context(self, update: dict[str, Any]) -> None:
        sent = self.in_turn().send(event_type=EV_CONTEXT_SET, event_data=update, audience=[])
        assert self.accepted(sent)
        self.model.write(update, in_turn=True)

    @rule(expected=st.integers(0, 2))
    def somebody_compares_and_sets(self, expected: int) -> None:
        update = {"expect": {"x": expected}, "set": {"x": expected + 1}}
        holds = self.model.open and self.model.visible().get("x") == expected
        sent = self.handle("ada").send(event_type=EV_CONTEXT_SET, event_data=update, audience=[])
        assert self.accepted(sent) == holds
        if holds:
            self.model.write({"set": {"x": expected + 1}}, in_turn=False)

    @precondition(lambda self: self.model.open and not self.model.claimed)
    @rule()
    def the_speaker_claims(self) -> None:
        assert self.model.floor is not None
        seat = self.agents[self.model.floor].seat
        self.taken = self.do(claim_own(seat, "c", self.model.turns + 1))
        self.claim = self.taken.seq
        self.model.claim()

    @precondition(lambda self: self.model.open and self.model.claimed)
    @rule()
    def the_speaker_releases(self) -> None:
        assert self.claim is not None
        self.do(self.hub.turns.release("c", self.claim))
        self.model.release()
        self.claim = None

    @precondition(lambda self: self.model.open and self.model.claimed and self.model.turns > 3)
    @rule()
    def the_speaker_gives_up(self) -> None:
        assert self.claim is not None
        assert self.model.floor is not None
        seat = self.agents[self.model.floor].seat
        self.do(fail(seat, "c", self.taken, {"type": "Tired", "message": ""}))
        self.model.give_up()
        self.claim = None

    @precondition(lambda self: not self.model.claimed)
    @rule()
    def a_person_interjects(self) -> None:
        assert self.accepted(self.user.channel("c").interject("by the way")) == self.model.open

    @precondition(lambda self: self.model.turns > 4)
    @rule(name=names)
    def somebody_closes(self, name: str) -> None:
        self.do(self.handle(name).close("enough"))
        if self.model.open:
            self.model.close("enough")
            self.claim = None

    @rule()
    def the_hub_starts_again(self) -> None:
        self.do(self.stop())
        self.do(self.start())

    @rule()
    def snapshots_are_deleted(self) -> None:
        assert isinstance(self.hub.log, SqliteLog)
        self.do(self.hub.log.delete_snapshots())

    def accepted(self, sending: Any) -> bool:
        try:
            self.do(sending)
        except Refused:
            return False
        return True

    @invariant()
    def all_three_agree(self) -> None:
        state = self.do(self.hub.state("c"))
        assert state == self.do(self.from_scratch())
        floor = None if self.model.floor is None else self.agents[self.model.floor].agent_id
        assert state.expected_next_speaker == floor
        assert state.turn_count == self.model.turns
        assert state.context_vars == self.model.visible()
        assert state.pending_close_reason == self.model.reason
        assert (state.claim is not None) == self.model.claimed
        assert state.is_over == (not self.model.open)

    async def from_scratch(self) -> State:
        envelopes = await self.hub.read_wal("c")
        assert [one.seq for one in envelopes] == list(range(1, len(envelopes) + 1))
        adapter = built_in().get("workflow")
        spec = msgspec.convert(envelopes[0].event_data, ChannelSpec)
        state: State = reduce(adapter.fold, envelopes, adapter.initial(spec))
        return state

    def teardown(self) -> None:
        self.do(self.stop())
        self.runner.close()
        self.folder.cleanup()


TestRandomHistory = RandomHistory.TestCase
TestRandomHistory.settings = settings(
    max_examples=RANDOM_HISTORIES,
    stateful_step_count=STEPS_OF_A_HISTORY,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
