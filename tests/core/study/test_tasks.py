"""Tasks, read from a channel's log: whose they are, and how they stand."""

from __future__ import annotations

from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.core.study.tasks import Task, task_data, tasks_of
from turnline.testing.lines import NOON


def says(sender: str, what: str, data: JsonObject) -> Envelope:
    return Envelope(
        schema_version=SCHEMA_VERSION,
        envelope_id="e",
        channel_id="c",
        seq=1,
        sender_id=sender,
        event_type=f"task.{what}",
        event_data=data,
        created_at=NOON,
    )


START = says("ada", "started", {"task_id": "t", "title": "sums"})
OPEN = Task(task_id="t", agent_id="ada", title="sums")


def test_the_last_line_says_how_a_task_stands() -> None:
    progress = says("ada", "progress", {"task_id": "t", "note": "half"})
    done = says("ada", "completed", {"task_id": "t", "result": "4"})
    failed = says("ada", "failed", {"task_id": "t", "reason": "no numbers"})
    found = [tasks_of([START, *lines])["t"] for lines in ([], [progress], [progress, done], [failed])]

    assert [(one.status, one.note) for one in found] == [
        ("started", ""),
        ("started", "half"),
        ("completed", "4"),
        ("failed", "no numbers"),
    ]


def test_what_others_say_of_a_task_changes_nothing() -> None:
    assert tasks_of([START, says("bob", "completed", {"task_id": "t", "result": "4"})]) == {"t": OPEN}


def test_nothing_follows_the_end() -> None:
    end = says("ada", "failed", {"task_id": "t", "reason": "tired"})
    late = says("ada", "completed", {"task_id": "t", "result": "4"})

    assert tasks_of([START, end, late, START]) == tasks_of([START, end])


def test_a_task_is_started_once() -> None:
    assert tasks_of([START, says("bob", "started", {"task_id": "t", "title": "mine"}), START]) == {"t": OPEN}


def test_reading_never_raises() -> None:
    """As a fold: whatever another program wrote."""
    odd = [says("ada", "completed", {"task_id": "nowhere"}), says("ada", "started", {}), says("ada", "x", {})]

    assert tasks_of(odd) == {"": Task(task_id="", agent_id="ada", title="")}


def test_what_is_written_is_what_is_read() -> None:
    assert says("ada", "started", task_data("task.started", "t", "sums")) == START
