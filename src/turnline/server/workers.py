"""Several processes that serve one project: one socket, one log, and a parent that keeps them going.

    bind -> start one -> when it is ready, the others -> start again whoever dies -> pass the signal on

Rule 1: the parent serves nothing and opens no log. A connection goes to whichever process takes it.

Rule 2: a process that ends by itself is started again. If the first never becomes ready, the others
are not started: they would fare no better.

Rule 3: the parent holds the other end of each process's standard input. When that closes, however
the parent ended, the process drains as on SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from turnline.errors import LogUnavailable

logger = logging.getLogger(__name__)

READY: Final = b"ready\n"
RESTART_SECONDS: Final = 1.0
"""Between the end of a process and the start of the next in its place."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def check_shared(log_address: str) -> None:
    """Refuse a log that ends with its process: every worker would have one of its own."""
    if log_address.startswith("memory:"):
        because = "several workers need a log they share: sqlite:///path, postgresql://... or nats://..."
        raise LogUnavailable(log_address, because=because)


class Workers:
    """The processes of one server. `await workers.run()` ends when all of them have."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        listening: socket.socket,
        *,
        secret: str,
        tell: Callable[[str], None],
    ) -> None:
        """`command` is given the number of the socket; `secret` is the first line each process reads.

        What the first one says before it is ready is told, and what any says later.
        """
        self._command = [*command, str(listening.fileno())]
        self._count = count
        self._listening = listening
        self._secret = secret
        self._tell = tell
        self._first = asyncio.Event()
        """Set when one has been ready."""
        self._running: set[Process] = set()
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Keep them going until a signal; return what the command ends with: 0 if all drained."""
        loop = asyncio.get_running_loop()
        for one in _SIGNALS:
            loop.add_signal_handler(one, self.stop)
        try:
            codes = await asyncio.gather(*(self._keep(place) for place in range(self._count)))
        finally:
            for one in _SIGNALS:
                loop.remove_signal_handler(one)
        return max(codes)

    def stop(self) -> None:
        """Take no further connections, and tell every process to drain."""
        self._stopping.set()
        self._first.set()
        self._listening.close()
        for process in self._running:
            _tell(process)

    async def _keep(self, place: int) -> int:
        """Keep one place filled; return how its last process ended."""
        if place > 0:
            await self._first.wait()
        while not self._stopping.is_set():
            process = await self._start()
            was_ready = await self._listen(process)
            code = await process.wait()
            self._running.discard(process)
            if not self._first.is_set():
                self.stop()
                return 1
            if self._stopping.is_set():
                return int(was_ready and code != 0)  # Who was never ready had nothing to drain.
            logger.warning("worker %d ended with %d; starting another", process.pid, code)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), RESTART_SECONDS)
        return 0

    async def _start(self) -> Process:
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, pass_fds=(self._listening.fileno(),)
        )
        self._running.add(process)
        assert process.stdin is not None
        process.stdin.write(f"{self._secret}\n".encode())
        return process

    async def _listen(self, process: Process) -> bool:
        """Read what the process says, until it has ended; whether it has been ready."""
        assert process.stdout is not None
        is_ready, is_told = False, not self._first.is_set()
        async for line in process.stdout:
            if line == READY:
                is_ready = is_told = True
                self._first.set()
                if self._stopping.is_set():  # The signal came before it could be taken.
                    _tell(process)
            elif is_told:
                self._tell(line.decode(errors="replace").rstrip("\n"))
        return is_ready


def _tell(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)


# In a worker.


def secret_of_parent() -> str:
    """What the parent tells first; from then on, drain when the parent is gone."""
    told = bytearray()
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        told += byte
    threading.Thread(target=_outlive_nobody, daemon=True).start()
    return told.decode()


def tell_ready() -> None:
    """Tell the parent that this process serves."""
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()


def _outlive_nobody() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
