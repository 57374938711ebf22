"""`human`: a person is asked, once, and the answer goes into the context."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from turnline.core.claims import Paused
from turnline.core.envelope import JsonObject
from turnline.errors import BadStepValue
from turnline.flow.steps import human
from turnline.flow.task import task_id

from .attempts import NOON, RUN, Attempt

FORM: JsonObject = {"approved": {"type": "boolean", "required": True}, "verdict": "string", "rank": "integer"}


def asking(
    public: JsonObject | None = None, *, routes: JsonObject | None = None, turn: int = 3, **block: Any
) -> Attempt:
    step = {"human": {"title": "Approve?", "form": FORM, **block}, "routes": routes or {}}
    return Attempt(human.perform, step, public=public, private={"_user_id": "u1"}, turn=turn)


async def asked(attempt: Attempt, answer: JsonObject) -> Attempt:
    await attempt.paused()
    attempt.answered(answer)
    return attempt


async def test_a_person_is_told_what_is_asked_and_what_the_answer_has_to_be() -> None:
    attempt = asking(
        {"name": "Jane", "score": 7, "secret_plan": 1},
        title="Escalate {{ name }}?",
        description="It scored {{ score }}.",
        show=["name", "score"],
        group="sales",
        form={"approved": "boolean"},
    )

    task = await attempt.paused()

    assert task.reason == "person"
    assert task.data == {
        "title": "Escalate Jane?",
        "description": "It scored 7.",
        "show": {"name": "Jane", "score": 7},
        "form": {"approved": {"type": "boolean"}},
        "group": "sales",
    }


async def test_f2_a_person_is_shown_no_private_key_and_none_that_is_not_there() -> None:
    task = await asking({"name": "Jane"}, show=["_user_id", "name", "missing"]).paused()

    assert task.data["show"] == {"name": "Jane"}


async def test_a_task_is_known_by_its_run_and_its_turn() -> None:
    first, again, later = asking(turn=3), asking(turn=3), asking(turn=4)

    keys = [(await one.paused()).key for one in (first, again, later)]

    assert keys == [task_id(RUN, 3), task_id(RUN, 3), task_id(RUN, 4)]


@pytest.mark.parametrize(("expires", "seconds"), [("2d", 2 * 86_400), (None, None)])
async def test_f7_a_task_expires_when_its_step_says_so(expires: str | None, seconds: object) -> None:
    assert (await asking(expires=expires).paused()).seconds == seconds


async def test_f7_a_step_that_is_taken_up_again_asks_the_same_question_and_no_later() -> None:
    attempt = asking({"name": "Jane"}, expires="1h")
    first = await attempt.paused()
    attempt.passes(600)

    assert await attempt.call() == replace(first, seconds=None, until=NOON + timedelta(hours=1))


async def test_the_answer_goes_into_the_context_and_the_log_says_whose_it_is() -> None:
    attempt = await asked(asking(), {"approved": True, "verdict": "fine"})

    done = await attempt.done()

    assert (done.signal, done.updates) == ("default", {"approved": True, "verdict": "fine"})
    assert "ann" in done.body
    assert not done.private


async def test_the_same_answer_gives_the_same_end_however_often_it_is_read() -> None:
    attempt = await asked(asking(), {"approved": True})

    assert await attempt.call() == await attempt.call()


async def test_f1_reserved_keys_in_an_answer_are_dropped_and_noted() -> None:
    attempt = await asked(asking(), {"approved": True, "_user_id": "root"})

    done = await attempt.done()

    assert done.updates == {"approved": True}
    assert attempt.drops == [("human", ["_user_id"])]


async def test_nothing_is_noted_where_nothing_was_dropped() -> None:
    attempt = await asked(asking(), {"approved": True})
    await attempt.done()

    assert attempt.drops == []


@pytest.mark.parametrize("answer", [{}, {"approved": "perhaps"}, {"approved": True, "unasked": 1}])
async def test_an_answer_that_the_form_does_not_take_is_an_error(answer: JsonObject) -> None:
    attempt = await asked(asking(), answer)

    with pytest.raises(BadStepValue, match="the answer"):
        await attempt.call()


@pytest.mark.parametrize(
    ("field", "answer", "signal"),
    [
        ("verdict", {"approved": True, "verdict": "send_back"}, "send_back"),
        ("approved", {"approved": True}, "true"),
        ("approved", {"approved": False}, "false"),
        ("rank", {"approved": True, "rank": 3}, "3"),
        ("verdict", {"approved": True}, "default"),
        ("verdict", {"approved": True, "verdict": ""}, "default"),
        (None, {"approved": True, "verdict": "send_back"}, "default"),
    ],
)
async def test_the_signal_is_the_answers_field_as_a_document_spells_it(
    field: str | None, answer: JsonObject, signal: str
) -> None:
    attempt = await asked(asking(signal_from=field), answer)

    assert (await attempt.done()).signal == signal


async def test_a_task_that_expired_ends_with_expired_where_that_is_routed() -> None:
    attempt = asking(expires="1h", routes={"expired": "late"})
    await attempt.paused()
    attempt.fired()

    done = await attempt.done()

    assert (done.signal, done.updates) == ("expired", {})


async def test_f5_a_task_that_expired_is_a_timeout_where_nothing_takes_it() -> None:
    attempt = asking(expires="1h", routes={"error": "late"})
    await attempt.paused()
    attempt.fired()

    with pytest.raises(TimeoutError, match="3600 s"):
        await attempt.call()


async def test_a_template_that_cannot_be_filled_asks_nobody() -> None:
    with pytest.raises(Exception, match="nobody_set_it"):
        await asking(title="{{ nobody_set_it }}").call()


async def test_asking_opens_nothing() -> None:
    attempt = asking()

    assert isinstance(await attempt.goes_on(), Paused)
    assert attempt.children.opened == []
