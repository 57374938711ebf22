"""The record of a run, as strace writes it: what became of files, and what was said meanwhile.

Files are known by their paths: SQLite writes to none whose name it has removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from tests.faults.scribe import VOICE

TRACED: Final = ("openat", "close", "mkdir", "unlink", "ftruncate", "pwrite64", "write", "fsync", "fdatasync")
OPTIONS: Final = ("-xx", "-s", "65536", "-e", f"trace={','.join(TRACED)}")

_WHOLE: Final = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+).*")
_BEGUN: Final = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>")
_ENDED: Final = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)\) += (-?\d+).*")
_TEXT: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class Made(Struct, frozen=True):
    """A name for a file or a folder that may be there already."""

    path: str


class Removed(Struct, frozen=True):
    path: str


class Wrote(Struct, frozen=True):
    path: str
    offset: int
    data: bytes


class Cut(Struct, frozen=True):
    """A file got this length."""

    path: str
    size: int


class Synced(Struct, frozen=True):
    path: str


class NotSynced(Struct, frozen=True):
    """A sync that returned an error."""

    path: str


class Said(Struct, frozen=True):
    """Something that others have heard."""

    text: str


Event = Made | Removed | Wrote | Cut | Synced | NotSynced | Said


class _Call(Struct, frozen=True):
    name: str
    arguments: str
    answer: int


def events(record: Path) -> list[Event]:
    """Return what happened, in its order, to files beside the record and in folders there."""
    beside = str(record.parent)
    open_files: dict[int, str] = {}
    found: list[Event] = []
    for call in _calls(record.read_text()):
        if call.name in {"openat", "mkdir", "unlink"}:
            path = _text(call.arguments).decode()
            if call.name == "openat":
                open_files[call.answer] = path
            found += _named(call, path) if path.startswith(beside) else []
        elif call.name != "close":
            descriptor, _, rest = call.arguments.partition(", ")
            path = open_files.get(int(descriptor), "")
            found += _changed(call, path, rest) if path.startswith(beside) else []
            found += _said(rest) if int(descriptor) == VOICE else []
    return found


def _calls(record: str) -> Iterator[_Call]:
    """Yield the calls that have returned; one that another thread interrupted is told in two lines."""
    begun: dict[str, tuple[str, str]] = {}
    for text in record.splitlines():
        if match := _BEGUN.fullmatch(text):
            begun[match[1]] = (match[2], match[3])
        elif match := _ENDED.fullmatch(text):
            name, arguments = begun.pop(match[1], ("", ""))
            yield _Call(name, arguments + match[2], int(match[3]))
        elif match := _WHOLE.fullmatch(text):
            yield _Call(match[2], match[3], int(match[4]))


def _named(call: _Call, path: str) -> list[Event]:
    if call.answer < 0:
        return []
    if call.name == "unlink":
        return [Removed(path)]
    return [Made(path)] if call.name == "mkdir" or "O_CREAT" in call.arguments else []


def _changed(call: _Call, path: str, rest: str) -> list[Event]:
    match call.name:
        case "fsync" | "fdatasync":
            return [Synced(path) if call.answer == 0 else NotSynced(path)]
        case "pwrite64" if call.answer >= 0:
            data = _text(rest)[: call.answer]
            assert len(data) == call.answer, f"{call.answer} bytes were written, the record has {len(data)}"
            return [Wrote(path, int(rest.rpartition(", ")[2]), data)]
        case "ftruncate" if call.answer >= 0:
            return [Cut(path, int(rest))]
        case "write":
            raise ValueError(f"{path} is written without an offset; this reader does not follow that")
    return []


def _said(rest: str) -> list[Event]:
    return [Said(text) for text in _text(rest).decode().splitlines()]


def _text(arguments: str) -> bytes:
    match = _TEXT.search(arguments)
    assert match is not None, f"found {arguments[:80]!r}, expected strace -xx"
    return bytes.fromhex(match[1].replace("\\x", ""))
