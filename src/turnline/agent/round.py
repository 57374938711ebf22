"""A round: one `Agent.ask`, as a generator without I/O.

    AskModel(messages)  ->  ModelReply
    CallTools(calls)    ->  a ToolAnswer for each call, in the order of the calls
    return Outcome

Rule 1: a round yields what has to be done and is sent what came of it; it does
nothing itself. Driven by hand it is a test; driven with recorded answers first it
goes on where a killed process stopped (T3).

Rule 2: it ends when the model answers without calling a tool. `max_tool_rounds`
ends it otherwise.

Rule 3: an answer that has to have a form gets one chance to be repaired: the
model is told what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from turnline.agent.messages import Message, ModelReply, ToolCall, ToolMessage, Usage, UserMessage
from turnline.core.envelope import JsonObject
from turnline.core.parts import FilePart
from turnline.core.routing import Finish, Handoff, ToolOutcome
from turnline.core.undo import ATTEMPT
from turnline.errors import BadOutput, ToolRoundsExceeded

MAX_TOOL_ROUNDS: Final = 25


class ToolAnswer(Struct, frozen=True, kw_only=True, tag="tool", omit_defaults=True):
    """What came of one tool call. JSON when it is written down."""

    call_id: str
    tool: str
    text: str
    """What the model is told."""
    failed: bool = False
    returned: Handoff | Finish | None = None
    context: JsonObject = {}
    """Context variables the tool sets with its result."""
    reason: str = ""
    parts: list[FilePart] = []
    """The files that the tool returned, as they are on the log."""
    in_file: bool = False
    """Whether the whole text is the first of them. On the log, `text` is its beginning then."""
    attached: int = 0
    """How many of them, the last ones, go with the agent's reply."""


class ToolAttempt(Struct, frozen=True, kw_only=True, tag=ATTEMPT):
    """An attempt of a tool call that failed, before the next one. JSON when it is written down."""

    call_id: str
    tool: str
    text: str
    """The error. The model is not told; it is told how the last attempt ended."""
    attempt: int
    """1 for the first."""
    failed: bool = True


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask the model; send back its reply."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class CallTools:
    """Call these, at once; send back their answers in the same order."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a round came to."""

    text: str
    messages: tuple[Message, ...]
    """The whole conversation, this round included."""
    usage: Usage
    outcomes: tuple[ToolOutcome, ...]
    """Every tool call in order, and how it ended: what routing looks at (T4)."""
    context: JsonObject
    """What the tools set with their results. Of two that set one key, the later call counts."""
    files: tuple[FilePart, ...] = ()
    """What the tools attached to the reply, each file once."""


Check = Callable[[str], str]
"""Says in one line what is wrong with an answer; empty if nothing is."""

Round = Generator[AskModel | CallTools, ModelReply | Sequence[ToolAnswer], Outcome]


def start_round(
    agent: str,
    messages: Sequence[Message],
    *,
    max_tool_rounds: int = MAX_TOOL_ROUNDS,
    check: Check | None = None,
    heard: Mapping[int, Sequence[Message]] = MappingProxyType({}),
) -> Round:
    """Return the round that answers `messages`.

    `heard` is what others said meanwhile: number of replies -> what came after that reply and its tool calls.
    """
    conversation = list(messages)
    usage, outcomes, context = Usage(), list[ToolOutcome](), JsonObject()
    files = dict[FilePart, None]()
    repaired = tool_rounds = replies = 0
    while True:
        reply = yield AskModel(tuple(conversation))
        assert isinstance(reply, ModelReply)
        conversation.append(reply)
        replies += 1
        usage += reply.usage
        if reply.calls:
            tool_rounds += 1
            if tool_rounds > max_tool_rounds:
                raise ToolRoundsExceeded(agent, rounds=max_tool_rounds)
            answers = yield CallTools(tuple(reply.calls))
            assert not isinstance(answers, ModelReply)
            conversation += [_message(answer) for answer in answers]
            for answer in answers:
                outcomes.append(_outcome(answer))
                context |= answer.context
                files |= dict.fromkeys(answer.parts[len(answer.parts) - answer.attached :])
            conversation += heard.get(replies, ())
            continue
        wrong = check(reply.text) if check is not None else ""
        if not wrong:
            said, ended = tuple(conversation), tuple(outcomes)
            return Outcome(
                text=reply.text,
                messages=said,
                usage=usage,
                outcomes=ended,
                context=context,
                files=tuple(files),
            )
        if repaired:
            raise BadOutput(agent, because=wrong)
        repaired = 1
        conversation.append(UserMessage(text=f"That answer cannot be used: {wrong} Answer again."))


def _message(answer: ToolAnswer) -> ToolMessage:
    return ToolMessage(call_id=answer.call_id, tool=answer.tool, text=answer.text, failed=answer.failed)


def _outcome(answer: ToolAnswer) -> ToolOutcome:
    return ToolOutcome(
        tool=answer.tool, succeeded=not answer.failed, returned=answer.returned, reason=answer.reason
    )
