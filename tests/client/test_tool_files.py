"""Y6: a long tool result is kept as a file, and a tool may return files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.hub.scenes import House, closed
from turnline.agent.agent import Agent
from turnline.agent.files import File
from turnline.agent.storable import MAX_TEXT_CHARACTERS
from turnline.agent.tool_result import MAX_INLINE_BYTES, ToolResult
from turnline.core.envelope import Envelope
from turnline.core.parts import FilePart, files_of
from turnline.log.base import Blobs
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call

from .stage import begun, played, stage, told

LONG = "läng " * 20_000
HUGE = "x" * 10_000_000


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

    class Stops(ScriptedModel):
        async def reply(self, request: Any, on_text: Any = None) -> Any:
            if self.requests:
                asked.set()
                await asyncio.Event().wait()
            return await super().reply(request, on_text)

    async with stage(Agent("ada", config=Stops(call("find")), tools=[find]), log=log) as home:
        await begun(home, channel_id="story")
        await asked.wait()
    model = ScriptedModel("done")
    async with stage(Agent("ada", config=model, tools=[find]), log=log) as home:
        await closed(home.people["user"].channel("story"))

    assert ran == [1]
    assert told(model) == [LONG]


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
