"""Everything Turnline raises on purpose.

    TurnlineError
    ├── Refused                   a draft the rules do not allow; nothing was written
    │   ├── BadDraft              a field is not what it has to be
    │   │   └── FileTooLarge      a file is too large, or one too many
    │   ├── ReservedEventType     only the hub writes this event type
    │   ├── NotParticipant        the sender is not a member of the channel
    │   ├── ChannelPending        not everyone has accepted the invitation yet
    │   ├── ChannelClosed         the last word has been said
    │   ├── PastErased            a fork or a replay needs content that was erased
    │   ├── ChannelBusy           too many drafts wait for the channel
    │   ├── OutOfTurn             the floor belongs to somebody else
    │   ├── NotYet                an interjection came while a packet was in flight; the hub tries again
    │   ├── TurnTaken             somebody else has claimed the turn
    │   ├── ClaimLost             the claim was taken over, or the turn is over
    │   ├── ContextMismatch       a context variable is not what `expect` said
    │   ├── BadTarget             a target or handoff names nobody on this channel
    │   ├── RoutingFailed         a registered condition or target raised
    │   ├── NotDue                a timer fired for a moment that has passed
    │   ├── NotStuck              a retry was asked for a turn that is not stuck
    │   ├── TurnStuck             a turn ended its process again and again
    │   ├── AlreadyAsked          a turn asked the same question twice
    │   ├── TooManyQuestions      one turn asked people too often
    │   ├── TooManyPauses         one turn paused again and again, and did nothing else
    │   ├── UnknownQuestion       an answer names a question that is not open
    │   ├── NotAsked              an answer came from a participant whom the question does not address
    │   ├── AlreadyAnswered       a question was answered twice
    │   ├── QuestionExpired       an answer came after the question's time was over
    │   ├── EnvelopeIdReused      one id, two different drafts
    │   ├── NestedTooDeep         a channel would have too many channels above it
    │   ├── TooManyRuns           a run has started too many runs below it
    │   └── Denied                an access rule or the arbiter said no
    ├── OpenFailed                the channel was not opened
    │   ├── InviteRejected
    │   └── InviteTimeout
    ├── BadSpec                   what `open` was given does not describe a channel
    │   └── BadGraph              the graph is not one
    ├── BadQuery                  a list was asked for something that cannot be
    ├── BadExpression             an expression does not parse, or may not be evaluated
    ├── UnknownName               a name nobody registered
    │   ├── UnknownParticipant
    │   └── UnknownChannel
    │       └── ChannelPruned     the channel was here; only its id is left
    ├── UnknownFile               a line has no such file
    ├── NameTaken                 a name that is registered or attached already
    ├── ChannelQuarantined        one channel cannot be read; every other one works
    ├── ClientClosed              a participant's client was used after it had been closed
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
    │   ├── MissingContextKey     a node reads a key that the run's context does not have; also a KeyError
    │   ├── BadReturn             a node returned something that is no result of a step
    │   ├── InputRefused          a step starts a flow with input that its trigger does not take
    │   ├── TemplateFailed        a template reads what is not there, or costs too much
    │   ├── SecretRefused         a definition or a run that is not the project's own asks for a secret
    │   ├── ForeignChild          a channel below a run came with an import
    │   ├── AddressRefused        a step may not reach this address
    │   ├── CallFailed            another system did not answer as it should
    │   ├── BadStepValue          a value is not what the step needs
    │   │   └── BadAddress        a text is not an address that a step can call
    │   └── ChildFailed           a run or a conversation below the step failed
    ├── NodeNotPure               a node that is marked pure uses the database or `once`
    ├── OnceRefused               a call of `once` cannot be done as it is written
    │   └── OnceKeyReused         one performance used a key twice
    ├── QuestionChanged           a tool that ran again asked another question
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
    ├── LinkError                 a link to a hub elsewhere did not do what it was asked
    │   ├── LinkLost              the hub cannot be reached, or the link was closed
    │   ├── BadFrame              what came over a link is not a frame that may come
    │   └── RemoteFailed          something is wrong at the other end
    ├── MissingExtra              packages that are installed only on request are not there
    ├── DataError                 what was asked of the data models cannot be done
    │   ├── ModelNotDeclared      the flow does not declare the data model; also a PermissionError
    │   ├── VersionMismatch       the flow is written for another version of a data model
    │   ├── BadField              a field is unknown, or a value is not what it holds
    │   ├── WriteRefused          the database does not take what a step wrote
    │   ├── NoDatabase            there is no database for rows: `database:` is not set
    │   ├── CommitRefused         a step tried to commit by itself
    │   └── ModelsRefused         data models that do not fit together, or not their tables
    │       └── RowsRefused       rows of an export that do not fit the project
    └── LogError                  the log did not do what it was asked
        ├── LogConflict           somebody appended first; read, fold and decide again
        ├── DuplicateEnvelope     the channel has an envelope with this id already
        ├── CorruptRecord         bytes that are not what was written
        ├── BadExport             a file is not an export of a log, or not all of one
        ├── OriginInUse           a fork reads a channel that was to be pruned
        ├── PruneRefused          a prune cannot be done as it was asked
        ├── BadSeal               a text or a file is not a seal that was kept
        ├── ImportRefused         an import cannot take a channel
        │   ├── ChannelDiffers    the log has another channel of the same id
        │   ├── ArchiveDiffers    a pruned channel is not in the file as it was pruned
        │   └── ChannelGuarded    the channel says that it is of this log, and the file is not trusted
        └── LogUnavailable        the storage failed; nothing is known to be written
            └── DataUnavailable   the data models' own database did

A message says what was found, what was expected, and what to do about it.
The same facts are attributes, so no caller ever parses a message.
"""

