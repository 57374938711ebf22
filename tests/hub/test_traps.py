"""`open` warns of the traps of a graph: once per graph, and opens all the same."""

from __future__ import annotations

import logging

import pytest

from turnline.agent.agent import Agent
from turnline.core.graph import Transition, TransitionGraph, round_robin
from turnline.core.transitions import AgentTarget, ContextEquals, FromSpeaker, TerminateTarget, ToolCalled
from turnline.log.memory import MemoryLog

from .scenes import house

STUCK = TransitionGraph(
    "alice",
    [Transition(ContextEquals("route", "bob"), AgentTarget("bob"))],
    TerminateTarget("done"),
    max_turns=9,
)
CLEAN = TransitionGraph(
    "bob", [Transition(FromSpeaker("bob"), AgentTarget("alice"))], TerminateTarget("done")
)

NO_DEFAULT = TransitionGraph(
    "alice",
    [
        Transition(FromSpeaker("alice"), AgentTarget("bob")),
        Transition(FromSpeaker("bob"), TerminateTarget("approved")),
    ],
    TerminateTarget("never"),
)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "turnline.hub.opening"]


async def test_opening_a_channel_tells_the_traps_of_its_graph_once(caplog: pytest.LogCaptureFixture) -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        first = await home.open(STUCK)
        await home.open(STUCK)
        (warning,) = told(caplog)

        assert {one.levelno for one in caplog.records} == {logging.WARNING}
        assert "G301 after its own turn 'bob' gets the floor again, for as long as route is 'bob'" in warning
        assert "G304" not in warning  # It is a finding, but not a mistake.
        assert first.channel_id in warning

        await home.open(round_robin(["bob", "alice"]))
        assert ["G302" in one for one in told(caplog)] == [False, True]


async def test_a_graph_without_traps_is_opened_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        await home.open(CLEAN)

    assert told(caplog) == []


async def test_findings_that_are_not_mistakes_are_not_on_stderr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "turnline.hub.opening")
    async with house(MemoryLog(), "alice", "bob") as home:
        await home.open(NO_DEFAULT, by="alice")

    (finding,) = (one for one in caplog.records if one.name == "turnline.hub.opening")
    assert finding.levelno == logging.INFO
    assert "G204 the default is never taken" in finding.getMessage()
    assert "G304 'alice' opens the channel and speaks first" in finding.getMessage()


async def test_g102_open_knows_the_tools_of_the_agents_that_are_attached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def waits(tool: str) -> TransitionGraph:
        return TransitionGraph(
            "user", [Transition(ToolCalled(tool), AgentTarget("ben"))], TerminateTarget("done"), max_turns=9
        )

    ann, ben = Agent("ann"), Agent("ben")
    async with house(MemoryLog(), people=["user"]) as home:
        home.agents["ann"] = await home.door.register(ann)
        home.agents["ben"] = await home.door.register(ben, attach_plugin=False)

        @ann.tool
        def escalate() -> str:
            return "done"

        for tool in ("escalate", "delegate", "esclate"):
            await home.open(waits(tool), by="user")
        (warning,) = told(caplog)
        assert "G102 no participant has a tool 'esclate'" in warning
        assert "did you mean 'escalate'?" in warning

        await home.agent("cat")  # Works with callbacks: nobody knows what it can do.
        await home.open(waits("esclate2"), by="user")
        assert len(told(caplog)) == 1


async def test_a_graph_that_cannot_be_linted_is_opened_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    odd = CLEAN.to_dict()
    odd["transitions"].append(
        {"when": {"name": "signal_is", "args": {"signal": ["a", "list"]}}, "then": odd["default_target"]}
    )
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(TransitionGraph.loads(odd))

    assert channel.channel_id
    assert told(caplog) == []


async def test_a_graph_is_not_looked_at_where_nobody_would_be_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "turnline.hub.opening")
    async with house(MemoryLog(), "alice", "bob") as home:
        await home.open(STUCK)
        caplog.set_level(logging.WARNING, "turnline.hub.opening")
        await home.open(STUCK)

    assert len(told(caplog)) == 1
