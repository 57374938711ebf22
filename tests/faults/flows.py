"""A server with a run that has everything in it, which kills itself after the n-th line of its runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.flow.project import load_project
from turnline.log.joined import Transaction
from turnline.log.sqlite import SqliteLog
from turnline.server.app import create_app
from turnline.server.auth.authenticator import OnlyLoopback
from turnline.server.auth.principal import Principal
from turnline.server.runtime import Runtime, runtime_of
from turnline.server.serving import DrainingServer, bind
from turnline.server.settings import ServerSettings

PROJECT = Path(__file__).parent / "orders"
EVERYTHING = frozenset({"runs:start:*", "runs:read", "runs:write", "tasks:read", "tasks:answer"})


class DeadlyLog(SqliteLog):
    """Kills its process when the n-th line of a run is on it, or with `before` when it would be next.

    One that kills nobody notes how many lines each append has.
    """

    def __init__(self, path: Path, *, kill_at: int, before: bool) -> None:
        super().__init__(path)
        self._left = kill_at or -1
        self._ends = path.with_name("ends")
        self._before = before

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        self._about_to(channel_id, envelopes)
        await super().append(channel_id, envelopes, after=after, row=row)
        self._done(channel_id, envelopes)

    async def append_within(
        self,
        transaction: Transaction,
        channel_id: str,
        envelopes: Sequence[Envelope],
        *,
        after: int,
        row: ChannelRow | None = None,
    ) -> None:
        if not transaction.has_writes:  # Then it is an `append`.
            await super().append_within(transaction, channel_id, envelopes, after=after, row=row)
            return
        self._about_to(channel_id, envelopes)
        await super().append_within(transaction, channel_id, envelopes, after=after, row=row)
        self._done(channel_id, envelopes)

    def _about_to(self, channel_id: str, envelopes: Sequence[Envelope]) -> None:
        if self._before and 0 < self._left <= len(envelopes) and not channel_id.startswith("_"):
            os.kill(os.getpid(), signal.SIGKILL)

    def _done(self, channel_id: str, envelopes: Sequence[Envelope]) -> None:
        if channel_id.startswith("_"):
            return
        if self._left < 0:
            with self._ends.open("a") as ends:
                ends.write(f"{len(envelopes)}\n")
            return
        self._left -= len(envelopes)
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def serve(folder: str, port: Any, durability: str, *, kill_at: int, before: bool, torn: bool) -> None:
    """Serve the project from `folder`; send the port when it can be called. `torn` is the twin's fault."""
    os.environ["ORDERS_FOLDER"] = folder
    asyncio.run(_serve(Path(folder), port, durability, kill_at=kill_at, before=before, torn=torn))


def _project_in(folder: Path, durability: str) -> Path:
    """Return a copy of the project whose flow has this durability."""
    copy = folder / "project"
    if not copy.exists():
        shutil.copytree(PROJECT, copy)
        document = copy / "workflows" / "orders.yaml"
        document.write_text(document.read_text().replace("durability: step", f"durability: {durability}"))
    return copy


async def _serve(folder: Path, port: Any, durability: str, *, kill_at: int, before: bool, torn: bool) -> None:
    project = load_project(_project_in(folder, durability))
    runtime = runtime_of(project, log_address=f"sqlite:///{folder / 'log.db'}")
    deadly = DeadlyLog(folder / "log.db", kill_at=kill_at, before=before)
    ready = _with_log(runtime, deadly)
    settings = ServerSettings()
    with bind("127.0.0.1", 0) as listening:
        async with ready:
            if torn:  # Rows and packet land one after the other.
                services = ready.driver.services
                assert services.data is not None
                ready.driver.services = replace(services, data=_Torn(services.data))
            app = create_app(ready, authenticator=OnlyLoopback(Principal(user_id="ann", scopes=EVERYTHING)))
            port.send(listening.getsockname()[1])
            await DrainingServer(app, ready, settings, access_log=False).serve([listening])


def _with_log(runtime: Runtime, log: SqliteLog) -> Runtime:
    runtime.open_log = lambda: log
    return runtime


class _Torn:
    """Data models that do not share the log's transaction, though they could."""

    shares_log = False
    is_open = True

    def __init__(self, data: Any) -> None:
        self.begin = data.begin
