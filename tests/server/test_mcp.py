"""A project as an MCP server: flows and agents are tools; what a call does is on the log."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.flow.stage import flows_of
from turnline import Agent, McpServer
from turnline.errors import NameTaken
from turnline.flow.work import Services
from turnline.log.memory import MemoryLog
from turnline.server.mcp import ProjectTools
from turnline.server.runtime import Runtime
from turnline.testing import ScriptedModel, call

LEADS = Path(__file__).parents[2] / "examples" / "leads"
GREET = """
name: greet
trigger: {path: /greet, input: {name: {type: string, required: true, description: Whom}}}
steps: [{id: greet, runner: greet}]
"""
ASK = "{name: ask, steps: [{id: ask, kind: human, human: {title: 'Sure?'}}]}"
BROKEN = "{name: broken, steps: [{id: broken, runner: broken}]}"
SECRET = "canary-88"


def broken(ctx: dict[str, Any]) -> None:
    raise LookupError("no stock")


@asynccontextmanager
async def project(*agents: Agent, wait_seconds: float = 30.0) -> AsyncIterator[tuple[ProjectTools, Runtime]]:
    nodes = {"greet": lambda ctx: {"greeting": f"Hello {ctx['name']}", "_key": SECRET}, "broken": broken}
    services = Services(
        flows=flows_of(GREET, ASK, BROKEN), nodes=nodes, agents={one.name: one for one in agents}
    )
    async with Runtime(services, open_log=MemoryLog, grace_seconds=0) as runtime:
        yield ProjectTools(runtime, wait_seconds=wait_seconds), runtime


async def test_a_client_lists_the_flows_with_the_schemas_of_their_inputs() -> None:
    async with project() as (tools, _), Client(tools.server()) as client:
        listed = {one.name: one for one in (await client.list_tools()).tools}

    assert listed.keys() == {"greet", "ask", "broken", "run_status"}
    assert listed["greet"].input_schema["required"] == ["name"]


async def test_a_call_of_a_flow_is_a_run_and_its_public_context_the_answer() -> None:
    async with project() as (tools, runtime), Client(tools.server()) as client:
        result = await client.call_tool("greet", {"name": "Jane"})
        told = result.structured_content or {}
        state = await runtime.runs.state(told["run_id"])

    assert told["status"] == "succeeded"
    assert told["data"]["greeting"] == "Hello Jane"
    assert state.is_over
    assert SECRET not in str(result)


async def test_f1_reserved_keys_of_a_caller_have_no_effect() -> None:
    async with project() as (tools, runtime):
        result = await tools.call("ask", {"_user_id": "root"})
        state = await runtime.runs.state((result.structured_content or {})["run_id"])

    assert state.private_vars["_user_id"] == "mcp"


async def test_input_that_the_flow_does_not_take_is_an_error_that_names_the_field() -> None:
    async with project() as (tools, runtime):
        result = await tools.call("greet", {"name": 7})
        runs = (await runtime.runs.page()).runs

    assert result.is_error
    assert "name" in str(result.content)
    assert runs == []


async def test_a_run_that_waits_for_a_person_says_so_and_is_found_again() -> None:
    async with project() as (tools, _):
        told = (await tools.call("ask", {})).structured_content or {}
        again = (await tools.call("run_status", {"run_id": told["run_id"]})).structured_content or {}

    assert told["status"] == "waiting"
    assert again["status"] == "waiting"


async def test_a_run_that_fails_is_an_error_of_the_tool() -> None:
    async with project() as (tools, _):
        result = await tools.call("broken", {})

    assert result.is_error
    assert "no stock" in str(result.content)


@pytest.mark.parametrize("run_id", ["nothing", "../x", 7])
async def test_the_status_of_no_run_is_an_error(run_id: object) -> None:
    async with project() as (tools, _):
        result = await tools.call("run_status", {"run_id": run_id})

    assert result.is_error


async def test_an_unknown_tool_is_an_error_that_lists_the_known_ones() -> None:
    async with project() as (tools, _):
        result = await tools.call("gret", {})

    assert result.is_error
    assert "greet" in str(result.content)


async def test_an_agent_is_asked_on_a_channel_of_its_own() -> None:
    async with project(Agent("ada", config=ScriptedModel("It is blue."))) as (tools, runtime):
        result = await tools.call("ask_ada", {"message": "Which colour?"})
        [channel] = await runtime.hub.list_channels()

    assert result.content[0].text == "It is blue."  # type: ignore[union-attr]
    assert (channel.type, channel.close_code) == ("consulting", "consulting_complete")


async def test_an_agent_that_fails_is_an_error_and_not_the_callers_own_words() -> None:
    async with project(Agent("ada", config=ScriptedModel(RuntimeError(SECRET)))) as (tools, _):
        result = await tools.call("ask_ada", {"message": "Which colour?"})

    assert result.is_error
    assert result.structured_content == {"error": "no_answer"}
    assert "'ada' gave no answer" in str(result.content)
    assert "Which colour?" not in str(result)
    assert SECRET not in str(result)


async def test_an_agent_that_takes_too_long_is_an_error_that_says_so() -> None:
    async def think() -> None:
        await asyncio.Event().wait()

    ada = Agent("ada", config=ScriptedModel(call("think")), tools=[think])
    async with project(ada, wait_seconds=0.01) as (tools, _):
        result = await tools.call("ask_ada", {"message": "Which colour?"})

    assert result.is_error
    assert result.structured_content == {"error": "timeout"}
    assert "ada has not answered within 0.01 s" in str(result.content)


async def test_asking_without_a_message_is_an_error() -> None:
    async with project(Agent("ada", config=ScriptedModel("no"))) as (tools, _):
        assert (await tools.call("ask_ada", {})).is_error


async def test_an_agent_and_a_flow_cannot_be_one_tool() -> None:
    services = Services(
        flows=flows_of("{name: ask_ada, steps: [{id: a, runner: a}]}"), agents={"ada": Agent("ada")}
    )
    async with Runtime(services, open_log=MemoryLog, grace_seconds=0) as runtime:
        with pytest.raises(NameTaken, match="ask_ada"):
            ProjectTools(runtime)


async def test_the_command_line_serves_a_project_that_an_agent_can_use(tmp_path: Path) -> None:
    """Both ways at once: our client starts our server."""
    log = f"sqlite:///{tmp_path}/log.db"
    arguments = ["-m", "turnline", "mcp", str(LEADS), "--log", log]
    async with McpServer(command=sys.executable, args=arguments) as server:
        names = [one.name for one in server.tools]
        refused = await server.call(names[0], {"email": 7})

    assert "run_status" in names
    assert refused.failed
