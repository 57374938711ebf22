"""Asking a person at the terminal: what a human step shows, then its form, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import typer

from turnline.cli.given import TEXTS, types_of, value_of
from turnline.cli.plain import one_line, plain
from turnline.core.envelope import JsonObject
from turnline.errors import BadSpec, RunNotWaiting
from turnline.flow.task import Task

NOT_ANSWERED: Final = "Nothing was answered."
_CHARACTERS: Final = 200


def shown(task: Task) -> Iterator[str]:
    """What a person is told of a task."""
    yield plain(task.title)
    yield from map(plain, task.description.splitlines())
    for key, value in task.show.items():
        yield f"    {plain(key)}: {plain(as_text(value))}"


def ask(task: Task) -> JsonObject:
    """Ask for every field of the form; what is left empty is not answered. Blocks."""
    answer: JsonObject = {}
    types = types_of(task.form)
    for name, field in task.form.items():
        said = typer.prompt(f"  {_label(name, field)}", default="", show_default=False)
        if said:
            answer[name] = value_of(said, types[name])
    return answer


def choose_task(run_id: str, tasks: Sequence[Task], task_id: str | None) -> Task:
    """Return the task that is named, or the only one. An answer must not meet another question."""
    named = [one for one in tasks if task_id in (None, one.task_id)]
    if not named:
        raise RunNotWaiting(run_id, what="a person" if task_id is None else f"an answer to {task_id!r}")
    if len(named) > 1:
        listed = "; ".join(f"{one.task_id}: {summarise(one)}" for one in named)
        raise BadSpec(
            "task", found=f"one of {len(named)} ({listed})", expected="an id: --task ID", outcome=NOT_ANSWERED
        )
    return named[0]


def summarise(task: Task) -> str:
    """Return in one line what a task asks, with what it shows: two approvals may differ in that alone."""
    show = ", ".join(f"{key}: {as_text(value)}" for key, value in task.show.items())
    return one_line(" ".join(filter(None, (task.title, task.description, show))), _CHARACTERS)


def example(task: Task) -> str:
    """An answer, as options of a command line: what has to be said, or else all that may be."""
    required = {name: field for name, field in task.form.items() if field.get("required")}
    types = types_of(required or task.form)
    return " ".join(f"--answer {name}{_EXAMPLES.get(type_, ':=JSON')}" for name, type_ in types.items())


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
    **dict.fromkeys(TEXTS, "=TEXT"),
}
