"""Questions to people: who may ask, and who may answer (H1, N1b, N7).

    human.requested  {"request_id", "question", "turn", "call", "position", "expires"}
    human.requested  {..., "group", "about"}                   asked by a step, or below one
    human.requested  {..., "about"}                            asked above (rule 1b)
    human.answered   {"request_id", "answer"}                  sent by a person whom the question addresses
    human.answered   {"request_id", "answer", "by", "for"}     written by the hub: `by` answered for a person
    human.answered   {"request_id", "answer", "by", "group"}   written by the hub: `by` is of the group
    human.answered   {"request_id", "answer", "by", "above"}   written by the hub: `by` answered above
    timer.fired      {"question"}                              written by the hub: no answer came in time

Rule 1: only the turn in progress asks, under its claim, and it asks people of the channel. The audience of
the question is who may answer.

Rule 1a: a step asks a group instead, and only the one that its channel was opened with (`Participant.asks`).
No participant sees the question or may answer it: the hub checks who is in the group and writes the answer.

Rule 1b: a turn below another one, on a channel without people, asks above (`ChannelSpec.asks_above`). Its
question has no audience. While the turn above waits for its children, the hub asks the same there, in the
name of that turn: the group of its step, or the people of its channel, or those above it. `call` and
`position` are then the channel below and its line. The answer above is the answer below. No participant may
ask under the id of a channel below, or it could put its own words in place of the question. `about` says what
the question is about; the hub writes into it who asks.

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
from collections.abc import Mapping, Set
from typing import Any, Final

from turnline.core import event_types as ev
from turnline.core.channel import CHILD_MARK, ChannelSpec, is_child_id, turn_of
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
_OPTIONAL: Final = frozenset({"expires", "about"})
_ANSWERED: Final = frozenset({"request_id", "answer"})


def ask(batch: Batch[Any]) -> None:
    """Accept a question of the turn in progress; the caller has checked the floor and the claim."""
    state, draft = batch.state, batch.draft
    data = draft.event_data
    _check_question(state, draft)
    if is_child_id(data["call"]):
        raise BadDraft("event_data.call", found=f"with {CHILD_MARK!r}", expected="the place of a tool call")
    _check_place(state, draft)
    batch.accept()


def relay(batch: Batch[Any]) -> None:
    """Accept a question that the hub passes on from a turn below, for the turn that waits for it."""
    state, data = batch.state, batch.draft.event_data
    group, people = group_of(state), state.spec.people
    _check_form(data, _ASKED_GROUP if group else _ASKED, {"expires"} if people else _OPTIONAL)
    is_below = turn_of(data["call"], state.channel_id) == state.turn
    if state.pause is None or not state.pause.children or not is_below:
        raise NotDue(state.channel_id, timer=f"the question of {data['call']!r}")
    if not can_relay(state):
        raise BadDraft("audience", found="no person", expected="a channel with people, or one below such")
    if data.get("group", "") != group:
        raise BadDraft("event_data.group", found=repr(data["group"])[:80], expected="that of the step")
    _check_place(state, batch.draft)
    speaker, audience = state.expected_next_speaker or "", [] if group else people
    batch.add(batch.next(ev.EV_HUMAN_REQUESTED, data, sender_id=speaker, audience=audience))


def can_relay(state: State) -> bool:
    """Return whether questions from below the turn in progress can be asked: of a group, here, or above."""
    return bool(group_of(state) or state.spec.people or state.spec.can_ask_above)


def group_of(state: State) -> str:
    """Return the group that the turn in progress may ask; empty: none. Only a played participant has one."""
    speaker = state.spec.participant(state.expected_next_speaker or "")
    return speaker.asks if speaker is not None and speaker.played_by else ""


def _check_place(state: State, draft: Draft) -> None:
    """Refuse a question of another turn, one that is on the log already, and one too many."""
    data = draft.event_data
    if data["turn"] != state.turn:
        raise OutOfTurn(state.channel_id, sender=draft.sender_id, speaker=str(state.expected_next_speaker))
    if find(state, call=data["call"], position=data["position"]) or data["request_id"] in state.questions:
        raise AlreadyAsked(state.channel_id, call=data["call"], position=data["position"])
    if len(state.questions) >= QUESTIONS_PER_TURN:
        raise TooManyQuestions(state.channel_id, limit=QUESTIONS_PER_TURN)


def answer(batch: Batch[Any]) -> None:
    """Accept an answer from a person who was asked, or one that the hub writes for a person or a group."""
    state, draft = batch.state, batch.draft
    data = draft.event_data
    is_hub = draft.sender_id == ev.HUB
    whom = next((one for one in ("group", "above") if one in data), "for") if is_hub else ""
    _check_keys(data, _ANSWERED | {"by", whom} if is_hub else _ANSWERED)
    _check_text(data, "answer")
    request_id = _check_text(data, "request_id")
    addressed = _check_text(data, whom) if is_hub else draft.sender_id
    if is_hub and not ev.is_name(data["by"]):
        raise BadDraft("event_data.by", found=repr(data["by"])[:80], expected="who answered, in one line")
    question = state.questions.get(request_id)
    if question is None:
        raise UnknownQuestion(state.channel_id, request_id=request_id)
    above = state.spec.parent_id if question.goes_up else ""
    allowed = {"group": [question.group], "above": [above]}.get(whom, question.people)
    if addressed not in allowed or not addressed:
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
    if question is None or question.answer_seq:
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


def _check_question(state: State, draft: Draft) -> None:
    data, spec = draft.event_data, state.spec
    to_group = "group" in data
    goes_up = draft.audience == [] and not spec.people and spec.can_ask_above
    _check_form(data, _ASKED_GROUP if to_group else _ASKED, _OPTIONAL if goes_up else {"expires"})
    if to_group:
        _check_group(spec, draft)
        return
    if goes_up:
        return
    if not draft.audience or not set(draft.audience) <= set(spec.people) - {draft.sender_id}:
        names = [one.name for one in spec.participants if one.is_person]
        expected = f"other people of this channel: {', '.join(names) or 'it has none'}"
        raise BadDraft("audience", found=repr(draft.audience)[:80], expected=expected)


def _check_form(data: JsonObject, keys: frozenset[str], optional: Set[str]) -> None:
    _check_keys(data, keys | data.keys() & optional)
    if not isinstance(data.get("about", {}), dict):
        raise BadDraft("event_data.about", found=f"a {type(data['about']).__name__}", expected="an object")
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


def _check_keys(data: Mapping[str, object], keys: frozenset[str]) -> None:
    if data.keys() != keys:
        raise BadDraft("event_data", found=f"with {sorted(data)}"[:200], expected=f"exactly {sorted(keys)}")


def _check_text(data: JsonObject, field: str) -> str:
    value = data[field]
    if not isinstance(value, str):
        raise BadDraft(f"event_data.{field}", found=f"a {type(value).__name__}", expected="text")
    return value
