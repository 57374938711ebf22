"""The steps of a flow, one class for each kind (F3).

A step's kind is compared without case, `_` and `-`; without one, its own block
(`runner`, `agent`, `router`, ...) says what it is. The engine's side of each kind is
the module of the same name in `flow/steps/`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from turnline.flow.definition.base import Duration, Expression, Json, Key, Name, Part, Template
from turnline.flow.definition.fields import AnswerFields

KINDS: Final = (
    "functional",
    "agent",
    "router",
    "api_call",
    "model_op",
    "response",
    "human",
    "mcp",
    "for_each",
    "parallel",
    "workflow",
    "wait",
    "channel",
)
_PLAIN: Final = {kind.replace("_", ""): kind for kind in KINDS}
OnError = Literal["fail", "collect"]
FIRST_SERVER_ERROR: Final = 500
TRANSIENT_STATUSES: Final = frozenset({408, 425, 429})
"""The statuses below 500 after which the same request may succeed. Every other 4xx stays as it is."""


def canonical_kind(kind: object) -> object:
    """`Api-Call` -> `api_call`; what is no kind stays as it is, for the error to name."""
    if not isinstance(kind, str):
        return kind
    return _PLAIN.get(kind.lower().replace("_", "").replace("-", ""), kind)


def kind_of(step: object) -> str | None:
    """The kind of a step as it was written: what it says, or what its block says."""
    if isinstance(step, _Step):
        return str(step.kind)  # type: ignore[attr-defined]  # every kind of step has one
    if not isinstance(step, dict):
        return None
    if "kind" in step:
        kind = canonical_kind(step["kind"])
        return kind if isinstance(kind, str) else None
    return next((kind for kind in KINDS if kind in step), "functional")


CanonicalKind: Final = BeforeValidator(canonical_kind)


class Retry(Part):
    """Try a step again, after a pause that doubles each time."""

    attempts: int = Field(default=3, ge=1, le=100)
    """All together, the first included."""
    on: list[str] = ["error", "timeout", "parse_error"]
    """The signals it is tried again after."""
    backoff: Duration = 1.0
    """The first pause."""
    max_backoff: Duration = 300.0
    statuses: list[Annotated[int, Field(ge=400, le=599)]] | None = None
    """The HTTP statuses a request is tried again after. Without it: 408, 425, 429 and 500 on."""

    def repeats(self, signal: str, status: int | None) -> bool:
        """Return whether an attempt that ended like this is repeated; `status` is its HTTP status, if any."""
        if status is None:
            return signal in self.on
        if self.statuses is not None:
            return status in self.statuses
        is_transient = status in TRANSIENT_STATUSES or status >= FIRST_SERVER_ERROR
        return f"http_{status}" in self.on or (signal in self.on and is_transient)


class _Step(Part):
    """What every step has."""

    id: Name
    description: str = ""
    when: Expression | None = None
    """Where it does not hold, the step is passed over with the signal `default`."""
    timeout: Duration | None = None
    """How long one attempt may take; then its signal is `timeout`."""
    retry: Retry | None = None
    routes: dict[str, str] = {}
    """Signal -> a step's id, END or FAIL (F4)."""

    @property
    def asks(self) -> AskBlock | None:
        """Whom agents of the step ask; None: no group."""
        return None


class FunctionalStep(_Step):
    """A Python function: `@node("name")`."""

    kind: Annotated[Literal["functional"], CanonicalKind] = "functional"
    runner: str = Field(min_length=1, max_length=200)
    """The node's name."""


class Output(Part):
    """What becomes of an agent's answer, or of what another system sent back."""

    format: Literal["json", "text", "signal"] | None = None
    """Without it: an object is JSON, anything else is text."""
    map: dict[str, Key] = {}
    """A key (or a dotted path) of the answer -> the context key it is written to. Without it: all keys."""
    key: Key | None = None
    """Where a text, or the whole answer, goes; without it, a text goes under the step's id."""
    schema_: AnswerFields | None = Field(default=None, alias="schema")
    """What the answer has to be; one that is not gets one chance to be repaired."""
    signal_from: str | None = None
    """The key of the answer that is the step's signal."""


class AskBlock(Part):
    """Whom an agent's tools ask: for approval (`@tool(approval=True)`) and with `context.input`."""

    group: str = Field(min_length=1, max_length=200, pattern=r"^\S(.*\S)?$")
    """Who may answer. Each question is a task of this group."""
    expires: Duration | None = None
    """Then an approval counts as declined, and `context.input` raises `TimeoutError`."""


