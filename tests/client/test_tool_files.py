"""Y6: a long tool result is kept as a file, and a tool may return files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.hub.scenes import House, closed
from tests.logs import LogPlace
from turnline.agent.agent import Agent
from turnline.agent.files import File
from turnline.agent.storable import MAX_TEXT_CHARACTERS
from turnline.agent.tool_result import MAX_INLINE_BYTES, ToolResult
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_TEXT
from turnline.core.graph import sequence
from turnline.core.parts import FilePart, files_of
from turnline.errors import BadDraft
from turnline.log.base import Blob, Blobs
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call

from .stage import begun, packets, played, stage, told

LONG = "läng " * 20_000
HUGE = "x" * 10_000_000


class Stops(ScriptedModel):
    """Never answers the second request; it says that it got one."""

    def __init__(self, *script: Any, asked: asyncio.Event) -> None:
        super().__init__(*script)
        self._asked = asked

    async def reply(self, request: Any, on_text: Any = None) -> Any:
        if self.requests:
            self._asked.set()
            await asyncio.Event().wait()
        return await super().reply(request, on_text)


async def units(home: House, channel: Any) -> list[Envelope]:
    return [one for one in await home.wal(channel) if one.event_type == "turn.tool"]


async def content(home: House, channel: Any, file: FilePart) -> bytes:
    log = home.hub.log
    assert isinstance(log, Blobs)
    (blob,) = [one for one in await log.blobs(channel.channel_id) if one.digest == file.digest]
    chunks = [await log.read_chunk(blob, number) or b"" for number in range(blob.size // (256 * 1024) + 1)]
    return b"".join(chunks)


@pytest.mark.parametrize("text", [LONG, HUGE], ids=["long", "huge"])
async def test_a_long_result_is_in_a_file_and_the_model_is_told_it(text: str) -> None:
    def find() -> str:
        return text

    model = ScriptedModel(call("find"), "done")
    async with stage(Agent("ada", config=model, tools=[find])) as home:
        channel = await played(home)
        (unit,) = await units(home, channel)
        (file,) = files_of(unit.event_type, unit.event_data)

        assert len(unit.event_data["entry"]["text"]) <= 1_000
        assert (file.media_type, file.size) == ("text/plain", len(text.encode()))
        assert await content(home, channel, file) == text.encode()
    (heard,) = told(model)
    assert heard.startswith(text[:MAX_TEXT_CHARACTERS])


async def test_a_result_that_fits_stays_on_its_line() -> None:
    def find() -> str:
        return "x" * MAX_INLINE_BYTES

    async with stage(Agent("ada", config=ScriptedModel(call("find"), "done"), tools=[find])) as home:
        channel = await played(home)
        (unit,) = await units(home, channel)

        assert unit.event_data["entry"]["text"] == "x" * MAX_INLINE_BYTES
        assert files_of(unit.event_type, unit.event_data) == []


async def test_a_resumed_turn_tells_the_model_the_whole_long_result() -> None:
    log, asked, ran = MemoryLog(), asyncio.Event(), list[int]()

    def find() -> str:
        ran.append(1)
        return LONG

    async with stage(Agent("ada", config=Stops(call("find"), asked=asked), tools=[find]), log=log) as home:
        await begun(home, channel_id="story")
        await asked.wait()
    model = ScriptedModel("done")
    async with stage(Agent("ada", config=model, tools=[find]), log=log) as home:
        await closed(home.people["user"].channel("story"))

    assert ran == [1]
    assert told(model) == [LONG]


@pytest.mark.parametrize("log_place", ["sqlite", "postgres"], indirect=True)
async def test_other_channels_are_written_between_the_parts_of_a_10_mb_result(log_place: LogPlace) -> None:
    """While each part is on its way, a post to another channel begins and lands. None waits for the file."""
    log: Any = log_place.open()
    add_chunk = log.add_chunk

    def find() -> str:
        return HUGE

    agent = Agent("ada", config=ScriptedModel(call("find"), "done"), tools=[find])
    async with stage(agent, log=log, people=("user", "ann")) as home:
        other = await home.open(sequence(["ann", "user"]), by="ann")

        async def add_and_post(blob: Blob, number: int, data: bytes) -> None:
            writing = asyncio.create_task(add_chunk(blob, number, data))
            await other.send(f"post {number}", interject=True)
            await writing

        log.add_chunk = add_and_post
        channel = await played(home)
        (unit,) = await units(home, channel)
        said = [one.event_data["text"] for one in await home.wal(other) if one.event_type == EV_TEXT]

    assert said == [f"post {number}" for number in range(39)], "10 MB are 39 parts of 256 KB"
    assert files_of(unit.event_type, unit.event_data)[0].size == len(HUGE)


async def test_a_tool_returns_files(tmp_path: Path) -> None:
    path = tmp_path / "plan.pdf"
    path.write_bytes(b"%PDF")

    def draw() -> File:
        return File(b"\x89PNG", "a.png")

    def plan() -> ToolResult:
        return ToolResult("Two files.", files=[File(path), File(b"x", "b.txt")])

    model = ScriptedModel([call("draw"), call("plan")], "done")
    async with stage(Agent("ada", config=model, tools=[draw, plan])) as home:
        channel = await played(home)
        found = {
            one.event_data["entry"]["tool"]: files_of(one.event_type, one.event_data)
            for one in await units(home, channel)
        }
        assert [one.name for one in found["plan"]] == ["plan.pdf", "b.txt"]
        assert await content(home, channel, found["draw"][0]) == b"\x89PNG"
    assert told(model) == [
        "[file a.png (image/png)]",
        "Two files.\n[file plan.pdf (application/pdf)]\n[file b.txt (text/plain)]",
    ]


async def test_a_file_that_cannot_be_kept_is_a_failed_call(tmp_path: Path) -> None:
    def absent() -> File:
        return File(tmp_path / "absent.txt")

    def large() -> File:
        return File(bytes(2_000), "large.bin")

    def mixed() -> list[object]:
        return [File(b"x"), "and a text"]

    model = ScriptedModel([call("absent"), call("large"), call("mixed")], "done")
    agent = Agent("ada", config=model, tools=[absent, large, mixed])
    async with stage(agent, file_bytes=1_000) as home:
        channel = await played(home)
        assert all(one.event_data["entry"]["failed"] for one in await units(home, channel))
    assert ["cannot be stored" in one or "refused" in one for one in told(model)] == [True] * 3


def chart() -> ToolResult:
    return ToolResult("Drawn.", files=[File(b"notes", "notes.txt")], attach=[File(b"\x89PNG", "chart.png")])


async def test_files_that_a_tool_attaches_go_with_the_reply_and_its_other_files_do_not() -> None:
    model = ScriptedModel(call("chart"), call("chart"), "Here it is.")
    async with stage(Agent("ada", config=model, tools=[chart])) as home:
        channel = await played(home)
        (packet,) = await packets(home, channel)
        read = await home.people["user"].channel(channel.channel_id).read_file(packet)

    text, file = packet.event_data["parts"]
    assert text == {"type": "text", "text": "Here it is."}
    assert (file["type"], file["name"], read.read()) == ("file", "chart.png", b"\x89PNG")
    assert "body" not in packet.event_data
    assert told(model)[0] == "Drawn.\n[file notes.txt (text/plain)]\n[file chart.png (image/png)]"


async def test_a_reply_may_be_a_file_without_text() -> None:
    async with stage(Agent("ada", config=ScriptedModel(call("chart"), ""), tools=[chart])) as home:
        channel = await played(home)
        (packet,) = await packets(home, channel)

    assert [one["name"] for one in packet.event_data["parts"]] == ["chart.png"]


async def test_a_turn_that_is_resumed_after_a_restart_sends_the_file_of_the_tool_that_ran_before() -> None:
    log, asked, ran = MemoryLog(), asyncio.Event(), list[int]()

    def draw() -> ToolResult:
        ran.append(1)
        return chart()

    async with stage(Agent("ada", config=Stops(call("draw"), asked=asked), tools=[draw]), log=log) as home:
        await begun(home, channel_id="story")
        await asked.wait()
    async with stage(Agent("ada", config=ScriptedModel("done"), tools=[draw]), log=log) as home:
        channel = home.people["user"].channel("story")
        await closed(channel)
        (packet,) = await packets(home, channel)
        file = await channel.read_file(packet)

    assert ran == [1]
    assert (file.name, file.read()) == ("chart.png", b"\x89PNG")


async def test_another_participant_cannot_send_the_file_of_a_tool_whose_digest_it_knows() -> None:
    asked = asyncio.Event()

    async with stage(Agent("ada", config=Stops(call("chart"), asked=asked), tools=[chart])) as home:
        channel = await begun(home, channel_id="story")
        await asked.wait()
        (unit,) = await units(home, channel)
        part = unit.event_data["entry"]["parts"][0]

        with pytest.raises(BadDraft, match="uploaded to this conversation"):
            await home.people["user"].channel("story").send(event_data={"parts": [part]})
