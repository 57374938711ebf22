"""What a function takes: which parameters are the model's, and which are injected (V2, V3).

Read once, when the tool is made. Whatever cannot work is refused here, with
`BadTool`, so that a call finds a plan and decides nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo

from turnline.agent.context import Context
from turnline.agent.inject import REQUIRED, CurrentContext, Marker
from turnline.errors import BadTool

_Empty = inspect.Parameter.empty
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True, repr=False)
class Parameter:
    """One parameter of a function."""

    name: str
    hint: Any
    default: object = REQUIRED


@dataclass(frozen=True, slots=True, repr=False)
class Parameters:
    """Everything a function takes."""

    model: tuple[Parameter, ...]
    """What the model fills."""
    injected: tuple[tuple[Parameter, Marker], ...]


def parameters_of(function: Callable[..., Any], tool: str) -> Parameters:
    """Return what `function` takes, or raise `BadTool` in the name of `tool`."""
    hints = _hints(function, tool)
    model, injected = list[Parameter](), list[tuple[Parameter, Marker]]()
    for parameter in _signature(function, tool).parameters.values():
        _check(parameter, tool)
        default = REQUIRED if parameter.default is _Empty else parameter.default
        read = Parameter(parameter.name, hints.get(parameter.name, Any), default)
        marker = _marker(read, tool)
        if marker is None:
            model.append(read)
        else:
            injected.append((read, marker))
    return Parameters(tuple(model), tuple(injected))


def _signature(function: Callable[..., Any], tool: str) -> inspect.Signature:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadTool(tool, because=f"{_name(function)} yields; expected a function that returns")
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise BadTool(
            tool, because=f"{_name(function)} has no signature; wrap it in a def with type hints"
        ) from None


def _hints(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    """The parameters' annotations, resolved. What the function returns is not looked at."""
    written = _written(function)
    if not inspect.isfunction(written):
        return {}  # Built in: it has no annotations.
    try:
        annotations = {name: hint for name, hint in written.__annotations__.items() if name != "return"}
        unresolved = SimpleNamespace(__annotations__=annotations)
        return get_type_hints(unresolved, written.__globals__, _enclosing(written), include_extras=True)
    except (NameError, SyntaxError, TypeError, ValueError) as error:
        raise BadTool(
            tool,
            because=f"a type hint of {_name(function)} cannot be resolved ({error}); define or import what "
            f"it names at the top level of the module, or leave out `from __future__ import annotations`",
        ) from None


def _enclosing(written: Any) -> dict[str, Any]:
    """What the function can see of the function it is defined in, if that one is still running.

    Hints that are text say nothing of where they were written; the code that
    holds this function's code among its constants is where.
    """
    frame = inspect.currentframe() if "<locals>" in written.__qualname__ else None
    while frame is not None:
        if any(constant is written.__code__ for constant in frame.f_code.co_consts):
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _written(function: Callable[..., Any]) -> Any:
    """The `def` behind a callable: where its annotations and its globals are."""
    inner: Any = inspect.unwrap(function)
    if isinstance(inner, type):
        return inspect.getattr_static(inner, "__init__")
    inner = inner if inspect.isroutine(inner) else type(inner).__call__
    return getattr(inner, "__func__", inner)


def _check(parameter: inspect.Parameter, tool: str) -> None:
    if parameter.kind not in _BY_NAME:
        raise BadTool(
            tool, because=f"its parameter '{parameter}' has no name to send it by; expected named parameters"
        )
    if parameter.name in {"self", "cls"} and parameter.annotation is _Empty:
        raise BadTool(tool, because="it is a method without its object; make the tool of a bound method")
    if isinstance(parameter.default, Marker):
        marker = type(parameter.default).__name__
        raise BadTool(
            tool,
            because=f"the default of {parameter.name!r} is a {marker}; "
            f"expected it in the type hint: {parameter.name}: Annotated[..., {marker}(...)]",
        )
    if isinstance(parameter.default, FieldInfo):
        raise BadTool(
            tool,
            because=f"the default of {parameter.name!r} is a Field; "
            f"expected it in the type hint: {parameter.name}: Annotated[..., Field(...)]",
        )


def _marker(parameter: Parameter, tool: str) -> Marker | None:
    found = list(_markers(parameter.hint))
    if len(found) > 1:
        raise BadTool(tool, because=f"{parameter.name!r} is marked {len(found)} times; expected one marker")
    for marker in found:
        if isinstance(marker, type):
            raise BadTool(
                tool,
                because=f"{parameter.name!r} is marked with the class {marker.__name__}; "
                f"expected {marker.__name__}(...)",
            )
        return marker
    return None


def _markers(hint: Any) -> Iterator[Marker | type[Marker]]:
    """The markers of a type hint, also where it is one of several: `Annotated[str, Variable()] | None`."""
    if hint is Context:
        yield CurrentContext()
    elif get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        yield from _markers(inner)
        yield from (item for item in metadata if _is_marker(item))
    elif get_origin(hint) in (Union, UnionType):
        for arm in get_args(hint):
            yield from _markers(arm)


def _is_marker(item: object) -> bool:
    return isinstance(item, Marker) or (isinstance(item, type) and issubclass(item, Marker))


def _name(function: Callable[..., Any]) -> str:
    return repr(getattr(function, "__name__", type(function).__name__))
