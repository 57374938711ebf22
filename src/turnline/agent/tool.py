"""Tools: a function that a model may call (K1, K2).

    @tool  ->  Tool: name, description, schema, and a plan of what is injected
    tool.call(arguments, context) -> ToolOutput

Everything that can be known of the function is read when the tool is made. A
call takes four steps: what the model sent for injected parameters is dropped
(V3), the rest is validated, the injected ones are filled, the function runs.

Whatever goes wrong in a call is told to the model, with three exceptions, which
leave it: cancellation, `MissingVariable` and `NobodyToAsk`. The first is not an
answer; the others are the developer's to mend.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Final, Generic, ParamSpec, TypeVar, overload

from pydantic import ValidationError

from turnline.agent.context import Context
from turnline.agent.docstring import documented
from turnline.agent.injections import Resolution, injections_of
from turnline.agent.model import ToolSpec
from turnline.agent.parameters import parameters_of
from turnline.agent.tool_result import ToolOutput, failure, output_of
from turnline.agent.tool_schema import Arguments
from turnline.core.envelope import JsonObject
from turnline.errors import BadTool, MissingVariable, NobodyToAsk
from turnline.threads import call_user

P = ParamSpec("P")
R = TypeVar("R")

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every provider takes."""
MAX_ATTEMPTS: Final = 100
"""Of one tool call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRetry:
    """How a tool call that raises is retried, inside the turn and before the model is told."""

    attempts: int = 3
    """All together, the first included."""
    on: type[Exception] | tuple[type[Exception], ...] = Exception
    """What is retried. Anything else the tool raises goes to the model at once."""
    backoff_seconds: float = 1.0
    """The first pause; each further one is twice as long."""
    max_backoff_seconds: float = 60.0

    def repeats(self, error: Exception | None, attempt: int) -> bool:
        """Return whether another attempt follows the one of this number, which raised `error`."""
        return attempt < self.attempts and isinstance(error, self.on)

    def pause_seconds(self, attempt: int) -> float:
        """Return how long to wait after the attempt of this number."""
        return float(min(self.backoff_seconds * 2.0 ** (attempt - 1), self.max_backoff_seconds))


class Tool(Generic[P, R]):
    """A function that a model may call. Called directly, it is that function."""

    __name__: str

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        approval: bool = False,
        restarts: bool = False,
        retry: int | ToolRetry | None = None,
    ) -> None:
        update_wrapper(self, function)
        self.function = function
        self.name = _checked_name(function, name)
        self.approval = approval
        """Whether a person has to say yes before a call runs."""
        self.restarts = restarts
        """Whether `context.input` pauses the turn: the call runs again from its start and gets the answer."""
        self.retry = None if retry is None else checked_retry(self.name, retry)
        """How a call that raises is retried before the model is told; None: it is not."""
        parameters, doc = parameters_of(function, self.name), documented(function)
        self.description = doc.description if description is None else description
        self._arguments = Arguments(self.name, parameters.model, doc.arguments)
        self._injections = injections_of(parameters.injected, self.name)
        self._injected = self._injections.names

    @property
    def asks(self) -> bool:
        """Whether it says that it asks a person. A plain tool may still call `context.input`."""
        return self.approval or self.restarts

    @property
    def schema(self) -> JsonObject:
        """JSON Schema of what the model sends. Injected parameters are not in it (V3)."""
        return self._arguments.schema

    def spec(self) -> ToolSpec:
        """Return the tool as the model sees it."""
        return ToolSpec(name=self.name, description=self.description, schema=self.schema)

    def altered(
        self,
        *,
        name: str | None,
        description: str | None,
        approval: bool,
        restarts: bool,
        retry: int | ToolRetry | None,
    ) -> Tool[P, R]:
        """Return a tool of the same function, with what is given here in place of what this one has."""
        return Tool(
            self.function,
            name=self.name if name is None else name,
            description=self.description if description is None else description,
            approval=self.approval or approval,
            restarts=self.restarts or restarts,
            retry=self.retry if retry is None else retry,
        )

    async def call(self, arguments: JsonObject, context: Context) -> ToolOutput:
        """Run the tool with what the model sent, and return how it ended.

        Raises `MissingVariable` and `NobodyToAsk`; everything else is in the output.
        """
        if not self._injected.isdisjoint(arguments):
            arguments = {name: sent for name, sent in arguments.items() if name not in self._injected}
        try:
            given = self._arguments.validated(arguments)
        except ValidationError as error:
            return self._refused(error)
        except Exception as error:  # A validator of the user's.
            return failure(error, context.variables, context.dependencies)
        return await self._ran(given, context, arguments.get("reason"))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    async def _ran(self, given: dict[str, Any], context: Context, reason: object) -> ToolOutput:
        resolution = Resolution(context)
        try:
            given |= await self._injections.values(resolution)
            returned = await call_user(self.function, **given)
        except (MissingVariable, NobodyToAsk):
            raise
        except Exception as error:
            return failure(error, resolution.given, context.variables, context.dependencies)
        return output_of(returned, reason if isinstance(reason, str) else "")

    def _refused(self, error: ValidationError) -> ToolOutput:
        wrong = self._arguments.told(error)
        return ToolOutput(text=f"wrong arguments for {self.name!r}: {wrong}. Call it again.", failed=True)


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    approval: bool = ...,
    restarts: bool = ...,
    retry: int | ToolRetry | None = ...,
) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    approval: bool = ...,
    restarts: bool = ...,
    retry: int | ToolRetry | None = ...,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    approval: bool = False,
    restarts: bool = False,
    retry: int | ToolRetry | None = None,
) -> Any:
    """Make a tool of a function: `@tool`, `@tool(name=..., approval=True, retry=3)` or `tool(function)`.

    With `approval` a person has to say yes before a call runs. With `restarts`, `context.input` pauses the
    turn, and the call runs again from its start when the answer is there: its effects belong into
    `context.once`.
    The name is the function's, the description its docstring's. Raises `BadTool`
    if the function cannot be one.
    """

    def make(function: Callable[..., Any]) -> Tool[..., Any]:
        if isinstance(function, Tool):
            return function.altered(
                name=name, description=description, approval=approval, restarts=restarts, retry=retry
            )
        return Tool(
            function,
            name=name,
            description=description,
            approval=approval,
            restarts=restarts,
            retry=retry,
        )

    return make if function is None else make(function)


def as_tool(function: Callable[..., Any]) -> Tool[..., Any]:
    """Return the tool itself, or one made of a plain function."""
    return function if isinstance(function, Tool) else Tool(function)


def checked_retry(tool: str, given: int | ToolRetry) -> ToolRetry:
    """Return the retry that was given for a tool; a number is its attempts. Raises `BadTool`."""
    retry = ToolRetry(attempts=given) if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(retry, ToolRetry):
        raise BadTool(tool, because=f"its retry is {given!r}; expected a number of attempts, or a ToolRetry")
    if not 1 <= retry.attempts <= MAX_ATTEMPTS:
        raise BadTool(tool, because=f"its retry has {retry.attempts} attempts; expected 1 to {MAX_ATTEMPTS}")
    if min(retry.backoff_seconds, retry.max_backoff_seconds) < 0:
        raise BadTool(tool, because="its retry has a pause below zero; expected seconds")
    kinds = retry.on if isinstance(retry.on, tuple) else (retry.on,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise BadTool(tool, because="its retry.on is not a class of exceptions, nor a tuple of them")
    return retry


def _checked_name(function: Callable[..., Any], given: str | None) -> str:
    name = given if given is not None else getattr(function, "__name__", "")
    if not inspect.isroutine(function):
        raise BadTool(name or type(function).__name__, because="it is no function; expected one, or a method")
    if not _NAME.fullmatch(name):
        raise BadTool(name, because="its name is not 1 to 64 of A-Z a-z 0-9 _ -; give it one with name=...")
    return name
