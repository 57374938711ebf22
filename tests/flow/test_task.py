"""A task's id says whose it is; its page shows what the step shows, and no more."""

from __future__ import annotations

import pytest

from turnline.flow.task import run_of, task_id


@pytest.mark.parametrize("run_id", ["r1", "06gu60-3-0", "child-abc"])
def test_a_task_id_names_its_run_and_its_turn(run_id: str) -> None:
    assert run_of(task_id(run_id, 12)) == (run_id, 12)


@pytest.mark.parametrize("text", ["", "x", "r1-", "r1-x", "r1-²", "-"])
def test_what_is_no_task_id_names_no_turn(text: str) -> None:
    assert run_of(text)[1] == 0