class AgentBlock(Part):
    """Which agent, and what it is asked."""

    name: str | None = None
    """An `Agent` of the project; without it, one is made of what stands here."""
    model: str | None = None
    """Such as `openai:gpt-5-mini`; without it, the project's."""
    system: Template = ""
    prompt: Template | None = None
    """What it is asked; without it, the public context."""
    tools: list[str] = []
    """Names of `@tool` functions of the project."""
    ask: AskBlock | None = None
    """Whom its tools ask; without it, a tool that asks a person is an error."""
    recent_n: int = Field(default=0, ge=0, le=1000)
    """How many of the last answers of the run's agent steps it is shown before the prompt; 0: none."""
    output: Output = Output()


class AgentStep(_Step):
    """An agent's round."""

    kind: Annotated[Literal["agent"], CanonicalKind] = "agent"
    agent: AgentBlock = AgentBlock()

    @property
    def asks(self) -> AskBlock | None:
        return self.agent.ask


class RouterCondition(Part):
    """When `if` holds, this signal; `else: true` always holds."""

    if_: Expression | None = Field(default=None, alias="if")
    else_: Literal[True] | None = Field(default=None, alias="else")
    signal: str = Field(min_length=1, max_length=200)

    @model_validator(mode="after")
    def _one_of_them(self) -> RouterCondition:
        if (self.if_ is None) == (self.else_ is None):
            raise ValueError("a condition has either `if` or `else: true`")
        return self


class RouterBlock(Part):
    """The first condition that holds says the signal; none: `default`."""

    conditions: list[RouterCondition] = []


class RouterStep(_Step):
    """Conditions over the context -> a signal."""

    kind: Annotated[Literal["router"], CanonicalKind] = "router"
    router: RouterBlock = RouterBlock()


class ApiCallBlock(Part):
    """One HTTP request (F11). Templates everywhere; `{{ secret.NAME }}` in headers only."""

    url: Template = Field(min_length=1)
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"] = "GET"
    headers: dict[str, str] = {}
    query: dict[str, Json] = {}
    json_: Json = Field(default=None, alias="json")
    """The body, as data; `body` is the body as text."""
    body: Template | None = None
    output: Output = Output()
    max_bytes: int = Field(default=1_000_000, ge=1, le=100_000_000)
    """Of the answer; a longer one is an error."""
    allow_private: bool = False
    """Let it call private and loopback addresses."""


class ApiCallStep(_Step):
    """A request to another system."""

    kind: Annotated[Literal["api_call"], CanonicalKind] = "api_call"
    api_call: ApiCallBlock


class ModelOpBlock(Part):
    """One operation on a data model (F12). Texts in `id`, `values` and `where` are templates."""

    model: str
    op: Literal["add", "get", "list", "update", "remove"]
    id: Json = None
    """Of `get`, `update` and `remove`: which row."""
    values: dict[str, Json] = {}
    """Of `add` and `update`: field -> value."""
    where: dict[str, Json] = {}
    """Field -> a value, or `{gt: 80}` and the like."""
    order_by: str | None = None
    """A field; with `-` before it, downwards."""
    limit: int = Field(default=100, ge=1, le=10_000)
    into: Key | None = None
    """Where the row or rows go; without it a row's fields are merged, and rows go under the step's id."""


class ModelOpStep(_Step):
    """An operation on a data model, without Python."""

    kind: Annotated[Literal["model_op"], CanonicalKind] = "model_op"
    model_op: ModelOpBlock


class ResponseBlock(Part):
    """What the caller gets. A text in `mapping` is an expression: a context key, or more."""

    mapping: dict[str, Json] = {}
    status: int = Field(default=200, ge=200, le=299)
    """The HTTP status of a run that succeeds."""


class ResponseStep(_Step):
    """Shape the response. Without routes the run ends here."""

    kind: Annotated[Literal["response"], CanonicalKind] = "response"
    response: ResponseBlock = ResponseBlock()


class HumanBlock(Part):
    """A question to a person."""

    title: Template
    description: Template = ""
    show: list[str] = []
    """The context keys the person is shown."""
    form: AnswerFields = {}
    """What is asked for; the answer is checked against it."""
    group: str | None = None
    """Who may answer; without it, everybody with the scope."""
    expires: Duration | None = None
    """Then the signal is `expired`; without it, it waits for ever."""
    signal_from: str | None = None
    """The form's field that is the step's signal."""


class HumanStep(_Step):
    """Wait for a person's answer; it is written into the context. Signals: `default`, `expired`."""

    kind: Annotated[Literal["human"], CanonicalKind] = "human"
    human: HumanBlock


class McpBlock(Part):
    """A tool of an MCP server. Texts in `arguments` are templates."""

    server: str
    """The name of a server in turnline.yaml, or its address."""
    tool: str
    arguments: dict[str, Json] = {}
    output: Output = Output()


class McpStep(_Step):
    """Call a tool of an MCP server."""

    kind: Annotated[Literal["mcp"], CanonicalKind] = "mcp"
    mcp: McpBlock


