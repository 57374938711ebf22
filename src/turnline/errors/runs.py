"""What somebody asks of a run that cannot be."""

from __future__ import annotations

from collections.abc import Sequence

from turnline.errors.base import TurnlineError


class RunProblem(TurnlineError):
    """Somebody asked something of a run that cannot be; nothing was written."""


class UnknownRun(RunProblem):
    """There is no run of this id."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"there is no run {run_id!r}.")


class RunConflict(RunProblem):
    """The run is not in the state that this needs: it is over, or was started with something else."""

    def __init__(self, run_id: str, *, because: str) -> None:
        self.run_id = run_id
        self.because = because
        super().__init__(f"run {run_id!r} {because}.")


class RunNotWaiting(RunProblem):
    """What was sent is not what the run waits for, or no longer."""

    def __init__(self, run_id: str, *, what: str) -> None:
        self.run_id = run_id
        self.what = what
        super().__init__(f"run {run_id!r} does not wait for {what}, or has it already.")


class TaskExpired(RunProblem):
    """Nobody answered the task in time."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        super().__init__(f"task {task_id!r} waits no more: its time was up, or its run ended.")


class BadAnswer(RunProblem):
    """An answer that the task's form does not allow."""

    def __init__(self, task_id: str, *, problems: Sequence[str]) -> None:
        self.task_id = task_id
        self.problems = tuple(problems)
        super().__init__(f"the answer to task {task_id!r} cannot be taken: {'; '.join(problems)}.")
