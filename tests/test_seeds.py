"""The Python samples of the seeds run as written, apart from the package's name and the model.

They are cut out of the documents here, at test time; where the folder is not
beside the project, nothing is tested. A fragment is given the surroundings that
it takes for granted. Document 004 has lost its indentation: `levels` says how
deep each of its statements stood.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import pytest

import turnline.network
from turnline import Agent, Context, Variable, tool
from turnline.agent.messages import ToolMessage
from turnline.knowledge import MemoryKnowledgeStore
from turnline.network import (
    AgentTarget,
    Always,
    Channel,
    ChannelInject,
    FromSpeaker,
    Hub,
    HubClient,
    HumanClient,
    LocalLink,
    Passport,
    Resume,
    TerminateTarget,
    Transition,
    TransitionGraph,
    WorkflowState,
)
from turnline.network.workflow_helpers import set_context
from turnline.testing import ScriptedModel, call

SEEDS: Final = Path(__file__).parents[2] / "shared" / "seeds"
TIMEOUT_SECONDS: Final = 30

pytestmark = pytest.mark.skipif(not SEEDS.is_dir(), reason="the seeds are not beside the project")


def cut(seed: str, first: int, last: int, levels: str = "") -> str:
    """Lines `first` to `last` of a document, with our name for the package and `MODEL` for the model."""
    (document,) = SEEDS.glob(f"{seed}_*.txt")
    lines = document.read_text().splitlines()[first - 1 : last]
    text = "\n".join(_indented(lines, levels) if levels else lines)
    return text.replace("autogen.beta", "turnline").replace(
        'AnthropicConfig(model="claude-sonnet-4-6")', "MODEL"
    )


def _indented(lines: Sequence[str], levels: str) -> list[str]:
    """`lines`, each statement as deep as its digit in `levels` says; within brackets it does not matter."""
    indented, depth, statement = list[str](), 0, -1
    for line in lines:
        statement += depth == 0
        indented.append("    " * int(levels[statement]) + line)
        depth += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
    assert statement == len(levels) - 1, "the levels are those of another text"
    return indented


async def run(sample: str, around: dict[str, Any]) -> None:
    """Run a sample in `around`, where the names it defines stay."""
    code = compile(sample, "a seed", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    waiting = eval(code, around)
    if inspect.iscoroutine(waiting):
        await waiting


def around(**names: Any) -> dict[str, Any]:
    """What a fragment takes for granted: what the samples before it have imported, and `names`."""
    imported = {one: getattr(turnline.network, one) for one in turnline.network.__all__}
    common = {"Annotated": Annotated, "Agent": Agent, "Context": Context, "Variable": Variable, "tool": tool}
    return {"__name__": __name__, **imported, **common, "set_context": set_context, **names}


def told(model: ScriptedModel) -> list[str]:
    return [one.text for one in model.requests[-1].messages if isinstance(one, ToolMessage)]


# --- 001: variables ---


async def after(sample: str, *script: Any, tools: Sequence[str], **given: Any) -> ScriptedModel:
    """Ask an agent that has the sample's tools; return its model."""
    names, model = around(), ScriptedModel(*script, "ok")
    await run(sample, names)
    await Agent("bot", tools=[names[name] for name in tools], config=model).ask("go", **given)
    return model


async def test_variables_of_an_agent_and_of_a_conversation_reach_a_tool() -> None:
    names = around()
    await run(cut("001", 72, 80), names)
    await run(cut("001", 22, 28), names)
    model = ScriptedModel(call("process_data"), call("session"), "sunny")
    names["agent"].config = model
    names["agent"].tool(names["process_data"])

    @names["agent"].tool  # type: ignore[untyped-decorator]
    def session(context: Context) -> str:
        return str(context.variables["session_id"])

    await run(cut("001", 38, 41), names)

    assert told(model) == ["Processed using key: your_global_api_key", "12345"]


async def test_variables_of_the_call_win() -> None:
    seen: list[dict[str, Any]] = []
    names, model = around(), ScriptedModel(call("look"), "ok")
    await run(cut("001", 47, 50), names)
    names["agent"].config = model

    @names["agent"].tool  # type: ignore[untyped-decorator]
    def look(context: Context) -> None:
        seen.append(dict(context.variables))

    await run(cut("001", 54, 57), names)

    promised = cut("001", 53, 53).removeprefix("# ")
    assert seen == [ast.literal_eval(promised)]


