"""Nodes: Python functions that functional steps run (F3).

    @node("save_lead")
    async def save_lead(ctx: dict[str, Any]) -> dict[str, Any]:
        ...

`@node` alone takes the function's own name. `@node(pure=True)` says that the function only computes: its
answer depends on `ctx` alone, and it changes nothing elsewhere. A run with `durability: end` may do it again
after a crash. Decorating marks the function and leaves it
as it is; a `Nodes` collection finds the marked ones in modules. What cannot work is
refused where it is written: a node takes one argument, `ctx`, and gives an answer back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, ModuleType
from typing import Any, Final, TypeVar, overload

from turnline.errors import BadNode, NameTaken
from turnline.flow.work import Node

MAX_NAME_CHARACTERS: Final = 200

_MARK: Final = "__turnline_nodes__"
_PURE: Final = "__turnline_pure__"
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

F = TypeVar("F", bound=Callable[..., Any])


@overload
def node(name: str | None = None, /, *, pure: bool = False) -> Callable[[F], F]: ...


@overload
def node(function: F, /) -> F: ...


def node(given: str | F | None = None, /, *, pure: bool = False) -> Callable[[F], F] | F:
    """Make a function known to flows: `@node("name")`, or `@node` for its own name.

    `pure` says that it only computes. Raises `BadNode` for what cannot be a node. The function stays what it
    was.
    """
    if given is None or isinstance(given, str):
        return lambda function: _marked(function, given, is_pure=pure)
    return _marked(given, None, is_pure=pure)


def is_pure(function: object) -> bool:
    """Return whether a node only computes, as its author says."""
    return getattr(function, _PURE, False) is True


def names_of(function: object) -> tuple[str, ...]:
    """The names a function was made known under; none for anything else."""
    try:
        marked = getattr(function, _MARK, ())
    except Exception:  # Somebody's proxy of something that is not there yet.
        return ()
    return marked if isinstance(marked, tuple) else ()


class Nodes:
    """The nodes of a project, by name."""

    def __init__(self) -> None:
        self._nodes = dict[str, Node]()

    def add(self, function: Callable[..., Any]) -> None:
        """Take in a marked function. Raises `NameTaken`, naming both, if another one has its name."""
        for name in names_of(function):
            other = self._nodes.setdefault(name, function)
            if other is not function:
                do = f"{place_of(other)} and {place_of(function)} both have it; rename one of them."
                raise NameTaken("node", name, do=do)

    def add_module(self, module: ModuleType) -> None:
        """Take in what is marked in a module. Raises `NameTaken`."""
        for function in marked_in(module):
            self.add(function)

    @property
    def by_name(self) -> Mapping[str, Node]:
        return MappingProxyType(self._nodes)


def marked_in(module: ModuleType) -> Iterator[Callable[..., Any]]:
    """The marked functions of a module, each once, also those it has imported."""
    seen = set[int]()
    for value in list(vars(module).values()):
        if names_of(value) and id(value) not in seen:
            seen.add(id(value))
            yield value


def place_of(function: Callable[..., Any]) -> str:
    """Where a function is written: `nodes/leads.py:12`."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return repr(function) if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _marked(function: F, given: str | None, *, is_pure: bool) -> F:
    name = getattr(function, "__name__", "") if given is None else given
    _check_name(function, name)
    _check_signature(function, name)
    setattr(function, _MARK, (*names_of(function), name))
    if is_pure:
        setattr(function, _PURE, True)
    return function


def _check_name(function: object, name: str) -> None:
    if not inspect.isfunction(function):
        raise BadNode(name or repr(function), because='it is no function; write @node("name") above one')
    if not name.strip() or len(name) > MAX_NAME_CHARACTERS:
        raise BadNode(name, because=f"its name has to be 1 to {MAX_NAME_CHARACTERS} characters")


def _check_signature(function: Callable[..., Any], name: str) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadNode(name, because="it yields; a node returns its answer once")
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) != 1 or parameters[0].kind not in _POSITIONAL:
        taken = ", ".join(map(str, parameters)) or "nothing"
        raise BadNode(name, because=f"it takes ({taken}); a node takes one argument, ctx")
