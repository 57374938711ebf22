"""`turnline people`: what a log knows of people."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from turnline.errors import ForgetRefused, UnknownParticipant
from turnline.log.sqlite import SqliteLog

from ..hub.scenes import house
from .projects import call


async def two_people(path: Path) -> str:
    """A log on which Ann is registered, and Bob has an open channel with an agent."""
    async with house(SqliteLog(path), "echo", people=["Ann-5150", "bob"]) as home:
        await home.talk(by="echo", to="bob", channel_id="talk")
    return f"sqlite:///{path}"


def test_y2_a_person_is_forgotten_and_one_on_an_open_channel_is_not(tmp_path: Path) -> None:
    log = asyncio.run(two_people(tmp_path / "log.db"))

    done = call("people", "forget", "Ann-5150", "--log", log, "--compact", "--json")

    assert (done.code, json.loads(done.out)) == (0, {"channels": {"_directory": 1}})
    assert not [one for one in tmp_path.iterdir() if b"Ann-5150" in one.read_bytes()]
    assert call("log", "verify", log).code == 0
    with pytest.raises(UnknownParticipant):
        call("people", "forget", "Ann-5150", "--log", log)
    with pytest.raises(ForgetRefused, match="'talk'"):
        call("people", "forget", "bob", "--log", log)
