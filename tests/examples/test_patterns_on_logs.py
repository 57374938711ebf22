"""P1: the ten patterns on each of the four logs: the same programs, with one address in them changed."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path

import pytest

from tests.logs import LogPlace

from .test_patterns import FOLDER, PATTERNS

FAN_OUT = ("decided", "user opinions chair")
CHANNELS = {"fan_out": 4, "nesting": 2}
"""How many channels a pattern takes, where it is more than one: those below it are channels too."""
HERE = "agents=["
"""What stands once in every program: where it says who takes part, it may also say which log."""


def played(name: str, where: str, folder: Path) -> None:
    """Run the program of a pattern on the log at `where`."""
    text = (FOLDER / f"{name}.py").read_text()
    assert text.count(HERE) == 1
    file = folder / f"{name}.py"
    file.write_text(text.replace(HERE, f"log={where!r}, channel_id={name!r}, {HERE}"))
    runpy.run_path(str(file), run_name="__main__")


async def left(place: LogPlace) -> dict[str, bool]:
    """The channels on the log, and whether they are closed."""
    log = place.open()
    try:
        return {one.channel_id: one.closed for one in await log.channels() if one.channel_id[0] != "_"}
    finally:
        await log.close()


@pytest.mark.four_logs
@pytest.mark.parametrize("name", [*PATTERNS, "fan_out"])
def test_p1_a_pattern_runs_on_every_log(
    name: str, log_place: LogPlace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason, speakers = PATTERNS.get(name, FAN_OUT)

    played(name, log_place.where, tmp_path)

    lines = capsys.readouterr().out.splitlines()
    said = [line.partition(":")[0] for line in lines[: lines.index(f"(closed: {reason})")]]
    assert [who for who in said if who in speakers.split()] == speakers.split()
    if log_place.kind != "memory":  # What is in memory ends with the program.
        found = asyncio.run(left(log_place))
        assert (found[name], len(found), all(found.values())) == (True, CHANNELS.get(name, 1), True)
