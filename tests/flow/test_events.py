"""F2, F6: what the world is told of a run."""

from __future__ import annotations

import msgspec

from turnline.flow.events import RunEvent, event_of

from .stage import stage


async def told(flow: str, **nodes: object) -> list[RunEvent]:
    async with stage(flow, **nodes) as house:  # type: ignore[arg-type]
        run_id = await house.runs.start("main", {"name": "Ann"})
        await house.ended(run_id)
        return [event for line in await house.wal(run_id) if (event := event_of(line)) is not None]


async def test_f6_a_run_is_told_step_by_step() -> None:
    events = await told(
        "steps: [{id: a, runner: one}, {id: b, runner: two}]",
        one=lambda ctx: {"n": 1},
        two=lambda ctx: ({"m": 2}, "done"),
    )

    assert [(one.type, one.step, one.signal, one.next) for one in events] == [
        ("started", "", "", "a"),
        ("step_started", "a", "", ""),
        ("step_ended", "a", "default", "b"),
        ("step_started", "b", "", ""),
        ("step_ended", "b", "done", ""),
        ("ended", "", "", ""),
    ]
    assert [one.updates for one in events if one.updates] == [{"n": 1}, {"m": 2}]
    assert events[-1].reason == "completed"


async def test_f2_nothing_private_is_told() -> None:
    events = await told("steps: [{id: a, runner: one}]", one=lambda ctx: {"_token": "canary", "n": 1})

    assert b"canary" not in msgspec.json.encode(events)
    assert b"_token" not in msgspec.json.encode(events)


async def test_f5_an_error_is_told_as_a_signal_without_its_text() -> None:
    def one(ctx: object) -> None:
        raise ValueError("canary")

    events = await told("steps: [{id: a, runner: one}]", one=one)

    assert [one.signal for one in events if one.type == "step_ended"] == ["error"]
    assert b"canary" not in msgspec.json.encode(events)
