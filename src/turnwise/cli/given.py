"""What is given on a command line as JSON, key by key.

name=Jane         a text
score:=91         JSON
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
import typer

from turnwise.core.envelope import JsonObject


def object_of(pairs: Iterable[str], *, option: str) -> JsonObject:
    """Return the object that `key=value` and `key:=JSON` make. Of two of one key, the later counts."""
    return dict(_pair(pair, option) for pair in pairs)


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


def _pair(pair: str, option: str) -> tuple[str, object]:
    key, equals, text = pair.partition("=")
    is_json = key.endswith(":")
    name = key.removesuffix(":").strip()
    if not equals or not name:
        raise typer.BadParameter(
            f"{pair!r} is no pair; expected key=text, or key:=JSON such as n:=3", param_hint=option
        )
    return name, _json(text.encode(), option, f"the value of {name!r}") if is_json else text


def _json(content: bytes, option: str, what: str) -> object:
    try:
        value: object = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{what} is no JSON: {error}", param_hint=option) from None
    return value
