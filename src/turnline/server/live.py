"""A project that is served while its files change (`serve --dev`).

    watch -> load -> open beside what is served -> switch -> drain the one before

Rule 1: the port, the key and the log stay. What runs on the log goes on: the one before ends its steps or
releases them, and the new one takes them up.

Rule 2: what cannot be served is not served. A project with mistakes is reported, and the one before goes on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from turnline.flow.folder import Folder, Unreadable
from turnline.server.runtime import Runtime

WATCH_SECONDS: Final = 0.5
"""Between two looks at the files. A change counts once two looks in a row find the same."""
WATCH_SHARE: Final = 10
"""The pause between two looks is at least so many times what a look takes: large folders are watched less."""

Fingerprint = frozenset[tuple[str, int, int]]
"""(path, time of change, size) of every file."""


class LiveApp:
    """An ASGI app whose project can be replaced while requests come in. `async with` it."""

    def __init__(self, *, drain_seconds: float) -> None:
        self._drain_seconds = drain_seconds
        self._serving: _Edition | None = None
        self._leaving: set[_Edition] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close what is served. The server has waited for the requests before."""
        last = [] if self._serving is None else [self._serving]
        for edition in (*last, *self._leaving):
            edition.leave(within_seconds=0)
        await asyncio.gather(*(edition.task for edition in self._leaving), return_exceptions=True)
        for edition in last:
            await edition.task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._serving is not None, "it serves something before it is asked"
        await self._serving(scope, receive, send)

    async def switch(self, runtime: Runtime, app: Starlette) -> None:
        """Serve `app` from now on, whose lifespan opens `runtime`. What cannot be opened raises."""
        edition = _Edition(runtime, app)
        try:
            await edition.open()
        except BaseException:
            self._leave(edition)
            raise
        before, self._serving = self._serving, edition
        if before is not None:
            self._leave(before)

    def drain(self) -> None:
        """Begin nothing new. See `Runtime.drain`."""
        if self._serving is not None:
            self._serving.runtime.drain()

    def give_up(self) -> None:
        """End the waits for runs. See `Runtime.give_up`."""
        if self._serving is not None:
            self._serving.runtime.give_up()

    def _leave(self, edition: _Edition) -> None:
        edition.leave(within_seconds=self._drain_seconds)
        self._leaving.add(edition)
        edition.task.add_done_callback(lambda _: self._leaving.discard(edition))


class _Edition:
    """One state of a project, served until there is a newer one. One task opens it and closes it."""

    def __init__(self, runtime: Runtime, app: Starlette) -> None:
        self.runtime = runtime
        self._app = app
        self._requests = 0
        self._is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_leaving = asyncio.Event()
        self._is_done = asyncio.Event()
        """Set once it is leaving, and no request is in flight or the time for them is over."""
        self.task = asyncio.create_task(self._live())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._requests += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._requests -= 1
            self._note_done()

    async def open(self) -> None:
        """Return once it is open. Raises what opening it raised."""
        await self._is_open

    def leave(self, *, within_seconds: float) -> None:
        """Answer what is in flight, for so long, and end."""
        self.runtime.drain()
        self._is_leaving.set()
        self._note_done()
        if not self._is_done.is_set():
            asyncio.get_running_loop().call_later(within_seconds, self._is_done.set)

    def _note_done(self) -> None:
        if self._is_leaving.is_set() and not self._requests:
            self._is_done.set()

    async def _live(self) -> None:
        try:
            async with self._app.router.lifespan_context(self._app):
                self._is_open.set_result(None)
                await self._is_done.wait()
        except BaseException as error:
            if self._is_open.done():
                raise
            self._is_open.set_exception(error)


async def watch(root: Path, served: Fingerprint, changed: Callable[[], Awaitable[None]]) -> None:
    """Call `changed` after each change of a project's files, once they are at rest. Never returns.

    `served` was taken before the project was loaded, so a change while it was loaded counts.
    """
    loop = asyncio.get_running_loop()
    before, took = served, 0.0
    while True:
        await asyncio.sleep(max(WATCH_SECONDS, WATCH_SHARE * took))
        began = loop.time()
        found = await asyncio.to_thread(fingerprint, root)
        took = loop.time() - began
        if found == before != served:
            served = found
            await changed()
        before = found


def fingerprint(root: Path) -> Fingerprint:
    """Return what tells one state of a project's files from another. A file that is gone is not in it."""
    found = set()
    with suppress(Unreadable):  # The folder is gone, or too large: loading it says so.
        for path in Folder(root, shown_as=root).sources():
            with suppress(OSError):
                about = os.stat(path)
                found.add((str(path), about.st_mtime_ns, about.st_size))
    return frozenset(found)
