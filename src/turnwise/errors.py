"""Everything Turnwise raises on purpose.

    TurnwiseError
    ├── Refused                   a draft the rules do not allow; nothing was written
    │   ├── BadDraft              a field is not what it has to be
    │   ├── ReservedEventType     only the hub writes this event type
    │   ├── NotParticipant        the sender is not a member of the channel
    │   ├── ChannelPending        not everyone has accepted the invitation yet
    │   ├── ChannelClosed         the last word has been said
    │   ├── OutOfTurn             the floor belongs to somebody else
    │   ├── NotYet                an interjection came while a packet was in flight; the hub tries again
    │   ├── TurnTaken             somebody else has claimed the turn
    │   ├── ClaimLost             the claim was taken over, or the turn is over
    │   ├── ContextMismatch       a context variable is not what `expect` said
    │   ├── BadTarget             a target or handoff names nobody on this channel
    │   ├── RoutingFailed         a registered condition or target raised
    │   ├── NotDue                a timer fired for a moment that has passed
    │   ├── EnvelopeIdReused      one id, two different drafts
    │   └── Denied                an access rule or the arbiter said no
    ├── OpenFailed                the channel was not opened
    │   ├── InviteRejected
    │   └── InviteTimeout
    ├── BadSpec                   what `open` was given does not describe a channel
    │   └── BadGraph              the graph is not one
    ├── BadExpression             an expression does not parse, or may not be evaluated
    ├── UnknownName               a name nobody registered
    │   ├── UnknownParticipant
    │   └── UnknownChannel
    ├── NameTaken                 a name that is registered or attached already
    ├── ChannelQuarantined        one channel cannot be read; every other one works
    ├── HubClosed
    └── LogError                  the log did not do what it was asked
        ├── LogConflict           somebody appended first; read, fold and decide again
        ├── DuplicateEnvelope     the channel has an envelope with this id already
        ├── CorruptRecord         bytes that are not what was written
        └── LogUnavailable        the storage failed; nothing is known to be written

A message says what was found, what was expected, and what to do about it.
The same facts are attributes, so no caller ever parses a message.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class TurnwiseError(Exception):
    """Base class of every error Turnwise raises on purpose."""


class Refused(TurnwiseError):
    """A draft the rules do not allow; nothing was written."""


class BadDraft(Refused):
    """A field of a draft is not what it has to be."""

    def __init__(self, field: str, *, found: str, expected: str) -> None:
        self.field = field
        self.found = found
        self.expected = expected
        super().__init__(f"{field} is {found}; expected {expected}. Nothing was written.")


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
            f"context variable {key!r} of channel {channel_id!r} is {_short(found)}, not {_short(expected)} "
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
            f"{', '.join(self.participants)}.{_hint(named, self.participants)}"
        )


class RoutingFailed(Refused):
    """A registered condition or target raised while the next speaker was looked for."""

    def __init__(self, what: str, *, index: int | None, cause: BaseException) -> None:
        self.what = what
        self.index = index
        where = "the default target" if index is None else f"transition {index}"
        raised = f"{type(cause).__name__}: {cause}"
        super().__init__(f"{what} of {where} raised {raised}. The turn was not accepted; mend it.")


class NotDue(Refused):
    """A timer fired for a moment that has passed."""

    def __init__(self, channel_id: str, *, timer: str) -> None:
        self.channel_id = channel_id
        self.timer = timer
        super().__init__(f"timer {timer!r} of channel {channel_id!r} is no longer due.")


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


class OpenFailed(TurnwiseError):
    """The channel was not opened."""

    def __init__(self, channel_id: str, *, reason: str, message: str) -> None:
        self.channel_id = channel_id
        self.reason = reason
        super().__init__(message)


class InviteRejected(OpenFailed):
    """Somebody declined the invitation."""

    def __init__(self, channel_id: str, *, agent_id: str, because: str) -> None:
        self.agent_id = agent_id
        self.because = because
        message = f"{agent_id!r} rejected the invite to {channel_id!r}{f': {because}' if because else '.'}"
        super().__init__(channel_id, reason="invite_rejected", message=message)


class InviteTimeout(OpenFailed):
    """Somebody did not answer the invitation in time."""

    def __init__(self, channel_id: str, *, awaiting: Iterable[str], seconds: float) -> None:
        self.awaiting = tuple(awaiting)
        self.seconds = seconds
        silent = f"{', '.join(self.awaiting)} did not accept the invite to {channel_id!r} in {seconds:g} s."
        message = f"{silent} Is it registered in a running process?"
        super().__init__(channel_id, reason="invite_timeout", message=message)


class BadSpec(TurnwiseError):
    """What `open` was given does not describe a channel."""

    def __init__(self, field: str, *, found: str, expected: str) -> None:
        self.field = field
        self.found = found
        self.expected = expected
        super().__init__(f"{field} is {found}; expected {expected}. The channel was not opened.")


class BadGraph(BadSpec):
    """A transition graph cannot be one."""


class BadExpression(TurnwiseError):
    """An expression does not parse, or asks for something that is not allowed."""

    def __init__(self, text: str, *, because: str) -> None:
        self.text = text
        self.because = because
        super().__init__(f"the expression {_short(text)} was refused: {because}.")


class UnknownName(TurnwiseError):
    """A registry was asked for a name nobody registered."""

    def __init__(self, what: str, name: str, known: Iterable[str], *, do: str = "") -> None:
        self.what = what
        self.name = name
        self.known = tuple(sorted(known))
        listed = ", ".join(self.known) or "none"
        told = f"no {what} is known as {name!r}; known: {listed}.{_hint(name, self.known)}"
        super().__init__(f"{told} {do}".rstrip())


class UnknownParticipant(UnknownName):
    """Nobody is registered under this id or name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__("participant", name, known, do="Register it first, or use one of these.")


