"""What the engine lays into `ctx` under reserved keys, as a later step finds it (F2, F5, F12)."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.agent.scripted import ScriptedModel
from turnline.flow.work import Services

from .stage import flows_of, stage

Ctx = dict[str, Any]


async def found(flow: str, model: ScriptedModel | None = None, **body: Any) -> Ctx:
    """What the node `look` is given at the end of the flow."""
    seen: list[Ctx] = []
    nodes = {"look": lambda ctx: seen.append(dict(ctx))}
    services = Services(flows=flows_of(flow), nodes=nodes, model=model)
    async with stage(services=services) as house:
        verdict = await house.run(**body)
    assert verdict.status == "succeeded", verdict.error
    assert not any(key.startswith("_") for key in verdict.data)
    return seen[0]


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([ValueError("no such model")], "error"),
        ([TimeoutError("late")], "timeout"),
        (["a poem", "another poem"], "parse_error"),
    ],
)
async def test_f5_the_kind_of_an_agents_failure_is_known_to_the_next_step(
    script: list[Any], kind: str
) -> None:
    ask = "{id: ask, kind: agent, agent: {prompt: Go., output: {format: json}}, routes: {error: look}}"

    ctx = await found(f"steps: [{ask}, {{id: look, runner: look}}]", ScriptedModel(*script))

    assert ctx["_last_error_type"] == kind
    assert isinstance(ctx["_last_error"], str)


async def test_f5_without_an_error_there_is_no_last_error() -> None:
    ctx = await found("steps: [{id: look, runner: look}]", n=1)

    assert ctx == {"n": 1}


async def test_f2_what_a_response_step_shaped_is_known_to_the_step_behind_it() -> None:
    say = "{id: say, kind: response, response: {mapping: {id: number}}, routes: {default: look}}"

    ctx = await found(f"steps: [{say}, {{id: look, runner: look}}]", number=7)

    assert ctx["_response"] == {"id": 7}


async def test_f12_the_versions_a_flow_was_written_for_are_known_to_its_steps() -> None:
    models = "context: {models: [{name: Lead, version: v2}, {name: Person}]}"

    ctx = await found(f"{{spec: {{{models}, steps: [{{id: look, runner: look}}]}}}}")

    assert ctx["_context_model_versions"] == {"Lead": "v2"}
