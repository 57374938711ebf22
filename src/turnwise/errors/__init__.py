"""Everything Turnwise raises on purpose.

    TurnwiseError
    ├── Refused                   a draft the rules do not allow; nothing was written
    │   ├── BadDraft              a field is not what it has to be
    │   ├── ReservedEventType     only the hub writes this event type
    │   ├── NotParticipant        the sender is not a member of the channel
    │   ├── ChannelPending        not everyone has accepted the invitation yet
    │   ├── ChannelClosed         the last word has been said
    │   ├── ChannelBusy           too many drafts wait for the channel
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
    ├── AgentError                an agent could not do its round
    │   ├── NoModel               nobody said which model to use
    │   ├── ModelError            the model did not answer, or not in a way that can be understood
    │   ├── ScriptExhausted       a scripted model was asked once more than it has replies
    │   ├── ToolRoundsExceeded    the model went on calling tools
    │   ├── BadTool               a function that cannot be a tool
    │   ├── MissingVariable       a tool asks for a variable or dependency nobody gave
    │   ├── NobodyToAsk           a tool asks for a person, and there is none
    │   ├── DelegationCycle       an agent asked somebody who waits for it
    │   ├── NoAnswer              whoever was asked gave no answer
    │   ├── StepFailed            somebody a step asked did not answer
    │   └── BadOutput             the reply is not what the response schema asks for
    └── LogError                  the log did not do what it was asked
        ├── LogConflict           somebody appended first; read, fold and decide again
        ├── DuplicateEnvelope     the channel has an envelope with this id already
        ├── CorruptRecord         bytes that are not what was written
        └── LogUnavailable        the storage failed; nothing is known to be written

A message says what was found, what was expected, and what to do about it.
The same facts are attributes, so no caller ever parses a message.
"""

from __future__ import annotations

from turnwise.errors.agents import (
    AgentError,
    BadOutput,
    BadTool,
    DelegationCycle,
    MissingVariable,
    ModelError,
    NoAnswer,
    NobodyToAsk,
    NoModel,
    ScriptExhausted,
    StepFailed,
    ToolRoundsExceeded,
)
from turnwise.errors.base import Refused, TurnwiseError
from turnwise.errors.channels import (
    BadExpression,
    BadGraph,
    BadSpec,
    ChannelQuarantined,
    HubClosed,
    InviteRejected,
    InviteTimeout,
    OpenFailed,
)
from turnwise.errors.logs import CorruptRecord, DuplicateEnvelope, LogConflict, LogError, LogUnavailable
from turnwise.errors.names import NameTaken, UnknownChannel, UnknownName, UnknownParticipant
from turnwise.errors.refusals import (
    BadDraft,
    BadTarget,
    ChannelBusy,
    ChannelClosed,
    ChannelPending,
    ClaimLost,
    ContextMismatch,
    Denied,
    EnvelopeIdReused,
    NotDue,
    NotParticipant,
    NotYet,
    OutOfTurn,
    ReservedEventType,
    RoutingFailed,
    TurnTaken,
)

__all__ = [
    "AgentError",
    "BadDraft",
    "BadExpression",
    "BadGraph",
    "BadOutput",
    "BadSpec",
    "BadTarget",
    "BadTool",
    "ChannelBusy",
    "ChannelClosed",
    "ChannelPending",
    "ChannelQuarantined",
    "ClaimLost",
    "ContextMismatch",
    "CorruptRecord",
    "DelegationCycle",
    "Denied",
    "DuplicateEnvelope",
    "EnvelopeIdReused",
    "HubClosed",
    "InviteRejected",
    "InviteTimeout",
    "LogConflict",
    "LogError",
    "LogUnavailable",
    "MissingVariable",
    "ModelError",
    "NameTaken",
    "NoAnswer",
    "NoModel",
    "NobodyToAsk",
    "NotDue",
    "NotParticipant",
    "NotYet",
    "OpenFailed",
    "OutOfTurn",
    "Refused",
    "ReservedEventType",
    "RoutingFailed",
    "ScriptExhausted",
    "StepFailed",
    "ToolRoundsExceeded",
    "TurnTaken",
    "TurnwiseError",
    "UnknownChannel",
    "UnknownName",
    "UnknownParticipant",
]
