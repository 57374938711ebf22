"""`mcp`: a tool of an MCP server. The server is a real one: at an address, or started for the call."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from turnline.core.envelope import JsonObject
from turnline.errors import BadStepValue, CallFailed, MissingExtra, ParseFailed, TemplateFailed, UnknownName
from turnline.flow.steps import mcp
from turnline.flow.work import Services, StepResult

from ..scenes import Notes, work_on
from .mcp_server import served

SERVER: Final = str(Path(__file__).with_name("mcp_server.py"))
STARTED: Final[JsonObject] = {"command": sys.executable, "args": [SERVER], "env": {"GIVEN": "yes"}}
"""It takes a second or two to start, so most tests do with the other one."""
KEY: Final = "canary-0123456789"


@pytest.fixture(scope="module", autouse=True)
def address() -> Iterator[str]:
    """Where the server is that all of these tests share."""
    with served() as address:
        SERVERS["tests"] = {"url": address, "headers": {"X-Key": "{{ secret.KEY }}"}}
        yield address


SERVERS: Final[JsonObject] = {"started": STARTED}


async def called(
    tool: str,
    arguments: JsonObject | None = None,
    *,
    server: str = "tests",
    servers: JsonObject | None = None,
    public: JsonObject | None = None,
    notes: Notes | None = None,
    **output: Any,
) -> StepResult:
    """PerformStep the step `ask`, which calls `tool`."""
    block = {"server": server, "tool": tool, "arguments": arguments or {}, "output": output}
    services = Services(mcp_servers=SERVERS if servers is None else servers, secret={"KEY": KEY}.get)
    return await mcp.perform(
        work_on({"id": "ask", "mcp": block}, public=public, services=services, notes=notes)
    )


async def test_a_tool_is_called_with_what_is_filled_in_and_its_object_is_merged() -> None:
    done = await called("rate", {"name": "{{ name }}", "score": "{{ n }}"}, public={"name": "jane", "n": 4})

    assert done.updates == {"name": "JANE", "score": 5}
    assert done.signal == "default"


async def test_an_object_goes_through_the_output() -> None:
    done = await called(
        "rate", {"name": "jane", "score": 4}, map={"score": "lead_score"}, signal_from="name", key="all"
    )

    assert done.updates == {"lead_score": 5, "all": {"name": "JANE", "score": 5}}
    assert done.signal == "JANE"


@pytest.mark.parametrize(
    ("tool", "output", "updates"),
    [
        ("greet", {}, {"ask": "Hello Jane"}),
        ("greet", {"key": "said"}, {"said": "Hello Jane"}),
        ("greet", {"format": "text"}, {"ask": "Hello Jane"}),
        ("greet", {"map": {"result": "said"}}, {"said": "Hello Jane"}),
        ("numbers", {}, {"ask": [1, 2]}),
    ],
)
async def test_a_text_and_a_list_go_where_the_output_says(
    tool: str, output: JsonObject, updates: JsonObject
) -> None:
    arguments = {"name": "Jane"} if tool == "greet" else {}

    assert (await called(tool, arguments, **output)).updates == updates


async def test_f1_reserved_keys_of_a_result_are_dropped_and_noted() -> None:
    notes = Notes()

    done = await called("loose", notes=notes)

    assert done.updates == {"kept": {"_id": 1}}
    assert notes.dropped == [("mcp", ["_user_id"])]


async def test_a_server_is_started_with_the_environment_it_is_given_and_not_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OURS", "canary")

    assert (await called("variable", {"name": "GIVEN"}, server="started")).updates == {"ask": "yes"}
    assert (await called("variable", {"name": "OURS"}, server="started")).updates == {"ask": "nothing"}


async def test_a_server_can_be_an_address_in_the_step(address: str) -> None:
    done = await called("header", {"name": "x-key"}, server=address, servers={})

    assert done.updates == {"ask": "x-key=None"}


async def test_f9_a_servers_headers_may_hold_secrets_and_one_that_comes_back_is_masked() -> None:
    done = await called("header", {"name": "x-key"})

    assert done.updates == {"ask": "x-key=***"}
    assert KEY not in repr(done)


async def test_f5_an_error_of_the_tool_fails_the_step_and_is_told() -> None:
    with pytest.raises(CallFailed, match=r"tool 'fail' of MCP server 'tests' failed: .*out of order\.$"):
        await called("fail")


@pytest.mark.parametrize(("tool", "arguments"), [("nothing", {}), ("rate", {"name": "x", "score": "many"})])
async def test_f5_a_call_the_server_does_not_take_fails_the_step(tool: str, arguments: JsonObject) -> None:
    with pytest.raises(CallFailed, match=f"tool '{tool}' of MCP server 'tests' failed"):
        await called(tool, arguments)


async def test_f5_a_result_that_is_not_what_was_asked_for_does_not_parse() -> None:
    with pytest.raises(ParseFailed):
        await called("rate", {"name": "x", "score": 1}, map={"nothing": "there"})


async def test_f9_a_server_is_not_started_for_what_cannot_be_filled_in() -> None:
    with pytest.raises(TemplateFailed, match=r"mcp\.arguments\.name cannot be filled in"):
        await called("greet", {"name": "{{ missing }}"}, servers={"tests": {"command": "/nothing/there"}})


async def test_f5_a_command_that_is_not_there_fails_the_step() -> None:
    with pytest.raises(CallFailed, match="FileNotFoundError"):
        await called("greet", servers={"tests": {"command": "/nothing/there"}})


async def test_f5_a_command_that_is_no_server_fails_the_step() -> None:
    with pytest.raises(CallFailed):
        await called("greet", servers={"tests": {"command": sys.executable, "args": ["-c", "pass"]}})


async def test_f5_a_server_that_says_nothing_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "TIMEOUT_SECONDS", 0.3)

    with pytest.raises(TimeoutError):
        await called(
            "greet",
            servers={"tests": {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}},
        )


async def test_f5_an_address_where_nobody_listens_fails_the_step() -> None:
    listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()

    with pytest.raises(CallFailed, match="MCP server 'http://127"):
        await called("greet", server=f"http://127.0.0.1:{port}/mcp")


async def test_a_server_nobody_named_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(
        UnknownName, match=r"no MCP server is known as 'test'; known: started, tests\. Did you mean 'tests'"
    ):
        await called("greet", server="test")


@pytest.mark.parametrize(
    "server",
    [
        {},
        {"command": "x", "url": "http://a/"},
        {"command": 5},
        {"cmd": "x"},
        {"url": "http://user:canary@a.example/"},
        {"url": "ftp://a.example/"},
        {"url": "http://a.example/", "headers": {"Host": "b"}},
    ],
)
async def test_a_server_that_is_described_wrongly_is_an_error(server: JsonObject) -> None:
    with pytest.raises(BadStepValue) as caught:
        await called("greet", servers={"tests": server})
    assert "canary" not in str(caught.value)


async def test_without_the_sdk_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)

    with pytest.raises(MissingExtra, match=r"\[mcp\]"):
        await called("greet")
