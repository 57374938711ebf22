"""How much at once: requests, streams, and the runs of a flow.

What is beyond a limit is refused at once, with 503 and when to come again. Nothing
queues here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_CHANNEL_INVITE
from turnline.core.state import State
from turnline.flow.definition.flow import Flow
from turnline.flow.run import knob_in
from turnline.server.problems import UNAVAILABLE, RequestRefused


class Places:
    """At most so many of something at once."""

    def __init__(self, most: int, what: str, *, retry_after_seconds: int) -> None:
        self._most = most
        self._what = what
        self._retry_after = retry_after_seconds
        self.taken = 0
        self.refused = 0
        """How many found no place, since the server started."""

    @contextmanager
    def one(self) -> Iterator[None]:
        """Take a place, or raise what says that there is none."""
        if self.taken >= self._most:
            self.refused += 1
            raise busy(f"{self.taken} {self._what} are served already", self._retry_after)
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


class OpenRuns:
    """The open runs of a project that limits them. One that waits counts; one below another does not.

    Rule: a run is a channel that the driver opened, and its flow is in the driver's knob. Labels are
    not looked at: every client can set them on a channel of its own.
    """

    def __init__(self, flows: Mapping[str, Flow], *, in_all: int | None = None) -> None:
        limits = {name: flow.spec.limits.concurrency for name, flow in flows.items()}
        self._most = {name: most for name, most in limits.items() if most is not None}
        self._in_all = in_all
        self.driver_id = ""
        """The participant that opens runs. Nothing is counted before it is known."""
        self._flow_of: dict[str, str] = {}
        """Open run -> its flow."""
        self._counts: Counter[str] = Counter()
        """Flow -> its runs that are open, or being started."""

    @property
    def is_needed(self) -> bool:
        return bool(self._most) or self._in_all is not None

    def __call__(self, envelope: Envelope) -> None:
        """See `hub.governance.Listener`."""
        if not self.is_needed:
            return
        if envelope.event_type == EV_CHANNEL_INVITE:
            self._add(msgspec.convert(envelope.event_data, ChannelSpec))
        elif envelope.event_type == EV_CHANNEL_CLOSED and envelope.channel_id in self._flow_of:
            self._counts[self._flow_of.pop(envelope.channel_id)] -= 1

    def take_over(self, state: State) -> None:
        """Count a run that was open before this process began."""
        if not state.is_over:
            self._add(state.spec)

    @contextmanager
    def starting(self, flow: str) -> Iterator[None]:
        """Keep a place for a run that is being started; raises if there is none left."""
        if not self.is_needed:
            yield
            return
        if flow in self._most and self._counts[flow] >= self._most[flow]:
            raise busy(f"{self._most[flow]} runs of {flow!r} are open already", 1)
        if self._in_all is not None and self._counts.total() >= self._in_all:
            raise busy(f"{self._in_all} runs are open already", 1)
        self._counts[flow] += 1
        try:
            yield
        finally:  # Once it is open it is counted as that.
            self._counts[flow] -= 1

    def _add(self, spec: ChannelSpec) -> None:
        if not self.driver_id or spec.creator_id != self.driver_id or spec.parent_id is not None:
            return
        knob = knob_in(spec.knobs)
        if knob is not None and spec.channel_id not in self._flow_of:
            self._flow_of[spec.channel_id] = knob.name
            self._counts[knob.name] += 1


def busy(because: str, retry_after_seconds: int) -> RequestRefused:
    headers = {"Retry-After": str(retry_after_seconds)}
    return RequestRefused(UNAVAILABLE, "busy", f"{because}; send it again later.", headers=headers)
