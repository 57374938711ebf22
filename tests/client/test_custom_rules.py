"""Conditions and targets of a user's own, with the public names, before and after a restart (W1, E5)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from tests.client.stage import speakers
from tests.hub.scenes import House, answers, closed, house, sqlite
from tests.logs import new_log
from turnline.network import (
    Envelope,
    FromSpeaker,
    TerminateTarget,
    Transition,
    TransitionDecision,
    TransitionGraph,
    register_condition,
    register_target,
)
from turnline.network.workflow_helpers import set_context


@dataclass(slots=True)
class LengthAbove:
    """Holds when a list among the context variables has more items than so many."""

    name: ClassVar[str] = "test_custom_rules.length_above"
    key: str
    count: int = 0

    def evaluate(self, state: Any, envelope: Envelope) -> bool:
        return len(state.context_vars.get(self.key, ())) > self.count


@dataclass(slots=True)
class LastNamed:
    """Leads to whoever stands last in a list among the context variables."""

    name: ClassVar[str] = "test_custom_rules.last_named"
    key: str

    def resolve(self, state: Any, envelope: Envelope) -> TransitionDecision:
        return TransitionDecision(next_speaker=state.context_vars[self.key][-1])


@dataclass(slots=True)
class Nobody:
    """Names no speaker, and a reason only if it is given one."""

    name: ClassVar[str] = "test_custom_rules.nobody"
    reason: str = ""

    def resolve(self, state: Any, envelope: Envelope) -> TransitionDecision:
        return TransitionDecision(next_speaker=None, close_reason=self.reason)


register_condition(LengthAbove)
register_target(LastNamed)
register_target(Nobody)

GRAPH = TransitionGraph(
    "alice",
    [Transition(LengthAbove("names", count=1), LastNamed("names"))],
    TerminateTarget("nobody_else"),
    max_turns=4,
)


async def again(home: House, channel_id: str) -> list[str]:
    """Who has spoken when the channel has closed."""
    channel = home["alice"].channel(channel_id)
    home["bob"].on_turn(answers("me again"))
    assert await closed(channel) == "max_turns"
    return await speakers(home, channel)


def test_w1_their_fields_are_what_is_stored_under_their_name() -> None:
    stored = msgspec.json.decode(msgspec.json.encode(GRAPH.to_dict()))

    assert stored["transitions"][0]["when"] == {
        "name": "test_custom_rules.length_above",
        "args": {"key": "names", "count": 1},
    }
    assert TransitionGraph.loads(stored) == GRAPH


async def test_w1_they_route_and_after_a_restart_they_route_on(tmp_path: Path) -> None:
    async with house(sqlite(tmp_path), "alice", "bob", "carol") as home:
        channel = await home.open(GRAPH)
        await set_context(channel, "names", ["alice", "carol"])
        await channel.send("who is next?")
        await home.handle("carol", channel).send("it is me")
        await set_context(channel, "names", ["carol", "bob"])
        await home.handle("carol", channel).send("and now it is not")
    async with house(sqlite(tmp_path), "alice", "bob", "carol") as home:
        assert await again(home, channel.channel_id) == ["alice", "carol", "carol", "bob"]


async def test_w1_where_they_do_not_hold_the_default_answers() -> None:
    async with house(new_log(), "alice", "bob") as home:
        assert await closed(await home.open(GRAPH, message="hello")) == "nobody_else"


def test_w4_one_of_them_combines_with_the_built_in_ones() -> None:
    both = FromSpeaker("alice") & LengthAbove("names")
    graph = TransitionGraph("alice", [Transition(both, TerminateTarget())], TerminateTarget())

    assert TransitionGraph.loads(graph.to_dict()) == graph


@pytest.mark.parametrize(("given", "reason"), [("by hand", "by hand"), ("", "terminated")])
async def test_w8_a_target_that_names_no_speaker_closes_the_channel(given: str, reason: str) -> None:
    async with house(new_log(), "alice", "bob") as home:
        channel = await home.open(TransitionGraph("alice", [], Nobody(given)), message="hello")

        assert await closed(channel) == reason


# --- a class of the user's own in place of a built-in one ---

PROGRAM = """
import asyncio, sys
from dataclasses import dataclass, field
from typing import Any, ClassVar
import turnline
from turnline import network
from turnline.network import FromSpeaker, TerminateTarget, Transition, TransitionGraph
from turnline.testing import ScriptedModel

log, life, which = sys.argv[1:]

@dataclass(slots=True)
class ContextThreshold(network.TransitionCondition):
    name: ClassVar[str] = "context_threshold"
    key: str
    threshold: float
    op: str = ">="

    def evaluate(self, state: Any, envelope: Any) -> bool:
        return float(state.context_vars.get(self.key, 99)) >= self.threshold

@dataclass(slots=True)
class AllOf(network.TransitionCondition):
    name: ClassVar[str] = "all_of"
    conditions: list = field(default_factory=list)

    def evaluate(self, state: Any, envelope: Any) -> bool:
        return all(one.evaluate(state, envelope) for one in self.conditions)

if which == "own":
    network.register_condition(ContextThreshold)
    network.register_condition(AllOf)
    when = AllOf([FromSpeaker("ada"), ContextThreshold("score", 5)])
else:
    when = network.AllOf(FromSpeaker("ada"), network.ContextThreshold("score", 5))
graph = TransitionGraph(
    "user",
    [Transition(FromSpeaker("user"), network.AgentTarget("ada")), Transition(when, TerminateTarget("own"))],
    TerminateTarget("built in"),
)

async def main() -> None:
    hub = await network.Hub.open(log)
    client = network.HubClient(network.LocalLink(hub), hub=hub)
    user = await client.register_human(network.Passport(name="user", kind="human"))
    try:
        if life == "opens":
            await client.register(None, network.Passport(name="ada"))
            await user.open("workflow", ["ada"], {"graph": graph.to_dict()}, message="go", channel_id="c")
        elif life == "speaks":
            ada = await client.register(None, network.Passport(name="ada"))
            await ada.channel("c").send("hi")
        else:
            await client.register(turnline.Agent("ada", config=ScriptedModel("hi")))
            print((await user.channel("c").result(timeout=30)).reason)
    except turnline.TurnlineError as error:
        print(type(error).__name__, error)
    finally:
        await client.close()
        await hub.close()

asyncio.run(main())
"""


def ran(log: str, life: str, which: str) -> str:
    program = [sys.executable, "-c", PROGRAM, log, life, which]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("reader", ["own", "built in"])
def test_a_log_that_names_the_built_in_classes_is_routed_the_same_with_and_without_the_users(
    tmp_path: Path, reader: str
) -> None:
    log = f"sqlite:///{tmp_path}/log.db"

    assert ran(log, "opens", "built in") == ""
    assert ran(log, "continues", reader) == "built in"


def test_a_log_made_with_the_users_classes_is_routed_by_them(tmp_path: Path) -> None:
    log = f"sqlite:///{tmp_path}/log.db"

    assert ran(log, "opens", "own") == ""
    assert ran(log, "continues", "own") == "own"


def test_a_log_made_with_the_users_classes_says_what_a_program_without_them_lacks(tmp_path: Path) -> None:
    log = f"sqlite:///{tmp_path}/log.db"

    assert ran(log, "opens", "own") == ""
    told = ran(log, "speaks", "built in")
    assert told.startswith("ChannelQuarantined")
    assert "in place of the built-in" in told
    assert "register_condition(...)" in told
