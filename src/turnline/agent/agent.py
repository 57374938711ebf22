"""An agent: a name, a prompt, a model, tools.

    reply = await agent.ask("...")      one round
    await reply.ask("...")              the next, in the same conversation

The agent itself never changes while it works: what a conversation needs is in a
`Conversation`, so one agent can hold many at once. Variables and dependencies go
to tools; they are never shown to the model (V4).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final, overload

from turnline.agent.context import Context
from turnline.agent.journal import Entry, Journal, Recorded, Unwritten
from turnline.agent.messages import Message, ModelReply, Usage, UserMessage
from turnline.agent.model import Model, ModelConfig
from turnline.agent.models.configs import resolve
from turnline.agent.output import Output
from turnline.agent.performer import (
    ATTEMPTS,
    BACKOFF_SECONDS,
    AskFor,
    CallSite,
    OnceFor,
    OnProgress,
    Performer,
    Progress,
    Review,
    Sleep,
    as_it_is,
)
from turnline.agent.prompt import Instructions, Prompt
from turnline.agent.round import MAX_TOOL_ROUNDS, Check, Outcome, start_round
from turnline.agent.timeouts import within
from turnline.agent.tool import Tool, ToolRetry, as_tool, tool as make_tool
from turnline.agent.toolbox import Toolbox
from turnline.agent.variables import Values, conversation_dependencies, conversation_variables
from turnline.core.variables import check_keys
from turnline.threads import call_user

_SUM_UP: Final = (
    "Sum up the conversation you are shown in at most five sentences, for somebody who takes part in it and "
    "cannot see it. Keep names, numbers and decisions. Write nothing else."
)

Config = ModelConfig | Model | str | None
ToolLike = Callable[..., Any]
HitlHook = Callable[[str], Awaitable[str] | str]
"""Asks a person: the prompt in, the answer out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What one conversation with an agent goes on with."""

    variables: dict[str, Any] = field(repr=False)
    dependencies: dict[str, Any] = field(repr=False)
    tools: tuple[ToolLike, ...] = ()
    config: Config = None
    output: Output[Any] | None = None
    messages: tuple[Message, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a layer above gives a round: a journal, live things for tools, a person to ask."""

    journal: Journal = field(default_factory=Unwritten)
    recorded: Sequence[Entry] = ()
    extras: Mapping[str, object] = field(default_factory=dict)
    context_vars: Mapping[str, Any] = field(default_factory=dict)
    ask_person: AskFor | None = None
    require_answer: AskFor | None = None
    """Asks a person and raises `CallPaused` until there is an answer; for approvals and `restarts` tools."""
    heard: Mapping[int, Sequence[Message]] = field(default_factory=dict)
    """Number of replies -> what others said after that reply, while the turn was paused (N7a)."""
    once: OnceFor | None = None
    """Records what tools do with `context.once`; `TurnJournal.once_for` is one. With it a round can pause."""
    sleep: Sleep = asyncio.sleep
    on_progress: OnProgress | None = None
    review: Review = as_it_is


