"""The log a verb looks at: as `--log` says, as turnline.yaml says, or the project's own file.

Nothing is made by looking: a file that is not there is an error.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from turnline.cli.plain import count_of
from turnline.client.embedded import Hub
from turnline.core.envelope import JsonObject
from turnline.errors import LogUnavailable
from turnline.log.address import open_log

SETTINGS_FILE: Final = "turnline.yaml"
OWN_LOG: Final = Path(".turnline") / "log.db"
_SQLITE: Final = "sqlite:///"


@asynccontextmanager
async def looking_at(log: str | None, folder: Path, *, follow: bool = False) -> AsyncIterator[Hub]:
    """A hub on the log, on which nothing happens by itself: it has no agents, and no timers run."""
    address = address_of(log, folder)
    file = file_of(address)
    if file is not None and not file.exists():
        because = "there is no such file; give --log, or --dir for the project's folder"
        raise LogUnavailable(address, because=because)
    hub = await Hub.open(open_log(address), ttl_sweep_interval=0, follow=follow)
    try:
        yield hub
    finally:
        await hub.close()


def address_of(log: str | None, folder: Path) -> str:
    """Where the log is."""
    return log or _said(folder) or f"{_SQLITE}{folder / OWN_LOG}"


def _said(folder: Path) -> str | None:
    file = folder / SETTINGS_FILE
    if not file.exists():
        return None
    from turnline.flow.settings import read_settings  # noqa: PLC0415  Most folders need no YAML.

    settings, _ = read_settings(file.read_bytes(), file=str(file), environment=os.environ)
    return settings.log


def file_of(address: str) -> Path | None:
    """Return the file of a log or of rows; None if they are not in one."""
    if address.startswith(_SQLITE):
        return Path(address.removeprefix(_SQLITE))
    return Path(address) if "://" not in address and address.endswith(".db") else None


async def usage_of(hub: Hub, channel_id: str) -> tuple[JsonObject, str]:
    """Return what a channel and those below it used, as data and in words."""
    own, below = await hub.tree.spent(await hub.state(channel_id))
    total = own + below.spent
    data = {**msgspec.to_builtins(total), "below": below.to_dict()}
    count = count_of(below.channels, "channel")
    text = f"{total} ({count} below included)" if below.channels else str(total)
    return data, text if below.is_complete else f"{text}; more channels were not counted"
