"""Flows, nodes and cases written short.

around = house("steps: [{id: greet, runner: greet}]", greet=lambda ctx: {"hello": ctx["name"]})
result = await played(around, "{flow: main, given: {name: Ann}, expect: {data: {hello: Ann}}}")
assert result.problems == ()
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from turnline.flow.testing.case import CaseResult, Surroundings, run_case
from turnline.flow.testing.definition import Case
from turnline.flow.testing.documents import cases_in
from turnline.flow.verdict import RunError
from turnline.flow.work import Data, Services
from turnline.flow.yaml_document import read_yaml
from turnline.hub.timers import Clock

from ..stage import flows_of


def house(*flows: str, **nodes: Callable[..., object]) -> Surroundings:
    """The first flow is called `main`, the others by their documents."""
    services = Services(flows=flows_of(*flows), nodes=nodes)
    return Surroundings(services=services, open_data=no_data, status_of=status_of)


def status_of(error: RunError) -> int:
    return 504 if error.type == "timeout" else 422


@asynccontextmanager
async def no_data(clock: Clock) -> AsyncIterator[Data | None]:
    yield None


def case(text: str) -> Case:
    """A case, in its short shape and without a name."""
    [document] = read_yaml(f"- {{name: a case, {text.strip().removeprefix('{')}", file="it.yaml").documents
    read = cases_in(document)
    assert read.findings == ()
    return read.cases[0].case


async def played(around: Surroundings, text: str) -> CaseResult:
    return await run_case(case(text), around)


def told(result: CaseResult) -> list[tuple[str, str, str]]:
    """What is wrong, found, expected."""
    return [(one.what, one.found, one.expected) for one in result.problems]


def set_keys(**values: Any) -> Callable[..., object]:
    """A node that sets these."""
    return lambda ctx: values
