"""Serving an app with uvicorn: bound before anything is opened, drained before anything is closed.

    stop accepting -> answer what is in flight, for so long -> end streams -> the runtime closes

A first SIGTERM or SIGINT drains; a second SIGINT does not wait.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol, cast

import uvicorn
from starlette.types import ASGIApp

from turnline.errors import NameTaken, UnknownName
from turnline.server.auth.credentials import is_loopback
from turnline.server.connections import MAX_BACKLOG, Connections, Guarded, GuardedH11, OneLength, descriptors
from turnline.server.settings import ServerSettings

COLLECT_EVERY: Final = 10_000
"""New objects between two collections of garbage; Python's own 700 are for small programs."""
LEEWAY_SECONDS: Final = 2.0
"""Between giving up whoever still waits, and cutting connections."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_TAKEN: Final = {
    errno.EADDRINUSE: "Choose another with --port, or stop whoever listens there.",
    errno.EACCES: "This user may not have it; choose a --port above 1023.",
}


class Drains(Protocol):
    """What a server tells before it closes connections: a `Runtime`, or the one of a `LiveApp`."""

    def drain(self) -> None: ...

    def give_up(self) -> None: ...


class DrainingServer(uvicorn.Server):
    """Tells the runtime before it closes connections, and leaves the process to whoever started it."""

    def __init__(self, app: ASGIApp, runtime: Drains, settings: ServerSettings, *, access_log: bool) -> None:
        self._connections = Connections(settings, descriptors=descriptors())
        super().__init__(
            uvicorn.Config(
                OneLength(app),
                http=cast("type[asyncio.Protocol]", partial(guarded(), self._connections)),
                backlog=self._connections.backlog,
                lifespan="off",  # Whoever serves has opened the runtime, and closes it.
                log_config=None,
                log_level="info" if access_log else "warning",
                access_log=access_log,
                # Who asks is at the other end of the connection; a header counts from a trusted proxy only.
                proxy_headers=bool(settings.trusted_proxies),
                forwarded_allow_ips=list(settings.trusted_proxies),
                server_header=False,
                ws_max_size=settings.ws.frame_bytes,
                ws_max_queue=4,
                ws_per_message_deflate=False,  # A few bytes could become a great many.
                timeout_graceful_shutdown=int(settings.drain_seconds + LEEWAY_SECONDS),
            )
        )
        self._runtime = runtime
        self._drain_seconds = settings.drain_seconds
        self.tell_started: Callable[[], None] | None = None
        """Told when connections and signals are taken."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell."""
        asyncio.get_running_loop().set_exception_handler(self._connections.handle_loop_error)
        await super().startup(sockets)
        if self.tell_started is not None:
            self.tell_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, then shut down."""
        self._runtime.drain()
        giving_up = asyncio.get_running_loop().call_later(self._drain_seconds, self._runtime.give_up)
        try:
            await super().shutdown(sockets)
        finally:
            giving_up.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals as requests to stop; uvicorn's own would raise them again when all is done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in _SIGNALS}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def guarded() -> type[Guarded]:
    """Return what reads the requests of a connection: httptools, where it is installed."""
    try:
        from turnline.server.httptools_connection import GuardedHttpTools  # noqa: PLC0415  It may be missing.
    except ModuleNotFoundError:
        return GuardedH11
    return GuardedHttpTools


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a server's main until it ends, on uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415  There is none on Windows.
    except ModuleNotFoundError:
        asyncio.run(main)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)


def settle_memory() -> None:
    """Keep what is there out of later collections of garbage: they are half of what a large body costs.

    For a process that does nothing but serve, called when everything is loaded.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, *gc.get_threshold()[1:])


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens there. Raises `NameTaken` if it is somebody else's, or `UnknownName`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small answers at once only on sockets that say that they are TCP.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # Elsewhere it would take the port from whoever has it.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(MAX_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno not in _TAKEN:
            raise UnknownName("address of this machine", host, ["127.0.0.1", "0.0.0.0"]) from None
        raise NameTaken("address", f"{host}:{port}", do=_TAKEN[error.errno]) from None
    return listening


def is_this_machine(host: str) -> bool:
    """Whether a server on `host` can be reached from this machine only."""
    return host == "localhost" or is_loopback(host)
