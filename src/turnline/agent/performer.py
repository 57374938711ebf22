"""Performing a round: asks the model, calls the tools, writes both down.

Rule 1: what is recorded is not done again; what is done is recorded before the
next thing is begun (T2, T3). The last reply of a round is not: the packet records it.

Rule 2: a transient failure of the model is tried again, with growing pauses; the
attempts are ours, not the provider's library's.

A tool that has a `retry` is tried again in the same way: each failed attempt is recorded before the
pause, so a resumed turn continues with the next one. Every attempt has the call's idempotency key.

Rule 3: several calls of one reply run at once. Each answer is recorded as it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

from turnline import tracing
from turnline.agent.context import Context
from turnline.agent.journal import Journal, Recorded, Unwritten
from turnline.agent.messages import Message, ModelReply, ToolCall
from turnline.agent.model import Model, ModelRequest, OnText
from turnline.agent.round import AskModel, CallTools, Outcome, Round, ToolAnswer, ToolAttempt
from turnline.agent.storable import storable_answer, storable_reply
from turnline.agent.tool import ToolRetry
from turnline.agent.tool_result import ToolOutput
from turnline.agent.toolbox import Toolbox
from turnline.core.envelope import JsonObject
from turnline.errors import ModelError

ATTEMPTS: Final = 3
BACKOFF_SECONDS: Final = 1.0
"""Before the second attempt; twice as long before each further one, unless the provider says how long."""
MAX_PAUSE_SECONDS: Final = 60.0
_YES: Final = frozenset({"y", "yes", "ok", "okay", "approve", "approved", "true", "allow"})

current_call: Final[ContextVar[str]] = ContextVar("current_call", default="")
"""The id of the tool call that this task works on."""

Sleep = Callable[[float], Awaitable[None]]
Review = Callable[[ToolOutput], ToolOutput]
AskFor = Callable[[str, str, float | None], Awaitable[str]]
"""Asks a person for one call: the call's place in the round, the prompt, and how many seconds to wait.

The place is the number of the model's reply and of the call in it, such as `2.1`. A round that resumes gives
each call the same place, whatever ids the model chooses for its calls.
"""


def as_it_is(output: ToolOutput) -> ToolOutput:
    """The review that has nothing to say."""
    return output


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool is being called."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool has answered."""

    answer: ToolAnswer


