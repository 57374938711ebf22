"""What cannot be a tool is refused when it is made, with a reason."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest
from pydantic import Field

from turnline.agent.context import Context
from turnline.agent.inject import Depends, Variable
from turnline.agent.parameters import parameters_of
from turnline.agent.tool import Tool, tool
from turnline.errors import BadTool

CANARY = "canary-51f0c2"


class Connection:
    """Has no JSON form."""


def variadic(*args: str) -> Any: ...
def keywords(**kwargs: str) -> Any: ...
def positional(x: str, /) -> Any: ...
def yields() -> Iterator[str]:
    yield ""


async def yields_later() -> AsyncIterator[str]:
    yield ""


def method(self, x: str) -> Any: ...  # type: ignore[no-untyped-def]
def live(x: str, db: Connection) -> Any: ...
def handler(x: Callable[[], None]) -> Any: ...
def marker_as_default(key: str = Variable(default=CANARY)) -> Any: ...  # type: ignore[assignment]
def field_as_default(n: int = Field(default=1)) -> Any: ...
def marked_twice(key: Annotated[str, Variable(), Variable("other")]) -> Any: ...
def marker_class(key: Annotated[str, Variable]) -> Any: ...
def unknown_type(x: Nowhere) -> Any: ...  # type: ignore[name-defined]  # noqa: F821


def needs_more(n: int) -> Any: ...
def unfilled(n: Annotated[int, Depends(needs_more)]) -> Any: ...


def egg(hen: Annotated[object, Depends(lambda: hen)]) -> Any: ...
def hen(egg: Annotated[object, Depends(egg)]) -> Any: ...


egg.__annotations__["hen"] = Annotated[object, Depends(hen)]


@pytest.mark.parametrize(
    ("function", "because"),
    [
        (variadic, r"'\*args: 'str'' has no name"),
        (keywords, r"\*\*kwargs"),
        (positional, "has no name to send it by"),
        (yields, "yields"),
        (yields_later, "yields"),
        (method, "bound method"),
        (live, r"'db' has no JSON form, .*Inject\(\)"),
        (handler, "'x' has no JSON form"),
        (marker_as_default, r"expected it in the type hint: key: Annotated\[..., Variable"),
        (field_as_default, r"n: Annotated\[..., Field"),
        (marked_twice, "marked 2 times"),
        (marker_class, r"expected Variable\(...\)"),
        (unknown_type, "'Nowhere' is not defined.*top level"),
        (unfilled, "'n' of the dependency 'needs_more'"),
        (hen, "depends on itself"),
        (functools.partial(live, "x"), "no function"),
        (len, "has no name to send it by"),
        (lambda x: x, "name=..."),
    ],
)
def test_it_is_refused_with_its_reason(function: Callable[..., Any], because: str) -> None:
    with pytest.raises(BadTool, match=because) as raised:
        tool(function)

    assert CANARY not in str(raised.value)
    assert "pydantic" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_type_of_the_function_around_it_is_found() -> None:
    class Local(int): ...

    def takes(x: list[Local]) -> Any: ...

    [read] = parameters_of(takes, "takes").model

    assert read.hint == list[Local]


def test_a_type_of_a_function_that_has_returned_is_refused_where_hints_are_text() -> None:
    def define() -> Callable[..., Any]:
        class Local: ...

        def takes(x: Local) -> Any: ...

        return takes

    with pytest.raises(BadTool, match=r"name 'Local' is not defined.*top level"):
        tool(define())


def test_what_a_function_returns_is_not_looked_at() -> None:
    def returns() -> Elsewhere:  # type: ignore[name-defined]  # noqa: F821
        return None

    assert tool(returns).name == "returns"


def test_hints_of_a_wrapped_function_are_those_of_the_function_inside() -> None:
    def logged(function: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> str:
            return function(*args, **kwargs)

        return wrapper

    def show(n: int, ctx: Context) -> str:
        return str(n)

    assert Tool(logged(show)).schema["properties"] == {"n": {"type": "integer"}}


def test_a_marker_on_one_of_several_types_marks_the_parameter() -> None:
    def show(key: Annotated[str, Variable()] | None, n: int) -> Any: ...

    read = parameters_of(show, "show")

    assert [parameter.name for parameter in read.model] == ["n"]


def test_a_parameter_without_a_type_takes_anything() -> None:
    def show(x, n=1) -> Any: ...  # type: ignore[no-untyped-def]

    assert tool(show).schema["properties"] == {"x": {}, "n": {"default": 1}}
