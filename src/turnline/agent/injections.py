"""The plan of a function's injected parameters, and their values at a call (V2, V5).

    injections_of(parameters) -> Injections    once, when the tool is made
    injections.values(Resolution(context))     at each call

A `Resolution` is one call's: what a `Depends` function returned, for everything
in that call that depends on it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from turnline.agent.context import Context
from turnline.agent.inject import REQUIRED, Depends, Injected, Marker, Wanted
from turnline.agent.parameters import Parameter, parameters_of
from turnline.errors import BadTool


@dataclass(slots=True, repr=False)
class Resolution:
    """The injected values of one tool call, as they become known."""

    context: Context
    results: dict[int, object] = field(default_factory=dict)
    """What was returned, by the id of the function, which the plan keeps alive."""
    given: list[object] = field(default_factory=list)
    """Every value there is, the dependencies' own included: what no error text may show (V4)."""


@dataclass(frozen=True, slots=True, repr=False)
class Injections:
    """What a function's injected parameters are filled from."""

    known: tuple[tuple[str, Injected, Wanted], ...]
    called: tuple[tuple[str, Dependency], ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset({name for name, _, _ in self.known} | {name for name, _ in self.called})

    async def values(self, call: Resolution) -> dict[str, object]:
        """Return the injected parameters' values by name, and note them in `call`."""
        values = {name: marker.resolve(wanted, call.context) for name, marker, wanted in self.known}
        call.given.extend(values.values())
        for name, dependency in self.called:
            values[name] = await dependency.result(call)
        return values


@dataclass(frozen=True, slots=True, repr=False)
class Dependency:
    """A function whose result is injected, and what it takes itself."""

    function: Callable[..., Any]
    injections: Injections

    async def result(self, call: Resolution) -> object:
        """Return what the function returns; in one call it is called once."""
        key = id(self.function)
        if key not in call.results:
            result = self.function(**await self.injections.values(call))
            call.results[key] = await result if inspect.iscoroutine(result) else result
            call.given.append(call.results[key])
        return call.results[key]


def injections_of(
    injected: tuple[tuple[Parameter, Marker], ...], tool: str, within: tuple[Callable[..., Any], ...] = ()
) -> Injections:
    """Return the plan for `injected`, or raise `BadTool`. `within` are the dependencies it is needed by."""
    known = tuple(
        (parameter.name, marker, Wanted(tool, parameter.name, parameter.default))
        for parameter, marker in injected
        if isinstance(marker, Injected)
    )
    called = tuple(
        (parameter.name, dependency_of(marker.function, tool, within))
        for parameter, marker in injected
        if isinstance(marker, Depends)
    )
    return Injections(known, called)


def dependency_of(
    function: Callable[..., Any], tool: str, within: tuple[Callable[..., Any], ...] = ()
) -> Dependency:
    """Return the plan for calling `function`, all of whose parameters have to be filled; else `BadTool`."""
    name = getattr(function, "__name__", type(function).__name__)
    if any(function is outer for outer in within):
        raise BadTool(tool, because=f"the dependency {name!r} depends on itself")
    parameters = parameters_of(function, tool)
    for parameter in parameters.model:
        if parameter.default is REQUIRED:
            raise BadTool(
                tool,
                because=f"nothing fills the parameter {parameter.name!r} of the dependency {name!r}; "
                f"mark it with Variable(), Inject() or Depends(...), or give it a default",
            )
    return Dependency(function, injections_of(parameters.injected, tool, (*within, function)))
