"""The `tasks` tool: what an agent works on is on its channel, once, whatever crashes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.client.stage import played, stage, told
from tests.client.tooling import actor, ask_ada, use
from tests.hub.scenes import closed, house
from turnline.agent.messages import Message, ToolMessage
from turnline.agent.scripted import Line
from turnline.core.envelope import Envelope, JsonObject
from turnline.log.memory import MemoryLog
from turnline.testing import call


def on(action: str, text: str) -> Any:
    """A script's line: an action on the task that was started."""

    def line(messages: tuple[Message, ...]) -> Line:
        started = next(one for one in messages if isinstance(one, ToolMessage))
        return call("tasks", action=action, task_id=msgspec.json.decode(started.text)["task_id"], text=text)

    return line


def tasks_on(envelopes: list[Envelope]) -> list[tuple[str, JsonObject]]:
    said = [one for one in envelopes if one.event_type.startswith("task.")]
    return [(one.event_type, one.event_data) for one in said]


async def test_a_task_is_started_reported_on_and_completed_on_the_channel() -> None:
    listing = call("tasks", action="list")
    start = call("tasks", action="start", text="sums")
    ada, model = actor("ada", start, on("progress", "half"), listing, on("complete", "4"), listing, "done")
    async with stage(ada) as home:
        channel = await played(home)
        said = tasks_on(await home.wal(channel))
    task_id = said[0][1]["task_id"]
    half, whole = (msgspec.json.decode(told(model)[index]) for index in (2, 4))

    assert said == [
        ("task.started", {"task_id": task_id, "title": "sums"}),
        ("task.progress", {"task_id": task_id, "note": "half"}),
        ("task.completed", {"task_id": task_id, "result": "4"}),
    ]
    task = {"task_id": task_id, "by": "ada", "title": "sums"}
    assert half == [task | {"status": "started", "note": "half"}]
    assert whole == [task | {"status": "completed", "note": "4"}]


async def test_everybody_on_the_channel_is_told() -> None:
    ada, _ = actor("ada", call("tasks", action="start", text="sums"), "done")
    async with stage(ada) as home:
        seen = list[str]()
        home.people["user"].on_envelope(lambda one: seen.append(one.event_type))
        await closed(await ask_ada(home))

        assert "task.started" in seen


async def test_what_others_work_on_is_listed_too() -> None:
    async with house(MemoryLog(), "ada", "bob") as home:
        channel = await home.talk(by="ada", to="bob")
        await use(home, "ada", channel, "tasks", action="start", text="sums")
        listed = await use(home, "bob", channel, "tasks", action="list")

        assert [one["by"] for one in msgspec.json.decode(listed.text)] == ["ada"]


@pytest.mark.parametrize("action", ["progress", "complete", "fail"])
async def test_t3_an_action_that_runs_again_after_a_crash_says_nothing_twice(action: str) -> None:
    """The call's key is the same, and so is the envelope's id (E1)."""
    async with house(MemoryLog(), "ada", "bob") as home:
        channel = await home.talk(by="ada", to="bob")
        first = await use(home, "ada", channel, "tasks", again="1", action="start", text="sums")
        again = await use(home, "ada", channel, "tasks", again="1", action="start", text="sums")
        task_id = msgspec.json.decode(first.text)["task_id"]
        ends = [
            await use(home, "ada", channel, "tasks", again="2", action=action, task_id=task_id, text="4")
            for _ in range(2)
        ]

        assert first == again
        assert ends[0] == ends[1]
        assert not ends[0].failed
        assert len(tasks_on(await home.wal(channel))) == 2


async def test_what_is_wrong_is_told_to_the_model_in_one_line() -> None:
    async with house(MemoryLog(), "ada", "bob") as home:
        channel = await home.talk(by="ada", to="bob")
        started = await use(home, "ada", channel, "tasks", again="1", action="start", text="sums")
        task_id = msgspec.json.decode(started.text)["task_id"]
        end: dict[str, Any] = {"action": "fail", "task_id": task_id, "text": "no numbers"}
        unknown = await use(home, "ada", channel, "tasks", again="2", action="complete", task_id="task-7")
        foreign = await use(home, "bob", channel, "tasks", again="3", **end)
        await use(home, "ada", channel, "tasks", again="4", **end)
        ended = await use(home, "ada", channel, "tasks", again="5", **end)

        assert f"task_id is 'task-7'; expected one of your open tasks ({task_id})." in unknown.text
        assert foreign.text.endswith("(there is none; start one). Nothing was written.")
        assert f"is '{task_id}', which is failed" in ended.text
        assert all(one.failed and "\n" not in one.text for one in (unknown, foreign, ended))
        assert [kind for kind, _ in tasks_on(await home.wal(channel))] == ["task.started", "task.failed"]
