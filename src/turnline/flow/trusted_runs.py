"""Trusted runs: which runs on the log may read secrets. `flow.trust` says which definitions may.

A definition of the project says where a secret goes, but a run brings the data that addresses and headers
are filled in with. So a run reads secrets only if a server of this project opened it on this log, or an
operator imported it with `--trust`.

Rule 1: the driver writes the name of its log into each channel that it opens (`log.origin`). The name has
a mark that is made with the project's key, so a log of other people has no name that counts.

Rule 2: what is above a channel counts as well: its parent, or the origin of a fork, up to the top.

Rule 3: a retry of a run that is not trusted says so itself, and so is not trusted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from turnline.core.channel import MOST_DEPTH
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.json import normalised
from turnline.core.state import State
from turnline.errors import ChannelQuarantined, CorruptRecord
from turnline.flow.run import run_knob
from turnline.flow.trust import TrustKey
from turnline.hub.history import MAX_DEPTH
from turnline.hub.timers import Clock, NewId, secret_id
from turnline.log.base import Log
from turnline.log.origin import LOG_NAMES, list_of, listed, lists_with
from turnline.log.system_channel import SystemChannel, SystemLine

logger = logging.getLogger(__name__)

EV_LOG_NAMED: Final = "log.named"
EV_RUNS_TRUSTED: Final = "runs.trusted"
LISTED_IN_A_LINE: Final = 1_000
"""Channels in one line of a list of trusted channels."""
MOST_ABOVE: Final = MOST_DEPTH + MAX_DEPTH
"""Channels above one that are looked at, parents and origins of forks. Below more, a run is not trusted."""
_REMEMBERED: Final = 10_000
"""Listed channels that are kept in memory. One that was forgotten is looked for again."""

StateOf = Callable[[str], Awaitable[State]]


class TrustedRuns:
    """The runs of one log that a project trusts."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        new_id: NewId,
        *,
        key: TrustKey | None,
        new_name: NewId = secret_id,
    ) -> None:
        """Without a `key` every name of the log counts, and no list of trusted channels does."""
        self.log_name = ""
        """The name that new channels get. Empty before `start`."""
        self._log = log
        self._clock = clock
        self._new_id = new_id
        self._key = key
        self._new_name = new_name
        self._names: set[str] = set()
        self._listed: set[str] = set()

    async def start(self) -> None:
        """Read the names of the log, and give it one if none counts.

        If they are damaged, the server starts all the same, and new runs get no secrets.
        """
        names = self._open(LOG_NAMES, self._apply_name)
        try:
            await names.catch_up()
            await names.append(self._decide_name)
        except ChannelQuarantined as error:
            logger.warning("Runs get no secrets: the name of the log cannot be read. %s", error)

    def _apply_name(self, line: Envelope) -> None:
        name = line.event_data.get("log")
        if isinstance(name, str) and name and self._has_mark(line, name):
            self._names.add(name)
            self.log_name = name

    def _decide_name(self) -> list[SystemLine]:
        """Name the log, unless it has a name that counts."""
        if self.log_name:
            return []
        name = self._new_name()
        return [self._line(LOG_NAMES, EV_LOG_NAMED, {"log": name}, signed=name)]

    async def is_trusted(self, state: State, state_of: StateOf) -> bool:
        """Return whether the channel, and each one above it, was opened by this project or is trusted."""
        for _ in range(MOST_ABOVE):
            if not await self.is_known(state):
                return False
            origin = state.spec.forked_from
            above = state.spec.parent_id if origin is None else origin.channel
            if above is None:
                return True
            state = await state_of(above)
        return False

    async def is_known(self, state: State) -> bool:
        """Return whether this project opened the channel on this log, or an operator trusts it."""
        knob = run_knob(state)
        has_foreign_data = knob is not None and knob.is_untrusted
        is_own = state.spec.opened_on in self._names and not has_foreign_data
        return is_own or await self._is_listed(state.channel_id)

    async def trust(self, channel_ids: Iterable[str]) -> None:
        """List channels as trusted. Raises what `append` raises; then it is safe to call again."""
        lists: dict[str, list[str]] = {}
        for channel_id in channel_ids:
            lists.setdefault(list_of(channel_id), []).append(channel_id)
        for list_id, channels in lists.items():
            await self._list(list_id, channels)

    async def _list(self, list_id: str, channels: list[str]) -> None:
        """Append the channels that are not listed, in lines of a limited length."""
        known = set[str]()

        def apply(line: Envelope) -> None:
            if self._lists(line):
                known.update(listed(line))

        def decide(wanted: list[str]) -> list[SystemLine]:
            missing = [one for one in wanted if one not in known]
            data: JsonObject = {"channels": missing}
            signed = "\0".join(missing)
            return [self._line(list_id, EV_RUNS_TRUSTED, data, signed=signed)] if missing else []

        channel = self._open(list_id, apply)
        await channel.catch_up()
        for first in range(0, len(channels), LISTED_IN_A_LINE):
            await channel.append(partial(decide, channels[first : first + LISTED_IN_A_LINE]))

    async def _is_listed(self, channel_id: str) -> bool:
        """Return whether an operator trusts the channel. A list that is damaged lists nothing."""
        if self._key is None:
            return False
        if channel_id not in self._listed:
            try:
                lines = await lists_with(self._log, channel_id)
            except CorruptRecord as error:
                logger.warning(
                    "%r gets no secrets: the list of trusted runs is damaged. %s", channel_id, error
                )
                return False
            if not any(map(self._lists, lines)):
                return False
            if len(self._listed) >= _REMEMBERED:
                self._listed.clear()
            self._listed.add(channel_id)
        return True

    def _lists(self, line: Envelope) -> bool:
        return self._has_mark(line, "\0".join(listed(line)))

    def _has_mark(self, line: Envelope, text: str) -> bool:
        return self._key is None or self._key.fits(line.event_data.get("mark"), line.channel_id, text)

    def _open(self, channel_id: str, apply: Callable[[Envelope], None]) -> SystemChannel:
        return SystemChannel(self._log, channel_id, self._clock.now, self._new_id, apply=apply)

    def _line(self, channel_id: str, event_type: str, data: JsonObject, *, signed: str) -> SystemLine:
        """Return a line with a mark of what is signed, if there is a key."""
        if self._key is not None:
            data = {**data, "mark": self._key.signature_of(channel_id, signed)}
        return SystemLine(event_type, normalised(data, field="trust"))
