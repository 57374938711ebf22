from __future__ import annotations

from pathlib import Path

import pytest

from turnline.errors import LogUnavailable, UnknownName
from turnline.knowledge import DiskKnowledgeStore, MemoryKnowledgeStore
from turnline.log.address import mask, open_log
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog


def test_memory_is_a_new_log_each_time() -> None:
    assert isinstance(open_log("memory:"), MemoryLog)
    assert open_log("memory:") is not open_log("memory:")


@pytest.mark.parametrize(
    "address", ["sqlite:///data/log.db", "data/log.db", "sqlite:///{folder}/data/log.db"]
)
async def test_a_file_is_named_with_or_without_a_scheme(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = open_log(address.format(folder=tmp_path))

    assert isinstance(log, SqliteLog)
    assert (tmp_path / "data" / "log.db").exists()
    await log.close()


async def test_a_logs_own_address_opens_it(tmp_path: Path) -> None:
    first = SqliteLog(tmp_path / "log.db")
    second = open_log(first.address)

    assert isinstance(second, SqliteLog)
    assert second.path == first.path
    await first.close()
    await second.close()


@pytest.mark.parametrize("address", ["mysql://host/log", "sqlit:///log.db", "log.sqlite3", ""])
def test_an_unknown_scheme_lists_the_known_ones(address: str) -> None:
    with pytest.raises(UnknownName, match="memory, nats, postgres, postgresql, sqlite") as unknown:
        open_log(address)
    assert unknown.value.known == ("memory", "nats", "postgres", "postgresql", "sqlite")


@pytest.mark.parametrize("address", ["sqlite:log.db", "sqlite://host/log.db", "sqlite:///", "memory:name"])
def test_an_address_that_says_too_little_or_too_much_is_refused(address: str) -> None:
    with pytest.raises(LogUnavailable):
        open_log(address)


@pytest.mark.parametrize(
    ("address", "printed"),
    [
        ("postgresql://ann:hunter2@host/db", "postgresql://***"),
        ("postgresql://host/db?password=hunter2", "postgresql://***"),
        ("nats://token@a:4222,b:4222/log", "nats://***"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("sqlite:///what?@.db", "sqlite:///what?@.db"),
        ("log.db", "log.db"),
    ],
)
def test_an_address_is_printed_without_what_may_be_a_password(address: str, printed: str) -> None:
    assert mask(address) == printed


def test_the_seeds_names_are_these_logs() -> None:
    assert MemoryKnowledgeStore is MemoryLog
    assert DiskKnowledgeStore is SqliteLog
