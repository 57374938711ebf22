"""Y2: `log erase --compact` leaves no byte of a message, a variable, a tool's result or a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from tests.client.stage import stage
from tests.hub.scenes import closed
from turnline.agent.agent import Agent
from turnline.agent.files import File
from turnline.agent.tool_result import MAX_INLINE_BYTES, ToolResult
from turnline.core.graph import sequence
from turnline.log.address import open_log
from turnline.testing import ScriptedModel, call as call_tool

from ..log.test_nats_keys import can_be_decrypted
from ..nats_servers import NatsServer
from ..postgres import Postgres, run
from .projects import call

SECRET = "CANARY-5e0d"
"""Also the one that `can_be_decrypted` looks for."""
PLACES = ("message", "variable", "argument", "result", "long-result", "file", "file-name", "label")
NOISE = Random(14).randbytes(MAX_INLINE_BYTES).hex()
"""So that no storage compresses what is searched for."""


def canary(place: str) -> str:
    return f"{SECRET}-{place}"


def found_in(folder: Path) -> set[str]:
    """Return the places whose canary is in a file of the folder."""
    contents = [one.read_bytes() for one in folder.rglob("*") if one.is_file()]
    return {place for place in PLACES if any(canary(place).encode() in content for content in contents)}


async def converse(address: str) -> str:
    """Hold a conversation with a canary in each place; return its channel."""

    def look_up(name: str) -> ToolResult:
        return ToolResult(canary("result"), context={"found": canary("variable")})

    def read_all() -> str:
        return canary("long-result") + NOISE

    model = ScriptedModel(call_tool("look_up", name=canary("argument")), call_tool("read_all"), "done")
    agent = Agent("ada", config=model, tools=[look_up, read_all])
    async with stage(agent, log=open_log(address)) as home:
        channel = await home.open(sequence(["user", "ada"]), by="user", labels={"who": canary("label")})
        file = File((canary("file") + NOISE).encode(), f"{canary('file-name')}.txt")
        await channel.send(canary("message"), parts=[file])
        await closed(channel)
        return channel.channel_id


def erase(address: str, channel_id: str) -> None:
    done = call("log", "erase", address, channel_id, "--compact")
    assert done.code == 0, done.err
    assert call("log", "verify", address).code == 0


def test_y2_no_byte_of_any_place_is_left_in_the_files_of_sqlite(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/log.db"
    channel_id = asyncio.run(converse(address))
    assert found_in(tmp_path) == set(PLACES)

    erase(address, channel_id)

    assert found_in(tmp_path) == set()


def test_y2_no_byte_of_any_place_is_left_in_the_table_files_of_postgresql(postgres: Postgres) -> None:
    address = postgres.fresh()
    channel_id = asyncio.run(converse(address))
    folder = Path(run(address, "SHOW data_directory")[0][0]) / "base"
    run(address, "CHECKPOINT")
    assert found_in(folder) == set(PLACES)

    erase(address, channel_id)

    run(address, "CHECKPOINT")
    assert found_in(folder) == set()


def test_y2_no_place_can_be_read_on_nats(nats_server: NatsServer) -> None:
    address = nats_server.fresh()
    channel_id = asyncio.run(converse(address))
    assert found_in(nats_server.folder) == set()  # All of it is encrypted.
    assert asyncio.run(can_be_decrypted(address))

    erase(address, channel_id)

    assert found_in(nats_server.folder) == set()
    assert not asyncio.run(can_be_decrypted(address))
