"""The tools an agent on a network has beside its own: `delegate`, `peers`, `channels`, `tasks`, `context`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.client.stage import played, stage, told
from tests.client.tooling import actor, ask_ada, join, use
from tests.hub.scenes import House, closed, house
from tests.turn_lines import claim_own, release
from turnline.agent.network_tools import NETWORK_TOOLS
from turnline.agent.tool import Tool
from turnline.client.channel import Channel
from turnline.client.plugin import NetworkPlugin, network_tools
from turnline.core.governance import Passport, Resume, Rule
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.transitions import ContextEquals, StayTarget, TerminateTarget
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call

FIVE = ["delegate", "peers", "channels", "tasks", "context"]


def offered(model: ScriptedModel) -> list[str]:
    return [tool.name for tool in model.requests[-1].tools]


def delegate(to: str) -> str:
    """Another one, of the agent's own."""
    return f"{to} is my own business"


# --- who has them ---


async def test_an_agent_on_a_network_has_five_tools_beside_its_own() -> None:
    def look() -> str:
        return "seen"

    ada, model = actor("ada", "hello", tools=[look])
    async with stage(ada) as home:
        await played(home)

    assert offered(model) == ["look", *FIVE]
    assert len(ada.tools) == 1


def test_their_names_are_known_without_making_them() -> None:
    assert {tool.name for tool in network_tools()} == NETWORK_TOOLS


async def test_attach_plugin_false_gives_none() -> None:
    ada, model = actor("ada", call("peers"), "hello")
    async with stage() as home:
        await join(home, ada, plugin=False)
        await played(home)

    assert offered(model) == []
    assert told(model) == ["there is no tool 'peers'; known: none."]


async def test_a_tool_of_the_agents_own_goes_before_the_plugins_of_that_name() -> None:
    ada, model = actor("ada", call("delegate", to="bob"), "hello", tools=[delegate])
    async with stage(ada) as home:
        await played(home)

    assert sorted(offered(model)) == sorted(FIVE)
    assert told(model) == ["bob is my own business"]


async def test_also_if_the_agent_gets_it_after_it_was_registered() -> None:
    ada, model = actor("ada", call("delegate", to="bob"), "hello")
    async with stage(ada) as home:
        ada.tool(delegate)
        await played(home)

    assert told(model) == ["bob is my own business"]


async def test_an_agent_asked_outside_of_a_network_has_none() -> None:
    ada, model = actor("ada", "hello", "hello")
    async with stage(ada) as home:
        await played(home)
        await ada.ask("hello?")

    assert offered(model) == []


@pytest.mark.parametrize("tool", network_tools(), ids=lambda tool: tool.name)
def test_each_says_what_it_does_and_what_it_takes(tool: Tool[..., Any]) -> None:
    assert tool.description
    assert all(described["description"] for described in tool.schema["properties"].values())


def test_what_comes_from_the_turn_is_not_the_models() -> None:
    """V3."""
    taken = {name for tool in NetworkPlugin().tools for name in tool.schema["properties"]}

    assert taken == {"to", "task", "action", "task_id", "text", "key", "value", "channel_id"}


# --- peers ---


async def test_peers_are_those_who_can_be_addressed_and_nothing_of_their_auth_is_told() -> None:
    ada, model = actor("ada", call("peers"), "hello")
    async with stage(actor("cleo")[0]) as home:
        passport = Passport(name="bob", auth={"token": "s3cret"})
        await home.door.register(None, passport, Resume(capabilities=["sums"], summary="Adds up."))
        await home.agent("dan", rule=Rule(addressable_by=["cleo"]))
        await join(home, ada, rule=Rule(may_address=["bob", "dan", "user"]))
        await played(home, target=["ada"])

    assert msgspec.json.decode(told(model)[0]) == [
        {"name": "user", "kind": "human", "capabilities": [], "summary": ""},
        {"name": "bob", "kind": "agent", "capabilities": ["sums"], "summary": "Adds up."},
    ]


async def test_peers_follow_what_is_registered_later() -> None:
    async with house(MemoryLog(), "ada", "bob") as home:
        channel = await home.talk(by="ada", to="bob")
        before = (await use(home, "ada", channel, "peers")).text
        await home.agent("cleo")

        assert "cleo" not in before
        assert "cleo" in (await use(home, "ada", channel, "peers")).text


# --- channels ---


async def test_channels_are_the_open_ones_the_agent_is_on_and_whose_turn_it_is() -> None:
    async with house(MemoryLog(), "ada", "bob", "cleo") as home:
        here = await home.talk(by="ada", to="bob", channel_id="here", message="hello")
        await home.open(by="bob", channel_id="there", target=["ada"], **named("ada", "bob"))
        await (await home.talk(by="ada", to="bob")).close()
        await home.talk(by="bob", to="cleo")
        listed = msgspec.json.decode((await use(home, "ada", here, "channels")).text)

    assert listed == [
        {"channel_id": "here", "type": "conversation", "others": ["bob"], "turn": "bob", "here": True},
        {"channel_id": "there", "type": "workflow", "others": ["bob"], "turn": "you", "here": False},
    ]


