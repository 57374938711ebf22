"""`turnline agents`: who is registered on a log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from turnline import Agent, run_sync
from turnline.errors import LogUnavailable
from turnline.log.sqlite import SqliteLog
from turnline.network import Hub, Passport, Resume, sequence
from turnline.testing import ScriptedModel

from .projects import call


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A log with a conversation of two agents, and somebody who has said nothing."""
    address = f"sqlite:///{tmp_path}/log.db"
    agents = [Agent(name, config=ScriptedModel("hi")) for name in ("ada", "bob")]
    run_sync(sequence(["ada", "bob"]), agents=agents, message="go", log=address)
    return address


def test_agents_and_people_are_listed_with_their_kinds(log: str) -> None:
    done = call("agents", "--log", log)

    assert done.code == 0
    assert done.out.splitlines()[0].split()[:3] == ["name", "kind", "id"]
    assert [line.split()[:2] for line in done.out.splitlines()[1:]] == [
        ["user", "human"],
        ["ada", "agent"],
        ["bob", "agent"],
    ]


def test_json_has_everything_and_the_record_is_read_on_request(log: str) -> None:
    plain = json.loads(call("agents", "--log", log, "--json").out)
    counted = json.loads(call("agents", "--record", "--log", log, "--json").out)

    assert [one["name"] for one in plain] == ["user", "ada", "bob"]
    assert "observed" not in plain[0]
    assert {one["name"]: one["observed"]["turns"] for one in counted}["ada"] == 1


def test_what_somebody_says_of_itself_is_shown(tmp_path: Path) -> None:
    async def register() -> None:
        hub = await Hub.open(SqliteLog(tmp_path / "log.db"))
        resume = Resume(capabilities=["billing"], summary="Pays back.")
        await hub.register(None, Passport(name="desk"), resume)
        await hub.close()

    asyncio.run(register())
    shown = call("agents", "--log", f"sqlite:///{tmp_path}/log.db").out

    assert "billing" in shown
    assert "Pays back." in shown


def test_a_log_that_is_not_there_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match="there is no such file"):
        call("agents", "--log", f"sqlite:///{tmp_path}/none.db")

    assert not (tmp_path / "none.db").exists()
