"""A step in progress: what whoever performs it is given, and what it gives back.

    async def perform(work: StepWork[RouterStep]) -> StepResult | Paused

One module in `flow/steps/` for each kind, each with one such function. It reads the
work and returns; the engine claims the turn, posts the packet, keeps the timers and
tries again. What it raises becomes a signal: `TimeoutError` is `timeout`, `ParseFailed`
is `parse_error`, anything else is `error` (F5).

A step that has to wait for something returns `Paused`. Nothing of it stays in memory:
when the time has come, or the answer, or the children have closed, `perform` is called
again, and `work.history` holds what came meanwhile. So it is written as a function
of what is on the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypeVar

from turnline.agent.agent import Agent, Config
from turnline.agent.journal import Entry
from turnline.agent.messages import Usage
from turnline.agent.performer import OnProgress
from turnline.agent.tool import Tool
from turnline.core.claims import Paused
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.parts import FilePart
from turnline.core.state import State
from turnline.core.views import Message
from turnline.flow.definition.flow import Flow, ModelUse
from turnline.flow.definition.steps import Step
from turnline.flow.files import NO_FILES, RunFiles
from turnline.log.joined import Transaction
from turnline.turns.journal import TurnJournal
from turnline.turns.people import People

DEFAULT: Final = "default"
LIVE_KEYS: Final = frozenset({"_session", "_db", "_once", "_read_file"})
"""Handles that are laid over the context for a step and are never stored (F2)."""

S = TypeVar("S", bound=Step)

ShowAnswers = Callable[[Agent, int, Config], Awaitable[tuple[list[Message], Usage]]]
"""An agent, how many answers, the model that sums up -> the answers, and what summing up cost."""

Node = Callable[[dict[str, Any]], object]
"""A `@node` function: sync or async, one argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """How a step ended. It becomes the packet."""

    signal: str = DEFAULT
    updates: JsonObject = field(default_factory=dict)
    """Public keys it sets. Whatever came from outside has been through `context.from_outside` (F1)."""
    deletes: Sequence[str] = ()
    private: JsonObject = field(default_factory=dict)
    """Keys with `_` it sets: kept for the run, never shown to anybody (F2)."""
    private_deletes: Sequence[str] = ()
    body: str = ""
    """For people who read the log."""
    usage: JsonObject = field(default_factory=dict)
    files: Sequence[FilePart] = ()
    """What an agent's tools attached to its reply."""
    commit: UnitOfWork | None = None
    """Database work that lands with the packet (F7)."""
    status: int | None = None
    """The HTTP status, 400 or above, that the step failed with. `retry` decides by it."""
    is_final: bool = False
    """Whether another attempt cannot end differently. `retry` does not repeat it."""


def skipped(step: Step) -> str:
    """Return the body of the packet of a step whose `when` does not hold."""
    return f"passed over: {step.when}"


class UnitOfWork(Transaction, Protocol):
    """One step's database work: nothing lands before its packet does (F7, F12)."""

    db: Any
    """`ctx["_db"]`: `db["Lead"].add(...)`."""
    session: Any
    """`ctx["_session"]`: an `AsyncSession`."""

    async def commit_alone(self) -> None:
        """Commit where the log is not in the same database: before the packet, as near to it as can be."""
        ...

    async def close(self) -> None:
        """Let go of everything; what is not committed is undone. Closing twice is allowed."""
        ...


class Data(Protocol):
    """The data models of a project."""

    @property
    def shares_log(self) -> bool:
        """Whether they live in the log's own database: then a unit of work is committed with the packet."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether the database is open. One that is not is opened by the first `begin`."""
        ...

    def begin(self, declared: Sequence[ModelUse], versions: Mapping[str, str]) -> UnitOfWork:
        """Return a step's unit of work. Costs nothing until it is used; knows only `declared` models."""
        ...


