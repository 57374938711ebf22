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
    ├── BadDocuments              documents with mistakes; nothing was started
    ├── BadNode                   a function that cannot be a node
    ├── FlowError                 a flow could not do what it says
    │   ├── ParseFailed           an answer is not what the step asked for
    │   ├── BadReturn             a node returned something that is no result of a step
    │   ├── TemplateFailed        a template reads what is not there, or costs too much
    │   ├── AddressRefused        a step may not reach this address
    │   ├── CallFailed            another system did not answer as it should
    │   ├── BadStepValue          a value is not what the step needs
    │   └── ChildFailed           a run or a conversation below the step failed
    ├── RunProblem                something was asked of a run that cannot be
    │   ├── UnknownRun
    │   ├── RunConflict           the run is over, or was started with something else
    │   ├── RunNotWaiting         it does not wait for this, or no longer
    │   ├── TaskExpired           nobody answered in time
    │   └── BadAnswer             the form does not allow this answer
    ├── AccessError               somebody may not do what they asked, or it cannot be told whether they may
    │   ├── Unauthenticated       nothing that was sent tells who is asking
    │   ├── Forbidden             whoever asks is known, and may not do this
    │   ├── AccessBusy            no token can be read just now
    │   ├── BadToken              a token that cannot be made
    │   └── BadKey                the key that signs or verifies tokens cannot be used
    ├── MissingExtra              packages that are installed only on request are not there
    ├── DataError                 what was asked of the data models cannot be done
    │   ├── ModelNotDeclared      the flow does not declare the data model; also a PermissionError
    │   ├── VersionMismatch       the flow is written for another version of a data model
    │   ├── BadField              a field is unknown, or a value is not what it holds
    │   ├── WriteRefused          the database does not take what a step wrote
    │   ├── CommitRefused         a step tried to commit by itself
    │   └── ModelsRefused         data models that do not fit together, or not their tables
    └── LogError                  the log did not do what it was asked
        ├── LogConflict           somebody appended first; read, fold and decide again
        ├── DuplicateEnvelope     the channel has an envelope with this id already
        ├── CorruptRecord         bytes that are not what was written
        └── LogUnavailable        the storage failed; nothing is known to be written
            └── DataUnavailable   the data models' own database did

A message says what was found, what was expected, and what to do about it.
The same facts are attributes, so no caller ever parses a message.
"""

from __future__ import annotations

from turnwise.errors.access import (
    AccessBusy,
    AccessError,
    BadKey,
    BadToken,
    Forbidden,
    MissingExtra,
    Unauthenticated,
)
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
from turnwise.errors.data import (
    BadField,
    CommitRefused,
    DataError,
    DataUnavailable,
    ModelNotDeclared,
    ModelsRefused,
    VersionMismatch,
    WriteRefused,
)
from turnwise.errors.flows import BadDocuments, BadNode
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
from turnwise.errors.runs import (
    BadAnswer,
    RunConflict,
    RunNotWaiting,
    RunProblem,
    TaskExpired,
    UnknownRun,
)
from turnwise.errors.steps import (
    AddressRefused,
    BadReturn,
    BadStepValue,
    CallFailed,
    ChildFailed,
    FlowError,
    ParseFailed,
    TemplateFailed,
)

__all__ = [
    "AccessBusy",
    "AccessError",
    "AddressRefused",
    "AgentError",
    "BadAnswer",
    "BadDocuments",
    "BadDraft",
    "BadExpression",
    "BadField",
    "BadGraph",
    "BadKey",
    "BadNode",
    "BadOutput",
    "BadReturn",
    "BadSpec",
    "BadStepValue",
    "BadTarget",
    "BadToken",
    "BadTool",
    "CallFailed",
    "ChannelBusy",
    "ChannelClosed",
    "ChannelPending",
    "ChannelQuarantined",
    "ChildFailed",
    "ClaimLost",
    "CommitRefused",
    "ContextMismatch",
    "CorruptRecord",
    "DataError",
    "DataUnavailable",
    "DelegationCycle",
    "Denied",
    "DuplicateEnvelope",
    "EnvelopeIdReused",
    "FlowError",
    "Forbidden",
    "HubClosed",
    "InviteRejected",
    "InviteTimeout",
    "LogConflict",
    "LogError",
    "LogUnavailable",
    "MissingExtra",
    "MissingVariable",
    "ModelError",
    "ModelNotDeclared",
    "ModelsRefused",
    "NameTaken",
    "NoAnswer",
    "NoModel",
    "NobodyToAsk",
    "NotDue",
    "NotParticipant",
    "NotYet",
    "OpenFailed",
    "OutOfTurn",
    "ParseFailed",
    "Refused",
    "ReservedEventType",
    "RoutingFailed",
    "RunConflict",
    "RunNotWaiting",
    "RunProblem",
    "ScriptExhausted",
    "StepFailed",
    "TaskExpired",
    "TemplateFailed",
    "ToolRoundsExceeded",
    "TurnTaken",
    "TurnwiseError",
    "Unauthenticated",
    "UnknownChannel",
    "UnknownName",
    "UnknownParticipant",
    "UnknownRun",
    "VersionMismatch",
    "WriteRefused",
]
