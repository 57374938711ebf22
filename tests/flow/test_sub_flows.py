"""The input of a flow that a step starts: checked, with defaults, like the same input over HTTP."""

from __future__ import annotations

import pytest

from tests.flow.stage import stage

CHILD = """
name: child
trigger:
  path: /child
  input:
    email: {type: email, required: true}
    seats: {type: integer, min: 1}
    plan: {type: string, default: free, enum: [free, paid]}
  extra: EXTRA
steps: [{id: see, runner: see}]
"""
MAIN = "steps: [{id: sub, workflow: {name: child, into: got WITH}}]"


def flows(given: str = "", *, extra: bool = False) -> tuple[str, str]:
    return MAIN.replace("WITH", given), CHILD.replace("EXTRA", str(extra).lower())


def see(ctx: dict[str, object]) -> dict[str, object]:
    return {"saw": {key: value for key, value in ctx.items() if not key.startswith("_")}}


async def test_a_sub_flow_gets_the_defaults_of_its_input() -> None:
    async with stage(*flows(", input: {email: 'ada@example.com', seats: 2.0}"), see=see) as house:
        done = await house.run()

    assert done.data["got"]["saw"] == {"email": "ada@example.com", "seats": 2, "plan": "free"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("seats: 2", "email: it is missing"),
        ("email: ada", "email: expected"),
        ("email: 'ada@example.com', seats: 0", "seats: expected at least 1"),
        ("email: 'ada@example.com', plan: best", "plan: expected"),
        ("email: 'ada@example.com', other: 1", "other: no such field"),
        ("email: '{{ name }}'", "email: expected"),
    ],
)
async def test_input_that_http_would_refuse_fails_the_step_and_starts_nothing(given: str, said: str) -> None:
    async with stage(*flows(f", input: {{{given}}}"), see=see) as house:
        run_id = await house.runs.start("main", {"name": "Ada"})
        done = await house.runs.wait(run_id)
        heads = [head.channel_id for head in await house.hub.log.channels()]

    assert done.error is not None
    assert done.error.step == "sub"
    assert f"The input of flow 'child' is refused: {said}" in done.error.message
    assert [one for one in heads if one.startswith(run_id)] == [run_id]


@pytest.mark.parametrize("extra", [False, True])
async def test_without_input_a_sub_flow_gets_what_it_takes_of_the_context(extra: bool) -> None:
    async with stage(*flows(extra=extra), see=see) as house:
        done = await house.run(email="ada@example.com", other=1)

    taken = {"email": "ada@example.com", "plan": "free"}
    assert done.data["got"]["saw"] == (taken | {"other": 1} if extra else taken)


async def test_without_input_a_context_that_lacks_a_field_fails_the_step() -> None:
    async with stage(*flows(), see=see) as house:
        done = await house.run()

    assert done.error is not None
    assert "email: it is missing" in done.error.message
