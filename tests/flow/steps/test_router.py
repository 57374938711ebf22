"""F10: a router and a graph give the same answer to the same text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.stage import stage
from turnline.core.envelope import Envelope
from turnline.core.state import WorkflowState
from turnline.core.transitions import Expr
from turnline.expressions.functions import MAX_STEPS
from turnline.testing.lines import NOON

ROUTER = """
steps:
  - id: check
    kind: router
    router:
      conditions:
        - {if: "priority == 'urgent'", signal: escalate}
        - {if: "lead_score > 80", signal: high_value}
        - {else: true, signal: normal}
    routes: {escalate: END, high_value: END, normal: END}
"""


async def signal_of(flow: str, **body: Any) -> str:
    async with stage(flow) as house:
        run_id = await house.runs.start("main", body)
        await house.ended(run_id)
        [packet] = [line for line in await house.wal(run_id) if line.event_type == "packet"]
        return str(packet.event_data["routing"]["signal"])


@pytest.mark.parametrize(
    ("body", "signal"),
    [
        ({"priority": "urgent", "lead_score": 90}, "escalate"),
        ({"lead_score": 81}, "high_value"),
        ({"lead_score": 80}, "normal"),
        ({"lead_score": None}, "normal"),
        ({"lead_score": "81"}, "normal"),
        ({}, "normal"),
    ],
)
async def test_f10_the_first_condition_that_holds_says_the_signal(body: dict[str, Any], signal: str) -> None:
    assert await signal_of(ROUTER, **body) == signal


async def test_f4_a_router_without_conditions_goes_on() -> None:
    assert await signal_of("steps: [{id: r, kind: router}]") == "default"


@pytest.mark.parametrize(
    "text", ["a > 1", "a > 1 and not b", "len(c) == 2", "missing == None", "a < missing", "'x' in c"]
)
async def test_f10_a_router_and_a_graph_agree(text: str) -> None:
    body = {"a": 2, "b": False, "c": ["x", "y"]}
    router = f"""router: {{conditions: [{{if: "{text}", signal: holds}}]}}"""
    flow = f"steps: [{{id: r, {router}, routes: {{holds: END}}}}]"
    line = Envelope(
        schema_version=1,
        envelope_id="e",
        channel_id="c",
        seq=1,
        sender_id="s",
        event_type="text",
        created_at=NOON,
    )

    assert (await signal_of(flow, **body) == "holds") == Expr(text).evaluate(
        WorkflowState(context_vars=body), line
    )


COSTLY = """
steps:
  - id: check
    kind: router
    router:
      conditions:
        - {if: "9 in big", signal: found}
        - {if: "8 in big", signal: found}
        - {else: true, signal: none}
    routes: {found: END, none: END}
"""


async def test_the_conditions_of_one_step_share_the_steps_and_where_they_are_not_enough_the_step_fails() -> (
    None
):
    within = await signal_of(COSTLY, big=[0] * (MAX_STEPS // 3))
    async with stage(COSTLY) as house:
        run_id = await house.runs.start("main", {"big": [0] * (MAX_STEPS // 2)})
        await house.ended(run_id)
        error = (await house.runs.verdict(run_id)).error

    assert within == "none"
    assert error is not None
    assert "router.conditions[1].if is more costly than" in error.message
