"""What the command line prints: strangers' text without what a terminal would obey, and JSON."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

import msgspec
import typer

from turnline.errors.base import count_of, plain

__all__ = ["count_of", "one_line", "open_private", "plain", "print_json", "public"]


def one_line(text: str, characters: int) -> str:
    """The same on one line, cut to so many characters."""
    flat = plain(" ".join(text.split()))
    return flat if len(flat) <= characters else flat[: characters - 1] + "…"


def public(value: object) -> object:
    """JSON without keys that start with `_`, at any depth, and without a provider's own form of a reply."""
    if isinstance(value, dict):
        return {key: public(item) for key, item in value.items() if not _is_hidden(key)}
    return [public(item) for item in value] if isinstance(value, list) else value


def print_json(data: object, file: Path | None = None) -> None:
    """Print JSON for people and scripts, or write it to a file."""
    text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    if file is None:
        typer.echo(text)
    else:
        with open_private(file) as kept:
            kept.write(f"{text}\n".encode())


def open_private(path: Path) -> BinaryIO:
    """Open a file for writing, empty, that its owner alone can read, whatever it was before."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # Not /dev/stdout.
        path.chmod(0o600)
    return file


def _is_hidden(key: object) -> bool:
    return key == "raw" or (isinstance(key, str) and key.startswith("_"))


def moment(text: str | None) -> str:
    """Return a time of the log, ISO 8601, as a table shows it: to the minute, in UTC. Empty for none."""
    return "" if text is None else text[:16].replace("T", " ")