def named(*speakers: str) -> dict[str, Any]:
    return {"graph": TransitionGraph.sequence(list(speakers))}


# --- context ---


async def test_context_is_read_set_and_deleted_in_the_turn() -> None:
    """C3: a write is there at once, and it counts with the turn."""
    script = [
        call("context", action="set", key="done", value={"by": ["ada"]}),
        call("context", action="delete", key="draft"),
        call("context", action="read"),
        call("context", action="read", key="done"),
        "hello",
    ]
    ada, model = actor("ada", *script)
    async with stage(ada) as home:
        channel = await played(home, knobs={"context_vars": {"draft": 1, "n": 2}})
        variables = (await channel.state()).context_vars

    assert told(model) == [
        '{"set":{"done":{"by":["ada"]}}}',
        '{"delete":["draft"]}',
        '{"n":2,"done":{"by":["ada"]}}',
        '{"done":{"by":["ada"]}}',
    ]
    assert variables == {"n": 2, "done": {"by": ["ada"]}}


async def test_the_graph_sees_what_the_turn_wrote() -> None:
    """C2."""
    approved = Transition(ContextEquals("done", True), TerminateTarget("approved"))
    graph = TransitionGraph("ada", [approved], StayTarget(), max_turns=3)
    ada, _ = actor("ada", "not yet", call("context", action="set", key="done", value=True), "yes")
    async with stage(ada) as home:
        assert await closed(await ask_ada(home, graph=graph)) == "approved"


async def test_context_of_another_channel_the_agent_is_on() -> None:
    async with house(MemoryLog(), "ada", "bob") as home:
        here, there = await home.talk(by="ada", to="bob"), await home.talk(by="bob", to="ada")
        away: dict[str, Any] = {"channel_id": there.channel_id}
        await use(home, "ada", here, "context", action="set", key="n", value=1, **away)

        assert (await use(home, "ada", here, "context", action="read", **away)).text == '{"n":1}'
        assert (await here.state()).context_vars == {}


async def test_a_write_to_another_channel_that_runs_again_overwrites_nothing() -> None:
    """T3: the first has landed; what others made of it since stays."""
    async with house(MemoryLog(), "ada", "bob") as home:
        here, there = await home.talk(by="ada", to="bob"), await home.talk(by="bob", to="ada")
        given: dict[str, Any] = {"action": "set", "key": "n", "value": 1, "channel_id": there.channel_id}
        await use(home, "ada", here, "context", again="1", **given)
        await use(home, "bob", there, "context", action="set", key="n", value=2)
        again = await use(home, "ada", here, "context", again="1", **given)

        assert not again.failed
        assert (await there.state()).context_vars == {"n": 2}


async def test_a_write_of_a_turn_that_is_taken_up_again_is_made_again() -> None:
    """T3: it was undone with the attempt that made it."""
    async with house(MemoryLog(), "ada", "bob") as home:
        channel = await home.talk(by="ada", to="bob")
        seat, given = home["ada"].seat, {"action": "set", "key": "n", "value": 1}
        first = await claim_own(seat, channel.channel_id, 1)
        await use(home, "ada", channel, "context", again="1", claim=first.seq, **given)
        await release(seat, channel.channel_id, first)
        second = await claim_own(seat, channel.channel_id, 1)
        undone = (await channel.state()).context_vars
        await use(home, "ada", channel, "context", again="1", claim=second.seq, **given)

        assert undone == {}
        assert (await channel.state()).context_vars == {"n": 1}


async def refusals(home: House, here: Channel, elsewhere: Channel) -> list[str]:
    asked: list[dict[str, Any]] = [
        {"action": "read", "key": "rout"},
        {"action": "set", "value": 1},
        {"action": "set", "key": "_engine", "value": 1},
        {"action": "read", "channel_id": elsewhere.channel_id},
        {"action": "read", "channel_id": "nowhere"},
        {"action": "drop"},
    ]
    outputs = [await use(home, "ada", here, "context", **given) for given in asked]
    assert all(output.failed for output in outputs)
    return [output.text for output in outputs]


async def test_what_is_wrong_is_told_to_the_model_in_one_line() -> None:
    """K1."""
    async with house(MemoryLog(), "ada", "bob", "cleo") as home:
        here = await home.talk(by="ada", to="bob", knobs={"context_vars": {"route": "a"}})
        elsewhere = await home.talk(by="bob", to="cleo")
        lines = await refusals(home, here, elsewhere)

    assert lines[0] == (
        "UnknownName: no context variable is known as 'rout'; known: route. Did you mean 'route'?"
    )
    assert lines[1].startswith("BadDraft: key is empty; expected the name of a context variable.")
    assert lines[2].startswith("BadDraft: ")
    assert lines[3].startswith("NotParticipant: ")
    assert lines[4].startswith("UnknownChannel: ")
    assert lines[5] == (
        "wrong arguments for 'context': action is 'drop', expected 'read', 'set' or 'delete'. Call it again."
    )
    assert not any("\n" in line for line in lines)
