"""Taking part as a person, and closing: who may, as whom, and once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tests.server.stage import PEOPLE, known, person
from turnline.agent.tool import tool
from turnline.network import (
    AgentTarget,
    Envelope,
    TerminateTarget,
    Transition,
    TransitionGraph,
    register_condition,
)
from turnline.testing import call

from .scene import scene

WORK = """
metadata: {name: work}
spec: {trigger: {path: /work}, steps: [{id: only, kind: wait, wait: {event: x}}]}
"""


async def test_a_person_with_the_floor_takes_the_turn() -> None:
    async with scene("Hello, carol.") as stage:
        channel = await stage.open()
        answer = await stage.server.post(f"/channels/{channel}/messages", {"text": "Hi!"}, token="carol")
        await stage.until(channel, lambda state: state.turn_count == 2)
        lines = await stage.lines(channel)

    assert answer.status_code == 201
    said = next(one for one in lines if one["seq"] == answer.json()["data"]["seq"])
    assert (said["event_type"], said["event_data"]) == ("text", {"text": "Hi!"})
    assert said["decision"]["kind"] == "speak"
    assert lines[-1]["event_data"]["body"] == "Hello, carol."


@dataclass(slots=True)
class Breaks:
    """Raises with a text that is not for callers."""

    name: ClassVar[str] = "test_changing.breaks"

    def evaluate(self, state: Any, envelope: Envelope) -> bool:
        raise ValueError("the password is hunter2")


async def test_what_a_condition_raises_is_in_the_servers_log_and_not_in_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    register_condition(Breaks)
    graph = TransitionGraph("carol", [Transition(Breaks(), AgentTarget("helper"))], TerminateTarget("done"))
    async with scene() as stage:
        channel = await stage.open(knobs={"graph": graph.to_dict()})
        answer = await stage.server.post(f"/channels/{channel}/messages", {"text": "Hi!"}, token="carol")

    assert answer.status_code == 409
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text


async def test_a_message_sent_again_is_said_once() -> None:
    async with scene("Hello.") as stage:
        channel = await stage.open()
        body = {"text": "Hi!", "id": "mine-1"}
        first = await stage.server.post(f"/channels/{channel}/messages", body, token="carol")
        again = await stage.server.post(f"/channels/{channel}/messages", body, token="carol")
        other = await stage.server.post(
            f"/channels/{channel}/messages", {**body, "text": "Ho!"}, token="carol"
        )

    assert first.json() == again.json()
    assert other.status_code == 409


async def test_without_the_floor_a_person_interjects() -> None:
    async with scene("Hello.") as stage:
        channel = await stage.open(target=["helper", "dave"])
        answer = await stage.server.post(f"/channels/{channel}/messages", {"text": "psst"}, token="dave")
        state = await stage.hub.state(channel)

    assert answer.status_code == 201
    assert state.turn_count == 0


async def test_an_interjection_that_would_wait_for_the_packet_too_long_is_not_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from turnline.server.channels import changing

    monkeypatch.setattr(changing, "WAIT_SECONDS", 0.01)
    gate = asyncio.Event()

    @tool
    async def think() -> str:
        """Think."""
        await gate.wait()
        return "done"

    async with scene(call("think"), "Ready.", tools=[think]) as stage:
        channel = await stage.open(target=["helper", "dave"])
        await stage.people["carol"].channel(channel).send("go")
        await stage.until(channel, lambda state: state.claim is not None)
        answer = await stage.server.post(f"/channels/{channel}/messages", {"text": "psst"}, token="dave")
        gate.set()
        await stage.until(channel, lambda state: state.turn_count == 2)
        lines = await stage.lines(channel)

    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "busy")
    assert not any("psst" in str(one) for one in lines)


@pytest.mark.parametrize(
    ("token", "name", "status"),
    [
        ("carol", "carol", 201),
        ("root", "carol", 201),
        ("dave", "carol", 403),
        ("carol", "dave", 403),
        ("carol", "helper", 403),
        ("root", "helper", 403),
        ("root", "hub", 403),
        ("root", "nobody", 403),
        ("onlooker", "carol", 403),
    ],
)
async def test_a_principal_speaks_as_itself_and_an_operator_for_the_people(
    token: str, name: str, status: int
) -> None:
    async with scene("Hello.") as stage:
        channel = await stage.open(target=["helper", "dave"])
        answer = await stage.server.post(
            f"/channels/{channel}/messages", {"text": "x", "as": name}, token=token
        )

    assert answer.status_code == status


@pytest.mark.parametrize("verb", ["messages", "answers", "fork", "close"])
async def test_whoever_is_not_on_a_channel_can_do_nothing_to_it_and_learns_nothing(verb: str) -> None:
    async with scene() as stage:
        channel = (await stage.people["carol"].open(type="conversation", target="helper")).channel_id
        answers = [
            await stage.server.post(f"/channels/{one}/{verb}", {}, token="dave")
            for one in (channel, "nowhere")
        ]

    assert [one.status_code for one in answers] == [404, 404]
    assert answers[0].text == answers[1].text.replace("nowhere", channel)


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("messages", {}),
        ("messages", {"text": 1}),
        ("messages", {"text": "x", "sender": "hub"}),
        ("messages", {"text": "x", "id": "a/b"}),
        ("answers", {"request_id": "x"}),
        ("close", {"reason": "x" * 201}),
        ("close", {"reason": 5}),
    ],
)
async def test_a_body_that_cannot_be_is_422(verb: str, body: object) -> None:
    async with scene() as stage:
        channel = await stage.open()
        answer = await stage.server.post(f"/channels/{channel}/{verb}", body)

    assert answer.status_code == 422


async def test_an_answer_to_nothing_is_404() -> None:
    async with scene() as stage:
        channel = await stage.open()
        first = (await stage.hub.read_wal(channel))[0].envelope_id
        body = {"request_id": first, "answer": "x"}
        answer = await stage.server.post(f"/channels/{channel}/answers", body)

    assert answer.status_code == 404


async def test_a_fork_has_the_past_of_its_line_and_goes_on_by_itself() -> None:
    async with scene("Hello.", "Hello again.") as stage:
        channel = await stage.open("Hi")
        head = (await stage.hub.state(channel)).seq
        answer = await stage.server.post(f"/channels/{channel}/fork", {"at": head}, token="carol")
        fork = answer.json()["data"]["channel_id"]
        await stage.server.post(f"/channels/{fork}/messages", {"text": "And now?"}, token="carol")
        await stage.until(fork, lambda state: state.turn_count == 4)
        old, new = await stage.lines(channel), await stage.lines(fork)
        listed = [row["channel_id"] for row in (await stage.data("/channels", token="carol"))["channels"]]
        then = await stage.data(f"/channels/{fork}/state?seq={head}")

    assert answer.status_code == 201
    assert [one["event_data"] for one in new[1:head]] == [one["event_data"] for one in old[1:]]
    assert new[head]["event_type"] == "channel.forked"
    assert new[-1]["event_data"]["body"] == "Hello again."
    assert listed == [fork, channel]
    assert (then["seq"], then["turn_count"]) == (head, 2)


@pytest.mark.parametrize("body", [{}, {"at": 0}, {"at": 999}, {"at": "1"}, {"at": True}, {"at": 1, "x": 1}])
async def test_a_fork_from_a_line_that_is_not_there_is_422(body: object) -> None:
    async with scene() as stage:
        channel = await stage.open()
        answer = await stage.server.post(f"/channels/{channel}/fork", body)

    assert answer.status_code == 422


async def test_a_run_is_forked_only_by_who_may_fork_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PEOPLE, "overseer", person("overseer", "admin", "channels:read", "channels:write"))
    async with scene(flows=WORK) as stage:
        run = (await stage.server.post("/work", {}, Prefer="respond-async")).headers["x-run-id"]
        answer = await stage.server.post(f"/channels/{run}/fork", {"at": 1}, token="overseer")

    assert answer.status_code == 403


async def test_a_channel_is_closed_once_and_says_by_whom() -> None:
    async with scene() as stage:
        channel = await stage.open()
        first = await stage.server.post(f"/channels/{channel}/close", {"reason": "enough"}, token="carol")
        again = await stage.server.post(f"/channels/{channel}/close", {}, token="carol")
        last = (await stage.lines(channel))[-1]

    assert (first.status_code, again.status_code) == (200, 409)
    assert last["event_data"] == {"reason": "enough", "by": "carol"}


async def test_a_run_is_cancelled_as_a_run() -> None:
    async with scene(flows=WORK) as stage:
        run = (await stage.server.post("/work", {}, Prefer="respond-async")).headers["x-run-id"]
        answer = await stage.server.post(f"/channels/{run}/close", {})

    assert answer.status_code == 409
    assert "/runs/" in answer.json()["error"]["message"]


async def test_y2_what_was_said_on_a_closed_channel_is_erased_and_an_open_one_is_not() -> None:
    async with scene("hello") as stage:
        channel = await stage.open("My name is Bob.")
        early = await stage.server.post(f"/channels/{channel}/erase", {})
        await stage.server.post(f"/channels/{channel}/close", {}, token="carol")
        done = await stage.server.post(f"/channels/{channel}/erase", {"reason": "requested"})
        shown = (await stage.server.get(f"/channels/{channel}/envelopes")).text

    assert (early.status_code, done.status_code) == (409, 200)
    assert "is open" in early.json()["error"]["message"]
    assert done.json()["data"]["channels"][channel] > 0
    assert "Bob" not in shown


async def test_y2_erasing_needs_its_own_scope() -> None:
    async with scene("hello") as stage:
        channel = await stage.open("My name is Bob.")
        await stage.server.post(f"/channels/{channel}/close", {}, token="carol")

        assert (await stage.server.post(f"/channels/{channel}/erase", {}, token="carol")).status_code == 403


async def test_y2_a_person_is_forgotten_by_an_operator_or_by_themselves() -> None:
    async with scene("hello") as stage:
        channel = await stage.open("My name is Bob.")
        early = await stage.server.post("/people/carol/forget", {})
        await stage.server.post(f"/channels/{channel}/close", {}, token="carol")
        without = await stage.server.post("/people/carol/forget", {}, token="carol")
        with known(eraser=person("dave", "channels:erase")):
            stranger = await stage.server.post("/people/carol/forget", {}, token="eraser")
            oneself = await stage.server.post("/people/dave/forget", {}, token="eraser")
        wrong = await stage.server.post("/people/carol/forget", {"reason": "Bob asked"})
        done = await stage.server.post("/people/carol/forget", {"reason": "requested"})
        again = await stage.server.post("/people/carol/forget", {})

    statuses = [one.status_code for one in (early, without, stranger, oneself, wrong, done, again)]
    assert statuses == [409, 403, 403, 200, 409, 200, 404]
    assert channel in early.json()["error"]["message"]
    assert done.json()["data"]["channels"]["_directory"] > 0


@pytest.mark.parametrize("lines", [[], [[1]], [[1, 2, 3]], "1-2", [[True, 2]], [["1", "2"]], [[1, 1]] * 1001])
async def test_y2_lines_to_erase_are_pairs_of_numbers(lines: object) -> None:
    async with scene() as stage:
        channel = await stage.open()

        assert (await stage.server.post(f"/channels/{channel}/erase", {"lines": lines})).status_code == 422


async def test_y2_every_operation_answers_for_an_erased_channel_and_an_erased_run() -> None:
    """What is left is shown, and what needs the content says that it was erased. Nothing is a 500."""
    async with scene("hello", flows=WORK) as stage:
        channel = await stage.open("My name is Bob.")
        run = (await stage.server.post("/work", {}, Prefer="respond-async")).headers["x-run-id"]
        await stage.server.post(f"/channels/{channel}/close", {}, token="carol")
        await stage.server.post(f"/runs/{run}/cancel", {})
        for one in (channel, run):
            assert (await stage.server.post(f"/channels/{one}/erase", {})).status_code == 200
        retry = await stage.server.post(f"/runs/{run}/retry", {})
        shown = (await stage.server.get(f"/runs/{run}")).json()["data"]
        said = (await stage.server.get("/openapi.json")).json()["paths"]
        answers = {}
        for path, methods in said.items():
            for name in ("channel_id", "run_id"):
                if f"{{{name}}}" not in path or "events" in path:
                    continue
                filled = path.replace("{channel_id}", channel).replace("{run_id}", run).replace("{seq}", "3")
                for method in methods:
                    body = (
                        {"at": 3, "text": "x", "request_id": "x", "answer": "x"} if method == "post" else None
                    )
                    answer = await stage.server.send(method.upper(), filled, body)
                    answers[f"{method} {path}"] = (answer.status_code, answer.text[:200])

    print("\n".join(f"{name}: {found}" for name, found in answers.items()))
    assert [name for name, (status, _) in answers.items() if status >= 500] == []
    assert (retry.status_code, "was erased" in retry.text) == (409, True)
    assert shown["flow"] == "erased"
