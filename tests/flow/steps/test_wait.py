"""`wait`: a time or an event is waited for, without anybody waiting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from turnline.core.claims import Paused
from turnline.core.envelope import JsonObject
from turnline.errors import BadStepValue
from turnline.flow.steps import wait
from turnline.flow.work import StepResult

from .attempts import NOON, Attempt


def waiting(public: JsonObject | None = None, **block: Any) -> Attempt:
    return Attempt(wait.perform, {"wait": block}, public=public)


async def test_waiting_for_a_time_ends_so_much_later() -> None:
    assert await waiting(for_="90s").call() == Paused(reason="time", seconds=90)


@pytest.mark.parametrize(
    ("until", "moment"),
    [
        ("2030-06-01T18:00:00Z", datetime(2030, 6, 1, 18, tzinfo=UTC)),
        ("2030-06-01T18:00:00+02:00", datetime(2030, 6, 1, 16, tzinfo=UTC)),
        ("2030-06-01T18:00:00", datetime(2030, 6, 1, 18, tzinfo=UTC)),
        ("2030-06-01", datetime(2030, 6, 1, tzinfo=UTC)),
        (" {{ due }}T18:00:00Z ", datetime(2030, 6, 1, 18, tzinfo=UTC)),
    ],
)
async def test_waiting_until_a_time_takes_iso_text_or_a_template_that_gives_it(
    until: str, moment: datetime
) -> None:
    assert await waiting({"due": "2030-06-01"}, until=until).call() == Paused(reason="time", until=moment)


@pytest.mark.parametrize("until", ["2030-01-01T12:00:00Z", "2001-01-01", "0001-01-01T00:00:00Z"])
async def test_a_time_that_has_passed_is_not_waited_for(until: str) -> None:
    assert await waiting(until=until).call() == StepResult()


@pytest.mark.parametrize(
    "found",
    ["tomorrow", "", "20300601", "1900000000", "2030-13-01", "9999-12-31T23:00:00-12:00", "2099-01-01"],
)
async def test_a_template_that_gives_no_time_is_an_error_that_names_what_was_found(found: str) -> None:
    with pytest.raises(BadStepValue) as refused:
        await waiting({"due": found}, until="{{ due }}").call()

    assert repr(found) in str(refused.value)


async def test_f7_a_time_is_computed_once_whatever_the_clock_says_later() -> None:
    attempt = waiting(for_="1h")
    await attempt.paused()
    attempt.passes(60)

    assert await attempt.call() == Paused(reason="time", until=NOON + timedelta(hours=1))


async def test_a_time_that_has_come_ends_the_wait() -> None:
    attempt = waiting(for_="1h")
    await attempt.paused()
    attempt.fired()

    assert await attempt.done() == StepResult()


@pytest.mark.parametrize(("expires", "seconds"), [("10m", 600), (None, None)])
async def test_an_event_is_waited_for_by_its_name_for_so_long(expires: str | None, seconds: object) -> None:
    found = await waiting(event="paid", expires=expires).call()

    assert isinstance(found, Paused)
    assert (found.reason, found.key, found.seconds) == ("event", "paid", seconds)


async def told(attempt: Attempt, data: JsonObject) -> StepResult:
    await attempt.paused()
    attempt.told("paid", data)
    return await attempt.done()


async def test_an_events_data_is_merged_into_the_context() -> None:
    assert (await told(waiting(event="paid"), {"amount": 5, "by": "card"})).updates == {
        "amount": 5,
        "by": "card",
    }


async def test_an_events_data_goes_where_into_says() -> None:
    done = await told(waiting(event="paid", into="payment"), {"amount": 5})

    assert done.updates == {"payment": {"amount": 5}}


@pytest.mark.parametrize("into", [None, "payment"])
async def test_f1_reserved_keys_of_an_event_are_dropped_and_noted(into: str | None) -> None:
    attempt = waiting(event="paid", into=into)

    done = await told(attempt, {"amount": 5, "_user_id": "root", "nested": {"_mine": 1}})

    ours = {"amount": 5, "nested": {"_mine": 1}}
    assert done.updates == (ours if into is None else {into: ours})
    assert attempt.drops == [("event", ["_user_id"])]


async def test_f5_an_event_that_does_not_come_is_a_timeout_that_names_it() -> None:
    attempt = waiting(event="paid", expires="10m")
    await attempt.paused()
    attempt.fired()

    with pytest.raises(TimeoutError, match="'paid' did not come in 600 s"):
        await attempt.call()


async def test_f7_waiting_for_an_event_begins_once() -> None:
    attempt = waiting(event="paid", expires="10m")
    await attempt.paused()
    attempt.passes(300)

    assert await attempt.call() == Paused(reason="event", key="paid", until=NOON + timedelta(minutes=10))
