"""A hub's whole log on a tour through every backend: finished, open, quarantined, runs and all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.projects import call
from tests.flow.stage import stage
from tests.hub.scenes import A_B, A_B_A, closed, house
from tests.hub.test_quarantine import Echo
from turnline.core.adapters import built_in
from turnline.core.codec import Record
from turnline.errors import ChannelQuarantined
from turnline.log.address import open_log
from turnline.log.memory import MemoryLog
from turnline.log.origin import LOG_NAMES
from turnline.log.records import MemoryRecords, Records
from turnline.log.transfer import export_log
from turnline.log.verify import verify
from turnline.testing.manual_clock import ManualClock

from .backends import MakePlace, Place

FLOWS = (
    "{name: main, steps: [{id: greet, runner: greet}]}",
    "{name: late, steps: [{id: later, wait: {for: 1h}}, {id: greet, runner: greet}]}",
)


async def lived_in(log: MemoryLog) -> dict[str, str]:
    """Fill a log as programs do; return the channels that are spoken of later."""
    async with house(log, "alice", "bob", adapters=[Echo()]) as home:
        done = await home.open(A_B)
        await done.send("one")
        await home.handle("bob", done).send("two")
        await closed(done)
        open_ = await home.open(A_B_A)
        await open_.send("first")
        strange = await home["alice"].open(type="echo", target="bob")
    async with stage(*FLOWS, log=log, greet=lambda ctx: {"hello": ctx["name"]}) as flows:
        ran = await flows.run("main", name="Ann")
        waits = await flows.runs.start("late", {"name": "Bob"})
        await flows.paused(waits)
        assert ran.data["hello"] == "Ann"
    return {"open": open_.channel_id, "strange": strange.channel_id, "done": done.channel_id, "waits": waits}


async def kept(records: Records) -> dict[str, list[Record]]:
    return {name: [record async for record in records.read(name)] async for name in records.channels()}


async def first_export(log: MemoryLog, file: Path) -> dict[str, list[Record]]:
    with file.open("wb") as written:
        await export_log(MemoryRecords(log), written.write, exported_at="2030-01-01T12:00:00+00:00")
    return await kept(MemoryRecords(log))


def tour(tmp_path: Path, places: list[Place]) -> Iterator[tuple[Place, Path]]:
    """Import from file to place, export from place to file, and so on."""
    for number, place in enumerate(places):
        told = call("log", "import", str(tmp_path / f"{number}.jsonl"), place.address)
        expected = "imported without secrets: 2 flow definitions and 2 channels of runs"
        assert (told.code, told.err.partition(".")[0]) == (0, expected)
        assert call("log", "verify", place.address).code == 0
        file = tmp_path / f"{number + 1}.jsonl"
        assert call("log", "export", place.address, "-o", str(file)).code == 0
        yield place, file


def test_a_log_goes_through_every_backend_and_its_hub_goes_on(tmp_path: Path, make_place: MakePlace) -> None:
    log = MemoryLog()
    channels = asyncio.run(lived_in(log))
    everything = asyncio.run(first_export(log, tmp_path / "0.jsonl"))
    del everything[LOG_NAMES]  # The name stays with its log.
    first = (tmp_path / "0.jsonl").read_bytes().splitlines()[1:-1]
    places = [make_place(kind) for kind in ("sqlite", "postgres", "nats", "sqlite")]

    for place, file in tour(tmp_path, places):
        assert asyncio.run(place.kept()) == everything
        assert file.read_bytes().splitlines()[1:-1] == first

    assert {"_directory", "_audit", *channels.values()} <= set(everything)
    assert any(name.startswith("_flow-") for name in everything)
    asyncio.run(goes_on(places[-1].address, channels))
    told = json.loads(call("log", "verify", places[-1].address, "--json").out)
    assert (told["ok"], told["not_folded"]) == (True, {channels["strange"]: "echo"})


async def goes_on(address: str, channels: dict[str, str]) -> None:
    """The open channel is spoken on to its end, the run to its own; the quarantined one still is that."""
    async with house(open_log(address), "alice", "bob") as home:
        with pytest.raises(ChannelQuarantined):
            await home.hub.state(channels["strange"])
        assert (await home.hub.state(channels["done"])).is_over
        await home["bob"].channel(channels["open"]).send("second")
        await home["alice"].channel(channels["open"]).send("third")
        assert await closed(home["alice"].channel(channels["open"]))
    clock = ManualClock()
    async with stage(
        *FLOWS, log=open_log(address), clock=clock, greet=lambda ctx: {"hello": ctx["name"]}
    ) as flows:
        await flows.pass_time(7_200)
        assert (await flows.ended(channels["waits"])).data["hello"] == "Bob"


async def test_a_hub_works_with_what_verify_calls_good() -> None:
    log = MemoryLog()
    await lived_in(log)

    assert (await verify(MemoryRecords(log), built_in())).is_good
