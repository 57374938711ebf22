"""`parallel`: branches at the same time, each with the whole context, put together in their order."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.claims import Paused
from turnline.errors import ChildFailed
from turnline.flow.steps import parallel
from turnline.flow.work import StepResult

from .attempts import Attempt

PUBLIC = {"name": "Jane", "n": 1}


def branches(*names: str, **block: Any) -> Attempt:
    inner = {name: [{"id": "score", "runner": "score"}] for name in names}
    return Attempt(parallel.perform, {"parallel": {"branches": inner, **block}}, public=PUBLIC)


async def woken(attempt: Attempt) -> StepResult | Paused:
    attempt.woken()
    return await attempt.goes_on()


async def test_all_branches_begin_at_once_with_the_context_as_it_is() -> None:
    attempt = branches("left", "right")

    paused = await attempt.paused()

    assert [(one.place, one.what, one.context) for one in attempt.children.opened] == [
        ("left", "left", PUBLIC),
        ("right", "right", PUBLIC),
    ]
    assert (paused.reason, paused.data["open"]) == ("children", ["left", "right"])


async def test_the_step_waits_for_the_last_branch() -> None:
    attempt = branches("left", "right")
    await attempt.paused()
    attempt.children.close("right")

    still = await woken(attempt)

    assert isinstance(still, Paused)
    assert still.data["open"] == ["left"]


async def test_what_the_branches_wrote_is_merged_in_the_order_of_the_document() -> None:
    attempt = branches("left", "right")
    await attempt.paused()
    attempt.children.close("right", {"b": 2, "both": "right"})
    await woken(attempt)
    attempt.children.close("left", {"a": 1, "both": "left"})

    assert await woken(attempt) == StepResult(updates={"a": 1, "b": 2, "both": "right"})


async def test_a_branch_that_wrote_nothing_undoes_nothing_of_the_others() -> None:
    attempt = branches("left", "right")
    await attempt.paused()
    attempt.children.close("left", {"n": 2})
    attempt.children.close("right")

    assert await woken(attempt) == StepResult(updates={"n": 2})


async def test_with_into_the_results_stand_under_the_branches_names() -> None:
    attempt = branches("left", "right", into="both")
    await attempt.paused()
    attempt.children.close("left", {"a": 1})
    attempt.children.close("right", response={"b": 2})

    assert await woken(attempt) == StepResult(updates={"both": {"left": {"a": 1}, "right": {"b": 2}}})


async def test_f1_reserved_keys_of_a_branchs_response_are_dropped_and_noted() -> None:
    attempt = branches("left")
    await attempt.paused()
    attempt.children.close("left", response={"a": 1, "_user_id": "root"})

    assert await woken(attempt) == StepResult(updates={"a": 1})
    assert attempt.drops == [("parallel", ["_user_id"])]


async def test_with_fail_the_first_branch_that_failed_fails_the_step_when_all_have_closed() -> None:
    attempt = branches("left", "middle", "right")
    await attempt.paused()
    attempt.children.fail("right", "later")
    attempt.children.fail("middle", "earlier")
    still = await woken(attempt)
    attempt.children.close("left")
    attempt.woken()

    with pytest.raises(ChildFailed, match="branch 'middle'") as failed:
        await attempt.call()

    assert isinstance(still, Paused)
    assert failed.value.message == "earlier"


@pytest.mark.parametrize("into", [None, "both"])
async def test_with_collect_a_branch_that_failed_stands_under_its_name(into: str | None) -> None:
    attempt = branches("left", "right", on_error="collect", into=into)
    await attempt.paused()
    attempt.children.fail("left", "no luck")
    attempt.children.close("right", {"b": 2})

    done = await woken(attempt)

    reference = "The run failed. The server's log has the reason; its reference is child 'left' of this run."
    error = {"error": {"type": "error", "message": reference, "step": "score"}}

    expected = {"left": error, "b": 2} if into is None else {"both": {"left": error, "right": {"b": 2}}}
    assert done == StepResult(updates=expected)


async def test_f7_a_crash_behind_the_opening_opens_no_branch_twice() -> None:
    attempt = branches("left", "right")
    first = await attempt.call()

    assert await attempt.call() == first
    assert attempt.children.places == ["left", "right"]
