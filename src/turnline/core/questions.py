"""Questions to people: who may ask, and who may answer (H1, N1b).

    human.requested  {"request_id", "question", "turn", "call", "position"}
    human.answered   {"request_id", "answer"}                  sent by a person whom the question addresses
    human.answered   {"request_id", "answer", "by", "for"}     written by the hub: `by` answered for a person

Rule 1: only the turn in progress asks, under its claim, and it asks people of the channel. The audience of
the question is who may answer.

Rule 2: only a person whom the question addresses may answer, and once. An agent, the asker and other people
are refused. An operator answers through the hub, and the line names both.

Rule 3: a question is known by its turn, call and position in that call. A turn that resumes finds it there
and does not ask again.

Rule 4: the asker draws the request id at random. Nothing here depends on it being secret, but nobody who was
not asked can name the question.

Questions live in the state until their turn ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from turnline.core import event_types as ev
from turnline.core.batch import Batch
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Draft, JsonObject
from turnline.core.state import Question, State
from turnline.errors import (
    AlreadyAnswered,
    AlreadyAsked,
    BadDraft,
    NotAsked,
    OutOfTurn,
    TooManyQuestions,
    UnknownQuestion,
)

QUESTIONS_PER_TURN: Final = 200
"""Questions that one turn may ask, answered ones included: the state keeps them until the turn ends."""
MAX_CALL_CHARACTERS: Final = 64
REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_-]{22,64}")
"""A request id. 22 characters hold 128 random bits; a shorter one could be guessed."""

_ASKED: Final = frozenset({"request_id", "question", "turn", "call", "position"})
_ANSWERED: Final = frozenset({"request_id", "answer"})
_ANSWERED_FOR: Final = _ANSWERED | {"by", "for"}


def ask(batch: Batch[Any]) -> None:
    """Accept a question of the turn in progress; the caller has checked the floor and the claim."""
    state, draft = batch.state, batch.draft
    data = draft.event_data
    _check_question(state, draft)
    if data["turn"] != state.turn:
        raise OutOfTurn(state.channel_id, sender=draft.sender_id, speaker=str(state.expected_next_speaker))
    if find(state, call=data["call"], position=data["position"]) or data["request_id"] in state.questions:
        raise AlreadyAsked(state.channel_id, call=data["call"], position=data["position"])
    if len(state.questions) >= QUESTIONS_PER_TURN:
        raise TooManyQuestions(state.channel_id, limit=QUESTIONS_PER_TURN)
    batch.accept()


def answer(batch: Batch[Any]) -> None:
    """Accept an answer from a person who was asked, or the hub's note that an operator answered for one."""
    state, draft = batch.state, batch.draft
    data = draft.event_data
    is_hub = draft.sender_id == ev.HUB
    _check_keys(data, _ANSWERED_FOR if is_hub else _ANSWERED)
    _check_text(data, "answer")
    request_id = _check_text(data, "request_id")
    person = _check_text(data, "for") if is_hub else draft.sender_id
    if is_hub and not ev.is_name(data["by"]):
        raise BadDraft("event_data.by", found=repr(data["by"])[:80], expected="who answered, in one line")
    question = state.questions.get(request_id)
    if question is None:
        raise UnknownQuestion(state.channel_id, request_id=request_id)
    if person not in question.people:
        raise NotAsked(state.channel_id, sender=person)
    if question.answer_seq:
        raise AlreadyAnswered(state.channel_id, request_id=request_id)
    to = [question.asked_by, *(one for one in question.people if one != question.asked_by)]
    batch.add(batch.next(draft.event_type, data, sender_id=draft.sender_id, audience=to))


def find(state: State, *, call: str, position: int) -> tuple[str, Question] | None:
    """Return the question of the turn in progress at this place, with its request id."""
    found = (
        (key, one) for key, one in state.questions.items() if (one.call, one.position) == (call, position)
    )
    return next(found, None)


def shown_questions(state: State, agent_id: str) -> dict[str, Question]:
    """Return the questions that a participant may know of: those it asked, and those it is asked."""
    return {
        key: one for key, one in state.questions.items() if agent_id == one.asked_by or agent_id in one.people
    }


def people_of(spec: ChannelSpec) -> list[str]:
    """Return the people of a channel: whom a turn can ask."""
    return [one.agent_id for one in spec.participants if one.kind == "human"]


def _check_question(state: State, draft: Draft) -> None:
    data = draft.event_data
    _check_keys(data, _ASKED)
    _check_text(data, "question")
    if not REQUEST_ID.fullmatch(_check_text(data, "request_id")):
        expected = "at least 22 random letters and digits; `secrets.token_urlsafe(16)` draws them"
        raise BadDraft("event_data.request_id", found=repr(data["request_id"])[:80], expected=expected)
    if len(_check_text(data, "call")) > MAX_CALL_CHARACTERS:
        expected = f"at most {MAX_CALL_CHARACTERS} characters"
        raise BadDraft("event_data.call", found=f"{len(data['call'])} characters", expected=expected)
    for field in ("turn", "position"):
        if type(data[field]) is not int or data[field] < 1:
            found = repr(data[field])[:80]
            raise BadDraft(f"event_data.{field}", found=found, expected="a whole number from 1 on")
    people = people_of(state.spec)
    if not draft.audience or not set(draft.audience) <= set(people) - {draft.sender_id}:
        names = [one.name for one in state.spec.participants if one.agent_id in people]
        expected = f"other people of this channel: {', '.join(names) or 'it has none'}"
        raise BadDraft("audience", found=repr(draft.audience)[:80], expected=expected)


def _check_keys(data: Mapping[str, object], keys: frozenset[str]) -> None:
    if data.keys() != keys:
        raise BadDraft("event_data", found=f"with {sorted(data)}"[:200], expected=f"exactly {sorted(keys)}")


def _check_text(data: JsonObject, field: str) -> str:
    value = data[field]
    if not isinstance(value, str):
        raise BadDraft(f"event_data.{field}", found=f"a {type(value).__name__}", expected="text")
    return value
