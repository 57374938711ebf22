"""`turnline doctor`: exit codes, what is printed, and that it writes nothing unless told to."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from turnline.cli.doctor import EXTRAS
from turnline.log.sqlite import SqliteLog

from .projects import call, project


def a_log(path: Path) -> Path:
    async def make() -> None:
        await SqliteLog(path).close()

    asyncio.run(make())
    return path


async def _channels(path: Path) -> list[str]:
    log = SqliteLog(path)
    try:
        return [head.channel_id for head in await log.channels()]
    finally:
        await log.close()


def test_a_log_that_is_well_is_exit_code_0_and_its_acknowledgements_are_explained(tmp_path: Path) -> None:
    path = a_log(tmp_path / "log.db")
    before = path.read_bytes()

    told = call("doctor", str(path))

    assert told.code == 0
    assert "An acknowledged append was synced" in told.out
    assert "No findings." in told.out
    assert path.read_bytes() == before


def test_a_finding_is_exit_code_1_with_what_was_found_and_expected_and_what_to_do() -> None:
    told = call("doctor", "memory:")
    [finding] = json.loads(call("doctor", "memory:", "--json").out)["findings"]

    assert told.code == 1
    assert all(finding[part] in told.out for part in ("found", "expected", "do"))


@pytest.mark.parametrize(
    "address",
    ["postgresql://me:hidden@127.0.0.1:1/none", "mysql://me:hidden@host/db", "sqlite:log.db", "nobody"],
)
def test_a_log_that_cannot_be_reached_is_exit_code_2_and_no_password_is_shown(address: str) -> None:
    told = call("doctor", address)

    assert (told.code, told.out) == (2, "")
    assert "hidden" not in told.err


def test_of_a_folder_the_log_that_its_settings_name_is_looked_at(tmp_path: Path) -> None:
    folder = project(tmp_path, turnline_yaml=f"log: sqlite:///{tmp_path}/elsewhere.db")
    a_log(tmp_path / "elsewhere.db")

    assert "elsewhere.db" in call("doctor", str(folder)).out


def test_of_a_folder_without_settings_the_default_log_is_looked_at_and_not_made(tmp_path: Path) -> None:
    told = call("doctor", str(tmp_path))

    assert told.code == 0
    assert ".turnline/log.db" in told.out
    assert list(tmp_path.iterdir()) == []


def test_settings_with_mistakes_are_exit_code_2(tmp_path: Path) -> None:
    assert call("doctor", str(project(tmp_path, turnline_yaml="lgo: x"))).code == 2


def test_only_write_writes_one_record_and_tells_how_long_it_took(tmp_path: Path) -> None:
    path = a_log(tmp_path / "log.db")

    told = json.loads(call("doctor", str(path), "--write", "--json").out)

    assert told["facts"]["one append"].endswith(" ms")
    assert asyncio.run(_channels(path)) == ["_doctor"]


def test_what_is_installed_is_told() -> None:
    facts = json.loads(call("doctor", "memory:", "--json").out)["facts"]

    assert {"turnline", "Python"} <= set(facts)
    assert set(facts["extras installed"].split(", ")) == set(EXTRAS)


def test_the_verb_shows_an_example() -> None:
    assert "Example: turnline doctor" in call("doctor", "--help").out
