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
from turnline.core.event_types import EV_HUMAN_ANSWERED, EV_HUMAN_REQUESTED, EV_TEXT, SUBSTANTIVE
from turnline.core.packet import body_of
from turnline.core.state import State
from turnline.core.study.looked import name_of
from turnline.errors import ChannelClosed, OutOfTurn, UnknownParticipant
from turnline.hub.seat import Seat

_CHARACTERS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What waits for a person."""

    state: State
    person: Participant
    question: Envelope | None
    """What an agent has asked; None: it is the person's turn."""
    last: str
    """What was said last, and by whom."""


async def waiting(hub: Hub, channel_id: str, name: str | None) -> Waiting:
    """Return what waits for the person called `name`, or for the only one who is waited for.

    Raises `ChannelClosed`, or `OutOfTurn` if the channel waits for somebody else.
    """
    state = await hub.state(channel_id)
    if state.is_over:
        raise ChannelClosed(channel_id, reason=state.pending_close_reason)
    wal = await hub.read_wal(channel_id)
    question = _open_question(wal)
    person = _person(state, question, name)
    if question is not None and person.agent_id not in (question.audience or [person.agent_id]):
        question = None
    if question is None and state.expected_next_speaker != person.agent_id:
        speaker = name_of(state.expected_next_speaker or "nobody", state.spec)
        raise OutOfTurn(channel_id, sender=person.name, speaker=speaker)
    said = next((one for one in reversed(wal) if one.event_type in SUBSTANTIVE), None)
    last = "" if said is None else f"{name_of(said.sender_id, state.spec)}: {_text(said)}"
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
    """Say it as the person; return the line it became."""
    seat = Seat(hub, hub.participant(found.person.agent_id))
    channel = Channel(seat, found.state.channel_id)
    if found.question is None:
        return await channel.send(text, event_type=EV_TEXT)
    data = {"request_id": found.question.event_data.get("request_id"), "answer": text}
    return await channel.send(event_type=EV_HUMAN_ANSWERED, event_data=data)


def _person(state: State, question: Envelope | None, name: str | None) -> Participant:
    people = [one for one in state.spec.participants if one.kind == "human"]
    named = [one for one in people if name in (one.name, one.agent_id)]
    if name is not None and not named:
        raise UnknownParticipant(name, (one.name for one in people))
    asked = question.audience or [] if question is not None else []
    awaited = [one for one in people if one.agent_id in (state.expected_next_speaker, *asked)]
    found = named or awaited
    if not found:
        speaker = name_of(state.expected_next_speaker or "nobody", state.spec)
        raise OutOfTurn(state.channel_id, sender="a person", speaker=speaker)
    return found[0]


def _open_question(wal: list[Envelope]) -> Envelope | None:
    """The last question to a person that nobody has answered, in the turn in progress."""
    answered = {one.event_data.get("request_id") for one in wal if one.event_type == EV_HUMAN_ANSWERED}
    for line in reversed(wal):
        if line.decision is not None:
            return None
        if line.event_type == EV_HUMAN_REQUESTED and line.event_data.get("request_id") not in answered:
            return line
    return None


def _text(line: Envelope) -> str:
    return body_of(line.event_type, line.event_data)
