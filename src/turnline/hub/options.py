"""What a hub is opened with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from turnline.core.adapter import AnyAdapter
from turnline.hub.governance import Arbiter, Listener
from turnline.hub.timers import Clock, NewId
from turnline.hub.worker import Process


class HubOptions(TypedDict, total=False):
    """What `Hub.open` takes beside the log. Everything has a default."""

    clock: Clock
    new_id: NewId
    adapters: Sequence[AnyAdapter]
    """Channel types beside the built-in ones."""
    arbiter: Arbiter
    listeners: Sequence[Listener]
    cache_bytes: int
    """About how many bytes of memory the channels take that are not in use. Closed ones leave first."""
    file_bytes: int
    """Of one file of a message."""
    tree_bytes: int
    """Of all files of a channel, of the channels below it and of their forks."""
    file_bytes_per_user: int
    """Of all files that one user has uploaded."""
    context_bytes: int
    """Of all context variables of one channel together."""
    open_channels_per_user: int
    """Open channels of the participants that one user has registered over a link."""
    follow: bool
    """Whether to follow what other processes append to the same log."""
    lease_seconds: float
    """How long a worker of this hub may be silent before one of another process takes its turn over."""
    process: Process
    """Who works beside this hub, and who is gone. Default: the process that it is in."""