class UnknownChannel(UnknownName):
    """No channel has this id."""

    def __init__(self, channel_id: str) -> None:
        TurnwiseError.__init__(
            self, f"no channel {channel_id!r} is on this log; `hub.list_channels()` lists them."
        )
        self.what, self.name, self.known = "channel", channel_id, ()


class NameTaken(TurnwiseError):
    """A name that is registered or attached already."""

    def __init__(self, what: str, name: str, *, do: str) -> None:
        self.what = what
        self.name = name
        super().__init__(f"the {what} {name!r} is taken. {do}")


class ChannelQuarantined(TurnwiseError):
    """One channel cannot be read; every other one works."""

    def __init__(self, channel_id: str, *, cause: BaseException) -> None:
        self.channel_id = channel_id
        self.cause = cause
        super().__init__(
            f"channel {channel_id!r} is quarantined: {type(cause).__name__}: {cause} "
            f"Other channels are not affected."
        )


class HubClosed(TurnwiseError):
    """The hub was used after it had been closed."""

    def __init__(self) -> None:
        super().__init__("this hub is closed; open a new one on the same log to go on.")


class LogError(TurnwiseError):
    """The log did not do what it was asked."""


class LogConflict(LogError):
    """Somebody appended to the channel first; read, fold and decide again."""

    def __init__(self, channel_id: str, *, after: int, found: int) -> None:
        self.channel_id = channel_id
        self.after = after
        self.found = found
        super().__init__(f"channel {channel_id!r} is at seq {found}, not {after}.")


class DuplicateEnvelope(LogError):
    """The channel has an envelope with this id already; nothing was written."""

    def __init__(self, channel_id: str, *, envelope_id: str) -> None:
        self.channel_id = channel_id
        self.envelope_id = envelope_id
        super().__init__(f"channel {channel_id!r} has an envelope {envelope_id!r} already.")


class CorruptRecord(LogError):
    """Bytes on the log are not what was written."""

    def __init__(self, channel_id: str, *, seq: int, because: str) -> None:
        self.channel_id = channel_id
        self.seq = seq
        self.because = because
        super().__init__(
            f"record {seq} of channel {channel_id!r} is damaged: {because}. Restore it from a backup."
        )


class LogUnavailable(LogError):
    """The storage failed; nothing is known to be written."""

    def __init__(self, address: str, *, because: str) -> None:
        self.address = address
        self.because = because
        super().__init__(f"the log at {address} cannot be used: {because}.")


def _hint(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


_SHORT = 80


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