@pytest.mark.parametrize(("first", "last", "name"), [(86, 96, "api_key"), (107, 113, "key")])
async def test_a_variable_is_injected_and_not_in_the_schema(first: int, last: int, name: str) -> None:
    asked = call("fetch_user_data", user_id="u1", **{name: "forged"})
    model = await after(cut("001", first, last), asked, tools=["fetch_user_data"], variables={"api_key": "k"})

    assert told(model) == ["Fetching u1 using k"]
    assert list(model.requests[0].tools[0].schema["properties"]) == ["user_id"]


@pytest.mark.parametrize(("given", "theme"), [({}, "dark"), ({"theme": "light"}, "light")])
async def test_a_static_default_stands_in(given: dict[str, str], theme: str) -> None:
    model = await after(cut("001", 133, 138), call("get_settings"), tools=["get_settings"], variables=given)

    assert told(model) == [f"Using theme: {theme}"]


async def test_a_dynamic_default_is_made_once_and_keeps_its_state() -> None:
    names = around()
    await run(cut("001", 144, 156), names)
    model = ScriptedModel(call("update_status"), call("update_status"), "ok")
    reply = await Agent("bot", tools=[names["update_status"]], config=model).ask("go")

    assert told(model) == ["Status updated"] * 2
    assert names["create_default_state"]() == {"status": "init"}
    assert reply.variables == {"state": {"status": "running"}}


@pytest.mark.parametrize("logs_in", [True, False])
async def test_what_one_tool_writes_the_next_one_finds(logs_in: bool) -> None:
    script = [call("authenticate")] * logs_in + [call("fetch_secure_data")]
    model = await after(cut("001", 164, 176), *script, tools=["authenticate", "fetch_secure_data"])

    found = "Data fetched with token abc-123" if logs_in else "Error: Not authenticated."
    assert told(model)[-1] == found


# --- 004: workflows ---