Progress = TextDelta | ToolStarted | ToolFinished
OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Performer:
    """Everything a round needs to be done."""

    agent: str
    model: Model
    instructions: str
    toolbox: Toolbox
    context: Context
    schema: JsonObject | None = None
    key: str = ""
    """What idempotency keys start with."""
    journal: Journal = field(default_factory=Unwritten)
    recorded: Recorded = field(default_factory=Recorded)
    attempts: int = ATTEMPTS
    backoff_seconds: float = BACKOFF_SECONDS
    sleep: Sleep = asyncio.sleep
    on_progress: OnProgress | None = None
    ask_person: AskFor | None = None
    review: Review = as_it_is
    """Looks at what a tool returned before it counts."""

    async def perform(self, round_: Round) -> Outcome:
        """Do everything `round_` asks for; return what it came to."""
        step, replies = next(round_), 0
        while True:
            known = self.recorded.reply() if isinstance(step, AskModel) else None
            done = await self._done(step, replies) if known is None else known
            replies += isinstance(done, ModelReply)
            try:
                step = round_.send(done)
            except StopIteration as ended:
                outcome: Outcome = ended.value
                return outcome
            if isinstance(done, ModelReply) and known is None:
                await self.journal.record(done)

    async def _done(self, step: AskModel | CallTools, replies: int) -> ModelReply | Sequence[ToolAnswer]:
        return await (
            self.ask(step.messages) if isinstance(step, AskModel) else self._call_all(step, replies)
        )

    async def ask(self, messages: tuple[Message, ...]) -> ModelReply:
        """Ask the model, as often as it may be tried."""
        request = ModelRequest(
            agent=self.agent,
            instructions=self.instructions,
            messages=messages,
            tools=self.toolbox.specs(),
            schema=self.schema,
        )
        return await self._attempted(request)

    async def _attempted(self, request: ModelRequest) -> ModelReply:
        for attempt in range(1, self.attempts + 1):
            try:
                return await self._replied(request)
            except ModelError as error:
                if not error.transient or attempt == self.attempts:
                    raise
                wanted = error.retry_after_seconds
                pause = self.backoff_seconds * 2 ** (attempt - 1) if wanted is None else wanted
                await self.sleep(min(pause, MAX_PAUSE_SECONDS))
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _replied(self, request: ModelRequest) -> ModelReply:
        attributes = {
            tracing.OPERATION: "chat",
            "gen_ai.provider.name": self.model.name.partition(":")[0],
            "gen_ai.request.model": self.model.name.rpartition(":")[2],
        }
        with tracing.span(f"chat {self.model.name}", attributes, kind="client") as recording:
            reply = await self.model.reply(request, self._on_text())
            recording.note(
                {
                    "gen_ai.response.model": reply.model or self.model.name,
                    "gen_ai.usage.input_tokens": reply.usage.input_tokens,
                    "gen_ai.usage.output_tokens": reply.usage.output_tokens,
                }
            )
        return storable_reply(reply)

    async def _call_all(self, step: CallTools, replies: int) -> Sequence[ToolAnswer]:
        places = (f"{replies}.{number}" for number in range(1, len(step.calls) + 1))
        tasks = [
            asyncio.ensure_future(self._answer(call, place))
            for call, place in zip(step.calls, places, strict=True)
        ]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, call: ToolCall, place: str) -> ToolAnswer:
        known = self.recorded.answer(call)
        if known is not None:
            return known
        current_call.set(call.call_id)  # In this call's own task: calls that run at once do not mix.
        self._tell(ToolStarted(call))
        attributes = {tracing.OPERATION: "execute_tool", "gen_ai.tool.name": call.tool}
        attributes |= {"gen_ai.tool.call.id": call.call_id, "gen_ai.tool.type": "function"}
        with tracing.span(f"execute_tool {call.tool}", attributes) as recording:
            output = await self._called(call, place)
            if output.failed:
                recording.fail("tool_failed")
        answer = ToolAnswer(
            call_id=call.call_id,
            tool=call.tool,
            text=output.text,
            failed=output.failed,
            returned=output.returned,
            context=output.context,
            reason=output.reason,
        )
        answer = storable_answer(answer)
        await self.journal.record(answer)
        self._tell(ToolFinished(answer))
        return answer

    async def _called(self, call: ToolCall, place: str) -> ToolOutput:
        context = self._context(f"{self.key}:{call.call_id}:{call.tool}", place)
        found = self.toolbox.get(call.tool)
        needs_approval = found is not None and found.approval and not call.malformed
        if needs_approval and not await _approved(call, context):
            return ToolOutput(text=f"a person declined this call of {call.tool!r}.", failed=True)
        if found is None or found.retry is None:
            return await self._tried(call, context)
        return await self._retried(call, context, found.retry)

    async def _retried(self, call: ToolCall, context: Context, retry: ToolRetry) -> ToolOutput:
        """Try the call until it succeeds or has no attempts left. A crash does not give it more of them."""
        answers, made = _Answers(context), self.recorded.attempts(call)
        while True:
            output = await self._tried(call, answers.again())
            made += 1
            if not retry.repeats(output.error, made):
                return output
            await self.journal.record(
                ToolAttempt(call_id=call.call_id, tool=call.tool, text=output.text, attempt=made)
            )
            await self.sleep(retry.pause_seconds(made))

    async def _tried(self, call: ToolCall, context: Context) -> ToolOutput:
        try:
            return self.review(await self.toolbox.call(call, context))
        except asyncio.CancelledError:
            if _is_being_cancelled():
                raise
            return ToolOutput(text="CancelledError: the tool was cancelled from within", failed=True)

    def _context(self, key: str, place: str) -> Context:
        """Return the context of one call. A question that the call asks is the call's own."""
        return Context(
            variables=self.context.variables,
            dependencies=self.context.dependencies,
            idempotency_key=key,
            extras=self.context.extras,
            ask_person=None if self.ask_person is None else partial(self.ask_person, place),
        )

    def _on_text(self) -> OnText | None:
        return None if self.on_progress is None else lambda text: self._tell(TextDelta(text))

    def _tell(self, progress: Progress) -> None:
        if self.on_progress is not None:
            self.on_progress(progress)


class _Answers:
    """A person's answers to the questions of one call. A further attempt of the call does not ask again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[int, tuple[str, str]] = {}
        """The place of a question within its attempt -> the question and its answer."""

    def again(self) -> Context:
        """Return the context of the next attempt: the same call, with the answers it has."""
        known, places = self._known, count()

        async def ask(prompt: str, timeout: float | None) -> str:
            place = next(places)
            asked, answer = known.get(place, ("", ""))
            if place not in known or asked != prompt:
                answer = await self._context.input(prompt, timeout)
                known[place] = (prompt, answer)
            return answer

        return self._context.asking(ask)


async def _approved(call: ToolCall, context: Context) -> bool:
    """Ask a person about exactly this call, with exactly these arguments."""
    answer = await context.input(f"Allow {call.tool} with {call.arguments}? (yes or no)")
    return answer.strip().lower() in _YES


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
