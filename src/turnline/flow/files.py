"""The files of a run: what its input brought, and how steps come to the bytes (Y6).

    {"type": "file", "media_type": "application/pdf", "name": "plan.pdf", "size": 1234, "digest": "..."}

Rule 1: the context has references and never bytes. The first line of a run lists its files, and so do the
first lines of the runs below it.

Rule 2: a value of the context is a reference only if it equals one of them. A node, a model or a request can
write any JSON into the context, but can refer to no file that the run did not begin with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from turnline.agent.files import File
from turnline.agent.messages import MessageFile
from turnline.core.envelope import JsonObject
from turnline.core.parts import FilePart
from turnline.errors import BadStepValue
from turnline.flow.definition.base import Json
from turnline.flow.definition.flow import Flow
from turnline.threads import is_on_loop
from turnline.turns.files import FileSeat, load_shown, read_file

AddFile = Callable[[File], Awaitable[FilePart]]
"""Keeps a file."""


def input_files(flow: Flow, given: JsonObject) -> list[FilePart]:
    """Return the files in the checked input of a flow, each once."""
    fields = {} if flow.spec.trigger is None else flow.spec.trigger.files
    values = (given.get(name) for name in fields)
    return list(dict.fromkeys(one for value in values for one in _listed(value) if one is not None))


def _listed(value: Json) -> Iterator[FilePart | None]:
    for one in value if isinstance(value, list) else [value]:
        yield _reference(one)


def _reference(value: Json) -> FilePart | None:
    if not isinstance(value, dict) or value.get("type") != "file":
        return None
    try:
        return msgspec.convert(value, FilePart)
    except msgspec.ValidationError:
        return None


async def add_files(flow: Flow, given: Mapping[str, Any], add: AddFile) -> dict[str, Any]:
    """Return input with references instead of the `File`s in fields of files. `add` keeps a file."""
    fields, found = {} if flow.spec.trigger is None else flow.spec.trigger.files, dict(given)
    for name in found.keys() & fields.keys():
        if isinstance(found[name], File):
            found[name] = msgspec.to_builtins(await add(found[name]))
        elif isinstance(found[name], list):
            kept = [await add(one) if isinstance(one, File) else one for one in found[name]]
            found[name] = msgspec.to_builtins(kept)
    return found


def as_uploaded(flow: Flow, given: JsonObject, known: Collection[FilePart]) -> JsonObject:
    """Return input whose references to `known` files the check of the flow takes for uploaded."""
    fields = {} if flow.spec.trigger is None else flow.spec.trigger.files
    return {name: _uploaded(value, known) if name in fields else value for name, value in given.items()}


def _uploaded(value: Json, known: Collection[FilePart]) -> Any:
    if isinstance(value, list):
        return [_uploaded(one, known) for one in value]
    file = _reference(value)
    return file if file in known else value


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files that a run began with."""

    known: Sequence[FilePart] = ()
    _read: Callable[[int], Awaitable[File]] | None = None
    """Reads the file at a place of `known`."""

    @classmethod
    def of(cls, seat: FileSeat, channel_id: str, known: Sequence[FilePart]) -> RunFiles:
        """Return the files on the first line of a run's channel."""
        return cls(known, partial(read_file, seat, channel_id, 1))

    def find(self, value: Json) -> list[FilePart]:
        """Return the files that a value of the context refers to, at any depth, each once."""
        return list(dict.fromkeys(self._find(value))) if self.known else []

    def _find(self, value: Json) -> Iterator[FilePart]:
        file = _reference(value)
        if file in self.known:
            yield file  # type: ignore[misc]  # None is not known.
        elif isinstance(value, dict | list):
            for one in value.values() if isinstance(value, dict) else value:
                yield from self._find(one)

    async def read(self, reference: Json) -> File:
        """Return a file with its bytes.

        Raises `BadStepValue` for what is no reference to a file of the run, `UnknownFile` if it was erased.
        """
        file = _reference(reference)
        if file not in self.known or self._read is None:
            expected = "a file of the run's input, as the context has it"
            raise BadStepValue("the file", found="another value", expected=expected)
        return await self._read(self.known.index(file))

    async def load(self, files: Sequence[FilePart]) -> list[MessageFile]:
        """Return what a model is shown of these files, as far as there is room."""
        if self._read is None:
            return []
        return await load_shown(self._read, [(self.known.index(one), one) for one in files])


NO_FILES: Final = RunFiles()


class ReadFile:
    """`ctx["_read_file"]`: code on the loop awaits it, code in a thread gets the file."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._loop = asyncio.get_running_loop()

    def __call__(self, reference: Json) -> Any:
        if is_on_loop():
            return self._files.read(reference)
        return asyncio.run_coroutine_threadsafe(self._files.read(reference), self._loop).result()
