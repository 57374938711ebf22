"""`workflow`: another flow is run once, and its response is the step's result."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.errors import ChildFailed
from turnline.flow.steps import workflow
from turnline.flow.work import StepResult

from .attempts import Attempt


def calling(**block: Any) -> Attempt:
    step = {"workflow": {"name": "billing", **block}}
    return Attempt(workflow.perform, step, public={"name": "Jane", "total": 5}, private={"_user_id": "u1"})


async def closed(attempt: Attempt, **how: Any) -> Attempt:
    await attempt.paused()
    attempt.children.close("flow", **how)
    attempt.woken()
    return attempt


async def test_without_input_the_flow_gets_the_whole_public_context() -> None:
    attempt = calling()
    paused = await attempt.paused()

    (child,) = attempt.children.opened

    assert (child.place, child.what, child.is_whole_context) == ("flow", "billing", True)
    assert (paused.reason, paused.data["open"]) == ("children", ["flow"])


async def test_f9_input_is_filled_and_a_single_expression_keeps_its_type() -> None:
    attempt = calling(input={"amount": "{{ total }}", "for": "Dear {{ name }}"})
    await attempt.paused()

    assert attempt.children.opened[0].context == {"amount": 5, "for": "Dear Jane"}


async def test_f1_reserved_keys_of_the_input_are_dropped_and_noted() -> None:
    attempt = calling(input={"_user_id": "root", "amount": 1})
    await attempt.paused()

    assert attempt.children.opened[0].context == {"amount": 1}
    assert attempt.drops == [("workflow", ["_user_id"])]


async def test_the_flows_response_is_merged() -> None:
    attempt = await closed(calling(), wrote={"scratch": 1}, response={"invoice": "i1"})

    assert await attempt.done() == StepResult(updates={"invoice": "i1"})


async def test_the_flows_response_goes_where_into_says() -> None:
    attempt = await closed(calling(into="bill"), response={"invoice": "i1"})

    assert await attempt.done() == StepResult(updates={"bill": {"invoice": "i1"}})


async def test_a_flow_without_a_response_gives_its_public_context() -> None:
    attempt = await closed(calling(input={"a": 1}), wrote={"b": 2})

    assert await attempt.done() == StepResult(updates={"a": 1, "b": 2})


@pytest.mark.parametrize("into", [None, "bill"])
async def test_f1_reserved_keys_of_a_flows_response_are_dropped_and_noted(into: str | None) -> None:
    attempt = await closed(calling(into=into), response={"invoice": "i1", "_user_id": "root"})

    done = await attempt.done()

    assert done.updates == ({"invoice": "i1"} if into is None else {into: {"invoice": "i1"}})
    assert attempt.drops == [("workflow", ["_user_id"])]


async def test_a_flow_that_failed_fails_the_step_with_its_error() -> None:
    attempt = calling()
    await attempt.paused()
    attempt.children.fail("flow", "card declined")
    attempt.woken()

    with pytest.raises(ChildFailed, match=r"flow 'billing'.*card declined") as failed:
        await attempt.call()

    assert (failed.value.error_type, failed.value.step) == ("error", "score")


async def test_f7_a_flow_that_runs_already_is_not_started_again() -> None:
    attempt = calling()
    await attempt.call()
    await attempt.call()
    await attempt.paused()

    assert attempt.children.places == ["flow"]