class StepChildren(Protocol):
    """Channels below a run, at places a step names. Opening one that is there already changes nothing."""

    async def run_inner(self, place: str, inner: str, context: JsonObject) -> None:
        """Run the step's own inner steps (`definition.flow.inner_steps`, by name) with this context."""
        ...

    async def run_flow(self, place: str, flow: str, input: JsonObject | None) -> None:
        """Run another flow of the project, on the definition it had when the run began.

        The input is checked as its trigger says, with defaults. None is the run's context, as far as
        the flow takes it. Raises `InputRefused`.
        """
        ...

    async def converse(
        self, place: str, agents: Sequence[str], graph: JsonObject, message: str, context: JsonObject
    ) -> None:
        """Open a conversation between registered agents."""
        ...

    def id_of(self, place: str) -> str:
        """Return the id of the child at a place."""
        ...

    async def state(self, place: str) -> State | None:
        """Return the child's state, or None if there is no child at this place."""
        ...

    async def last_words(self, place: str) -> str:
        """Return what was said last on a conversation that has closed; empty if nothing was."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the project and its surroundings give to steps."""

    flows: Mapping[str, Flow] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    agents: Mapping[str, Agent] = field(default_factory=dict)
    tools: Mapping[str, Tool[..., Any]] = field(default_factory=dict)
    model: Config = None
    """The default model of agent steps."""
    data: Data | None = None
    secret: Callable[[str], str | None] = lambda name: None
    """The value of a secret, by name; asked only for headers, at the last moment."""
    allow_private: bool = False
    """Whether every `api_call` may reach private addresses, not only those that say so."""
    mcp_servers: Mapping[str, JsonObject] = field(default_factory=dict)
    http_transport: Any = None
    """An httpx2 transport for `api_call`; None is the network."""
    resolve_host: Callable[[str, int], Awaitable[Sequence[str]]] | None = None
    """Host and port -> addresses, for `api_call`; None is the system's resolver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork(Generic[S]):
    """One attempt at a step."""

    step: S
    run_id: str
    flow: Flow
    """The definition the run began with."""
    turn: int
    attempt: int
    """1 the first time; one more after every retry."""
    public: JsonObject
    """The run's context, without anything private: what templates, prompts and conditions see. A copy."""
    private: JsonObject
    """The keys with `_`. A copy."""
    history: Sequence[Envelope]
    """What is on the log of this attempt: recorded entries, pauses, what ended them. In order."""
    now: datetime
    """The time people read."""
    elapsed_seconds: float
    """How much of the step's `timeout` is over. Setting the clock changes nothing.

    It is the age of the attempt's first line; for an agent step, see `flow.pauses.counted_seconds`.
    """
    services: Services
    children: StepChildren
    journal: TurnJournal
    """Writes the units of the turn on the log, and has the results of `once`, also of earlier attempts."""
    recorded: Sequence[Entry]
    """The entries of the round that are there already: a killed attempt's."""
    sleep: Callable[[float], Awaitable[None]]
    dropped: Callable[[str, Sequence[str]], None]
    """Notes in the audit that reserved keys from a source were dropped (F1)."""
    files: RunFiles = NO_FILES
    """The files that the run began with."""
    people: People | None = None
    """Whom an agent's tools ask; None: nobody."""
    show_answers: ShowAnswers | None = None
    """Returns what an agent is shown of the run's answers; None: nothing."""
    words: OnProgress | None = None
    """Tells listeners the words of the model as they come; None: nobody listens."""
    within: WorkTimeout = field(default_factory=lambda: WorkTimeout(None))
    """The limit of this performance."""

    @property
    def took_too_long(self) -> TimeoutError:
        """The error of a step whose own `timeout` is over."""
        return TimeoutError(f"the step took longer than its timeout of {self.step.timeout:g} s")

    @property
    def key(self) -> str:
        """The same for every attempt at this turn, also after a crash, and for no other one."""
        return f"{self.run_id}:{self.turn}"


class WorkTimeout:
    """A limit of time that stands still while a person is asked (N1a). An async context manager.

    Other calls that run while a person is asked are not counted either.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._timeout: asyncio.Timeout | None = None
        self._waiting = 0
        """How many calls wait for a person."""
        self._left: float | None = None
        """The seconds that are left when the last person has answered."""

    async def __aenter__(self) -> WorkTimeout:
        self._timeout = asyncio.timeout(self._seconds)
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        assert self._timeout is not None
        await self._timeout.__aexit__(*raised)

    @property
    def has_expired(self) -> bool:
        """Whether the limit was reached."""
        return self._timeout is not None and self._timeout.expired()

    @contextmanager
    def stop_clock(self) -> Iterator[None]:
        """Do not count the time inside of this."""
        self._waiting += 1
        if self._waiting == 1:
            self._left = self._seconds_left()
            self._set(None)
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting and self._left is not None:
                self._set(asyncio.get_running_loop().time() + self._left)

    def _seconds_left(self) -> float | None:
        when = None if self._timeout is None else self._timeout.when()
        return None if when is None else when - asyncio.get_running_loop().time()

    def _set(self, when: float | None) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(when)


PerformStep = Callable[[StepWork[Any]], Awaitable[StepResult | Paused]]
