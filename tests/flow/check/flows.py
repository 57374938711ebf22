"""Small flows for the lints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from turnline.flow.check import Problem
from turnline.flow.definition.flow import Flow, read

Step = dict[str, Any]
Told = list[tuple[str, tuple[str | int, ...]]]
"""Codes, and where."""


def flow(*steps: Step, **spec: Any) -> Flow:
    return read({"metadata": {"name": "small"}, "spec": {"steps": list(steps), **spec}}, name="small")


def node(step: str, **routes: str) -> Step:
    """A step whose signals nobody knows."""
    return {"id": step, "runner": step, "routes": routes}


def router(step: str, *signals: str, otherwise: str | None = None, **routes: str) -> Step:
    conditions: list[Step] = [{"if": "score > 1", "signal": signal} for signal in signals]
    conditions += [] if otherwise is None else [{"else": True, "signal": otherwise}]
    return {"id": step, "router": {"conditions": conditions}, "routes": routes}


def wait(step: str, **routes: str) -> Step:
    """A step that says `default` and nothing else."""
    return {"id": step, "wait": {"for": "1s"}, "routes": routes}


def told(problems: Iterable[Problem]) -> Told:
    """What was found, in short. A problem that does not say what to do is none."""
    found = list(problems)
    assert all(problem.fix and problem.message for problem in found)
    return [(problem.code, problem.path) for problem in found]


def of(code: str, lint: Callable[[Flow], Iterable[Problem]], given: Flow) -> list[Problem]:
    return [problem for problem in lint(given) if problem.code == code]
