"""How much at once: requests, streams, and the runs of a flow.

What is beyond a limit is refused at once, with 503 and when to come again. Nothing
queues here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import Scope

from turnline.core.channel import ChannelRow, user_key_of
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_CLOSED, EV_CHANNEL_INVITE
from turnline.core.state import USER_KEY
from turnline.flow.definition.flow import Flow
from turnline.flow.run import knob_in
from turnline.hub.governance import Counts
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
        self._of_user = Counts()
        self._what = what
        self._retry_after = retry_after_seconds
        self.taken = 0
        self.refused = 0
        """How many found no place, since the server started."""

    @contextmanager
    def one(self, user: str = "") -> Iterator[Place]:
        """Take a place, also among those of a user, or raise what says that there is none."""
        self._check(user)
        if self.taken >= self._most:
            self.refused += 1
            raise busy(f"{self.taken} {self._what} are served already", self._retry_after)
        self.taken += 1
        self._of_user[user] += 1
        place = Place(self, user)
        try:
            yield place
        finally:
            self.taken -= 1
            self._of_user[place.user] -= 1
            place.is_left = True

    def give(self, place: Place, user: str) -> None:
        """Count the place among those of a user. Raises what says that the user has none left."""
        if user == place.user or place.is_left:
            return
        self._check(user)
        self._of_user[place.user] -= 1
        self._of_user[user] += 1
        place.user = user

    def _check(self, user: str) -> None:
        if user and self._per_user is not None and self._of_user[user] >= self._per_user[1]:
            self.refused += 1
            name, most = self._per_user
            message = f"you have {most} {self._what} open already ({name}); close one first."
            headers = {"Retry-After": str(self._retry_after)}
            raise RequestRefused(TOO_MANY, "too_many_requests", message, headers=headers)


class Place:
    """One of the places, and the user it counts for: empty until they are known."""

    def __init__(self, places: Places, user: str) -> None:
        self._places = places
        self.user = user
        self.is_left = False

    def belong_to(self, user: str) -> None:
        """See `Places.give`."""
        self._places.give(self, user)


class Addresses:
    """Requests at once of clients that have not shown a token, by their address."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts = Counts()

    @contextmanager
    def one(self, request: HTTPConnection, place: Place | None = None) -> Iterator[None]:
        """Count a request until it is over, or has shown a token (`note_token`).

        Then `place` is one of the user's.
        """
        address = request.client.host if request.client else ""
        if self._counts[address] >= self._most:
            message = (
                f"{self._most} requests without a token come from this address already "
                f"(connections_per_address); wait for an answer, or send a token."
            )
            raise RequestRefused(TOO_MANY, "too_many_requests", message, headers={"Retry-After": "1"})
        self._counts[address] += 1
        with ExitStack() as counted:
            counted.callback(self._counts.subtract, [address])
            state = request.scope.setdefault("state", {})
            state |= {_STRANGER_KEY: counted.close, _PLACE_KEY: place}
            yield


CONNECTION_KEY: Final = "turnline_connection"
"""Where a server puts the connection of a request, in its scope's state. It has a method `note_token`."""
_STRANGER_KEY: Final = "turnline_stranger"
_PLACE_KEY: Final = "turnline_place"


def note_token(scope: Scope, user: str = "") -> None:
    """Count a request among those of its user, and neither it nor its connection among those of strangers.

    Raises what says that the user has too many requests.
    """
    state = scope.get("state", {})
    place = state.get(_PLACE_KEY)
    if place is not None:
        place.belong_to(user)
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
        self._open: dict[str, tuple[str, str]] = {}
        """Run that is open, or being started -> its flow, and the key of the user who started it; empty: a
        caller without a token."""
        self._numbers = count()
        self._of_user = Counts()
        self._counts = Counts()
        """Flow -> its runs that are open, or being started."""

    def __call__(self, envelope: Envelope) -> None:
        """See `hub.governance.Listener`."""
        if envelope.event_type == EV_CHANNEL_INVITE:
            data = envelope.event_data
            is_drivers = bool(self.driver_id) and data.get("creator_id") == self.driver_id
            knob = knob_in(data.get("knobs", {})) if is_drivers and data.get("parent_id") is None else None
            if knob is not None:
                user_key = user_key_of(knob.private.get(USER_KEY))
                self._add(envelope.channel_id, self.driver_id, knob.name, user_key)
        elif envelope.event_type == EV_CHANNEL_CLOSED:
            self._leave(envelope.channel_id)

    def take_over(self, row: ChannelRow) -> None:
        """Count a run that was open before this process began, or that is a fork."""
        if not row.is_closed and row.is_run:
            self._add(row.channel_id, row.creator_id, row.flow, row.user_key)

    @contextmanager
    def starting(self, flow: str, user: str = "", *, run_id: str = "") -> Iterator[None]:
        """Keep a place for a run that is being started; raises if there is none left.

        A run that may not be recorded at once is counted by its `run_id` from now on.
        """
        user_key = user_key_of(user)
        self._check_user(user_key)
        if flow in self._most and self._counts[flow] >= self._most[flow]:
            raise busy(f"{self._most[flow]} runs of {flow!r} are open already", 1)
        if self._in_all is not None and self._counts.total() >= self._in_all:
            raise busy(f"{self._in_all} runs are open already", 1)
        place, is_open = run_id or f"starting {next(self._numbers)}", False
        self._take(place, flow, user_key)
        try:
            yield
            is_open = bool(run_id)
        finally:  # Once it is open it is counted as that.
            if not is_open:
                self._leave(place)

    def _check_user(self, user_key: str) -> None:
        most = self._per_user if user_key else self._of_strangers
        if self._of_user[user_key] >= most:
            whose = "you have" if user_key else "callers without a token have"
            name = "open_runs_per_user" if user_key else "open_runs_of_strangers"
            message = (
                f"{whose} {most} open runs already ({name}); wait until one has ended, cancel one, "
                f"or let the operator raise limits.{name} in turnline.yaml."
            )
            raise RequestRefused(TOO_MANY, "too_many_requests", message, headers={"Retry-After": "1"})

    def _add(self, run_id: str, creator_id: str, flow: str, user_key: str) -> None:
        if self.driver_id and creator_id == self.driver_id and run_id not in self._open:
            self._take(run_id, flow, user_key)

    def _take(self, run_id: str, flow: str, user_key: str) -> None:
        self._open[run_id] = flow, user_key
        self._counts[flow] += 1
        self._of_user[user_key] += 1

    def _leave(self, run_id: str) -> None:
        if run_id in self._open:
            flow, user_key = self._open.pop(run_id)
            self._counts[flow] -= 1
            self._of_user[user_key] -= 1


def busy(because: str, retry_after_seconds: int) -> RequestRefused:
    headers = {"Retry-After": str(retry_after_seconds)}
    return RequestRefused(UNAVAILABLE, "busy", f"{because}; send it again later.", headers=headers)
