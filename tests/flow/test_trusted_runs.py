"""Which runs on a log a project trusts: the names of the log, and the lists of an operator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from tests.flow.stage import stage
from turnline.core.channel import ChannelSpec, ForkedFrom
from turnline.core.state import State
from turnline.errors import UnknownChannel
from turnline.flow.trust import TrustKey
from turnline.flow.trusted_runs import EV_RUNS_TRUSTED, LISTED_IN_A_LINE, TrustedRuns
from turnline.hub.timers import sortable_ids
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.log.origin import LOG_NAMES, TRUSTED_RUNS, list_of, names_of, newest_name
from turnline.log.system_channel import SystemChannel, SystemLine
from turnline.testing import damage_memory
from turnline.testing.manual_clock import ManualClock

KEY = TrustKey(b"k" * 32)
OTHER_KEY = TrustKey(b"o" * 32)


def runs_of(log: Log, key: TrustKey | None = KEY) -> TrustedRuns:
    clock = ManualClock()
    return TrustedRuns(log, clock, sortable_ids(clock), key=key)


async def write(log: Log, channel_id: str, line: SystemLine) -> None:
    clock = ManualClock()
    await SystemChannel(log, channel_id, clock.now, sortable_ids(clock)).append(lambda: [line])


async def started(log: Log, key: TrustKey | None = KEY) -> TrustedRuns:
    found = runs_of(log, key)
    await found.start()
    return found


def run(channel_id: str = "run", *, log: str = "", parent: str | None = None, fork: str = "") -> State:
    origin = ForkedFrom("run", 1, fork) if fork else None
    return State(spec=ChannelSpec(channel_id=channel_id, log=log, parent_id=parent, forked_from=origin))


async def is_trusted(runs: TrustedRuns, state: State, above: Iterable[State] = ()) -> bool:
    known = {one.channel_id: one for one in above}

    async def state_of(channel_id: str) -> State:
        if channel_id not in known:
            raise UnknownChannel(channel_id)
        return known[channel_id]

    return await runs.is_trusted(state, state_of)


async def test_every_process_with_the_key_uses_one_name_of_the_log() -> None:
    log = MemoryLog()
    runs = [runs_of(log) for _ in range(8)]

    await asyncio.gather(*(one.start() for one in runs))

    assert {one.log_name for one in runs} == await names_of(log) == {await newest_name(log)}
    assert all([await is_trusted(one, run(log=runs[0].log_name)) for one in runs])


async def test_a_name_that_another_key_marked_or_none_does_not_count() -> None:
    log = MemoryLog()
    names = [(await started(log, key)).log_name for key in (None, OTHER_KEY)]
    ours = await started(log)

    assert len({*names, ours.log_name}) == 3
    assert not any([await is_trusted(ours, run(log=name)) for name in (*names, "", "guess")])
    assert await is_trusted(ours, run(log=ours.log_name))


async def test_a_mark_of_one_name_does_not_fit_another() -> None:
    log, forged = MemoryLog(), MemoryLog()
    await started(log)
    [line] = [line async for line in log.read(LOG_NAMES)]
    data = {**line.event_data, "log": "attacker"}
    await write(forged, LOG_NAMES, SystemLine(line.event_type, data))

    runs = await started(forged)

    assert runs.log_name != "attacker"
    assert not await is_trusted(runs, run(log="attacker"))


async def test_without_a_key_each_name_of_the_log_counts_and_no_list_does() -> None:
    log = MemoryLog()
    marked = await started(log)
    await marked.trust(["listed"])
    plain = await started(log, None)

    assert plain.log_name == marked.log_name
    assert await is_trusted(plain, run(log=marked.log_name))
    assert not await is_trusted(plain, run("listed"))


async def test_everything_above_a_run_has_to_be_trusted_as_well() -> None:
    log = MemoryLog()
    runs = await started(log)
    ours, theirs = run(log=runs.log_name), run(log="theirs")
    child, fork = run("child", log=runs.log_name, parent="run"), run("fork", log="any", fork=runs.log_name)

    assert [await is_trusted(runs, one, [ours]) for one in (child, fork)] == [True, True]
    assert [await is_trusted(runs, one, [theirs]) for one in (child, fork)] == [False, False]


async def test_a_circle_of_channels_is_not_trusted() -> None:
    runs = await started(MemoryLog())
    circle = [run(one, log=runs.log_name, parent=other) for one, other in ("ab", "ba")]

    assert not await is_trusted(runs, circle[0], circle)


async def test_a_list_holds_many_channels_and_no_channel_twice() -> None:
    log = MemoryLog()
    wanted = [f"run-{number}" for number in range(256 * LISTED_IN_A_LINE // 100)]

    await runs_of(log).trust(wanted)
    before = [await log.head(list_of(one)) for one in wanted]
    await runs_of(log).trust(wanted)

    assert [await log.head(list_of(one)) for one in wanted] == before
    runs = await started(log)
    assert all([await is_trusted(runs, run(one)) for one in wanted])
    assert not await is_trusted(runs, run("run-x"))
    assert len([one for one in await log.channels() if one.channel_id.startswith(TRUSTED_RUNS)]) <= 256


async def test_a_list_is_written_in_lines_of_a_limited_length() -> None:
    log = MemoryLog()
    name = list_of("run-0")
    same = [one for number in range(300_000) if list_of(one := f"run-{number}") == name]

    await runs_of(log).trust(same)

    lines = [line async for line in log.read(name)]
    assert len(same) > LISTED_IN_A_LINE
    assert [len(line.event_data["channels"]) for line in lines] == [
        LISTED_IN_A_LINE,
        len(same) - LISTED_IN_A_LINE,
    ]


async def test_a_list_with_another_mark_or_in_another_channel_does_not_count() -> None:
    log = MemoryLog()
    await runs_of(log, OTHER_KEY).trust(["forged"])
    mark = KEY.signature_of(list_of("other"), "forged")
    data = {"channels": ["moved"], "mark": mark}
    await write(log, list_of("moved"), SystemLine(EV_RUNS_TRUSTED, data))
    runs = await started(log)

    assert [await is_trusted(runs, run(one)) for one in ("forged", "moved")] == [False, False]


async def test_a_damaged_name_or_list_costs_secrets_and_not_the_start_of_a_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = MemoryLog()
    first = await started(log)
    await first.trust(["listed"])
    damage_memory(log, LOG_NAMES, 1)
    damage_memory(log, list_of("listed"), 1)

    runs = await started(log)

    assert not runs.log_name
    states = [run(), run(log=first.log_name), run("listed")]
    assert [await is_trusted(runs, one) for one in states] == [False, False, False]
    assert "the name of the log cannot be read" in caplog.text
    assert "the list of trusted runs is damaged" in caplog.text


async def test_a_run_names_its_log_in_the_line_that_opens_it_and_costs_no_other_line() -> None:
    async with stage("steps: [{id: one, runner: one}]", one=lambda ctx: {}) as house:
        before = {head.channel_id for head in await house.hub.log.channels()}
        run_id = await house.runs.start("main", {})
        await house.ended(run_id)
        again = await house.runs.start("main", {})
        await house.ended(again)
        after = {head.channel_id for head in await house.hub.log.channels()}
        [first, *_] = await house.wal(run_id)

    assert first.event_data["log"] == await newest_name(house.hub.log)
    assert {one for one in after - before if not one.startswith("_flow-")} - {"_audit"} == {run_id, again}
