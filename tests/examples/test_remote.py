"""`examples/remote`, as two processes: the agent's is killed in the middle of its turn, and started again."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples" / "remote"
PATIENCE_SECONDS = 60.0


@asynccontextmanager
async def started(name: str, *arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(FOLDER / f"{name}.py"), *arguments, stdout=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def until_line(process: Process, wanted: str) -> list[str]:
    """Everything it says, up to the line that begins so."""
    said = [await line(process)]
    while not said[-1].startswith(wanted):
        assert said[-1] or process.returncode is None, said
        said.append(await line(process))
    return said


async def test_a_killed_agents_turn_goes_on_in_its_next_process(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with started("server", str(tmp_path / "story.db"), "0") as server:
            url = (await until_line(server, "serving"))[-1].split()[1]
            async with started("agent", url) as agent:
                first = await until_line(agent, "looking up dances")
                agent.send_signal(signal.SIGKILL)
                await agent.wait()
            async with started("agent", url) as agent:
                second = await until_line(agent, "looking up flowers")
                told = await until_line(server, "(closed")

        assert told == ["writer: Bees dance the way to a flower.", "(closed: consulting_complete)"]
        assert "looking up bees" in first
        assert "looking up bees" not in second, "what was recorded is not done again (T3)"


async def test_the_servers_next_process_goes_on_as_well(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with started("server", str(tmp_path / "story.db"), "0") as server:
            url = (await until_line(server, "serving"))[-1].split()[1]
            agent = await asyncio.create_subprocess_exec(
                sys.executable, str(FOLDER / "agent.py"), url, stdout=PIPE
            )
            first = await until_line(agent, "looking up dances")
            server.send_signal(signal.SIGKILL)
            await server.wait()
        async with started("server", str(tmp_path / "story.db"), url.rpartition(":")[2]) as server:
            told = await until_line(server, "(closed")
        agent.kill()
        assert agent.stdout is not None
        rest = (await agent.stdout.read()).decode().splitlines()
        await agent.wait()

        assert told[-2:] == ["writer: Bees dance the way to a flower.", "(closed: consulting_complete)"]
        assert (first + rest).count("looking up bees") == 1
        assert (first + rest).count("looking up flowers") == 1
