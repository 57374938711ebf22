"""A real server on a free port, with agents, people and flows, for a browser to look at.

with stage() as one:
    channel = one.do(one.open_desk("Hello"))
    page.goto(one.page(f"/channels/{channel}"))
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from tests.logs import new_log
from tests.server.stage import KnownTokens, runtime_with
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.messages import Message, ModelReply, Usage, UserMessage
from turnline.agent.scripted import Line, ScriptedModel, call
from turnline.agent.tool import tool
from turnline.agent.tool_result import ToolResult
from turnline.client.hub_client import HubClient
from turnline.client.human_client import HumanClient
from turnline.client.link import LocalLink
from turnline.core.governance import Passport
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.transitions import AgentTarget, ContextEquals, FromSpeaker, TerminateTarget, ToolCalled
from turnline.flow.runs import Runs
from turnline.hub.hub import Hub
from turnline.hub.texts import TurnText
from turnline.hub.timers import SystemClock
from turnline.log.base import Log
from turnline.server.app import create_app
from turnline.server.origin import LOOPBACK_NAMES
from turnline.server.serving import DrainingServer, bind
from turnline.server.settings import ServerSettings

T = TypeVar("T")
SECONDS: Final = 30.0
TOKEN: Final = "root"

FLOWS: Final = """
metadata: {name: lead, version: "2", description: Score a lead and send it where it belongs}
spec:
  trigger:
    path: /api/leads
    input:
      email: {type: email, required: true}
      company: {type: string, default: Unknown}
      score: {type: integer, min: 0, max: 100}
      priority: {type: string, enum: [normal, urgent], default: normal}
  steps:
    - {id: save, runner: save}
    - id: route
      kind: router
      router:
        conditions:
          - {if: "priority == 'urgent'", signal: escalate}
          - {else: true, signal: normal}
      routes: {escalate: approve, normal: respond}
    - id: approve
      kind: human
      human:
        title: "Escalate {{ company }}?"
        show: [company, email]
        form: {approved: {type: boolean, required: true}, note: string}
        signal_from: approved
      routes: {"true": respond, "false": END}
    - {id: respond, kind: response, response: {mapping: {id: id}}}
"""

FANS: Final = """
metadata: {name: fans}
spec:
  steps: [{id: all, for_each: {items: '[1, 2]', into: out, steps: [{id: pay, runner: pay}]}}]
"""

SCANS: Final = """
metadata: {name: scans}
spec:
  trigger:
    path: /scans
    input: {scan: {type: file, required: true, media_types: [text/plain]}, note: string}
  steps: [{id: read, runner: read_scan}]
