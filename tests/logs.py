"""One parameter: the log that a test runs on.

    pytestmark = pytest.mark.four_logs                    every test of a module, once on each log
    async def test_...(open_log: OpenLog): open_log()     the same log again, as the next process opens it
    new_log()                                             what a stage takes that is given none

    ./run test --log postgres                             what is marked so, on that log only

A test that asks for `open_log` runs on each log as well; any other one runs in memory.
The servers are started once, when the first test needs them; each test has a place of its own on them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Final, Protocol, cast

import pytest

from turnline.log import address
from turnline.log.base import Log, Snapshots
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog
from turnline.testing.damage import Damage, damage_memory, damage_sqlite, flip_head

from .log.nats_stage import damage_nats
from .log.postgres_stage import damage_postgres
from .nats_servers import NatsServer
from .postgres import Postgres

KINDS: Final = ("memory", "sqlite", "postgres", "nats")
MARK: Final = "four_logs"
SQLITE: Final = "sqlite:///"
SOON_SECONDS: Final = 0.02
"""How often a test looks for what another process has appended to its file."""


class FullLog(Log, Snapshots, Protocol):
    """A log that keeps snapshots, as all of ours do."""


OpenLog = Callable[[], FullLog]
"""Opens the same log again, as the next process would."""


class LogPlace:
    """Where one test keeps its log."""

    def __init__(self, kind: str, fresh: Callable[[], str]) -> None:
        self.kind = kind
        self.fresh = fresh
        """Gives the address of a log that nobody has used."""
        self._memory = MemoryLog()

    @cached_property
    def where(self) -> str:
        """The address of the test's own log."""
        return self.fresh()

    def open(self) -> FullLog:
        return self._memory if self.kind == "memory" else opened(self.where)

    def damage(self, channel_id: str, seq: int, damage: Damage = flip_head) -> None:
        """Change a record behind the log's back."""
        match self.kind:
            case "memory":
                damage_memory(self._memory, channel_id, seq, damage)
            case "sqlite":
                damage_sqlite(path_of(self.where), channel_id, seq, damage)
            case "postgres":
                damage_postgres(self.where, channel_id, seq, damage)
            case _:
                damage_nats(self.where, channel_id, seq, damage)


def opened(where: str) -> FullLog:
    """The log at an address. What is tested on a file does not depend on the power staying on."""
    if where.startswith(SQLITE):
        return SqliteLog(path_of(where), durability="process", poll_seconds=SOON_SECONDS)
    return cast(FullLog, address.open_log(where))


def path_of(where: str) -> Path:
    """The file that an address names."""
    return Path(where.removeprefix(SQLITE))


_places: Final[list[LogPlace]] = []
"""Where the test that is running now keeps its log."""


def new_log() -> FullLog:
    """A log that nobody has used, of the kind that the test runs on."""
    return opened(_places[-1].fresh()) if _places else MemoryLog()


@pytest.fixture(autouse=True)
def log_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogPlace]:
    """Where the test keeps its log: the parameter is its kind."""
    kind = str(getattr(request, "param", "memory"))
    _places.append(LogPlace(kind, _fresh(kind, request, tmp_path_factory)))
    yield _places[-1]
    _places.pop()


@pytest.fixture
async def open_log(log_place: LogPlace) -> AsyncIterator[OpenLog]:
    """Whatever was opened is closed."""
    logs: list[FullLog] = []

    def open_one() -> FullLog:
        logs.append(log_place.open())
        return logs[-1]

    yield open_one
    for log in logs:
        await log.close()


def kinds_for(metafunc: pytest.Metafunc, only: str | None) -> tuple[str, ...]:
    """The logs that a test runs on, one after the other."""
    if is_for_all(metafunc.definition):
        return (only,) if only else KINDS
    return ()


def is_for_all(test: pytest.Item) -> bool:
    """Whether a test runs on each log."""
    return "open_log" in getattr(test, "fixturenames", ()) or test.get_closest_marker(MARK) is not None


def _fresh(kind: str, request: pytest.FixtureRequest, folders: pytest.TempPathFactory) -> Callable[[], str]:
    match kind:
        case "memory":
            return lambda: "memory:"
        case "sqlite":
            folder, files = folders.mktemp("log"), count(1)
            return lambda: f"{SQLITE}{folder / f'{next(files)}.db'}"
        case "postgres":
            postgres: Postgres = request.getfixturevalue("postgres")
            return postgres.fresh
        case _:
            nats: NatsServer = request.getfixturevalue("nats_server")
            return nats.fresh
