"""A draft the rules do not allow; nothing was written."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from turnline.errors.base import Refused, hint, short


class BadDraft(Refused):
    """A field of a draft is not what it has to be."""

    def __init__(self, field: str, *, found: str, expected: str) -> None:
        self.field = field
        self.found = found
        self.expected = expected
        super().__init__(f"{field} is {found}; expected {expected}. Nothing was written.")


class FileTooLarge(BadDraft):
    """A file is too large, or all files of a conversation or of a user are, with this one."""


class ReservedEventType(Refused):
    """A participant sent an event type that only the hub writes."""

    def __init__(self, event_type: str, *, sender: str) -> None:
        self.event_type = event_type
        self.sender = sender
        super().__init__(
            f"{sender!r} sent {event_type!r}, which only the hub writes. "
            f"Send 'text', 'packet', 'context.set', or a type with your application's prefix."
        )


class NotParticipant(Refused):
    """The sender is not a member of the channel."""

    def __init__(self, channel_id: str, *, sender: str, participants: Iterable[str]) -> None:
        self.channel_id = channel_id
        self.sender = sender
        self.participants = tuple(participants)
        super().__init__(
            f"{sender!r} is not on channel {channel_id!r}; its participants are "
            f"{', '.join(self.participants)}."
        )


class ChannelPending(Refused):
    """A draft arrived before everyone had accepted the invitation."""

    def __init__(self, channel_id: str, *, awaiting: Iterable[str]) -> None:
        self.channel_id = channel_id
        self.awaiting = tuple(awaiting)
        super().__init__(
            f"channel {channel_id!r} is not open yet: {', '.join(self.awaiting)} has not accepted the "
            f"invitation. Wait for `open` to return."
        )


class ChannelClosed(Refused):
    """A draft arrived after the channel had closed."""

    def __init__(self, channel_id: str, *, reason: str) -> None:
        self.channel_id = channel_id
        self.reason = reason
        super().__init__(f"channel {channel_id!r} is closed (reason: {reason!r}); open a new one.")


class PastErased(Refused):
    """A fork, a replay, a retry or a what-if needs lines whose content was erased."""

    def __init__(self, channel_id: str, *, at: int) -> None:
        self.channel_id = channel_id
        self.at = at
        super().__init__(
            f"channel {channel_id!r} is incomplete at line {at}: content was erased. "
            "It cannot be forked, replayed, retried or recorded. Open a new one."
        )


class ChannelBusy(Refused):
    """Too many drafts wait for the channel."""

    def __init__(self, channel_id: str, *, waiting: int) -> None:
        self.channel_id = channel_id
        self.waiting = waiting
        super().__init__(f"{waiting} drafts wait for channel {channel_id!r} already; send again later.")


class OutOfTurn(Refused):
    """A participant spoke while the floor belonged to somebody else."""

    def __init__(self, channel_id: str, *, sender: str, speaker: str) -> None:
        self.channel_id = channel_id
        self.sender = sender
        self.speaker = speaker
        super().__init__(
            f"{sender!r} spoke on channel {channel_id!r}, but the floor belongs to {speaker!r}. "
            f"Wait for the turn, or send with interject=True, which does not move the floor."
        )


class NotYet(Refused):
    """An interjection came while a packet was in flight; it is accepted after that packet."""

    def __init__(self, channel_id: str, *, sender: str, speaker: str) -> None:
        self.channel_id = channel_id
        self.sender = sender
        self.speaker = speaker
        super().__init__(
            f"{sender!r} interjected on channel {channel_id!r} while {speaker!r} is working on a turn. "
            f"It is accepted once that packet is on the log."
        )


class TurnTaken(Refused):
    """Somebody else has claimed the turn."""

    def __init__(self, channel_id: str, *, turn: int, worker: str) -> None:
        self.channel_id = channel_id
        self.turn = turn
        self.worker = worker
        super().__init__(f"turn {turn} of {channel_id!r} is claimed by {worker!r}; leave it to that worker.")


class ClaimLost(Refused):
    """A packet named a claim that is not the live one: it was taken over, or the turn is over."""

    def __init__(self, channel_id: str, *, claim: int | None, live: int | None) -> None:
        self.channel_id = channel_id
        self.claim = claim
        self.live = live
        found = "no claim" if claim is None else f"the claim at seq {claim}"
        expected = "no claim is live" if live is None else f"the live claim is at seq {live}"
        super().__init__(f"a packet for {channel_id!r} names {found}, but {expected}; drop the packet.")


class ContextMismatch(Refused):
    """A context variable is not what `expect` said; nothing of the update was applied."""

    def __init__(self, channel_id: str, *, key: str, expected: object, found: object) -> None:
        self.channel_id = channel_id
        self.key = key
        self.expected = expected
        self.found = found
        super().__init__(
            f"context variable {key!r} of channel {channel_id!r} is {short(found)}, not {short(expected)} "
            f"as `expect` said; read it again and decide anew."
        )


class BadTarget(Refused):
    """A target or handoff names nobody on this channel."""

    def __init__(self, target: str, *, named: str, participants: Iterable[str]) -> None:
        self.target = target
        self.named = named
        self.participants = tuple(participants)
        super().__init__(
            f"{target} leads to {named!r}, who is not on this channel; its participants are "
            f"{', '.join(self.participants)}.{hint(named, self.participants)}"
        )


class RoutingFailed(Refused):
    """A registered condition or target raised while the next speaker was looked for."""

    def __init__(self, what: str, *, index: int | None, cause: BaseException) -> None:
        self.what = what
        self.index = index
        where = "the default target" if index is None else f"transition {index}"
        raised = f"{type(cause).__name__}: {cause}"
        super().__init__(f"{what} of {where} raised {raised}. The turn was not accepted; correct it.")


class NotDue(Refused):
    """A timer fired for a moment that has passed."""

    def __init__(self, channel_id: str, *, timer: str) -> None:
        self.channel_id = channel_id
        self.timer = timer
        super().__init__(f"timer {timer!r} of channel {channel_id!r} is no longer due.")


class NotStuck(Refused):
    """A retry was asked for a turn that is not stuck."""

    def __init__(self, channel_id: str) -> None:
        self.channel_id = channel_id
        super().__init__(
            f"Channel {channel_id!r} has no stuck turn. Only a stuck turn can be retried in place. "
            f"To repeat an earlier turn, fork the channel before it."
        )


class TurnStuck(Refused):
    """A turn ended its process again and again, so it waits for an operator."""

    def __init__(self, channel_id: str, *, speaker: str, log: str = "") -> None:
        self.channel_id = channel_id
        self.speaker = speaker
        command = ["turnline", "channels", "retry", channel_id, *(["--log", log] if log else [])]
        super().__init__(
            f"Channel {channel_id!r} is stuck: its process ended each time {speaker!r} took this turn. "
            f"Fix the cause, then run: {shlex.join(command)}"
        )


class AlreadyAsked(Refused):
    """A turn asked a question that is on the log already."""

    def __init__(self, channel_id: str, *, call: str, position: int) -> None:
        self.channel_id = channel_id
        self.call = call
        self.position = position
        super().__init__(
            f"Question {position} of call {call!r} is on the log of channel {channel_id!r} already. "
            f"Wait for its answer; its request id is in the channel's state."
        )


class TooManyQuestions(Refused):
    """One turn asked people too often."""

    def __init__(self, channel_id: str, *, limit: int) -> None:
        self.channel_id = channel_id
        self.limit = limit
        super().__init__(
            f"This turn of channel {channel_id!r} has asked {limit} questions, which is the limit. "
            f"End the turn, or ask for several things at once."
        )


class TooManyPauses(Refused):
    """One turn paused again and again, and did nothing else."""

    def __init__(self, channel_id: str, *, limit: int) -> None:
        self.channel_id = channel_id
        self.limit = limit
        super().__init__(
            f"This turn of channel {channel_id!r} has paused {limit} times and recorded nothing in between. "
            f"That is the limit. Pause for longer, or end the turn."
        )


class UnknownQuestion(Refused):
    """An answer names a question that the turn in progress has not asked."""

    def __init__(self, channel_id: str, *, request_id: str) -> None:
        self.channel_id = channel_id
        self.request_id = request_id
        super().__init__(
            f"Channel {channel_id!r} has no open question {short(request_id)}. "
            f"Either it was never asked, or the turn that asked it is over."
        )


class NotAsked(Refused):
    """An answer came from a participant whom the question does not address."""

    def __init__(self, channel_id: str, *, sender: str, name: str) -> None:
        self.channel_id = channel_id
        self.sender = sender
        super().__init__(
            f"{name!r} may not answer this question on channel {channel_id!r}. "
            f"Only a person whom the question addresses may answer it."
        )


class AlreadyAnswered(Refused):
    """A question was answered twice; the first answer counts."""

    def __init__(self, channel_id: str, *, request_id: str) -> None:
        self.channel_id = channel_id
        self.request_id = request_id
        super().__init__(
            f"Question {request_id!r} on channel {channel_id!r} has an answer already. "
            f"The first answer counts."
        )


class QuestionExpired(Refused):
    """An answer came after the question's time was over."""

    def __init__(self, channel_id: str, *, request_id: str) -> None:
        self.channel_id = channel_id
        self.request_id = request_id
        super().__init__(
            f"Question {request_id!r} on channel {channel_id!r} has expired. "
            f"The turn that asked it has continued without an answer."
        )


