"""Asking a person at the terminal: what a human step shows, then its form, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import typer

from turnwise.cli.plain import plain
from turnwise.core.envelope import JsonObject
from turnwise.flow.task import Task

_BOOLEANS: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_TEXTS: Final = frozenset({"string", "date", "datetime", "uuid", "email"})


def shown(task: Task) -> Iterator[str]:
    """What a person is told of a task."""
    yield plain(task.title)
    yield from map(plain, task.description.splitlines())
    for key, value in task.show.items():
        yield f"    {plain(key)}: {plain(as_text(value))}"


def ask(task: Task) -> JsonObject:
    """Ask for every field of the form; what is left empty is not answered. Blocks."""
    answer: JsonObject = {}
    for name, field in task.form.items():
        said = typer.prompt(f"  {_label(name, field)}", default="", show_default=False)
        if said:
            answer[name] = value_of(said, str(field.get("type", "any")))
    return answer


def value_of(said: str, kind: str) -> object:
    """What somebody typed, as a field of this type takes it; the form tells what it does not."""
    if kind in _TEXTS:
        return said
    if kind == "boolean":
        return _BOOLEANS.get(said.strip().lower(), said)
    try:
        value: object = msgspec.json.decode(said)
    except msgspec.DecodeError:
        return said
    return value


def example(task: Task) -> str:
    """An answer, as options of a command line: what has to be said, or else all that may be."""
    required = {name: field for name, field in task.form.items() if field.get("required")}
    kinds = {name: str(field.get("type", "any")) for name, field in (required or task.form).items()}
    return " ".join(f"--answer {name}{_EXAMPLES.get(kind, ':=JSON')}" for name, kind in kinds.items())


def as_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _label(name: str, field: JsonObject) -> str:
    kind = str(field.get("type", "any"))
    options = ", ".join(map(as_text, field.get("enum") or ()))
    said = [options or ("yes or no" if kind == "boolean" else kind)]
    said += [] if field.get("required") else ["may be left empty"]
    return f"{plain(name)} ({', '.join(map(plain, said))})"


_EXAMPLES: Final = {
    "boolean": ":=true",
    "integer": ":=1",
    "number": ":=1.5",
    **dict.fromkeys(_TEXTS, "=TEXT"),
}
