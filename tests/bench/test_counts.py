"""What one unit of work costs (issue 15): the counts of `bench/count.py`. A limit is never raised to pass."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import count
import pytest
from walk import OpenLog, walk_flow

from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog

POST_APPENDS, POST_TASKS = 1, 1
"""Of the message that gives an agent the floor. Its turn is counted together with it."""
FLOW_TASKS = 6
"""One for each append, two heartbeats, and one for the turns. Its own close does not cancel the last step."""
LOGS = pytest.mark.parametrize("log", ["memory", "sqlite"])


def open_log(log: str, folder: Path) -> OpenLog:
    return MemoryLog if log == "memory" else partial(SqliteLog, folder / "log.db")


@LOGS
async def test_a_post_is_folded_once_and_decoded_for_nobody_here(log: str, tmp_path: Path) -> None:
    counts = (await count.count_post(open_log(log, tmp_path))).counts

    assert counts["folds"] == 1
    assert counts["decodes"] == 0
    assert counts["tasks"] <= POST_TASKS
    assert counts["appends"] == POST_APPENDS
    assert counts["JSON checks"] == 1


@LOGS
async def test_a_turn_without_tools_makes_one_append_and_three_tasks(log: str, tmp_path: Path) -> None:
    counts = (await count.count_turn(open_log(log, tmp_path))).counts

    assert counts["appends"] <= POST_APPENDS + 1
    assert counts["tasks"] <= POST_TASKS + 3


@LOGS
async def test_a_turn_with_one_tool_makes_three_appends(log: str, tmp_path: Path) -> None:
    counts = (await count.count_turn(open_log(log, tmp_path), has_tool=True)).counts

    assert counts["appends"] <= POST_APPENDS + 3


@LOGS
async def test_a_run_of_two_steps_makes_three_appends_and_checks_json_three_times(
    log: str, tmp_path: Path
) -> None:
    """Once what it is opened with, and once each packet. Its graph, which never changes, is not looked at."""
    counts = (await walk_flow(open_log(log, tmp_path))).counts

    assert counts["appends"] <= 3
    assert counts["tasks"] <= FLOW_TASKS
    assert counts["folds"] == 7  # Lines: an invite, the opening, two claims, two packets, the close.
    assert counts["JSON checks"] <= 3
    assert counts["graph checks"] == counts["graphs read"] == 0
    assert counts["tail queries"] == 0  # None is caused by its own commits.
    assert counts["wake-ups"] <= 4
