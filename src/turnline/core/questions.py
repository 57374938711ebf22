"""Questions to people: who may ask, and who may answer (H1, N1b, N7).

    human.requested  {"request_id", "question", "turn", "call", "position", "expires"}
    human.requested  {..., "group", "about"}                   asked by a step
    human.answered   {"request_id", "answer"}                  sent by a person whom the question addresses
    human.answered   {"request_id", "answer", "by", "for"}     written by the hub: `by` answered for a person
    human.answered   {"request_id", "answer", "by", "group"}   written by the hub: `by` is of the group
    timer.fired      {"question"}                              written by the hub: no answer came in time

Rule 1: only the turn in progress asks, under its claim, and it asks people of the channel. The audience of
the question is who may answer.

Rule 1a: a step asks a group instead, and only the one that its channel was opened with (`Participant.asks`).
No participant sees the question or may answer it: the hub checks who is in the group and writes the answer.

Rule 2: only a person whom the question addresses may answer, and once. An agent, the asker and other people
are refused. An operator answers through the hub, and the line names both.

Rule 3: a question is known by its turn, call and position in that call. A turn that resumes finds it there
and does not ask again.

Rule 4: an answer is accepted whether or not the turn has paused for it. It ends the pause that waits for it,
in the same append (N1b).

Rule 5: the asker draws the request id at random. No rule depends on it being secret, but only those
who were asked can name the question.

Rule 6: a question with `expires` ends so many seconds after its line, by the hub's timers. The line that says
so decides: an answer before it counts, one after it is refused. It ends a pause as an answer does.

Questions live in the state until their turn ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from turnline.core import event_types as ev
from turnline.core.channel import ChannelSpec
from turnline.core.claims import end_by_answer
from turnline.core.envelope import Draft, JsonObject
from turnline.core.fold import Batch
from turnline.core.json import MAX_SECONDS, seconds_of
from turnline.core.state import Question, State
from turnline.errors import (
    AlreadyAnswered,
    AlreadyAsked,
    BadDraft,
    NotAsked,
    NotDue,
    OutOfTurn,
    QuestionExpired,
    TooManyQuestions,
    UnknownQuestion,
)

QUESTIONS_PER_TURN: Final = 200
"""Questions that one turn may ask, answered ones included: the state keeps them until the turn ends."""
MAX_CALL_CHARACTERS: Final = 64
REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_-]{22,64}")
"""A request id. 22 characters hold 128 random bits; a shorter one could be guessed."""

_ASKED: Final = frozenset({"request_id", "question", "turn", "call", "position"})
_ASKED_GROUP: Final = _ASKED | {"group", "about"}
_ANSWERED: Final = frozenset({"request_id", "answer"})
_ANSWERED_FOR: Final = _ANSWERED | {"by", "for"}
_ANSWERED_BY_GROUP: Final = _ANSWERED | {"by", "group"}


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
    """Accept an answer from a person who was asked, or one that the hub writes for a person or a group."""
    state, draft = batch.state, batch.draft
    data = draft.event_data
    is_hub = draft.sender_id == ev.HUB
    by_group = is_hub and "group" in data
    for_person = _ANSWERED_FOR if is_hub else _ANSWERED
    _check_keys(data, _ANSWERED_BY_GROUP if by_group else for_person)
    _check_text(data, "answer")
    request_id = _check_text(data, "request_id")
    addressed = _check_text(data, "group" if by_group else "for") if is_hub else draft.sender_id
    if is_hub and not ev.is_name(data["by"]):
        raise BadDraft("event_data.by", found=repr(data["by"])[:80], expected="who answered, in one line")
    question = state.questions.get(request_id)
    if question is None:
        raise UnknownQuestion(state.channel_id, request_id=request_id)
    is_addressed = addressed == question.group if by_group else addressed in question.people
    if not is_addressed or not addressed:
        raise NotAsked(state.channel_id, sender=addressed, name=state.spec.name_of(addressed))
    if question.is_expired:
        raise QuestionExpired(state.channel_id, request_id=request_id)
    if question.answer_seq:
        raise AlreadyAnswered(state.channel_id, request_id=request_id)
    _end(batch, request_id, question)


def expire(batch: Batch[Any]) -> None:
    """Accept that no answer came in time. How many seconds have passed is known to the hub alone."""
    state, request_id = batch.state, str(batch.draft.event_data["question"])
    question = state.questions.get(request_id)
    if question is None or question.answer_seq or question.expires is None:
        raise NotDue(state.channel_id, timer=f"the question {request_id}")
    _end(batch, request_id, question)


def _end(batch: Batch[Any], request_id: str, question: Question) -> None:
    """Add the line that ends a question, for those who know of it, and resume the turn that waits for it."""
    state, draft = batch.state, batch.draft
    asker = (question.asked_by, state.spec.player_of(question.asked_by))
    to = list(dict.fromkeys((*asker, *question.people)))
    batch.add(batch.next(draft.event_type, draft.event_data, sender_id=draft.sender_id, audience=to))
    if state.pause is not None and request_id in state.pause.questions:
        end_by_answer(batch)


def find(state: State, *, call: str, position: int) -> tuple[str, Question] | None:
    """Return the question of the turn in progress at this place, with its request id."""
    place, asked = (call, position), state.questions.items()
    return next(((key, one) for key, one in asked if (one.call, one.position) == place), None)


def shown_questions(state: State, agent_id: str) -> dict[str, Question]:
    """Return the questions that a participant may know of: those it is asked, and those it asked or plays."""
    spec = state.spec
    return {
        key: one
        for key, one in state.questions.items()
        if agent_id in (one.asked_by, spec.player_of(one.asked_by), *one.people)
    }


def people_of(spec: ChannelSpec) -> list[str]:
    """Return the people of a channel: whom a turn can ask."""
    return [one.agent_id for one in spec.participants if one.is_person]


def _check_question(state: State, draft: Draft) -> None:
    data = draft.event_data
    to_group = "group" in data
    _check_keys(data, (_ASKED_GROUP if to_group else _ASKED) | data.keys() & {"expires"})
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
    if "expires" in data and seconds_of(data["expires"]) is None:
        expected = f"a number from 0 to {MAX_SECONDS:g}"
        raise BadDraft("event_data.expires", found=repr(data["expires"])[:80], expected=expected)
    if to_group:
        _check_group(state.spec, draft)
        return
    people = people_of(state.spec)
    if not draft.audience or not set(draft.audience) <= set(people) - {draft.sender_id}:
        names = [one.name for one in state.spec.participants if one.agent_id in people]
        expected = f"other people of this channel: {', '.join(names) or 'it has none'}"
        raise BadDraft("audience", found=repr(draft.audience)[:80], expected=expected)


def _check_group(spec: ChannelSpec, draft: Draft) -> None:
    """Refuse a question to a group that the channel was not opened to ask: an agent never asks one."""
    data, sender = draft.event_data, spec.participant(draft.sender_id)
    owned = "" if sender is None or not sender.played_by else sender.asks
    if not owned or data["group"] != owned:
        allowed = f"{owned!r}, which the step may ask"
        expected = allowed if owned else "none: only a step with `ask` asks a group"
        raise BadDraft("event_data.group", found=repr(data["group"])[:80], expected=expected)
    if draft.audience != []:
        expected = "[]: the group is asked outside of the channel"
        raise BadDraft("audience", found=repr(draft.audience)[:80], expected=expected)
    if not isinstance(data["about"], dict):
        raise BadDraft("event_data.about", found=f"a {type(data['about']).__name__}", expected="an object")


def _check_keys(data: Mapping[str, object], keys: frozenset[str]) -> None:
    if data.keys() != keys:
        raise BadDraft("event_data", found=f"with {sorted(data)}"[:200], expected=f"exactly {sorted(keys)}")


def _check_text(data: JsonObject, field: str) -> str:
    value = data[field]
    if not isinstance(value, str):
        raise BadDraft(f"event_data.{field}", found=f"a {type(value).__name__}", expected="text")
    return value
