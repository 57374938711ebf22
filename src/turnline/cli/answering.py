"""A person's turn at the command line: who is waited for, and what is said."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import typer

from turnline.cli.plain import one_line, plain
from turnline.client.channel import Channel
from turnline.client.embedded import Hub
from turnline.core.channel import Participant
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_TEXT, SUBSTANTIVE, body_of
from turnline.core.state import State
from turnline.errors import BadSpec, ChannelClosed, UnknownParticipant, UnknownQuestion
from turnline.hub.seat import Seat

_CHARACTERS = 400
_NOT_ANSWERED = "Nothing was answered."


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What waits for a person."""

    state: State
    person: Participant
    question: Envelope | None
    """What an agent has asked; None: it is the person's turn."""
    last: str
    """What was said last, and by whom."""


async def waiting(hub: Hub, channel_id: str, name: str | None, request_id: str | None = None) -> Waiting:
    """Return what waits for the person called `name`, or for the only one who is waited for.

    Raises `ChannelClosed`, and `BadSpec` if the channel waits for another participant, or if several
    questions are open and `request_id` names none of them: an answer must not meet another question.
    """
    state = await hub.state(channel_id)
    if state.is_over:
        raise ChannelClosed(channel_id, reason=state.pending_close_reason)
    person = _person(state, name)
    wal = await hub.read_wal(channel_id)
    question = _question(state, wal, person, request_id)
    if question is None and state.expected_next_speaker != person.agent_id:
        raise _waits_for_another(state, person.name)
    said = next((one for one in reversed(wal) if one.event_type in SUBSTANTIVE), None)
    last = "" if said is None else f"{state.spec.name_of(said.sender_id)}: {_text(said)}"
    return Waiting(state=state, person=person, question=question, last=last)


def ask(found: Waiting) -> str:
    """Ask at the terminal, or read all of standard input."""
    if not sys.stdin.isatty():
        return sys.stdin.read().strip()
    typer.echo(one_line(found.last, _CHARACTERS), err=True)
    if found.question is not None:
        typer.echo(plain(str(found.question.event_data.get("question", ""))), err=True)
    return str(typer.prompt(plain(found.person.name)))


async def answer(hub: Hub, found: Waiting, text: str) -> Envelope:
    """Say it as the person, or answer the question for them; return the line it became."""
    channel_id, person = found.state.channel_id, found.person.agent_id
    if found.question is None:
        return await Channel(Seat(hub, hub.participant(person)), channel_id).send(text, event_type=EV_TEXT)
    request_id = str(found.question.event_data["request_id"])
    return (await hub.turns.answer_for(channel_id, request_id, text, person=person))[0]


def _question(
    state: State, wal: list[Envelope], person: Participant, request_id: str | None
) -> Envelope | None:
    asked = {
        one.seq: key
        for key, one in state.questions.items()
        if not one.answer_seq and person.agent_id in one.people and request_id in (None, key)
    }
    if request_id is not None and not asked:
        raise UnknownQuestion(state.channel_id, request_id=request_id)
    found = [line for line in wal if line.seq in asked]
    if len(found) > 1:
        listed = "; ".join(f"{asked[one.seq]}: {_question_text(one)}" for one in found)
        raise BadSpec(
            "question",
            found=f"one of {len(found)} open ones ({listed})",
            expected="an id: --question ID",
            outcome=_NOT_ANSWERED,
        )
    return found[0] if found else None


def _question_text(line: Envelope) -> str:
    return one_line(str(line.event_data.get("question", "")), _CHARACTERS)


def _person(state: State, name: str | None) -> Participant:
    people = [one for one in state.spec.participants if one.is_person]
    named = [one for one in people if name in (one.name, one.agent_id)]
    if name is not None and not named:
        raise UnknownParticipant(name, (one.name for one in people))
    asked = {person for one in state.questions.values() if not one.answer_seq for person in one.people}
    awaited = [one for one in people if one.agent_id in (state.expected_next_speaker, *asked)]
    found = named or awaited
    if not found:
        raise _waits_for_another(state, "a person")
    return found[0]


def _waits_for_another(state: State, who: str) -> BadSpec:
    floor = state.spec.name_of(state.expected_next_speaker or "nobody")
    return BadSpec(
        "channel",
        found=f"{state.channel_id!r}, where {floor!r} has the floor and {who} has no open question",
        expected=f"one that waits for {who}; `turnline channels show ID` says what it waits for",
        outcome=_NOT_ANSWERED,
    )


def _text(line: Envelope) -> str:
    return body_of(line.event_type, line.event_data)