class Agent:
    """See the module. Everything past the prompt is by keyword."""

    def __init__(
        self,
        name: str,
        prompt: Prompt = "",
        *,
        config: Config = None,
        tools: Iterable[ToolLike] = (),
        variables: Mapping[str, Any] | None = None,
        dependencies: Mapping[str, Any] | None = None,
        response_schema: Any = None,
        into: str = "",
        hitl_hook: HitlHook | None = None,
        context_keys: Iterable[str] = (),
        summarise: bool = False,
        max_tool_rounds: int = MAX_TOOL_ROUNDS,
        attempts: int = ATTEMPTS,
        backoff_seconds: float = BACKOFF_SECONDS,
    ) -> None:
        self.name = name
        self.config = config
        self.hitl_hook = hitl_hook
        self.summarise = summarise
        """Whether what falls out of its window is summed up for it, by its own model."""
        self._context_keys = tuple(context_keys)
        self._instructions = Instructions(prompt, agent=name, context_keys=self._context_keys)
        self._toolbox = Toolbox(tools)
        self._variables = dict(variables or {})
        self._dependencies = dict(dependencies or {})
        self.output = None if response_schema is None else Output(response_schema)
        """The type of its answers; None is text."""
        self.into = into
        """The context variable of a channel that its answers are written to; empty is none."""
        check_keys([into], "into")
        self._max_tool_rounds = max_tool_rounds
        self._attempts = attempts
        self._backoff_seconds = backoff_seconds

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, tools={[tool.name for tool in self._toolbox]})"

    @property
    def tools(self) -> Toolbox:
        return self._toolbox

    def but(
        self,
        *,
        config: Config = None,
        prompt: Prompt | None = None,
        tools: Iterable[ToolLike] | None = None,
    ) -> Agent:
        """Return the same agent with another model, another prompt or other tools."""
        other = copy(self)
        if tools is not None:
            other._toolbox = Toolbox(tools)
        if config is not None:
            other.config = config
        if prompt is not None:
            other._instructions = Instructions(prompt, agent=self.name, context_keys=self._context_keys)
        return other

    @overload
    def tool(self, function: ToolLike) -> Tool[..., Any]: ...

    @overload
    def tool(
        self,
        function: None = None,
        *,
        name: str | None = ...,
        description: str | None = ...,
        approval: bool = ...,
        restarts: bool = ...,
        retry: int | ToolRetry | None = ...,
    ) -> Callable[[ToolLike], Tool[..., Any]]: ...

    def tool(
        self,
        function: ToolLike | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        approval: bool = False,
        restarts: bool = False,
        retry: int | ToolRetry | None = None,
    ) -> Tool[..., Any] | Callable[[ToolLike], Tool[..., Any]]:
        """Make a function a tool of this agent: `@agent.tool`, or `@agent.tool(approval=True)`."""

        def added(given: ToolLike) -> Tool[..., Any]:
            made = make_tool(
                name=name, description=description, approval=approval, restarts=restarts, retry=retry
            )(given)
            self._toolbox = self._toolbox.joined([made])
            return made

        return added if function is None else added(as_tool(function))

    async def ask(
        self,
        message: str,
        *,
        variables: Mapping[str, Any] | None = None,
        dependencies: Mapping[str, Any] | None = None,
        tools: Iterable[ToolLike] = (),
        config: Config = None,
        response_schema: Any = None,
    ) -> Reply:
        """Say something to the agent and return its reply, after as many tool calls as it takes."""
        talk = self.conversation(
            variables=variables,
            dependencies=dependencies,
            tools=tools,
            config=config,
            response_schema=response_schema,
        )
        return await self._go_on(talk, message, None)

    async def run(self, message: str, **options: Any) -> AsyncIterator[Progress | Reply]:
        """`ask`, telling what happens as it happens; the reply comes last."""
        told: asyncio.Queue[Progress | Reply | None] = asyncio.Queue()
        work = asyncio.ensure_future(self._go_on(self.conversation(**options), message, told.put_nowait))
        work.add_done_callback(lambda _: told.put_nowait(None))
        try:
            while (progress := await told.get()) is not None:
                yield progress
            yield await work
        finally:
            work.cancel()

    def conversation(
        self,
        *,
        variables: Mapping[str, Any] | None = None,
        dependencies: Mapping[str, Any] | None = None,
        tools: Iterable[ToolLike] = (),
        config: Config = None,
        response_schema: Any = None,
        key: str = "",
    ) -> Conversation:
        """Return what a new conversation starts with; the call's values win over the agent's (V1)."""
        return Conversation(
            variables=conversation_variables(self._variables, variables or {}),
            dependencies=conversation_dependencies(self._dependencies, dependencies or {}),
            tools=tuple(tools),
            config=self.config if config is None else config,
            output=self.output if response_schema is None else Output(response_schema),
            key=key or secrets.token_hex(8),
        )

    async def perform(self, talk: Conversation, around: Surroundings) -> Outcome:
        """Do one round of a conversation whose last message waits for an answer.

        Raises `CallPaused` if a tool call waits and nothing else of the round can be done.
        """
        context = Context(variables=talk.variables, dependencies=talk.dependencies, extras=around.extras)
        performer = Performer(
            agent=self.name,
            model=resolve(talk.config, self.name),
            instructions=await self._instructions.text(context, around.context_vars),
            toolbox=self._toolbox.joined(talk.tools) if talk.tools else self._toolbox,
            context=context,
            schema=None if talk.output is None else talk.output.schema,
            key=talk.key,
            journal=around.journal,
            recorded=Recorded(around.recorded),
            attempts=self._attempts,
            backoff_seconds=self._backoff_seconds,
            sleep=around.sleep,
            on_progress=around.on_progress,
            ask_person=self._ask_person if self.hitl_hook else around.ask_person,
            require_answer=None if self.hitl_hook else around.require_answer,
            once=around.once,
            review=around.review,
        )
        return await performer.perform(
            start_round(
                self.name,
                talk.messages,
                max_tool_rounds=self._max_tool_rounds,
                check=self._check(talk.output),
                heard=around.heard,
            )
        )

    def _check(self, output: Output[Any] | None) -> Check | None:
        if output is None:
            return None
        return output.wrong_to_store if self.into else output.wrong

    async def sum_up(self, text: str, *, config: Config = None, sleep: Sleep = asyncio.sleep) -> ModelReply:
        """Return what a model makes of a conversation that is too long to be shown: `config`, or its own."""
        performer = Performer(
            agent=self.name,
            model=resolve(self.config if config is None else config, self.name),
            instructions=_SUM_UP,
            toolbox=Toolbox(),
            context=Context(),
            attempts=self._attempts,
            backoff_seconds=self._backoff_seconds,
            sleep=sleep,
        )
        return await performer.ask((UserMessage(text=text),))

    async def _go_on(self, talk: Conversation, message: str, on_progress: OnProgress | None) -> Reply:
        asked = replace(talk, messages=(*talk.messages, UserMessage(text=message)))
        outcome = await self.perform(asked, Surroundings(on_progress=on_progress))
        return Reply(self, replace(asked, messages=outcome.messages), outcome)

    async def _ask_person(self, site: CallSite, prompt: str, timeout: float | None) -> str:
        assert self.hitl_hook is not None
        async with within(timeout, "no person has answered"):
            return str(await call_user(self.hitl_hook, prompt))


class Reply:
    """What an agent answered, and the conversation it can go on in."""

    def __init__(self, agent: Agent, talk: Conversation, outcome: Outcome) -> None:
        self._agent = agent
        self._talk = talk
        self._outcome = outcome

    @property
    def body(self) -> str:
        return self._outcome.text

    @property
    def usage(self) -> Usage:
        return self._outcome.usage

    @property
    def messages(self) -> tuple[Message, ...]:
        return self._talk.messages

    @property
    def outcome(self) -> Outcome:
        """The round in detail: every tool call and how it ended."""
        return self._outcome

    @property
    def variables(self) -> dict[str, Any]:
        """The conversation's variables, as its tools left them. Shown, they are masked."""
        return Values(self._talk.variables)

    async def content(self) -> Any:
        """Return the answer as the response schema's type; without one, its text."""
        return self.body if self._talk.output is None else self._talk.output.read(self.body)

    async def ask(self, message: str, *, response_schema: Any = None) -> Reply:
        """Go on in the same conversation: messages and variables are as they were left (V4)."""
        output = self._talk.output if response_schema is None else Output(response_schema)
        return await self._agent._go_on(replace(self._talk, output=output), message, None)

    def __repr__(self) -> str:
        return f"Reply({self.body!r})"