class ForEachBlock(Part):
    """Steps for every item of a list, each on a channel of its own."""

    items: Expression
    """An expression that gives a list."""
    as_: Key = Field(default="item", alias="as")
    index: Key | None = None
    """Where the item's place goes, from 0."""
    steps: list[Step] = Field(min_length=1)
    concurrency: int = Field(default=8, ge=1, le=1000)
    """Items at once."""
    on_error: OnError = "fail"
    """`collect`: an item that fails is a result with its error's type and a reference; the step goes on."""
    into: Key = "results"
    """A result for each item, in their order: its response, or else what its steps wrote."""


class ForEachStep(_Step):
    """The same steps for every item."""

    kind: Annotated[Literal["for_each"], CanonicalKind] = "for_each"
    for_each: ForEachBlock


class ParallelBlock(Part):
    """Branches that go on at the same time, each on a channel of its own."""

    branches: dict[Name, Annotated[list[Step], Field(min_length=1)]] = Field(min_length=1)
    on_error: OnError = "fail"
    """`collect`: a branch that fails is a result with its error's type and a reference; the step goes on."""
    into: Key | None = None
    """Where the branches' results go, by name; without it, what they wrote is merged, in their order."""


class ParallelStep(_Step):
    """Several branches at once."""

    kind: Annotated[Literal["parallel"], CanonicalKind] = "parallel"
    parallel: ParallelBlock


class WorkflowBlock(Part):
    """Another flow, as one step. Texts in `input` are templates; without it, it gets the whole context.

    The input is checked by the flow's `trigger.input`, with defaults, like a request's body.
    """

    name: Name
    input: dict[str, Json] | None = None
    into: Key | None = None
    """Where its response goes; without it, it is merged."""


class WorkflowStep(_Step):
    """A run of another flow."""

    kind: Annotated[Literal["workflow"], CanonicalKind] = "workflow"
    workflow: WorkflowBlock


class WaitBlock(Part):
    """Wait for a time, or for an event somebody posts to the run. Signals: `default`, `timeout`."""

    for_: Duration | None = Field(default=None, alias="for")
    until: Template | None = None
    """A time: `2026-12-24T18:00:00Z`, or a template that gives one."""
    event: Name | None = None
    """Its name, as it is posted to `/runs/ID/events/NAME`."""
    expires: Duration | None = None
    """How long to wait for the event."""
    into: Key | None = None
    """Where the event's data goes; without it, it is merged."""

    @model_validator(mode="after")
    def _one_of_them(self) -> WaitBlock:
        if sum(one is not None for one in (self.for_, self.until, self.event)) != 1:
            raise ValueError("a wait has exactly one of `for`, `until` and `event`")
        return self


class WaitStep(_Step):
    """Wait without holding anything."""

    kind: Annotated[Literal["wait"], CanonicalKind] = "wait"
    wait: WaitBlock


class ChannelBlock(Part):
    """A conversation between agents of the project."""

    agents: list[str] = Field(min_length=1)
    """Names of `Agent` objects of the project, in the order of the pattern."""
    pattern: Literal["sequence", "round_robin"] = "sequence"
    graph: dict[str, Json] | None = None
    """A whole graph (`TransitionGraph.to_dict()`), instead of a pattern."""
    message: Template
    context: dict[str, Json] = {}
    """The conversation's first context variables; texts are templates."""
    max_turns: int = Field(default=20, ge=1, le=1000)
    map: dict[str, Key] = {}
    """A context variable of the conversation -> the run's."""
    ask: AskBlock | None = None
    """Whom its agents ask, and the peers that they delegate to; without it, a tool that asks is an error."""
    into: Key | None = None
    """Where the last words go; without it, under the step's id."""


class ChannelStep(_Step):
    """A multi-agent conversation with its own graph, as one step."""

    kind: Annotated[Literal["channel"], CanonicalKind] = "channel"
    channel: ChannelBlock

    @property
    def asks(self) -> AskBlock | None:
        return self.channel.ask


Step = Annotated[
    Annotated[FunctionalStep, Tag("functional")]
    | Annotated[AgentStep, Tag("agent")]
    | Annotated[RouterStep, Tag("router")]
    | Annotated[ApiCallStep, Tag("api_call")]
    | Annotated[ModelOpStep, Tag("model_op")]
    | Annotated[ResponseStep, Tag("response")]
    | Annotated[HumanStep, Tag("human")]
    | Annotated[McpStep, Tag("mcp")]
    | Annotated[ForEachStep, Tag("for_each")]
    | Annotated[ParallelStep, Tag("parallel")]
    | Annotated[WorkflowStep, Tag("workflow")]
    | Annotated[WaitStep, Tag("wait")]
    | Annotated[ChannelStep, Tag("channel")],
    Discriminator(kind_of),
]

ForEachBlock.model_rebuild()
ParallelBlock.model_rebuild()
ForEachStep.model_rebuild()
ParallelStep.model_rebuild()
