"""What the acknowledgements of a log mean, as it is set up where it is.

    facts       what was found
    means       in plain words, what a returned append survives
    findings    what should be otherwise, and what to do about it

Rule 1: nothing is written, unless a probe is asked for: then one record, on a channel of its own.

Rule 2: what cannot be seen from here is said to be so, and what to set; it is not a finding.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from msgspec import Struct, field

from turnline.errors import MissingExtra, UnknownName
from turnline.log.address import PLAIN_SUFFIX
from turnline.log.base import Log
from turnline.log.system_channel import SystemChannel, SystemLine

PROBE_CHANNEL: Final = "_doctor"
EV_PROBE: Final = "doctor.probe"
MAX_SKEW_SECONDS: Final = 5.0
PROBES: Final = 3
"""Attempts, while other doctors are in the way."""


class Finding(Struct, frozen=True):
    """Something that should be otherwise."""

    what: str
    found: str
    expected: str
    do: str


class Checkup(Struct, frozen=True, kw_only=True):
    """How a log is."""

    address: str
    """Without a password."""
    facts: dict[str, str]
    means: list[str]
    findings: list[Finding] = field(default_factory=list)


class Watch(Struct, frozen=True):
    """Where time comes from: `now` for people, `seconds` for durations."""

    now: Callable[[], datetime]
    seconds: Callable[[], float]


async def check_up(address: str, watch: Watch) -> Checkup:
    """Look at the log at `address`. Raises `LogUnavailable` if it cannot be reached."""
    scheme, colon, _ = address.partition(":")
    if scheme in _SCHEMES and colon:
        return await _SCHEMES[scheme](address, watch)
    if address.endswith(PLAIN_SUFFIX) and "://" not in address:
        return await _sqlite(f"sqlite:///{address}", watch)
    # Only the scheme: the rest may hold a password.
    raise UnknownName("log scheme", scheme if colon else address, _SCHEMES)


async def probe(log: Log, watch: Watch, *, envelope_id: str) -> float:
    """Append one record to `_doctor` and return how many seconds it took to be acknowledged."""
    channel = SystemChannel(log, PROBE_CHANNEL, watch.now, lambda: envelope_id, max_conflicts=PROBES)
    await channel.catch_up()
    begun = watch.seconds()
    await channel.append(lambda: [SystemLine(EV_PROBE, {})])
    return watch.seconds() - begun


def skew(here: datetime, there: datetime) -> list[Finding]:
    """What is wrong with a server's clock, if anything is."""
    seconds = (there - here).total_seconds()
    if abs(seconds) <= MAX_SKEW_SECONDS:
        return []
    return [
        Finding(
            "clocks",
            f"the server's clock is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} this one",
            f"at most {MAX_SKEW_SECONDS:.0f} s",
            "Let both follow a time server. Nothing is ordered by clocks, but deadlines are read from them.",
        )
    ]


async def _memory(address: str, watch: Watch) -> Checkup:
    ends = Finding(
        "durability", "a log in memory", "one that outlives the process", "Name a file: sqlite:///log.db."
    )
    means = ["An acknowledged append is gone with the process."]
    return Checkup(address="memory:", facts={}, means=means, findings=[ends])


async def _sqlite(address: str, watch: Watch) -> Checkup:
    from turnline.log.sqlite_checkup import check_up_sqlite  # noqa: PLC0415  As for the others.

    return await check_up_sqlite(address, watch)


async def _nats(address: str, watch: Watch) -> Checkup:
    try:
        from turnline.log.nats_checkup import check_up_nats  # noqa: PLC0415  Only whoever asks needs nats-py.
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(("nats", "cryptography")):
            raise
        raise MissingExtra("logs on NATS", extra="nats") from None
    return await check_up_nats(address, watch)


async def _postgres(address: str, watch: Watch) -> Checkup:
    try:
        from turnline.log.postgres_checkup import check_up_postgres  # noqa: PLC0415  The same for psycopg.
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("psycopg"):
            raise
        raise MissingExtra("logs on PostgreSQL", extra="postgres") from None
    return await check_up_postgres(address, watch)


_SCHEMES: Final[dict[str, Callable[[str, Watch], Awaitable[Checkup]]]] = {
    "memory": _memory,
    "nats": _nats,
    "postgres": _postgres,
    "postgresql": _postgres,
    "sqlite": _sqlite,
}