"""

DESK: Final = TransitionGraph(
    "carol",
    [
        Transition(FromSpeaker("triage") & ContextEquals("topic", "billing"), AgentTarget("billing")),
        Transition(FromSpeaker("triage"), AgentTarget("carol")),
        Transition(FromSpeaker("carol"), AgentTarget("triage")),
        Transition(FromSpeaker("billing") & ToolCalled("finish_up"), TerminateTarget("solved")),
        Transition(FromSpeaker("billing"), AgentTarget("carol")),
    ],
    TerminateTarget("nobody"),
    max_turns=200,
)
"""carol is heard by the triage, which sends what is about bills to billing."""


def save(ctx: dict[str, Any]) -> dict[str, Any]:
    return {"id": 7, "domain": str(ctx.get("email", "")).partition("@")[2]}


async def read_scan(ctx: dict[str, Any]) -> dict[str, Any]:
    return {"words": (await ctx["_read_file"](ctx["scan"])).read().decode()}


def pay(ctx: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("the card was declined")


def broken(messages: tuple[Message, ...]) -> Line:
    return ValueError("the model has no key")


def _last(messages: tuple[Message, ...]) -> str:
    return next((one.text for one in reversed(messages) if isinstance(one, UserMessage)), "")


def triage(messages: tuple[Message, ...]) -> Line:
    """Calls a tool for what is about a bill; then says so."""
    asked = _last(messages)
    if not isinstance(messages[-1], UserMessage):
        return _reply("This is about a bill: our billing colleague takes over.")
    if "bill" in asked.lower():
        return call("note_topic", topic="billing")
    return _reply(f"I heard: {asked}")


def billing(messages: tuple[Message, ...]) -> Line:
    if not isinstance(messages[-1], UserMessage):
        return _reply("Thank you. Your invoice is corrected.")
    if "ask" in _last(messages).lower() or any("ask me" in getattr(one, "text", "") for one in messages):
        return call("which_invoice")
    return _reply("I have found the invoice and corrected it. Is there anything else?")


def _reply(text: str) -> ModelReply:
    return ModelReply(text=text, usage=Usage(requests=1, input_tokens=120, output_tokens=24, cost=0.0004))


@tool
def note_topic(topic: str) -> ToolResult:
    """Note what it is about."""
    return ToolResult(f"noted {topic}", context={"topic": topic})


@tool
async def which_invoice(context: Context) -> str:
    """Ask for the number of the invoice."""
    return await context.input("Which invoice is it?")


class Stage:
    """What tests do with the server, from a thread of their own."""

    def __init__(self, settings: ServerSettings, log: Callable[[], Log]) -> None:
        self._runtime = runtime_with(
            FLOWS, FANS, SCANS, log=log, clock=SystemClock(), save=save, pay=pay, read_scan=read_scan
        )
        self._runtime.sources = {"lead": FLOWS.lstrip()}
        app = create_app(self._runtime, authenticator=KnownTokens(), settings=settings)
        self._socket = bind("127.0.0.1", 0)
        self._server = DrainingServer(app, self._runtime, settings, access_log=False)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._opened = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.people: dict[str, HumanClient] = {}
        self.door: HubClient | None = None
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    @property
    def hub(self) -> Hub:
        return self._runtime.hub

    def runs(self) -> Runs:
        return self._runtime.runs

    def page(self, route: str = "/channels", *, token: str = "") -> str:
        """The address of a page of the studio; with a token, signed in and at its beginning."""
        return f"{self.address}/studio" + (f"#token={token}" if token else f"#{route}")

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the server's own loop, and wait for it."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    async def open_desk(self, message: str | None = None, **given: Any) -> str:
        knobs = {"graph": DESK.to_dict(), **given.pop("knobs", {})}
        target = given.pop("target", ["triage", "billing"])
        channel = await self.people["carol"].open(
            type="workflow", target=target, knobs=knobs, message=message, **given
        )
        return channel.channel_id

    async def open_talk(self, agent: str, message: str) -> str:
        """A conversation of carol with an agent."""
        return (await self.people["carol"].open("conversation", agent, message=message)).channel_id

    async def say(self, channel_id: str, text: str, *, by: str = "carol") -> None:
        await self.people[by].channel(channel_id).send(text)

    async def tell(self, channel_id: str, agent_id: str, text: str) -> None:
        """Words of a turn in flight."""
        self.hub.texts.tell(TurnText(channel_id=channel_id, agent_id=agent_id, text=text))

    async def until(self, channel_id: str, holds: Callable[[Any], bool]) -> None:
        while not holds(state := await self.hub.state(channel_id)):
            await self.hub.wait_beyond(channel_id, state.seq)

    async def _serve(self) -> None:
        async with self._runtime as runtime:
            self._loop = asyncio.get_running_loop()
            self.door = HubClient(LocalLink(runtime.hub), hub=runtime.hub)
            for name, script, tools in (
                ("triage", triage, [note_topic]),
                ("billing", billing, [which_invoice]),
                ("broken", broken, []),
            ):
                await self.door.register(Agent(name, "You help.", config=ScriptedModel(script), tools=tools))
            for name in ("carol", "dave"):
                self.people[name] = await self.door.register_human(Passport(name=name, kind="human"))
            self._opened.set()
            await self._server.serve([self._socket])
            await self.door.close()

    @contextmanager
    def running(self) -> Iterator[Stage]:
        self._thread.start()
        try:
            assert self._opened.wait(SECONDS)
            yield self
        finally:
            self._server.should_exit = True
            self._thread.join(SECONDS)


def stage(log: Callable[[], Log] = new_log) -> Stage:
    """A server as `turnline serve` sets one up on this machine."""
    return Stage(ServerSettings(drain_seconds=0.2, hosts=LOOPBACK_NAMES, same_origin=True), log)
