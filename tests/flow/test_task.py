"""A task's id says whose it is; its page shows what the step shows, and no more."""

from __future__ import annotations

import pytest

from turnline.flow.task import question_of, run_of, task_id


@pytest.mark.parametrize("run_id", ["r1", "06gu60-3-0", "child-abc"])
def test_a_task_id_names_its_run_and_its_turn(run_id: str) -> None:
    assert run_of(task_id(run_id, 12)) == (run_id, 12)


@pytest.mark.parametrize("run_id", ["r1", "06gu60-3-0", "r1-3q2"])
def test_the_task_of_a_question_names_the_line_that_asks(run_id: str) -> None:
    asked = task_id(run_id, 12, question=34)

    assert (run_of(asked), question_of(asked)) == ((run_id, 12), 34)
    assert question_of(task_id(run_id, 12)) == 0


def test_tasks_of_different_runs_and_turns_never_share_an_id() -> None:
    places = [("r", 3, 2), ("r-3", 2, 0), ("r", 32, 0), ("r", 3, 0), ("r-3q2", 1, 0), ("r", 3, 21)]

    assert len({task_id(run, turn, question=line) for run, turn, line in places}) == len(places)


@pytest.mark.parametrize(
    "text", ["", "x", "r1-", "r1-x", "r1-²", "-", "r1-3q", "r1-q3", "r1-3q²", "r1-" + "9" * 5000]
)
def test_what_is_no_task_id_names_no_turn(text: str) -> None:
    assert run_of(text)[1] == 0
