"""What an attempt's history says of its pauses."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from turnline.core import event_types as ev
from turnline.core.claims import Paused
from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.flow.pauses import counted_seconds, last_note, object_of, waited

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def line(seq: int, event_type: str, **data: object) -> Envelope:
    return Envelope(
        schema_version=SCHEMA_VERSION,
        envelope_id=f"line-{seq}",
        channel_id="run",
        seq=seq,
        sender_id=ev.HUB,
        event_type=event_type,
        event_data=data,
        created_at=NOON,
    )


def pause(seq: int, reason: str, **data: object) -> Envelope:
    return line(seq, ev.EV_TURN_PAUSED, reason=reason, **data)


def test_an_attempt_without_a_pause_has_waited_for_nothing() -> None:
    assert waited([line(1, ev.EV_TURN_CLAIMED)], "time") is None


def test_a_pause_for_another_reason_does_not_count() -> None:
    history = [pause(1, "retry"), line(2, ev.EV_TIMER_FIRED, pause=1)]

    assert waited(history, "time") is None


def test_a_pause_that_lasts_is_given_back_as_it_was_written() -> None:
    data: JsonObject = {"until": "2030-01-01T13:00:00+00:00", "key": "paid", "data": {"a": 1}}

    found = waited([pause(1, "event", **data)], "event")

    assert found == Paused(reason="event", until=NOON.replace(hour=13), key="paid", data={"a": 1})


def test_a_pause_that_was_written_twice_is_the_first_one() -> None:
    found = waited([pause(1, "event", key="paid"), pause(2, "event", key="other")], "event")

    assert found == Paused(reason="event", key="paid")


def test_a_pause_that_was_ended_gives_the_line_that_ended_it() -> None:
    fired = line(3, ev.EV_TIMER_FIRED, pause=1)

    assert waited([pause(1, "time"), line(2, ev.EV_TURN_CLAIMED), fired], "time") is fired


def test_a_line_that_names_another_pause_ends_nothing() -> None:
    answer_to_an_agent = line(2, ev.EV_HUMAN_ANSWERED, request_id="q1", answer="yes")

    assert isinstance(waited([pause(1, "person"), answer_to_an_agent], "person"), Paused)


def test_the_last_note_is_of_the_last_pause_for_the_reason() -> None:
    history = [
        pause(1, "children", data={"opened": 1}),
        line(2, ev.EV_TURN_RESUMED, pause=1),
        pause(3, "children", data={"opened": 2}),
        pause(5, "time", data={"opened": 9}),
    ]

    assert last_note(history, "children") == {"opened": 2}
    assert last_note(history, "person") == {}


def test_what_is_no_object_reads_as_an_empty_one() -> None:
    assert object_of({"data": [1]}, "data") == object_of({}, "data") == {}
    assert object_of({"data": {"a": 1}}, "data") == {"a": 1}


def spent(*lines: tuple[float, str, JsonObject]) -> float:
    """Return what is counted of lines that were written so many seconds after the first one."""
    history = [line(place, event_type, **data) for place, (_, event_type, data) in enumerate(lines, 1)]
    last = lines[-1][0]
    return counted_seconds(history, [last - at for at, _, _ in lines])


Said = tuple[str, JsonObject]
CLAIMED: Said = (ev.EV_TURN_CLAIMED, {})
MODEL: Said = (ev.EV_TURN_MODEL, {})
RESUMED: Said = (ev.EV_TURN_RESUMED, {})
FIRED: Said = (ev.EV_TIMER_FIRED, {})
ASKED: Said = (ev.EV_HUMAN_REQUESTED, {"request_id": "q"})
ANSWERED: Said = (ev.EV_HUMAN_ANSWERED, {"request_id": "q"})
PAUSED: Said = (ev.EV_TURN_PAUSED, {"reason": "person", "questions": ["q"]})
TIMED: Said = (ev.EV_TURN_PAUSED, {"reason": "time"})


@pytest.mark.parametrize(
    ("lines", "counted"),
    [
        ([(0, CLAIMED), (5, MODEL)], 5),
        (
            [
                (0, CLAIMED),
                (5, ASKED),
                (5, PAUSED),
                (900, ANSWERED),
                (900, RESUMED),
                (901, CLAIMED),
                (904, MODEL),
            ],
            8,
        ),
        ([(0, CLAIMED), (5, ASKED), (900, ANSWERED), (902, MODEL)], 7),
        ([(0, CLAIMED), (5, TIMED), (65, FIRED), (65, CLAIMED)], 65),
        ([(0, CLAIMED), (5, MODEL), (900, CLAIMED), (903, MODEL)], 8),
        ([(0, CLAIMED), (5, ASKED), (5, PAUSED), (900, FIRED), (900, CLAIMED), (902, MODEL)], 7),
        ([(0, CLAIMED)], 0),
    ],
    ids=[
        "work",
        "a pause for a person",
        "a wait under the claim",
        "a time",
        "a crash",
        "an expiry",
        "a claim",
    ],
)
def test_the_timeout_of_an_agent_counts_work_and_waits_but_no_person(
    lines: list[tuple[float, Said]], counted: float
) -> None:
    assert spent(*((at, event_type, data) for at, (event_type, data) in lines)) == counted


def test_an_attempt_without_lines_has_taken_no_time() -> None:
    assert counted_seconds([], []) == 0
