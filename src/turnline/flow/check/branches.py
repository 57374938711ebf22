"""Branches that go on at the same time and write one key: of the two, one is lost (F15)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turnline.core.study.finding import Path
from turnline.flow.check.names import Known
from turnline.flow.check.problem import Problem, every_step
from turnline.flow.check.writes import left_behind
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import ParallelBlock, ParallelStep

SAME_KEY: Final = "TL501"


def keys_written_twice(flow: Flow, known: Known) -> Iterator[Problem]:
    """Keys that two branches of one step write, where their results are merged."""
    for path, step in every_step(flow):
        if isinstance(step, ParallelStep) and step.parallel.into is None:
            yield from _written_twice((*path, "parallel", "branches"), step.parallel, known)


def _written_twice(path: Path, block: ParallelBlock, known: Known) -> Iterator[Problem]:
    writers: dict[str, str] = {}
    for name, steps in block.branches.items():
        for key in sorted(left_behind(steps, known).names):
            first = writers.setdefault(key, name)
            if first != name:
                yield Problem(
                    code=SAME_KEY,
                    path=(*path, name),
                    of_key=True,
                    message=f"the branches {first!r} and {name!r} both write {key!r}; one of them is lost",
                    found=key,
                    expected="a key for each branch",
                    fix=f"let {name!r} write another key, or set into: to keep each branch's results apart",
                )
