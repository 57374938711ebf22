"""How much at once: requests, streams, and the runs of a flow.

What is beyond a limit is refused at once, with 503 and when to come again. Nothing
queues here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec
from starlette.requests import HTTPConnection
from starlette.types import Scope

from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_CHANNEL_INVITE
from turnline.core.state import State
from turnline.flow.definition.flow import Flow
from turnline.flow.run import knob_in
from turnline.server.problems import TOO_MANY, UNAVAILABLE, RequestRefused

OPEN_RUNS_PER_USER: Final = 1_000
"""Runs that one user has started and that have not ended, those that wait included."""
OPEN_RUNS_OF_STRANGERS: Final = 10_000
"""The same of all callers without a token together."""


class Places:
    """At most so many of something at once."""

    def __init__(
        self, most: int, what: str, *, retry_after_seconds: int, per_user: tuple[str, int] | None = None
    ) -> None:
        """`per_user` names the limit of one user, and says how many it allows."""
        self._most = most
        self._per_user = per_user
        self._of_user: Counter[str] = Counter()
        self._what = what
        self._retry_after = retry_after_seconds
        self.taken = 0
        self.refused = 0
        """How many found no place, since the server started."""

    @contextmanager
    def one(self, user: str = "") -> Iterator[None]:
        """Take a place, also among those of a user, or raise what says that there is none."""
        if user and self._per_user is not None and self._of_user[user] >= self._per_user[1]:
            self.refused += 1
            name, most = self._per_user
            message = f"you have {most} {self._what} open already ({name}); close one first."
            raise RequestRefused(TOO_MANY, "too_many_requests", message)
        if self.taken >= self._most:
            self.refused += 1
            raise busy(f"{self.taken} {self._what} are served already", self._retry_after)
        self.taken += 1
        self._of_user[user] += 1
        try:
            yield
        finally:
            self.taken -= 1
            self._of_user[user] -= 1
            if not self._of_user[user]:
                del self._of_user[user]


class Addresses:
    """Requests at once of clients that have not shown a token, by their address."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: Counter[str] = Counter()

    @contextmanager
    def one(self, request: HTTPConnection) -> Iterator[None]:
        """Count a request until it is over, or has shown a token (`note_token`)."""
        address = request.client.host if request.client else ""
        if self._counts[address] >= self._most:
            message = (
                f"{self._most} requests without a token come from this address already "
                f"(connections_per_address); wait for an answer, or send a token."
            )
            raise RequestRefused(TOO_MANY, "too_many_requests", message, headers={"Retry-After": "1"})
        self._counts[address] += 1
        released = False

        def release() -> None:
            nonlocal released
            if not released:
                released = True
                self._counts[address] -= 1
                if not self._counts[address]:
                    del self._counts[address]

        request.scope.setdefault("state", {})[_STRANGER_KEY] = release
        try:
            yield
        finally:
            release()


class KnowsToken(Protocol):
    """A connection that counts differently once its client is known."""

    def note_token(self) -> None: ...


CONNECTION_KEY: Final = "turnline_connection"
"""Where a server puts the `KnowsToken` of a request, in its scope's state."""
_STRANGER_KEY: Final = "turnline_stranger"


def note_token(scope: Scope) -> None:
    """Count a request, and the connection it came over, no longer among those of strangers."""
    state = scope.get("state", {})
    release, connection = state.get(_STRANGER_KEY), state.get(CONNECTION_KEY)
    if release is not None:
        release()
    if connection is not None:
        connection.note_token()


class OpenRuns:
    """The open runs of a project that limits them. One that waits counts; one below another does not.

    Rule: a run is a channel that the driver opened, and its flow is in the driver's knob. Labels are
    not looked at: every client can set them on a channel of its own.
    """

    def __init__(
        self,
        flows: Mapping[str, Flow],
        *,
        in_all: int | None = None,
        per_user: int = OPEN_RUNS_PER_USER,
        of_strangers: int = OPEN_RUNS_OF_STRANGERS,
    ) -> None:
        limits = {name: flow.spec.limits.concurrency for name, flow in flows.items()}
        self._most = {name: most for name, most in limits.items() if most is not None}
        self._in_all = in_all
        self.driver_id = ""
        """The participant that opens runs. Nothing is counted before it is known."""
        self._per_user = per_user
        self._of_strangers = of_strangers
        self._user_of: dict[str, str] = {}
        """Open run -> who started it; empty: somebody without a token."""
        self._of_user: Counter[str] = Counter()
        self._flow_of: dict[str, str] = {}
        """Open run -> its flow."""
        self._counts: Counter[str] = Counter()
        """Flow -> its runs that are open, or being started."""

    def __call__(self, envelope: Envelope) -> None:
        """See `hub.governance.Listener`."""
        if envelope.event_type == EV_CHANNEL_INVITE:
            self._add(msgspec.convert(envelope.event_data, ChannelSpec))
        elif envelope.event_type == EV_CHANNEL_CLOSED and envelope.channel_id in self._flow_of:
            self._counts[self._flow_of.pop(envelope.channel_id)] -= 1
            self._of_user[self._user_of.pop(envelope.channel_id)] -= 1

    def take_over(self, state: State) -> None:
        """Count a run that was open before this process began."""
        if not state.is_over:
            self._add(state.spec)

    @contextmanager
    def starting(self, flow: str, user: str = "") -> Iterator[None]:
        """Keep a place for a run that is being started; raises if there is none left."""
        self._check_user(user)
        if flow in self._most and self._counts[flow] >= self._most[flow]:
            raise busy(f"{self._most[flow]} runs of {flow!r} are open already", 1)
        if self._in_all is not None and self._counts.total() >= self._in_all:
            raise busy(f"{self._in_all} runs are open already", 1)
        self._counts[flow] += 1
        self._of_user[user] += 1
        try:
            yield
        finally:  # Once it is open it is counted as that.
            self._counts[flow] -= 1
            self._of_user[user] -= 1

    def _check_user(self, user: str) -> None:
        most = self._per_user if user else self._of_strangers
        if self._of_user[user] >= most:
            whose = "you have" if user else "callers without a token have"
            name = "open_runs_per_user" if user else "open_runs_of_strangers"
            message = (
                f"{whose} {most} open runs already ({name}); wait until one has ended, cancel one, "
                f"or let the operator raise limits.{name} in turnline.yaml."
            )
            raise RequestRefused(TOO_MANY, "too_many_requests", message, headers={"Retry-After": "1"})

    def _add(self, spec: ChannelSpec) -> None:
        if not self.driver_id or spec.creator_id != self.driver_id or spec.parent_id is not None:
            return
        knob = knob_in(spec.knobs)
        if knob is not None and spec.channel_id not in self._flow_of:
            self._flow_of[spec.channel_id] = knob.name
            self._user_of[spec.channel_id] = user = _starter(spec.knobs)
            self._counts[knob.name] += 1
            self._of_user[user] += 1


def _starter(knobs: JsonObject) -> str:
    """Return the user who started a run, as its first line says."""
    match knobs:
        case {"flow": {"private": {"_user_id": str(user)}}}:
            return user
    return ""


def busy(because: str, retry_after_seconds: int) -> RequestRefused:
    headers = {"Retry-After": str(retry_after_seconds)}
    return RequestRefused(UNAVAILABLE, "busy", f"{because}; send it again later.", headers=headers)
