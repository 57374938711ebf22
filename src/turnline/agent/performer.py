"""Performing a round: asks the model, calls the tools, writes both down.

Rule 1: what is recorded is not done again; what is done is recorded before the
next thing is begun (T2, T3). The last reply of a round is not: the packet records it.

Rule 2: a transient failure of the model is tried again, with growing pauses; the
attempts are ours, not the provider's library's.

A tool that has a `retry` is tried again in the same way: each failed attempt is recorded before the
pause, so a resumed turn continues with the next one. Every attempt has the call's idempotency key.

Rule 3: several calls of one reply run at once. Each answer is recorded as it comes. A call that waits for a
person or a channel does not keep the others: when they have ended, `CallPaused` ends the performance (N1b).

Rule 4: a call that has asked for a pause is paused, whatever its tool returns. A tool that collects the
outcomes of several questions (`gather(..., return_exceptions=True)`) cannot swallow it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final

import msgspec

from turnline import tracing
from turnline.agent.context import AskPerson, Context, Once, RunOnce, run_unrecorded
from turnline.agent.failures import is_bug, report_failure
from turnline.agent.journal import Journal, Recorded, Unwritten
from turnline.agent.messages import Message, ModelReply, ToolCall
from turnline.agent.model import Model, ModelRequest, OnText
from turnline.agent.round import AskModel, CallTools, Outcome, Round, ToolAnswer, ToolAttempt
from turnline.agent.storable import storable_answer, storable_reply, unstorable_answer
from turnline.agent.tool import ToolRetry
from turnline.agent.tool_result import CallPaused, ToolOutput
from turnline.agent.toolbox import Toolbox
from turnline.core.claims import Paused, join_pauses
from turnline.core.envelope import JsonObject
from turnline.errors import BadDraft, ModelError, NobodyToAsk
from turnline.threads import call_user, is_being_cancelled

ATTEMPTS: Final = 3
BACKOFF_SECONDS: Final = 1.0
"""Before the second attempt; twice as long before each further one, unless the provider says how long."""
MAX_PAUSE_SECONDS: Final = 60.0
CALL_CHARACTERS: Final = 8
"""Of the digest that tells one call from another one at the same place."""
_YES: Final = frozenset({"y", "yes", "ok", "okay", "approve", "approved", "true", "allow"})

current_call: Final[ContextVar[str]] = ContextVar("current_call", default="")
"""The id of the tool call that this task works on."""

Sleep = Callable[[float], Awaitable[None]]
Review = Callable[[ToolOutput], ToolOutput]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSite:
    """The call that a question is about."""

    place: str
    """The number of the model's reply and of the call in it, such as `2.1`.

    A round that resumes gives each call the same place, whatever ids the model chooses for its calls.
    """
    call: ToolCall
    is_approval: bool = False
    """Whether the question is if the call may run."""


AskFor = Callable[[CallSite, str, float | None], Awaitable[str]]
"""Asks a person for one call: the call, the prompt, and how many seconds to wait."""

OnceFor = Callable[[str], RunOnce]
"""Gives the `once` of one attempt at a call. Its argument names the call: place, tool and arguments."""


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


def stream_words(tell: Callable[[str], None]) -> OnProgress:
    """Return a callback that tells the words of the model's replies as they come, and nothing else."""

    def stream(progress: Progress) -> None:
        if isinstance(progress, TextDelta):
            tell(progress.text)

    return stream


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
    require_answer: AskFor | None = None
    """Raises `CallPaused` until there is an answer. Without it `ask_person` is used."""
    once: OnceFor | None = None
    """Without it the results of `context.once` are not recorded."""
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
        """Return the answers. If calls wait, raise `CallPaused` when no other call runs any more (N1b)."""
        places = (f"{replies}.{number}" for number in range(1, len(step.calls) + 1))
        tasks = [
            asyncio.ensure_future(self._answer_or_pause(call, place))
            for call, place in zip(step.calls, places, strict=True)
        ]
        try:
            answers = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        pauses = [one for one in answers if isinstance(one, Paused)]
        if pauses:
            raise CallPaused(join_pauses(pauses))
        return [one for one in answers if isinstance(one, ToolAnswer)]

    async def _answer_or_pause(self, call: ToolCall, place: str) -> ToolAnswer | Paused:
        try:
            return await self._answer(call, place)
        except CallPaused as waits:
            return waits.paused

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
                _report(call, output)
        answer = ToolAnswer(
            call_id=call.call_id,
            tool=call.tool,
            text=output.text,
            failed=output.failed,
            returned=output.returned,
            context=output.context,
            reason=output.reason,
            in_file=output.in_file,
            attached=output.attached,
        )
        answer = storable_answer(answer)
        try:
            kept = await self.journal.record(answer, () if answer.failed else output.files)
            answer = msgspec.structs.replace(answer, parts=list(kept))
        except (BadDraft, OSError) as refused:
            if not output.files:
                raise
            answer = unstorable_answer(answer, str(refused))
            await self.journal.record(answer)
        self._tell(ToolFinished(answer))
        return answer

    async def _called(self, call: ToolCall, place: str) -> ToolOutput:
        waits = list[Paused]()
        context = self._context(call, place, waits)
        found = self.toolbox.get(call.tool)
        if found is not None and found.approval and not call.malformed:
            refusal = await self._ask_approval(call, place)
            if refusal:
                return ToolOutput(text=refusal, failed=True)
        if found is None or found.retry is None:
            return await self._tried(call, context, waits)
        answers = _Answers(context)

        async def attempt() -> ToolOutput:
            return await self._tried(call, answers.again(self._once(call, place)), waits)

        return await self._retried(call, attempt, found.retry)

    async def _retried(
        self, call: ToolCall, attempt: Callable[[], Awaitable[ToolOutput]], retry: ToolRetry
    ) -> ToolOutput:
        """Try the call until it succeeds or has no attempts left. A crash does not give it more of them."""
        made = self.recorded.attempts(call)
        while True:
            output = await attempt()
            made += 1
            if not retry.repeats(output.error, made):
                return output
            await self.journal.record(
                ToolAttempt(call_id=call.call_id, tool=call.tool, text=output.text, attempt=made)
            )
            await self.sleep(retry.pause_seconds(made))

    async def _ask_approval(self, call: ToolCall, place: str) -> str:
        """Ask a person about exactly this call, with exactly these arguments. Return why it may not run."""
        ask = self.require_answer or self.ask_person
        if ask is None:
            raise NobodyToAsk
        try:
            site = CallSite(place=place, call=call, is_approval=True)
            answer = await ask(site, f"Allow {call.tool} with {call.arguments}? (yes or no)", None)
        except TimeoutError:
            return f"no person approved this call of {call.tool!r} in time."
        is_yes = answer.strip().lower() in _YES
        return "" if is_yes else f"a person declined this call of {call.tool!r}."

    async def _tried(self, call: ToolCall, context: Context, waits: list[Paused]) -> ToolOutput:
        """Run the tool. Raises `CallPaused` if it waits, or if its questions do (`waits`)."""
        try:
            output = self.review(await self.toolbox.call(call, context))
        except CallPaused as paused:
            waits.append(paused.paused)
            output = ToolOutput(text="the tool has to wait, which needs a channel or a flow", failed=True)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            output = ToolOutput(text="CancelledError: the tool was cancelled from within", failed=True)
        if waits and self.once is not None:  # Only a turn on a log can be performed again.
            raise CallPaused(join_pauses(waits))
        return output

    def _context(self, call: ToolCall, place: str, waits: list[Paused]) -> Context:
        """Return the context of one call. Its questions and its results of `once` are the call's own."""
        found = self.toolbox.get(call.tool)
        restarts = found is not None and found.restarts
        ask_for = (self.require_answer if restarts else None) or self.ask_person
        site = CallSite(place=place, call=call)
        ask = None if ask_for is None else partial(_note_pause, partial(ask_for, site), waits)
        key = f"{self.key}:{call.call_id}:{call.tool}"
        return self.context.for_call(key, ask, self._once(call, place))

    def _once(self, call: ToolCall, place: str) -> Once:
        """Return the `once` of one attempt at a call.

        A retry of the whole turn asks the model again. It may make another call at the same place, which must
        not get this call's results: so the name of the call also follows from its tool and arguments.
        """
        if self.once is None:
            return Once(run_unrecorded)
        made = hashlib.sha256(msgspec.json.encode([call.tool, call.arguments], order="sorted"))
        return Once(partial(_run_unless_paused, self.once(f"{place}-{made.hexdigest()[:CALL_CHARACTERS]}")))

    def _on_text(self) -> OnText | None:
        return None if self.on_progress is None else lambda text: self._tell(TextDelta(text))

    def _tell(self, progress: Progress) -> None:
        if self.on_progress is not None:
            self.on_progress(progress)


