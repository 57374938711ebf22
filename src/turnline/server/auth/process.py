"""Tokens are read in a process of their own, which is killed if it does not answer in time.

The library's time limit is looked at between rules only, so one rule can outlast it; and it is native
code that reads what strangers wrote. Neither can stop or end the server. The process is started when it
is first needed, reads one token at a time, and is replaced after it was killed or has ended.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, Protocol

import msgspec

from turnline.errors import AccessBusy, Unauthenticated
from turnline.hub.timers import Clock
from turnline.server.auth.child import READY, Answer, Request
from turnline.server.auth.reading import Reading, check_text

ANSWER_WITHIN_SECONDS: Final = 2.0
START_WITHIN_SECONDS: Final = 30.0
MAX_WAITING: Final = 1_000
_INHERITED: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "SYSTEMROOT")
"""Of the environment. The rest may hold secrets, and the process needs none of it."""


class TokenReader(Protocol):
    """Says what tokens grant."""

    async def read(self, token: str, *, now: datetime) -> Reading:
        """Return what the token grants at `now`.

        Raises `Unauthenticated` if it is not good, `AccessBusy` if that cannot be told now.
        """
        ...

    async def close(self) -> None: ...


class ReadingProcess:
    """See `TokenReader`."""

    def __init__(self, public_key: str, clock: Clock, *, command: Sequence[str] = ()) -> None:
        self._clock = clock
        self._command = (*(command or (sys.executable, "-P", "-m", "turnline.server.auth.child")), public_key)
        self._process: Process | None = None
        self._number = 0
        self._waiting = 0
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Start the process, so that the first token does not wait for it."""
        async with self._lock:
            await self._running()

    async def read(self, token: str, *, now: datetime) -> Reading:
        """See `TokenReader`."""
        check_text(token)
        if self._waiting >= MAX_WAITING:
            raise AccessBusy(f"{self._waiting} wait to be read already")
        self._waiting += 1
        try:
            async with self._lock:
                answer = await self._ask(token, now)
        finally:
            self._waiting -= 1
        if answer.reading is None:
            raise Unauthenticated(answer.refused)
        return answer.reading

    async def close(self) -> None:
        """End the process. Reading a token starts another."""
        async with self._lock:
            await self._end()

    async def _ask(self, token: str, now: datetime) -> Answer:
        self._number += 1
        process = await self._running()
        request = Request(self._number, token, now)
        try:
            _writer(process).write(msgspec.json.encode(request) + b"\n")
            return await self._answered(process, self._number)
        except (OSError, msgspec.DecodeError):
            await self._end()
            raise Unauthenticated("the token could not be read") from None

    async def _answered(self, process: Process, number: int) -> Answer:
        """Read answers up to this one; earlier ones are to requests that were given up."""
        while True:
            line = await self._within(ANSWER_WITHIN_SECONDS, _lines(process).readline())
            answer = msgspec.json.decode(line, type=Answer)
            if answer.number == number:
                return answer

    async def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            await self._end()
            environ = {name: os.environ[name] for name in _INHERITED if name in os.environ}
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environ, start_new_session=True
            )
            await self._ready(self._process)
        return self._process

    async def _ready(self, process: Process) -> None:
        line = b""
        try:
            line = await self._within(START_WITHIN_SECONDS, _lines(process).readline())
        finally:
            if line != READY:  # Or whoever waited has given up: its first line is still to come.
                await self._end()
        if line != READY:
            raise AccessBusy("the process that reads them did not start")

    async def _within(self, seconds: float, wait: Awaitable[bytes]) -> bytes:
        """Return the line; an empty one if it does not come in time."""
        line, alarm = asyncio.ensure_future(wait), asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((line, alarm), return_when=asyncio.FIRST_COMPLETED)
            return line.result() if line.done() else b""
        finally:
            line.cancel()
            alarm.cancel()
            await asyncio.gather(line, alarm, return_exceptions=True)

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        _writer(process).close()
        await process.wait()


def _writer(process: Process) -> asyncio.StreamWriter:
    assert process.stdin is not None, "it was started with a pipe"
    return process.stdin


def _lines(process: Process) -> asyncio.StreamReader:
    assert process.stdout is not None, "it was started with a pipe"
    return process.stdout
