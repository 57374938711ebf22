"""Names for classes, so that a graph can be data.

A thing is written as `{"name": ..., "args": {...}}`; its args are its dataclass
fields. A thing inside another one's args is written the same way with a tag,
`{"$": "condition", "name": ..., "args": ...}`, at any depth. A user's own dict
that happens to have a "$" key is wrapped, so nothing is ever mistaken.

A program's own class may have the name of a built-in one. It is written with `"own": true`, so a graph
says which of the two it means, and a name alone always means the built-in one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, Final, Generic, TypeVar

from turnline.core.envelope import JsonObject
from turnline.errors import BadGraph, NameTaken, UnknownName

T = TypeVar("T")

_TAG: Final = "$"
_DATA: Final = "data"


class Registry(Generic[T]):
    """Name -> dataclass, and back."""

    _by_kind: Final[dict[str, Registry[Any]]] = {}

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._classes: dict[str, type[T]] = {}
        self._built_in: set[type[T]] = set()
        self._own: dict[str, type[T]] = {}
        """Name of a built-in class -> the program's own class of that name."""
        self._by_kind[kind] = self

    def built_in(self, cls: type[T]) -> type[T]:
        """Make `cls`, which is part of this package, known by its `name`. Works as a decorator."""
        self._built_in.add(self.register(cls))
        return cls

    def register(self, cls: type[T]) -> type[T]:
        """Make `cls` known by its `name`. Returns it, so that it works as a decorator.

        It may have a built-in name: graphs made with `cls` then mean `cls`, and all others what they meant.
        """
        name = getattr(cls, "name", None)
        if not isinstance(name, str) or not name or not is_dataclass(cls):
            raise TypeError(
                f"{cls.__name__} has to be a dataclass with `name: ClassVar[str]` to be a {self.kind}"
            )
        if cls in self._built_in:
            return cls
        replaces = self._classes.get(name) in self._built_in
        classes = self._own if replaces else self._classes
        known = classes.get(name)
        # The same class defined again (a notebook cell run twice) replaces itself.
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise NameTaken(self.kind, name, do=f"{known.__qualname__} has it; choose another `name`.")
        classes[name] = cls
        return cls

    def knows(self, thing: object) -> bool:
        name = getattr(thing, "name", "")
        return type(thing) in (self._classes.get(name), self._own.get(name))

    def to_dict(self, thing: T) -> JsonObject:
        if not self.knows(thing):
            raise self._unknown(type(thing).__name__)
        args = {
            f.name: _written(getattr(thing, f.name), f"{type(thing).__name__}.{f.name}") for f in _args(thing)
        }
        name: str = getattr(thing, "name")  # noqa: B009  T has no attributes mypy knows of
        own = {"own": True} if self._own.get(name) is type(thing) else {}
        return {"name": name, **own, "args": args}

    def from_dict(self, data: object) -> T:
        match data:
            case {"name": str(name), "args": dict(args), **rest} if all(isinstance(key, str) for key in args):
                cls = self._class_of(name, own=rest.get("own", False))
            case _:
                raise BadGraph(
                    f"a {self.kind}", found=repr(data)[:80], expected='{"name": ..., "args": {...}}'
                )
        try:
            return cls(**{key: _read(value) for key, value in args.items()})
        except TypeError as error:
            raise BadGraph(
                f"the {self.kind} {name!r}", found=str(error), expected="its dataclass fields"
            ) from error

    def _class_of(self, name: str, *, own: object) -> type[T]:
        if own not in (True, False):
            raise BadGraph(f"the {self.kind} {name!r}", found=f"own: {own!r}", expected="true, or no `own`")
        classes = self._own if own else self._classes
        if name in classes:
            return classes[name]
        if not own:
            raise self._unknown(name)
        do = (
            f"The graph was made with a class of its program's own in place of the built-in {name!r}. "
            f"Call register_{self.kind}(...) with that class before the graph is used."
        )
        raise UnknownName(f"{self.kind} of the program's own", name, self._own, do=do)

    def _unknown(self, name: str) -> UnknownName:
        do = f"Call register_{self.kind}(...) before the graph is used."
        return UnknownName(self.kind, name, self._classes, do=do)


def _args(thing: object) -> list[Any]:
    return [f for f in fields(thing) if f.init]  # type: ignore[arg-type]  # register() saw that it is a dataclass


def _written(value: object, path: str) -> Any:
    for kind, registry in Registry._by_kind.items():
        if registry.knows(value):
            return {_TAG: kind, **registry.to_dict(value)}
    match value:
        case float() if not isfinite(value):
            raise BadGraph(path, found=repr(value), expected="a finite number; JSON has no NaN or infinity")
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_written(item, path) for item in value]
        case Mapping() if all(isinstance(key, str) for key in value):
            plain = {key: _written(item, path) for key, item in value.items()}
            return {_TAG: _DATA, "value": plain} if _TAG in plain else plain
        case _:
            raise BadGraph(
                path, found=f"a {type(value).__name__}", expected="JSON, or a registered condition or target"
            )


def _read(value: Any) -> Any:
    match value:
        case {"$": "data", "value": dict(plain)}:
            return {key: _read(item) for key, item in plain.items()}
        case {"$": str(kind), **thing}:
            if kind not in Registry._by_kind:
                raise UnknownName("kind of thing", kind, Registry._by_kind)
            return Registry._by_kind[kind].from_dict(thing)
        case dict():
            return {key: _read(item) for key, item in value.items()}
        case list():
            return [_read(item) for item in value]
        case _:
            return value