from __future__ import annotations

from turnline.errors.access import (
    AccessBusy as AccessBusy,
    AccessError as AccessError,
    BadKey as BadKey,
    BadToken as BadToken,
    Forbidden as Forbidden,
    MissingExtra as MissingExtra,
    Unauthenticated as Unauthenticated,
    install_line as install_line,
)
from turnline.errors.agents import (
    AgentError as AgentError,
    BadOutput as BadOutput,
    BadTool as BadTool,
    DelegationCycle as DelegationCycle,
    MissingVariable as MissingVariable,
    ModelError as ModelError,
    NoAnswer as NoAnswer,
    NobodyToAsk as NobodyToAsk,
    NoModel as NoModel,
    ScriptExhausted as ScriptExhausted,
    StepFailed as StepFailed,
    ToolRoundsExceeded as ToolRoundsExceeded,
)
from turnline.errors.base import (
    Refused as Refused,
    TurnlineError as TurnlineError,
)
from turnline.errors.channels import (
    BadExpression as BadExpression,
    BadGraph as BadGraph,
    BadQuery as BadQuery,
    BadSpec as BadSpec,
    ChannelQuarantined as ChannelQuarantined,
    ClientClosed as ClientClosed,
    Erased as Erased,
    EraseRefused as EraseRefused,
    ForgetRefused as ForgetRefused,
    HubClosed as HubClosed,
    InviteRejected as InviteRejected,
    InviteTimeout as InviteTimeout,
    OpenFailed as OpenFailed,
)
from turnline.errors.data import (
    BadField as BadField,
    CommitRefused as CommitRefused,
    DataError as DataError,
    DataUnavailable as DataUnavailable,
    ModelNotDeclared as ModelNotDeclared,
    ModelsRefused as ModelsRefused,
    NoDatabase as NoDatabase,
    RowsRefused as RowsRefused,
    VersionMismatch as VersionMismatch,
    WriteRefused as WriteRefused,
)
from turnline.errors.flows import (
    BadDocuments as BadDocuments,
    BadNode as BadNode,
)
from turnline.errors.links import (
    BadFrame as BadFrame,
    LinkError as LinkError,
    LinkLost as LinkLost,
    RemoteFailed as RemoteFailed,
)
from turnline.errors.logs import (
    ArchiveDiffers as ArchiveDiffers,
    BadExport as BadExport,
    BadSeal as BadSeal,
    ChannelDiffers as ChannelDiffers,
    ChannelGuarded as ChannelGuarded,
    CorruptRecord as CorruptRecord,
    DuplicateEnvelope as DuplicateEnvelope,
    ImportRefused as ImportRefused,
    LogConflict as LogConflict,
    LogError as LogError,
    LogUnavailable as LogUnavailable,
    OriginInUse as OriginInUse,
    PruneRefused as PruneRefused,
)
from turnline.errors.names import (
    ChannelPruned as ChannelPruned,
    NameTaken as NameTaken,
    UnknownChannel as UnknownChannel,
    UnknownFile as UnknownFile,
    UnknownName as UnknownName,
    UnknownParticipant as UnknownParticipant,
)
from turnline.errors.refusals import (
    AlreadyAnswered as AlreadyAnswered,
    AlreadyAsked as AlreadyAsked,
    BadDraft as BadDraft,
    BadTarget as BadTarget,
    ChannelBusy as ChannelBusy,
    ChannelClosed as ChannelClosed,
    ChannelPending as ChannelPending,
    ClaimLost as ClaimLost,
    ContextMismatch as ContextMismatch,
    Denied as Denied,
    EnvelopeIdReused as EnvelopeIdReused,
    FileTooLarge as FileTooLarge,
    NestedTooDeep as NestedTooDeep,
    NotAsked as NotAsked,
    NotDue as NotDue,
    NotParticipant as NotParticipant,
    NotStuck as NotStuck,
    NotYet as NotYet,
    OutOfTurn as OutOfTurn,
    PastErased as PastErased,
    QuestionExpired as QuestionExpired,
    ReservedEventType as ReservedEventType,
    RoutingFailed as RoutingFailed,
    TooManyPauses as TooManyPauses,
    TooManyQuestions as TooManyQuestions,
    TooManyRuns as TooManyRuns,
    TurnStuck as TurnStuck,
    TurnTaken as TurnTaken,
    UnknownQuestion as UnknownQuestion,
)
from turnline.errors.runs import (
    BadAnswer as BadAnswer,
    RunConflict as RunConflict,
    RunNotWaiting as RunNotWaiting,
    RunProblem as RunProblem,
    TaskExpired as TaskExpired,
    UnknownRun as UnknownRun,
)
from turnline.errors.steps import (
    AddressRefused as AddressRefused,
    BadAddress as BadAddress,
    BadReturn as BadReturn,
    BadStepValue as BadStepValue,
    CallFailed as CallFailed,
    ChildFailed as ChildFailed,
    FlowError as FlowError,
    ForeignChild as ForeignChild,
    InputRefused as InputRefused,
    MissingContextKey as MissingContextKey,
    NodeNotPure as NodeNotPure,
    OnceKeyReused as OnceKeyReused,
    OnceRefused as OnceRefused,
    ParseFailed as ParseFailed,
    QuestionChanged as QuestionChanged,
    SecretRefused as SecretRefused,
    TemplateFailed as TemplateFailed,
)
