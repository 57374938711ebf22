"""Recorded units of a turn: what is recorded is not done again after a crash (T2, T3, N4).

    journal = TurnJournal(work.lines, work.record)
    receipt = await journal.once("charge", charge)

Rule 1: `once` checks first and runs the function then. A function that could not be recorded is not begun.

Rule 2: the result is on the log before the caller gets it. The caller gets what a resumed turn will read.

Rule 3: results of `once` are read from all lines of the turn, also from those before a retry or a fork. Model
replies and tool results (`entries`) are read from the lines that the caller gives.

Rule 4: context variables that the function writes are kept with its result. Those that the turn writes
outside of it are undone when the turn is claimed again, because the code around `once` runs again.

Rule 5: when a performance is cancelled, the result of a function that has returned is still recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

from turnline.agent.context import RunOnce
from turnline.agent.files import File
from turnline.agent.journal import Entry
from turnline.agent.messages import ModelReply
from turnline.agent.performer import current_call
from turnline.agent.round import ToolAnswer, ToolAttempt
from turnline.core import event_types as ev
from turnline.core.claims import MAX_ONCE_UNITS
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.json import copied, normalised
from turnline.core.parts import FilePart
from turnline.core.undo import ONCE_MARK
from turnline.errors import BadDraft, OnceKeyReused, OnceRefused
from turnline.log.joined import Transaction
from turnline.threads import call_user

RECORD_SECONDS: Final = 5.0
"""How long a cancelled performance waits for a result that is being recorded."""

MAX_BEGINNING: Final = 1_000
"""Characters on its line of a result that is in a file."""

AddFile = Callable[[File], Awaitable[FilePart]]
"""Keeps a file. `Work.add_file` is one."""
Joined = Callable[[], Transaction | None]
"""Returns the database work of the function after it has run; None if there is none."""


class Record(Protocol):
    """Writes a unit of the turn, under its claim. `Work.record` is one."""

    async def __call__(
        self, event_type: str, data: JsonObject, *, within: Transaction | None = None
    ) -> None: ...


class TurnJournal:
    """The units of one performance of a turn. A `Journal` for the round of an agent, too."""

    def __init__(self, lines: Iterable[Envelope], record: Record, add_file: AddFile | None = None) -> None:
        self._record = record
        self._add_file = add_file
        self._results: dict[str, Any] = {}
        """Key -> the recorded result, as JSON."""
        for line in lines:
            if line.event_type == ev.EV_TURN_ONCE:
                self._results.setdefault(str(line.event_data.get("key")), line.event_data.get("result"))
        self._running = 0
        self._used: set[str] = set()

    async def record(self, entry: Entry, files: Sequence[File] = ()) -> Sequence[FilePart]:
        """See `Journal.record`. Of a text that is in a file, the line has the beginning."""
        parts = list[FilePart]()
        if isinstance(entry, ToolAnswer):
            parts = [await self._add_file(file) for file in files] if self._add_file is not None else []
            is_long = entry.in_file and bool(parts)
            text = entry.text[:MAX_BEGINNING] if is_long else entry.text
            entry = msgspec.structs.replace(entry, parts=parts, text=text, in_file=is_long)
        event_type = ev.EV_TURN_MODEL if isinstance(entry, ModelReply) else ev.EV_TURN_TOOL
        await self._record(event_type, {"entry": msgspec.to_builtins(entry)})
        return parts

    async def once(self, key: str, fn: Callable[[], Any], *, joined: Joined | None = None) -> Any:
        """Return the recorded result of `key`. If there is none, run `fn`, record its result and return it.

        `fn` is sync or async and returns JSON. Its work in the log's database (`joined`) commits with the
        record. Raises `OnceKeyReused`, and `OnceRefused` for what cannot be recorded.
        """
        return await self._run(key, fn, self._used, joined)

    def once_for(self, place: str) -> RunOnce:
        """Return the `once` of one attempt at a tool call. Its keys are the call's own."""
        used = set[str]()

        async def once(key: str, fn: Callable[[], Any]) -> Any:
            _check_key(key)
            return await self._run(f"{place}/{key}", fn, used, None)

        return once

    async def _run(self, key: str, fn: Callable[[], Any], used: set[str], joined: Joined | None) -> Any:
        self._check(key, fn, used)
        used.add(key)
        if key not in self._results:
            self._running += 1
            try:
                await self._run_and_record(key, fn, used, joined)
            finally:
                self._running -= 1
        return copied({"result": self._results[key]})["result"]

    async def _run_and_record(
        self, key: str, fn: Callable[[], Any], used: set[str], joined: Joined | None
    ) -> None:
        call = current_call.get()
        # What the function writes into the context is its own: it stays with the result (N4).
        token = current_call.set(f"{call}{ONCE_MARK}{key}")
        try:
            result = await call_user(fn)
        except BaseException:
            used.discard(key)  # Nothing is recorded: the caller may try again.
            raise
        finally:
            current_call.reset(token)
        data = _read_back(key, {"key": key, "result": result} | ({"call": call} if call else {}))
        writing = asyncio.ensure_future(self._write(key, data, None if joined is None else joined()))
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait((writing,), timeout=RECORD_SECONDS)
            used.discard(key)
            raise

    async def _write(self, key: str, data: JsonObject, within: Transaction | None) -> None:
        await self._record(ev.EV_TURN_ONCE, data, within=within)
        self._results[key] = data["result"]

    def _check(self, key: str, fn: object, used: set[str]) -> None:
        _check_key(key)
        if not callable(fn):
            found = f"a {type(fn).__name__} was given; expected a function without parameters"
            raise OnceRefused(key, found=found, do="Pass the function itself, or a lambda that calls it.")
        if key in used:
            raise OnceKeyReused(key)
        if key not in self._results and len(self._results) + self._running >= MAX_ONCE_UNITS:
            found = f"the turn has {MAX_ONCE_UNITS} results of `once`; expected no more (MAX_ONCE_UNITS)"
            raise OnceRefused(key, found=found, do="Split the work into several turns or steps.")


_ENTRIES: Final[dict[str, Any]] = {
    ev.EV_TURN_MODEL: ModelReply,
    ev.EV_TURN_TOOL: ToolAnswer | ToolAttempt,
}
"""What a round records -> what it is read as."""


def entries(envelopes: Iterable[Envelope]) -> list[Entry]:
    """Return the entries of a round among a turn's lines. A summary comes before it, and is none."""
    recorded = [one for one in envelopes if one.event_type in _ENTRIES and "entry" in one.event_data]
    return [msgspec.convert(one.event_data["entry"], _ENTRIES[one.event_type]) for one in recorded]


def _check_key(key: object) -> None:
    if not ev.is_name(key):
        found = f"the key is not printable text of 1 to {ev.MAX_NAME_CHARACTERS} characters"
        raise OnceRefused(repr(key)[:80], found=found, do="Name the result in a few words, such as 'charge'.")


def _read_back(key: str, data: JsonObject) -> JsonObject:
    """Return the data as a resumed turn will read it. Raises `OnceRefused` for what is not JSON."""
    try:
        return normalised(data, field="the record")
    except BadDraft as error:
        field = error.field.removeprefix("the record.")
        found = f"{field} is {error.found}; expected {error.expected}"
        do = "Return plain JSON; put large things elsewhere and return their address."
        raise OnceRefused(key, found=found, do=do) from None