class Network:
    """A hub with clients on it."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.link = LocalLink(hub)
        self.client = HubClient(self.link, hub=hub)

    async def agent(self, agent: Agent) -> Any:
        return await self.client.register(agent, Passport(name=agent.name), Resume(), attach_plugin=False)

    async def agents(self, **scripts: Sequence[Any]) -> dict[str, Any]:
        """Agents that follow scripts, by name."""
        return {n: await self.agent(Agent(n, config=ScriptedModel(*one))) for n, one in scripts.items()}

    async def user(self) -> HumanClient:
        return await self.client.register_human(Passport(name="user", kind="human"))


@asynccontextmanager
async def network() -> AsyncIterator[Network]:
    hub = await Hub.open(MemoryKnowledgeStore(), ttl_sweep_interval=0)
    home = Network(hub)
    try:
        yield home
    finally:
        await home.client.close()
        await hub.close()


async def ended(channel: Channel) -> tuple[str, list[str]]:
    """The reason, and who spoke."""
    result = await channel.result(timeout=TIMEOUT_SECONDS)
    names = {one.agent_id: one.name for one in (await channel.info()).participants}
    spoke = [names[one.sender_id] async for one in channel.stream() if one.event_type in ("text", "packet")]
    return result.reason, spoke


def test_the_smallest_example_closes_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    model = ScriptedModel("a paragraph", "a sentence")
    sample = cut("004", 45, 93, "000000" + "1" * 13 + "210")
    exec(compile(sample, "a seed", "exec", dont_inherit=True), {"__name__": __name__, "MODEL": model})

    assert capsys.readouterr().out == "closed: 'sequence_complete'\n"
    assert [request.agent for request in model.requests] == ["writer", "editor"]


async def test_an_agent_without_plugin_is_registered() -> None:
    async with network() as home:
        names = around(wc=home.client, agent=Agent("worker"))
        await run(cut("004", 42, 42), names)

        assert names["worker"].name == "worker"


async def test_the_anatomy_of_a_graph_and_of_a_state_is_as_described() -> None:
    names = around(dataclass=dataclass, field=field, Any=Any)
    await run(cut("004", 96, 106, "00111100111"), names)
    await run(cut("004", 353, 363, "00" + "1" * 9), names)

    for ours in (TransitionGraph, Transition):
        assert [one.name for one in fields(names[ours.__name__])] == [one.name for one in fields(ours)]
    described = {one.name for one in fields(names["WorkflowState"])}
    assert described <= {one.name for one in msgspec.structs.fields(WorkflowState)}


async def test_a_person_seeds_and_the_drafter_really_drafts() -> None:
    drafter = Agent("drafter", config=ScriptedModel("one", "two"))
    reviewer = Agent("reviewer", config=ScriptedModel("no", call("approve"), "yes"))

    @reviewer.tool
    async def approve(channel: ChannelInject) -> None:
        assert channel is not None
        await set_context(channel, "approved", True)

    async with network() as home:
        clients = {"drf_hc": home.client, "rev_hc": home.client, "link": home.link, "hub": home.hub}
        names = around(drafter_agent=drafter, reviewer_agent=reviewer, **clients)
        await run(cut("004", 112, 129), names)

        assert await ended(names["channel"]) == ("approved", ["user", *["drafter", "reviewer"] * 2])
        await names["user_hc"].close()


async def test_the_factories_make_what_they_say() -> None:
    async with network() as home:
        names = around(**await home.agents(alice=[], bob=[], carol=[]))
        await run(cut("004", 150, 150), names)
        assert names["graph"].default_target == TerminateTarget("sequence_complete")
        await run(cut("004", 151, 154), names)
        assert names["graph"].default_target == TerminateTarget("round_robin_complete")


async def test_the_round_robin_of_the_migration_goes_round_to_its_last_turn() -> None:
    async with network() as home:
        names = around(**await home.agents(alice=["x"], bob=["x", "y"], carol=["x", "y"]))
        await run(cut("004", 321, 330), names)

        assert await ended(names["channel"]) == ("max_turns", ["alice", "bob", "carol"] * 2)


@pytest.mark.parametrize(
    ("script", "spoke"),
    [
        (["a question"], ["user", "triage", "general"]),
        ([call("escalate", reason="a leak"), "a leak"], ["user", "triage", "security", "user"]),
    ],
    ids=["general", "security"],
)
async def test_triage_hands_off_to_security_and_else_to_general(script: list[Any], spoke: list[str]) -> None:
    async with network() as home:
        user, others = await home.user(), await home.agents(security=["seen to"], general=["done"])
        names = around(config=ScriptedModel(*script), triage_hc=home.client, **others)
        await run(cut("004", 176, 184, "0000110"), names)
        await run(cut("004", 158, 174), names)
        knobs = {"graph": names["graph"].to_dict()}
        channel = await user.open("workflow", ["triage", *others], knobs, message="help")
        if "security" in spoke:  # The floor comes back to whoever opened the channel.
            await channel.wait_for(lambda one: one.sender_id == others["security"].agent_id)
            await channel.send("thank you")

        assert await ended(channel) == ("triage_complete", spoke)


async def test_the_handoff_of_the_migration_moves_the_floor() -> None:
    async with network() as home:
        others = await home.agents(security_reviewer=["seen to"])
        agent = Agent("triage", config=ScriptedModel(call("escalate", reason="a leak"), "a leak"))
        names = around(triage_agent=agent, **others)
        await run(cut("004", 335, 337, "001"), names)
        await run(f"transition = {cut('004', 338, 338)}", names)
        graph = TransitionGraph("triage", [names["transition"]], TerminateTarget("over"))
        await home.agent(agent)
        user = await home.user()
        channel = await user.open("workflow", ["triage", *others], {"graph": graph.to_dict()}, message="help")

        assert await ended(channel) == ("over", ["user", "triage", "security_reviewer"])


@pytest.mark.parametrize(("route", "spoke"), [("security", ["security"]), ("billing", [])])
async def test_what_a_tool_writes_into_the_context_routes_the_same_turn(route: str, spoke: list[str]) -> None:
    async with network() as home:
        names = around(**await home.agents(security=["seen to"]))
        await run(cut("004", 189, 196, "00011211"), names)
        await run(f"transition = {cut('004', 206, 209)}", names)
        model = ScriptedModel(call("set_route", route=route), "filed")
        await home.agent(Agent("triage", config=model, tools=[names["set_route"]]))
        seen_to = Transition(FromSpeaker("security"), TerminateTarget("over"))
        graph = TransitionGraph("triage", [seen_to, names["transition"]], TerminateTarget("over"))
        user = await home.user()
        channel = await user.open(
            "workflow", ["triage", "security"], {"graph": graph.to_dict()}, message="help"
        )

        assert await ended(channel) == ("over", ["user", "triage", *spoke])
        assert told(model) == [f"route set to {route!r}"]


async def test_the_raw_form_of_a_context_write_does_the_same() -> None:
    async with network() as home:
        user, others = await home.user(), await home.agents(bob=[])
        graph = TransitionGraph("user", [Transition(Always(), AgentTarget("bob"))], TerminateTarget())
        channel = await user.open("workflow", list(others), {"graph": graph.to_dict()})
        await run(cut("004", 198, 203), around(channel=channel, route="north"))

        assert (await channel.state()).context_vars == {"route": "north"}


async def test_a_tool_counts_from_the_initial_values_on() -> None:
    async with network() as home:
        names = around(ticket_id="T-1")
        await run(cut("004", 189, 196, "00011211"), names)
        await run(cut("004", 212, 218, "0012111"), names)
        model = ScriptedModel(call("increment_counter"), call("increment_counter"), "counted")
        names["bob"] = await home.agent(Agent("bob", config=model, tools=[names["increment_counter"]]))
        names |= await home.agents(alice=[], carol=[])
        names["graph"] = TransitionGraph.sequence(["alice", "bob"])
        await run(cut("004", 220, 227), names)
        await names["channel"].send("count")
        result = await names["channel"].result(timeout=TIMEOUT_SECONDS)

        assert told(model) == ["counter now 1", "counter now 2"]
        assert result.context_vars == {"escalation_level": 0, "ticket_id": "T-1", "counter": 2}


@pytest.mark.parametrize(("refusals", "reason"), [(1, "approved"), (9, "max_turns")])
async def test_the_feedback_loop_ends_with_an_approval_or_with_its_turns(refusals: int, reason: str) -> None:
    async with network() as home:
        script: list[Any] = ["not yet"] * refusals + [call("approve", reason="fine"), "that is it"]
        agent = Agent("reviewer", config=ScriptedModel(*script))
        names = around(reviewer_agent=agent, **await home.agents(intake=[], drafter=["a draft"] * 9))
        await run(cut("004", 251, 257, "0011211"), names)
        names["reviewer"] = await home.agent(agent)
        await run(cut("004", 236, 250), names)
        knobs = {"graph": names["graph"].to_dict()}
        channel = await names["intake"].open("workflow", ["drafter", "reviewer"], knobs)
        await channel.send("a brief")
        why, spoke = await ended(channel)

        assert why == reason
        assert spoke == ["intake", *["drafter", "reviewer"] * 5][: 5 if reason == "approved" else 10]


async def test_a_custom_target_survives_the_round_trip_and_chooses() -> None:
    async with network() as home:
        names = around()
        await run(cut("004", 274, 288, "0000011120"), names)
        others = await home.agents(junior=["fine"], senior=["hm"])
        names["chosen_id"] = others["senior"].agent_id
        chosen = names["HighestRankedReviewer"](role_priority=["senior", "junior"])
        graph = TransitionGraph(
            "user", [Transition(FromSpeaker("user"), chosen)], default_target=TerminateTarget("reviewed")
        )
        assert TransitionGraph.loads(graph.to_dict()) == graph
        user = await home.user()
        channel = await user.open("workflow", list(others), {"graph": graph.to_dict()}, message="please look")

        assert await ended(channel) == ("reviewed", ["user", "senior"])


async def test_every_name_of_the_quick_reference_is_there() -> None:
    names: dict[str, Any] = {}
    await run(cut("004", 366, 389), names)

    assert len(names.keys() - {"__builtins__"}) == 22