async def _note_pause(ask: AskPerson, waits: list[Paused], prompt: str, timeout: float | None) -> str:
    """Ask, and note the pause that this comes to: the tool may catch it."""
    try:
        return await ask(prompt, timeout)
    except CallPaused as paused:
        waits.append(paused.paused)
        if (inside := _pauses.get()) is not None:
            inside.append(paused.paused)
        raise


_pauses: ContextVar[list[Paused] | None] = ContextVar("pauses", default=None)
"""The pauses of questions in the function that `once` runs; None if it runs none."""


async def _run_unless_paused(run: RunOnce, key: str, fn: Callable[[], Any]) -> Any:
    """Run a function of `once`. If one of its questions waits, so does the call: nothing is recorded.

    The function may catch the pause. What it returns then is not its result: it runs again with the answer.
    """

    async def run_or_pause() -> Any:
        outer, pauses = _pauses.get(), list[Paused]()
        token = _pauses.set(pauses)
        try:
            result = await call_user(fn)
        finally:
            _pauses.reset(token)
            if outer is not None:  # A function of `once` that uses `once`.
                outer += pauses
        if pauses:
            raise CallPaused(join_pauses(pauses))
        return result

    return await run(key, run_or_pause if callable(fn) else fn)


class _Answers:
    """A person's answers to the questions of one call. A further attempt of the call does not ask again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[int, tuple[str, str]] = {}
        """The place of a question within its attempt -> the question and its answer."""

    def again(self, once: Once) -> Context:
        """Return the context of the next attempt: the same call, with the answers it has."""
        known, places = self._known, count()

        async def ask(prompt: str, timeout: float | None) -> str:
            place = next(places)
            asked, answer = known.get(place, ("", ""))
            if place not in known or asked != prompt:
                answer = await self._context.input(prompt, timeout)
                known[place] = (prompt, answer)
            return answer

        return self._context.for_call(self._context.idempotency_key, ask, once)


def _report(call: ToolCall, output: ToolOutput) -> None:
    """Report a bug in the tool to the operator, once: after its last attempt. Earlier ones are on the log."""
    if output.error is not None and is_bug(output.error):
        report_failure(f"tool {call.tool!r}", output.error, output.text)
