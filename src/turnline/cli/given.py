"""What is given on a command line, key by key.

name=Jane         a text
score=91          a number, if the field of that name is one
score:=91         JSON, whatever the field is
plan=plan.pdf     a path, if the field of that name is a file

Rule: what cannot be read as its field's type stays a text, so that the check names it like any
other mistake.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import typer

from turnline.core.envelope import JsonObject

ANYTHING: Final = "any"
_BOOLEANS: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
TEXTS: Final = frozenset({"string", "date", "datetime", "uuid", "email", "file"})
"""The types of fields whose values are texts."""


def object_of(pairs: Iterable[str], *, option: str, types: Mapping[str, str] | None = None) -> JsonObject:
    """Return the object that `key=value` and `key:=JSON` make. Of two of one key, the later counts.

    `types` are those of the fields, by name.
    """
    return dict(_pair(pair, option, types or {}) for pair in pairs)


def types_of(form: JsonObject) -> dict[str, str]:
    """The types of the fields of a form: of a task's, which is JSON."""
    return {name: str(field.get("type", ANYTHING)) for name, field in form.items()}


def value_of(text: str, type_: str) -> object:
    """A text as a field of this type takes it, or the text."""
    if type_ in TEXTS:
        return text
    if type_ == "boolean":
        return _BOOLEANS.get(text.strip().lower(), text)
    try:
        value: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return value


def object_in(file: Path, *, option: str) -> JsonObject:
    """Return the JSON object in a file; `-` is standard input."""
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}", param_hint=option) from None
    value = _json(content, option, str(file))
    if not isinstance(value, dict):
        raise typer.BadParameter(f"{file} is no JSON object", param_hint=option)
    return value


def _pair(pair: str, option: str, types: Mapping[str, str]) -> tuple[str, object]:
    key, equals, text = pair.partition("=")
    is_json = key.endswith(":")
    name = key.removesuffix(":").strip()
    if not equals or not name:
        raise typer.BadParameter(
            f"{pair!r} is no pair; expected key=text, or key:=JSON such as n:=3", param_hint=option
        )
    if is_json:
        return name, _json(text.encode(), option, f"the value of {name!r}")
    wanted = types.get(name, ANYTHING)
    return name, text if wanted == ANYTHING else value_of(text, wanted)


def _json(content: bytes, option: str, what: str) -> object:
    try:
        value: object = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{what} is no JSON: {error}", param_hint=option) from None
    return value
