"""The questions of a `run`: answered by a callback, or shown with the command that answers them (H1).

Rule: what is open is read from the channel's state, so a question of an earlier process is shown as well, and
one that another program answers meanwhile needs nothing from here.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from turnline.client.human_client import HumanClient
from turnline.core.envelope import Envelope
from turnline.core.state import State
from turnline.errors import AlreadyAnswered, BadSpec, ChannelClosed, QuestionExpired, UnknownQuestion
from turnline.errors.base import plain
from turnline.hub.retry import retry
from turnline.log.address import from_anywhere
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.threads import call_user

OnQuestion = Callable[[str], Awaitable[str | bool] | str | bool]
"""Gives the answer to a question of an agent: a text, or True and False for yes and no.

A plain function is called in a thread, so it may wait for a keyboard: `on_question=input`.
"""

_MAX_SHOWN_CHARACTERS: Final = 2000


async def answer_questions(
    person: HumanClient, channel_id: str, log: Log, on_question: OnQuestion | None
) -> None:
    """Ask `on_question` each question to the person, or print it; return when the channel has closed.

    Questions are put one after the other. Raises what `on_question` raises.
    """
    seen: set[str] = set()
    while True:
        state = await person.seat.state(channel_id)
        for request_id, question in state.questions.items():
            if question.answer_seq or request_id in seen:
                continue
            seen.add(request_id)
            read = partial(person.seat.read, channel_id, question.seq - 1)
            line = (await retry(person.seat, read, "a question is not read")).envelopes[0]
            if on_question is None:
                _print(line, state, person.name, log)
            else:
                answer = await _ask(on_question, str(line.event_data["question"]))
                # Another program was faster, or the turn is over.
                with suppress(AlreadyAnswered, QuestionExpired, UnknownQuestion, ChannelClosed):
                    await person.answer(line, answer)
        if not (await person.seat.read_next(channel_id, state.seq)).envelopes:
            return


def instructions(line: Envelope, state: State, person: str, log: Log) -> str:
    """Return the question, and how to answer it from another terminal."""
    name = state.spec.name_of(line.sender_id)
    question = f"{_plain(name)} asks: {_plain(str(line.event_data['question']))}"
    if isinstance(log, MemoryLog):
        return (
            f"{question}\n"
            f"Nobody else can answer, because the log is in memory. Stop with Ctrl-C, and give run "
            f"on_question=input, or a log: log='sqlite:///run.db'."
        )
    command = ["turnline", "channels", "answer", state.channel_id, "yes", "--as", person]
    command += ["--question", str(line.event_data["request_id"]), "--log", from_anywhere(log.address)]
    return f"{question}\nAnswer in another terminal: {shlex.join(command)}"


def _print(line: Envelope, state: State, person: str, log: Log) -> None:
    sys.stderr.write(f"{instructions(line, state, person, log)}\n")
    sys.stderr.flush()


def _plain(text: str) -> str:
    """Return a model's text without what a terminal would obey, cut to a length."""
    shown = plain(text)
    return shown if len(shown) <= _MAX_SHOWN_CHARACTERS else f"{shown[: _MAX_SHOWN_CHARACTERS - 1]}…"


async def _ask(on_question: OnQuestion, question: str) -> str:
    given = await call_user(on_question, question)
    match given:
        case bool():
            return "yes" if given else "no"
        case str():
            return given
    found = f"a function that returned a {type(given).__name__}"
    raise BadSpec(
        "on_question",
        found=found,
        expected="one that returns a text, True or False",
        outcome="The question stays open on the channel.",
    )
