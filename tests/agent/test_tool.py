"""K1, V4: what a call of a tool does, and what it never shows."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import wraps
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from turnline.agent.context import Context
from turnline.agent.inject import Depends, Inject, Variable
from turnline.agent.tool import Tool, as_tool, tool
from turnline.agent.tool_result import MAX_ERROR_CHARACTERS, ToolOutput
from turnline.errors import BadTool, MissingVariable, NobodyToAsk

CANARY = "canary-51f0c2"
TIMEOUT_SECONDS = 30


async def failed(made: Tool[..., Any], context: Context | None = None, /, **sent: object) -> str:
    """What the model is told of a call that fails."""
    output = await made.call(sent, Context() if context is None else context)
    assert output.failed
    return output.text


def raises(error: Exception) -> Tool[..., Any]:
    async def fail() -> None:
        raise error

    return Tool(fail)


def test_k1_a_tool_is_made_in_every_way_of_writing_it() -> None:
    @tool
    def plain(n: int) -> int:
        """Count."""
        return n

    @tool(name="count-up", description="Counts.", approval=True)
    def named(n: int) -> int:
        """Count."""
        return n

    def later(n: int) -> int:
        return n

    made = tool(later, approval=True)

    assert (plain.name, plain.description, plain.approval) == ("plain", "Count.", False)
    assert (named.name, named.description, named.approval) == ("count-up", "Counts.", True)
    assert (made.name, made.description, made.approval) == ("later", "", True)
    assert plain.schema == named.schema == made.schema == plain.spec().schema


async def test_k1_a_decorated_function_can_still_be_called() -> None:
    @tool
    def double(n: int, *, by: int = 2) -> int:
        """Double."""
        return n * by

    @tool
    async def later(n: int) -> int:
        return n

    assert double(3) == 6
    assert double(3, by=3) == 9
    assert await later(4) == 4
    assert (double.__name__, double.__doc__) == ("double", "Double.")
    assert list(inspect.signature(double).parameters) == ["n", "by"]


def test_k1_a_tool_of_a_tool_keeps_what_is_not_given_anew() -> None:
    @tool(description="Counts.", approval=True)
    def count() -> int: ...  # type: ignore[empty-body]

    again = tool(count, name="other")

    assert (again.name, again.description, again.approval) == ("other", "Counts.", True)
    assert as_tool(count) is count


async def test_k1_a_bound_method_is_a_tool() -> None:
    class Shop:
        async def price(self, article: str, rate: Annotated[int, Variable()]) -> str:
            """Say the price."""
            return f"{article} {rate}"

    made = tool(Shop().price)

    assert (await made.call({"article": "tea"}, Context(variables={"rate": 2}))).text == "tea 2"
    assert list(made.schema["properties"]) == ["article"]


@pytest.mark.parametrize("name", ["", "two words", "naïve", "x" * 65, "a.b"])
def test_k1_a_name_no_provider_takes_is_refused(name: str) -> None:
    with pytest.raises(BadTool, match=r"name=\.\.\."):
        tool(lambda: 1, name=name)


async def test_k1_a_sync_tool_runs_in_a_thread_with_the_callers_context_variables() -> None:
    trace: ContextVar[str] = ContextVar("trace")
    trace.set("t-1")

    @tool
    def where() -> str:
        return f"{threading.current_thread() is threading.main_thread()} {trace.get()}"

    @tool
    async def here() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert (await where.call({}, Context())).text == "False t-1"
    assert (await here.call({}, Context())).text == "true"


async def test_k1_sync_tools_run_at_once() -> None:
    both = threading.Barrier(2, timeout=TIMEOUT_SECONDS)

    @tool
    def meet() -> bool:
        return both.wait() >= 0

    outputs = await asyncio.gather(meet.call({}, Context()), meet.call({}, Context()))

    assert [output.text for output in outputs] == ["true", "true"]


async def test_k1_async_tools_run_at_once() -> None:
    both = asyncio.Barrier(2)

    @tool
    async def meet() -> bool:
        return await both.wait() >= 0

    async with asyncio.timeout(TIMEOUT_SECONDS):
        outputs = await asyncio.gather(meet.call({}, Context()), meet.call({}, Context()))

    assert [output.text for output in outputs] == ["true", "true"]


async def test_k1_what_a_sync_function_only_promises_is_awaited() -> None:
    def wrapped(function: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Awaitable[str]:
            return function(*args, **kwargs)

        return wrapper

    async def later(n: int) -> str:
        return f"late {n}"

    assert (await Tool(wrapped(later)).call({"n": 1}, Context())).text == "late 1"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such order"), "ValueError: no such order"),
        (KeyError("k"), "KeyError: 'k'"),
        (TimeoutError(), "TimeoutError"),
        (
            RuntimeError("remote:\nTraceback (most recent call last):\n  File '/srv/app.py'"),
            "RuntimeError: remote:",
        ),
    ],
)
async def test_k1_an_exception_reaches_the_model_as_type_and_message(error: Exception, text: str) -> None:
    assert await failed(raises(error)) == text


async def test_k1_of_an_exception_with_a_cause_nothing_but_itself_is_told() -> None:
    @tool
    def fail() -> None:
        try:
            open("/nowhere/at/all")  # noqa: SIM115
        except OSError as error:
            raise LookupError("not found") from error

    assert await failed(fail) == "LookupError: not found"


async def test_k1_an_endless_message_is_cut() -> None:
    assert len(await failed(raises(ValueError("x" * 10**6)))) == MAX_ERROR_CHARACTERS


async def test_k1_an_exception_that_cannot_be_shown_is_its_type() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert await failed(raises(Mute())) == "Mute"


async def test_k1_an_iterator_that_ended_fails_the_call_and_does_not_hang_it() -> None:
    @tool
    def first() -> object:
        return next(iter(()))

    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert "StopIteration" in await failed(first)


async def test_k1_a_validator_that_breaks_fails_the_call() -> None:
    def breaks(value: str) -> str:
        raise KeyError(value)

    @tool
    def take(x: Annotated[str, AfterValidator(breaks)]) -> str:
        return x

    assert await failed(take, x="a") == "KeyError: 'a'"


async def test_k1_cancellation_is_no_answer() -> None:
    started = asyncio.Event()

    @tool
    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(wait.call({}, Context()))
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_v3_a_missing_variable_of_an_agent_asked_within_the_tool_gets_out_too() -> None:
    with pytest.raises(MissingVariable):
        await raises(MissingVariable("inner", kind="variable", key="k")).call({}, Context())


async def test_h1_nobody_to_ask_is_an_error_to_the_developer() -> None:
    @tool
    async def confirm(context: Context) -> str:
        return await context.input("sure?")

    with pytest.raises(NobodyToAsk):
        await confirm.call({}, Context())


async def test_v2_a_tool_asks_a_person() -> None:
    async def ask_person(prompt: str, timeout: float | None) -> str:
        return f"{prompt} yes, within {timeout}"

    @tool
    async def confirm(context: Context) -> str:
        return await context.input("sure?", timeout=3)

    assert (await confirm.call({}, Context(ask_person=ask_person))).text == "sure? yes, within 3"


async def test_k2_the_reason_of_a_call_travels_with_its_output() -> None:
    @tool
    def escalate(reason: str = "") -> str:
        return "escalated"

    @tool
    def hidden(reason: Annotated[str, Variable()]) -> str:
        return reason

    async def called(made: Tool[..., Any], **sent: object) -> ToolOutput:
        return await made.call(sent, Context(variables={"reason": CANARY}))

    assert (await called(escalate, reason="fraud")).reason == "fraud"
    assert (await called(escalate)).reason == ""
    assert (await called(escalate, reason=7)).reason == ""
    assert (await called(hidden, reason="the model's")).reason == ""


class Login(BaseModel):
    password: int


def connect(url: Annotated[str, Inject()]) -> str:
    raise ConnectionError(f"cannot reach {url}")


def quotes_the_key(key: Annotated[str, Variable(default=CANARY)]) -> str:
    raise ValueError(f"https://api/?key={key} answered 401")


def quotes_the_context(context: Context) -> str:
    raise ValueError(f"{context} {context.variables} {context.dependencies}")


def looks_it_up(context: Context) -> str:
    return {"a": "b"}[context.variables["deep"]["list"][0]]


def validates(context: Context) -> object:
    return Login(password=context.variables["token"])


def depends(db: Annotated[str, Depends(connect)]) -> str:
    return db


@pytest.mark.parametrize(
    "function",
    [quotes_the_key, quotes_the_context, looks_it_up, validates, depends],
    ids=lambda f: f.__name__,
)
async def test_v4_no_error_shows_a_variable_a_dependency_or_a_default(function: Callable[..., Any]) -> None:
    context = Context(
        variables={"token": CANARY, "deep": {"list": [CANARY]}}, dependencies={"url": f"db://{CANARY}"}
    )
    made = Tool(function)
    text = await failed(made, context)

    assert CANARY not in text
    assert "***" in text or "ValidationError" in text
    assert CANARY not in f"{made!r} {made.spec()!r} {made.schema}"


async def test_v4_what_a_tool_returns_is_its_authors_choice() -> None:
    @tool
    def show(key: Annotated[str, Variable()]) -> str:
        return f"processed with {key}"

    assert (await show.call({}, Context(variables={"key": CANARY}))).text == f"processed with {CANARY}"
