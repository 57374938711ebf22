"""Tools of an MCP server, for an agent. The server is a real one: at an address, or started."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flow.steps import mcp_server
from tests.flow.steps.mcp_server import served
from turnline import Agent, McpServer, ToolRetry, tool
from turnline.agent.context import Context
from turnline.errors import AgentError, BadTool, MissingExtra
from turnline.testing import ScriptedModel, call

PROGRAM = str(Path(mcp_server.__file__))
KEY = "canary-0123456789"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as address:
        yield address


async def test_the_tools_of_a_server_are_an_agents_with_names_descriptions_and_schemas(address: str) -> None:
    async with McpServer(url=address) as server:
        specs = {one.name: one.spec() for one in server.tools}

    assert specs["rate"].description == "An object, with its schema."
    assert specs["rate"].schema["properties"].keys() == {"name", "score"}


async def test_an_agent_calls_one_and_its_model_is_told_the_answer(address: str) -> None:
    model = ScriptedModel(call("greet", name="Jane"), "done")
    async with McpServer(url=address, only=["greet"]) as server:
        await Agent("ada", config=model, tools=server.tools).ask("greet Jane")

    assert model.requests[1].messages[-1].text == "Hello Jane"
    assert [one.name for one in model.requests[0].tools] == ["greet"]


async def test_a_server_can_be_started_by_a_command() -> None:
    async with McpServer(command=sys.executable, args=[PROGRAM], env={"GIVEN": KEY}) as server:
        given = await server.call("variable", {"name": "GIVEN"})
        missing = await server.call("variable", {"name": "OTHER"})

    assert missing.text == "nothing"
    assert given.text != "nothing"
    assert KEY not in given.text


async def test_an_error_of_the_tool_is_told_to_the_model(address: str) -> None:
    model = ScriptedModel(call("fail"), "I give up")
    async with McpServer(url=address) as server:
        reply = await Agent("ada", config=model, tools=server.tools).ask("go")

    assert "out of" in model.requests[1].messages[-1].text
    assert reply.body == "I give up"


async def test_what_the_model_may_not_send_is_refused_by_the_server_and_told(address: str) -> None:
    async with McpServer(url=address) as server:
        said = await server.call("rate", {"name": "jane", "score": "many"})

    assert said.failed
    assert "score" in said.text


async def test_a_server_that_went_away_fails_the_call_and_the_next_one_connects_again() -> None:
    async with McpServer(command=sys.executable, args=["-c", DIES_ONCE.format(program=PROGRAM)]) as server:
        first = await server.call("greet_or_die", {"name": "die"})
        second = await server.call("greet_or_die", {"name": "Jane"})

    assert first.failed
    assert second.text == "Hello Jane"


async def test_only_a_call_that_could_not_be_made_is_one_to_retry(address: str) -> None:
    """What the server itself answers is told to the model at once, an error too."""
    async with McpServer(command=sys.executable, args=["-c", DIES_ONCE.format(program=PROGRAM)]) as server:
        died = await server.call("greet_or_die", {"name": "die"})
    async with McpServer(url=address) as server:
        refused = await server.call("fail", {})

    assert isinstance(died.error, Exception)
    assert (refused.failed, refused.error) == (True, None)


async def test_a_tool_of_a_server_takes_retry(address: str) -> None:
    async with McpServer(url=address, only=["greet"], approval=["greet"]) as server:
        [greet] = server.tools
        retried = tool(greet, retry=4)

    assert (greet.retry, retried.retry) == (None, ToolRetry(attempts=4))
    assert (retried.name, retried.approval) == ("greet", True)


async def test_what_was_sent_as_a_header_is_in_no_answer(address: str) -> None:
    async with McpServer(url=address, headers={"X-Key": KEY}) as server:
        said = await server.call("header", {"name": "X-Key"})

    assert "X-Key=" in said.text
    assert KEY not in said.text


async def test_a_server_that_is_not_there_is_an_error_that_names_it() -> None:
    with pytest.raises(AgentError, match=r"no-such-program.*cannot be used"):
        async with McpServer(command="no-such-program"):
            pass


async def test_a_tool_that_the_server_has_not_is_an_error_that_lists_those_it_has(address: str) -> None:
    with pytest.raises(BadTool, match=r"gret.*greet"):
        async with McpServer(url=address, only=["gret"]):
            pass


async def test_a_call_that_needs_approval_asks_a_person_first(address: str) -> None:
    asked: list[str] = []

    def no(prompt: str) -> str:
        asked.append(prompt)
        return "no"

    model = ScriptedModel(call("greet", name="Jane"), "fine")
    async with McpServer(url=address, approval=["greet"]) as server:
        await Agent("ada", config=model, tools=server.tools, hitl_hook=no).ask("go")

    assert "greet" in asked[0]
    assert "declined" in model.requests[1].messages[-1].text


async def test_a_call_carries_its_idempotency_key(address: str) -> None:
    async with McpServer(url=address) as server:
        [tool] = [one for one in server.tools if one.name == "key"]
        said = await tool.call({}, Context(idempotency_key="channel:1:call:key"))

    assert said.text == "channel:1:call:key"


@pytest.mark.parametrize("given", [{}, {"command": "a", "url": "http://b"}])
def test_a_server_has_either_a_command_or_a_url(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="either a command or a url"):
        McpServer(**given)


async def test_without_the_sdk_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)

    with pytest.raises(MissingExtra, match=r"\[mcp\]"):
        async with McpServer(command="anything"):
            pass


DIES_ONCE = """
import os, runpy, sys
sys.path.insert(0, os.path.dirname({program!r}))
import mcp_server
real = mcp_server.greet

@mcp_server.server.tool(name="greet_or_die")
def greet_or_die(name: str) -> str:
    if name == "die":
        os._exit(1)
    return real(name)

mcp_server.server.run()
"""
