"""`for_each`: a child for every item, each opened once, so many at a time, results in order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from turnline.core.claims import Paused
from turnline.errors import BadStepValue, ChildFailed
from turnline.flow.steps import for_each
from turnline.flow.work import StepResult

from .attempts import Attempt
from .children import Crash

INNER = [{"id": "score", "runner": "score"}]


def each(leads: object = (), **block: Any) -> Attempt:
    step = {"for_each": {"items": "leads", "steps": INNER, **block}}
    public = {"leads": list(leads) if isinstance(leads, tuple) else leads, "tenant": "acme"}
    return Attempt(for_each.perform, step, public=public)


async def woken(attempt: Attempt) -> StepResult | Paused:
    attempt.woken()
    return await attempt.goes_on()


async def test_no_items_are_no_children_and_no_results() -> None:
    attempt = each(())

    assert await attempt.call() == StepResult(updates={"results": []})
    assert attempt.children.opened == []


async def test_a_child_gets_the_context_and_its_item() -> None:
    attempt = each(("a",), as_="lead", index="number")
    await attempt.paused()

    (child,) = attempt.children.opened

    assert (child.place, child.what) == ("0", "each")
    assert child.context == {"leads": ["a"], "tenant": "acme", "lead": "a", "number": 0}


async def test_an_item_is_called_item_and_its_index_nothing_unless_the_step_says_so() -> None:
    attempt = each(("a",))
    await attempt.paused()

    assert attempt.children.opened[0].context == {"leads": ["a"], "tenant": "acme", "item": "a"}


async def test_so_many_are_open_at_a_time_and_the_next_is_opened_when_one_has_closed() -> None:
    attempt = each((1, 2, 3, 4), concurrency=2)
    first = await attempt.paused()
    attempt.children.close("1")
    second = await woken(attempt)

    assert isinstance(second, Paused)
    assert (first.reason, first.data["open"]) == ("children", ["0", "1"])
    assert second.data["open"] == ["0", "2"]
    assert attempt.children.places == ["0", "1", "2"]


async def test_results_are_what_each_childs_steps_wrote_in_the_order_of_the_items() -> None:
    attempt = each((10, 20), index="number", into="scores")
    await attempt.paused()
    attempt.children.close("1", {"score": 2, "tenant": "other"})
    await woken(attempt)
    attempt.children.close("0", {"score": 1, "item": "changed", "number": 9})

    assert await woken(attempt) == StepResult(
        updates={"scores": [{"score": 1}, {"score": 2, "tenant": "other"}]}
    )


async def test_a_childs_response_is_its_result() -> None:
    attempt = each((10,))
    await attempt.paused()
    attempt.children.close("0", {"score": 1}, response={"item": 10, "grade": "A"})

    assert await woken(attempt) == StepResult(updates={"results": [{"item": 10, "grade": "A"}]})


async def test_f1_reserved_keys_of_a_childs_response_are_dropped_and_noted() -> None:
    attempt = each((10,))
    await attempt.paused()
    attempt.children.close("0", response={"grade": "A", "_user_id": "root"})

    assert await woken(attempt) == StepResult(updates={"results": [{"grade": "A"}]})
    assert attempt.drops == [("for_each", ["_user_id"])]


async def test_with_fail_nothing_more_is_opened_and_the_open_ones_are_waited_for() -> None:
    attempt = each((1, 2, 3, 4), concurrency=2)
    await attempt.paused()
    attempt.children.fail("1")
    still = await woken(attempt)

    assert isinstance(still, Paused)
    assert still.data["open"] == ["0"]
    assert attempt.children.places == ["0", "1"]


async def test_with_fail_the_error_is_the_first_items_that_failed_not_the_first_failure() -> None:
    attempt = each((1, 2, 3), concurrency=2)
    await attempt.paused()
    attempt.children.fail("1", "the later one")
    await woken(attempt)
    attempt.children.fail("0", "the earlier one")
    attempt.woken()

    with pytest.raises(ChildFailed) as failed:
        await attempt.call()

    assert "item 0" in str(failed.value)
    assert (failed.value.error_type, failed.value.message, failed.value.step) == (
        "error",
        "the earlier one",
        "score",
    )


async def test_with_collect_a_failure_is_a_result_in_its_place() -> None:
    attempt = each((1, 2), concurrency=1, on_error="collect")
    await attempt.paused()
    attempt.children.fail("0", "no luck")
    await woken(attempt)
    attempt.children.close("1", {"score": 2})

    done = await woken(attempt)
    assert isinstance(done, StepResult)
    [failed, fine] = done.updates["results"]
    assert (failed["error"]["type"], failed["error"]["step"], fine) == ("error", "score", {"score": 2})
    assert "child '0' of this run" in failed["error"]["message"]
    assert "no luck" not in str(done)  # Every caller gets the results, and not every one may read the run.


@pytest.mark.parametrize("found", [None, "text", {"a": 1}, 7])
async def test_items_that_are_no_list_are_an_error_that_names_what_was_found(found: object) -> None:
    with pytest.raises(BadStepValue) as refused:
        await each(found).call()

    assert "'leads'" in str(refused.value)
    assert repr(found) in str(refused.value)


async def test_too_many_items_are_an_error_and_nothing_is_opened() -> None:
    attempt = each([0] * (for_each.MAX_ITEMS + 1))

    with pytest.raises(BadStepValue, match=str(for_each.MAX_ITEMS)):
        await attempt.call()

    assert attempt.children.opened == []


async def test_a_list_of_many_rich_items_is_read_whole() -> None:
    """What a condition may cost is too little for a list that is there to be long."""
    attempt = each([{"name": f"lead {n}", "tags": ["a", "b", "c"]} for n in range(for_each.MAX_ITEMS)])

    assert isinstance(await attempt.call(), Paused)


async def test_items_that_cost_too_much_to_read_are_an_error_that_says_so() -> None:
    with pytest.raises(BadStepValue, match="more than can be read at once"):
        await each([[0] * 1000] * 1001).call()


async def test_items_are_an_expression() -> None:
    attempt = each({"new": [1, 2]}, items="leads.new")
    await attempt.paused()

    assert [child.context["item"] for child in attempt.children.opened] == [1, 2]


async def test_f7_a_crash_between_two_children_opens_neither_twice() -> None:
    attempt = each((1, 2, 3), concurrency=2)
    await attempt.call()
    attempt.children.close("0")

    again = await attempt.paused()

    assert attempt.children.places == ["0", "1", "2"]
    assert again.data["open"] == ["1", "2"]


async def test_f7_children_that_a_crash_left_open_are_waited_for_though_another_has_failed() -> None:
    attempt = each((1, 2, 3), concurrency=2)
    await attempt.call()
    attempt.children.fail("0")

    assert (await attempt.paused()).data["open"] == ["1"]


async def test_being_woken_costs_the_open_children_not_all_that_ever_were() -> None:
    attempt = each([0] * 200, concurrency=2)
    await attempt.paused()
    for index in range(100):
        attempt.children.close(str(index))
        await woken(attempt)
    attempt.children.looked_at.clear()
    attempt.children.close("100")

    await woken(attempt)

    assert len(attempt.children.looked_at) <= 3


@settings(deadline=None)
@given(count=st.integers(0, 9), concurrency=st.integers(1, 4), collects=st.booleans(), data=st.data())
async def test_f7_whatever_closes_when_and_wherever_it_crashes_every_item_is_done_once_and_in_order(
    count: int, concurrency: int, collects: bool, data: st.DataObject
) -> None:
    on_error = "collect" if collects else "fail"
    attempt = each([{"n": n} for n in range(count)], concurrency=concurrency, on_error=on_error)
    children = attempt.children
    children.crash_at = data.draw(st.none() | st.integers(1, 9))
    failing = data.draw(st.sets(st.integers(0, 8)))

    ended = await _called(attempt, data)
    while not isinstance(ended, StepResult | ChildFailed):
        for place in data.draw(_some_of(children.still_open)):
            children.fail(place, place) if int(place) in failing else children.close(place, {"did": place})
        for _ in range(data.draw(st.integers(1, 2))):
            ended = await _called(attempt, data)

    failed = [int(place) for place in children.places if int(place) in failing]
    assert children.places == [str(n) for n in range(len(children.places))]
    assert children.most_open <= concurrency
    assert children.still_open == []
    if failed and not collects:
        assert isinstance(ended, ChildFailed)
        assert ended.message == str(min(failed))
    else:
        assert isinstance(ended, StepResult)
        told = [one.get("did") or one["error"]["message"].split("'")[2] for one in ended.updates["results"]]
        assert told == [str(n) for n in range(count)]


async def _called(attempt: Attempt, data: st.DataObject) -> StepResult | Paused | ChildFailed | None:
    """The engine calls the step; its pause may or may not be written down before the process ends."""
    if attempt.is_paused and data.draw(st.booleans(), label="woken"):
        attempt.woken()
    try:
        return await (attempt.goes_on() if data.draw(st.booleans(), label="written") else attempt.call())
    except ChildFailed as error:
        return error
    except Crash:
        return None


def _some_of(places: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(places), unique=True, min_size=1) if places else st.just([])