class EnvelopeIdReused(Refused):
    """One envelope id was sent with two different drafts."""

    def __init__(self, channel_id: str, *, envelope_id: str, seq: int) -> None:
        self.channel_id = channel_id
        self.envelope_id = envelope_id
        self.seq = seq
        super().__init__(
            f"envelope id {envelope_id!r} is taken on channel {channel_id!r} (seq {seq}) by a different "
            f"draft. Re-send the same draft unchanged, or use a new id."
        )


class Denied(Refused):
    """An access rule or the arbiter said no."""

    def __init__(self, who: str, *, what: str, because: str) -> None:
        self.who = who
        self.what = what
        self.because = because
        super().__init__(f"{who!r} may not {what}: {because}.")


class NestedTooDeep(Refused):
    """A channel would have more channels above it than its tree allows."""

    def __init__(self, channel_id: str, *, depth: int, limit: int) -> None:
        self.channel_id = channel_id
        self.depth = depth
        self.limit = limit
        super().__init__(
            f"Channel {channel_id!r} would be nested {depth} deep; the limit is {limit}. "
            f"Look for a flow or an agent that calls itself, or raise limits.max_depth of the first flow."
        )


class TooManyRuns(Refused):
    """A run has started as many runs of flows below it as its limit allows."""

    def __init__(self, channel_id: str, *, limit: int) -> None:
        self.channel_id = channel_id
        self.limit = limit
        super().__init__(
            f"Run {channel_id!r} has started {limit} runs of other flows below it, its limit. "
            f"Look for a flow that calls itself, or raise limits.max_runs of the first flow."
        )
