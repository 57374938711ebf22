"""Markers: `Annotated[T, marker]` says that a parameter is not the model's, and where its value comes from.

    Variable, Inject    a variable or a dependency of the conversation (V2, V5)
    Depends             the result of a function, called once per tool call (V5)

V3: a marked parameter is never in a tool's schema, whatever the marker finds.

A layer above adds a marker by subclassing `Injected`; `Context.extras` is where
it finds what that layer provides.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final

from turnline.agent.context import Context
from turnline.agent.variables import MASK
from turnline.errors import MissingVariable


class Required(Enum):
    """Stands for a default where there is none; None is a default like any other."""

    REQUIRED = "required"


REQUIRED: Final = Required.REQUIRED


@dataclass(frozen=True, slots=True, repr=False)
class Wanted:
    """The parameter a marker fills: of which tool, by which name."""

    tool: str
    parameter: str
    default: object = REQUIRED
    """What stands behind `=` in the signature."""


class Marker:
    """Marks a parameter as not the model's. Either an `Injected` or a `Depends`."""

    __slots__ = ()


class Injected(Marker, ABC):
    """A marker that knows the value at once."""

    __slots__ = ()

    @abstractmethod
    def resolve(self, wanted: Wanted, context: Context) -> object:
        """Return the value of the parameter for this call.

        Called on the event loop before the tool runs, once for each call; it
        must not block. `MissingVariable` goes to the developer, any other
        exception is the tool's failure. Nothing it raises may show a value.
        """


class Depends(Marker):
    """`Annotated[Database, Depends(connect)]`: what `connect` returns, called once per tool call (V5).

    The function may be async, and may take injected parameters itself. A sync
    one is called on the event loop: it must not block.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __repr__(self) -> str:
        return f"Depends({getattr(self.function, '__name__', type(self.function).__name__)})"


class _Keyed(Injected):
    """A value of one of the conversation's two dicts: by the parameter's name, or by another key."""

    __slots__ = ("default", "default_factory", "name")

    kind: ClassVar[str]

    def __init__(
        self,
        name: str | None = None,
        *,
        default: object = REQUIRED,
        default_factory: Callable[[], object] | None = None,
    ) -> None:
        if default is not REQUIRED and default_factory is not None:
            raise TypeError(f"{type(self).__name__} is given default and default_factory; give one of them")
        if inspect.iscoroutinefunction(default_factory):
            raise TypeError("default_factory is async; expected a plain function. Use Depends for async ones")
        self.name = name
        self.default = default
        self.default_factory = default_factory

    @abstractmethod
    def values(self, context: Context) -> dict[str, Any]: ...

    def resolve(self, wanted: Wanted, context: Context) -> object:
        key, values = self.name or wanted.parameter, self.values(context)
        found = values.get(key, REQUIRED)
        if found is not REQUIRED:
            return found
        if self.default_factory is not None:
            # Nothing is awaited in between: of two calls at once, the second finds what the first made.
            made = values[key] = self.default_factory()
            return made
        default = wanted.default if self.default is REQUIRED else self.default
        if default is REQUIRED:
            raise MissingVariable(wanted.tool, kind=self.kind, key=key)
        return deepcopy(default) if isinstance(default, list | dict | set) else default

    def __repr__(self) -> str:
        given = [] if self.name is None else [repr(self.name)]
        given += [] if self.default is REQUIRED else [f"default={MASK}"]
        given += [] if self.default_factory is None else [f"default_factory={MASK}"]
        return f"{type(self).__name__}({', '.join(given)})"


class Variable(_Keyed):
    """`Annotated[str, Variable()]`: a variable of the conversation; `Variable("key")` by another name (V2).

    Not there: `default` (a list, dict or set is copied, so that no call sees
    another's), or what `default_factory` makes, once per conversation: it is
    then among the variables. Neither: `MissingVariable`.
    """

    __slots__ = ()
    kind = "variable"

    def values(self, context: Context) -> dict[str, Any]:
        return context.variables


class Inject(_Keyed):
    """`Annotated[Database, Inject()]`: the same as `Variable`, over the dependencies (V5)."""

    __slots__ = ()
    kind = "dependency"

    def values(self, context: Context) -> dict[str, Any]:
        return context.dependencies


class CurrentContext(Injected):
    """Fills a parameter annotated `Context`."""

    __slots__ = ()

    def resolve(self, wanted: Wanted, context: Context) -> Context:
        return context
