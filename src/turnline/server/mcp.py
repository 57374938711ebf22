"""A project as an MCP server: its flows and agents are tools of whoever connects.

    a flow   ->  a tool of its name, with the schema of its input; a call is a run
    an agent ->  a tool `ask_NAME`; a call is a `consulting` channel with it

What is called is on the log like any run or conversation: it survives the server, and `run_status` finds it
again. The caller started this process on the project's folder, so there is nobody to authenticate: it may
start every flow and read every run, what a failed step raised included.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from turnline import __version__
from turnline.agent.agent import Agent
from turnline.client.participant import AgentClient
from turnline.core.adapters import CLOSE
from turnline.core.channel import ID_PATTERN
from turnline.core.envelope import JsonObject
from turnline.core.governance import Passport
from turnline.errors import NameTaken, NoAnswer, UnknownName, UnknownRun
from turnline.flow.body import checked_body
from turnline.flow.definition.flow import Flow
from turnline.flow.fields import Problem, json_schema
from turnline.flow.verdict import Verdict
from turnline.server.problems import TIMED_OUT, RequestRefused, answer_to, invalid
from turnline.server.runtime import Runtime

_ANSWERED: Final = "consulting_complete"
CALLER: Final = "mcp"
"""The name of the participant that asks agents, and the user that runs are started for."""
WAIT_SECONDS: Final = 300.0
"""For so long a call waits: for its run, of which it then says that it goes on, or for an agent's answer."""

Call = Callable[[JsonObject], Awaitable[JsonObject]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One tool: what is said of it, and what a call does."""

    tool: types.Tool
    call: Call


class ProjectTools:
    """The tools of a project whose runtime is open."""

    def __init__(self, runtime: Runtime, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self._runtime = runtime
        self._wait_seconds = wait_seconds
        self._asker: AgentClient | None = None
        self.offers: dict[str, Offer] = {}
        for flow in runtime.flows.values():
            self._offer(flow.name, _about(flow), _schema(flow), partial(self._run, flow))
        for agent in runtime.agents.values():
            about = f"Ask the agent {agent.name}; it answers once."
            self._offer(f"ask_{agent.name}", about, _MESSAGE, partial(self._ask, agent))
        self._offer("run_status", "Where a run stands, by its id.", _RUN_ID, self._status)

    def server(self) -> Server[Any]:
        """Return the server that offers them."""
        return Server("turnline", version=__version__, on_list_tools=self._listed, on_call_tool=self._called)

    async def call(self, name: str, arguments: JsonObject) -> types.CallToolResult:
        """Do what a call asks for. Whatever it raises is told as the tool's error, as over HTTP."""
        try:
            told = await self._offered(name).call(arguments)
        except Exception as error:
            answer = answer_to(error, request_id=self._runtime.hub.new_id(), where=f"tool {name}"[:80])
            return _result({"error": answer.type}, answer.message, failed=True)
        text = told["text"] if told.keys() == {"text"} else msgspec.json.encode(told).decode()
        return _result(told, text, failed=told.get("status") == "failed")

    def _offered(self, name: str) -> Offer:
        if name not in self.offers:
            raise UnknownName("tool", name, self.offers)
        return self.offers[name]

    def _offer(self, name: str, about: str, schema: JsonObject, call: Call) -> None:
        if name in self.offers:
            raise NameTaken("tool", name, do="A flow and an agent would be one tool; rename one of them.")
        tool = types.Tool(name=name, description=about, input_schema=schema)
        self.offers[name] = Offer(tool=tool, call=call)

    async def _listed(self, *_: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[one.tool for one in self.offers.values()])

    async def _called(self, _: object, asked: types.CallToolRequestParams) -> types.CallToolResult:
        return await self.call(asked.name, asked.arguments or {})

    async def _run(self, flow: Flow, arguments: JsonObject) -> JsonObject:
        clean, problems = checked_body(flow, arguments)
        if problems:
            raise invalid(problems)
        runs = self._runtime.runs
        held_id = runs.held_id(flow)
        with self._runtime.open_runs.starting(flow.name, CALLER, run_id=held_id):
            run_id = await runs.start(flow, clean, held_id=held_id, user_id=CALLER)
        try:
            return _told(run_id, await runs.wait(run_id, timeout=self._wait_seconds))
        except TimeoutError:
            return _told(run_id, await runs.verdict(run_id))

    async def _status(self, arguments: JsonObject) -> JsonObject:
        run_id = str(arguments.get("run_id", ""))
        if ID_PATTERN.fullmatch(run_id) is None:
            raise UnknownRun(run_id[:80])
        return _told(run_id, await self._runtime.runs.verdict(run_id))

    async def _ask(self, agent: Agent, arguments: JsonObject) -> JsonObject:
        message = arguments.get("message")
        if not isinstance(message, str):
            raise invalid([Problem(("message",), "a text is required")])
        if self._asker is None:
            self._asker = await self._runtime.hub.register(None, Passport(name=CALLER))
        knobs = {"on_failure": CLOSE}
        channel = await self._asker.open(type="consulting", target=agent.name, knobs=knobs, message=message)
        try:
            result = await channel.result(timeout=self._wait_seconds)
        except TimeoutError:
            message = f"{agent.name} has not answered within {self._wait_seconds:g} s; ask again, or later."
            raise RequestRefused(TIMED_OUT, "timeout", message) from None
        if result.reason != _ANSWERED:  # The last words are the question's then.
            raise NoAnswer(agent.name, channel_id=result.channel_id, reason=result.reason)
        return {"text": result.text}


async def serve_stdio(runtime: Runtime) -> None:
    """Serve the project on standard input and output, until the caller leaves."""
    server = ProjectTools(runtime).server()
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def _told(run_id: str, verdict: Verdict) -> JsonObject:
    told: JsonObject = {"run_id": run_id, "status": verdict.status, "data": verdict.data}
    if verdict.error is not None:
        told["error"] = msgspec.to_builtins(verdict.error)
    return told


def _result(told: JsonObject, text: str, *, failed: bool) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=told, is_error=failed)


def _about(flow: Flow) -> str:
    return flow.metadata.description or f"Run the workflow {flow.name}."


def _schema(flow: Flow) -> JsonObject:
    trigger = flow.spec.trigger
    return json_schema({} if trigger is None else trigger.input or {}, extra=trigger is None or trigger.extra)


_MESSAGE: Final[JsonObject] = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "What to ask."}},
    "required": ["message"],
}
_RUN_ID: Final[JsonObject] = {
    "type": "object",
    "properties": {"run_id": {"type": "string"}},
    "required": ["run_id"],
}
