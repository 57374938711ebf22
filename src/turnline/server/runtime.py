"""The runtime: a project at work, without any server around it.

    project -> log -> hub -> data -> services -> driver -> runs, tasks

    async with open_runtime(load_project(folder)) as runtime:
        run_id = await runtime.runs.start("lead_processing", {"email": "ada@example.com"})

It is made before anything is opened, so that whoever builds routes knows the flows; it
is opened once, and closed in the opposite order. A server opens it (`create_app`), and so
does the command line.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self
from weakref import WeakSet

from turnline.agent.agent import Agent
from turnline.client.embedded import Hub
from turnline.core.channel import ChannelFilter
from turnline.core.directory import check_not_reserved
from turnline.core.governance import OPEN_CHANNELS_PER_USER
from turnline.core.state import WorkflowState
from turnline.core.variables import MAX_CONTEXT_BYTES
from turnline.errors import BadKey, ChannelQuarantined, HubClosed, LogError
from turnline.flow.data.definition import ModelDefinition, read_models
from turnline.flow.data.late import LateData
from turnline.flow.definition.flow import Flow
from turnline.flow.driver import Driver, OnFailed
from turnline.flow.finding import Report
from turnline.flow.project import Project
from turnline.flow.runs import Runs
from turnline.flow.tasks import Tasks
from turnline.flow.trust import TrustKey, any_reads_secrets, ensure_trust_key, find_trust_key
from turnline.flow.verdict import RunError
from turnline.flow.work import Data, Services
from turnline.hub.timers import Clock, NewId, SystemClock
from turnline.log.address import MEMORY, open_log
from turnline.log.base import Log
from turnline.log.blobs import MAX_USER_BYTES
from turnline.log.seals import seal_log
from turnline.log.walks import list_rows
from turnline.server.limits import OPEN_RUNS_OF_STRANGERS, OPEN_RUNS_PER_USER, OpenRuns
from turnline.server.retention import Retain, Retention

if TYPE_CHECKING:
    from turnline.flow.data.database import Database

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 30.0
GRACE_SECONDS: Final = 10.0
SEAL_SECONDS: Final = 300.0
"""How often a server seals its log, if something was appended. A seal costs what was appended."""

Status = Literal["new", "starting", "ready", "draining", "closed"]
OpenData = Callable[[Log], AbstractAsyncContextManager[Data | None]]


class Runtime:
    """Everything a project needs to run its flows. `async with runtime:` opens it."""

    def __init__(
        self,
        services: Services,
        *,
        open_log: Callable[[], Log],
        open_data: OpenData | None = None,
        find_trust_key: Callable[[], TrustKey | None] = lambda: None,
        clock: Clock | None = None,
        sources: Mapping[str, str] | None = None,
        runs_at_once: int | None = None,
        quotas: Mapping[str, int] | None = None,
        sweep_seconds: float = SWEEP_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
        retain: Retain | None = None,
        seal_seconds: float = SEAL_SECONDS,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.status: Status = "new"
        self.sources: Mapping[str, str] = sources or {}
        """Flow -> the file it was read from, as its author wrote it."""
        self._quotas = dict(quotas or {})
        self.open_runs = OpenRuns(
            services.flows,
            in_all=runs_at_once,
            per_user=self._quotas.get("open_runs_per_user", OPEN_RUNS_PER_USER),
            of_strangers=self._quotas.get("open_runs_of_strangers", OPEN_RUNS_OF_STRANGERS),
        )
        self.stopping = asyncio.Event()
        """Set when the runtime is told to stop; who waits for long waits for it too."""
        self.on_failed: OnFailed | None = None
        """Called with each run of this process that has failed; a server logs it."""
        self._services = services
        self.open_log = open_log
        self._open_data = open_data
        self._find_trust_key = find_trust_key
        self._sweep_seconds = sweep_seconds
        self._grace_seconds = grace_seconds
        self._retain = retain
        self._seal_seconds = seal_seconds
        self._patience: WeakSet[asyncio.Timeout] = WeakSet()
        self._has_given_up = False
        self._stack = AsyncExitStack()
        self._hub: Hub | None = None
        self._driver: Driver | None = None

    @property
    def flows(self) -> Mapping[str, Flow]:
        return self._services.flows

    @property
    def agents(self) -> Mapping[str, Agent]:
        return self._services.agents

    @property
    def hub(self) -> Hub:
        """Raises `HubClosed` before it is opened, and after."""
        if self._hub is None:
            raise HubClosed
        return self._hub

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            raise HubClosed
        return self._driver

    @property
    def runs(self) -> Runs:
        return Runs(self.driver)

    @property
    def tasks(self) -> Tasks:
        return Tasks(self.driver)

    @property
    def is_ready(self) -> bool:
        return self.status == "ready"

    async def __aenter__(self) -> Self:
        if self.status != "new":
            raise RuntimeError(f"a runtime is opened once; this one is {self.status}")
        self.status = "starting"
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise
        self.status = "ready"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    def drain(self) -> None:
        """Begin nothing new. Whoever waits for a run may go on for a while; `give_up` ends that."""
        if self.status in ("starting", "ready"):
            self.status = "draining"
        self.stopping.set()

    def give_up(self) -> None:
        """Raise `TimeoutError` in all that wait within `patience`, now or later. The runs go on."""
        self._has_given_up = True
        now = asyncio.get_running_loop().time()
        for timeout in list(self._patience):
            with suppress(RuntimeError):  # Nobody waits within it any more.
                timeout.reschedule(now)

    def patience(self) -> asyncio.Timeout:
        """`async with` it, whoever waits for as long as it takes: `TimeoutError` once `give_up` is called."""
        timeout = asyncio.timeout(0 if self._has_given_up else None)
        self._patience.add(timeout)
        return timeout

    async def _start(self) -> None:
        log = self.open_log()
        self._stack.push_async_callback(log.close)
        hub = await Hub.open(
            log,
            ttl_sweep_interval=self._sweep_seconds,
            clock=self.clock,
            listeners=[self.open_runs],
            context_bytes=self._quotas.get("context_bytes", MAX_CONTEXT_BYTES),
            file_bytes_per_user=self._quotas.get("file_bytes_per_user", MAX_USER_BYTES),
            open_channels_per_user=self._quotas.get("open_channels_per_user", OPEN_CHANNELS_PER_USER),
            follow=True,  # Another process may serve the same log: `turnline run`, or a second server.
        )
        self._stack.push_async_callback(hub.close)
        if log.address != MEMORY:
            await self._stack.enter_async_context(self._sealing(log, hub.new_id))
        data = None
        if self._open_data is not None:
            data = await self._stack.enter_async_context(self._open_data(log))
        for agent in self._services.agents.values():
            check_not_reserved(agent.name)
            await hub.register(agent)
        services = replace(self._services, data=data or self._services.data)
        driver = Driver(hub, services, trust_key=self._find_trust_key(), on_failed=self._tell_failed)
        await driver.start()
        self._stack.push_async_callback(self._drained, hub, driver)
        self.open_runs.driver_id = driver.agent_id
        for row in await list_rows(hub.lines, ChannelFilter(is_run=True, is_closed=False)):
            self.open_runs.take_over(row)
        if self._retain is not None:
            retention = asyncio.create_task(Retention(hub, self._retain).run())
            self._stack.push_async_callback(_end, retention)
        self._hub, self._driver = hub, driver

    @asynccontextmanager
    async def _sealing(self, log: Log, new_id: NewId) -> AsyncIterator[None]:
        """Seal the log now and then, for as long as the runtime is open (Y4)."""
        task = asyncio.create_task(self._seal(log, new_id))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _seal(self, log: Log, new_id: NewId) -> None:
        while True:
            await self.clock.sleep(self._seal_seconds)
            try:
                await seal_log(log, now=self.clock.now, new_id=new_id)
            except (LogError, ChannelQuarantined) as error:  # The runs go on without it.
                logger.warning("The log was not sealed. %s If it is damaged: turnline log repair", error)

    def _tell_failed(self, state: WorkflowState, error: RunError) -> None:
        if self.on_failed is not None:
            self.on_failed(state, error)

    async def _drained(self, hub: Hub, driver: Driver) -> None:
        """Steps and agents may end what they do; the rest is released, and taken up elsewhere."""
        seconds = self._grace_seconds
        await asyncio.gather(driver.stop(grace_seconds=seconds), hub.drain(grace_seconds=seconds))

    async def _close(self) -> None:
        """What is performed may end; then the data, the hub and the log, in this order."""
        self.drain()
        self.give_up()
        await self._stack.aclose()
        self._hub = self._driver = None
        self.status = "closed"


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def runtime_of(
    project: Project,
    *,
    log_address: str | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    grace_seconds: float = GRACE_SECONDS,
    retain: Retain | None = None,
) -> Runtime:
    """Return the runtime of a project, not opened yet. Raises `BadDocuments` with the whole report.

    Raises `NoDatabase` for data models on NATS without `database:`. A log in memory keeps them in memory.
    A secret is the environment variable of its name, looked up when a step asks for it.
    """
    models, report = _models(project)
    report.raise_if_bad()
    project.check_database(log_address, is_dev=True)
    settings = project.settings
    environ = os.environ if environ is None else environ
    address = log_address or project.log_address
    services = Services(
        flows={name: _timed(flow, settings.limits.timeout) for name, flow in project.definitions.items()},
        nodes=project.nodes,
        agents={name: _with_model(agent, settings.model) for name, agent in project.agents.items()},
        tools=project.tools,
        model=settings.model,
        secret=environ.get,
        mcp_servers=settings.servers(),
        allow_private=settings.allow_private,
    )
    return Runtime(
        services,
        open_log=partial(open_log, address),
        open_data=partial(_opened, models, settings.database, clock),
        find_trust_key=partial(_trust_key, project, environ, address),
        clock=clock,
        sources=_sources(project),
        runs_at_once=settings.limits.concurrency,
        quotas=settings.limits.quotas(),
        grace_seconds=grace_seconds,
        retain=retain,
    )


@asynccontextmanager
async def open_runtime(
    project: Project,
    *,
    log_address: str | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> AsyncIterator[Runtime]:
    """Open a project's runtime, and close it in the end. See `runtime_of`."""
    runtime = runtime_of(
        project, log_address=log_address, environ=environ, clock=clock, grace_seconds=grace_seconds
    )
    async with runtime:
        yield runtime


def _trust_key(project: Project, environ: Mapping[str, str], log_address: str) -> TrustKey | None:
    """Return the key that marks the project's definitions; create it if a flow reads secrets.

    Nothing is created for a log in memory: no run outlives the process. Raises `BadKey` for a key
    that is there and cannot be used.
    """
    if log_address == MEMORY:
        return None
    found = find_trust_key(environ, project.root)
    if found is not None or not any_reads_secrets(project.definitions.values()):
        return found
    try:
        return ensure_trust_key(environ, project.root)
    except BadKey as error:
        logger.warning("After a deploy, runs of older flow versions will get no secrets. %s", error)
        return None


def _sources(project: Project) -> dict[str, str]:
    """What the authors of the flows wrote, variables as they are named; nothing is filled in."""
    found = {}
    for name, loaded in project.flows.items():
        with suppress(OSError, UnicodeDecodeError):
            found[name] = Path(loaded.file).read_text(encoding="utf-8")
    return found


def _models(project: Project) -> tuple[list[ModelDefinition], Report]:
    """The data models, and the project's report with what is wrong with them."""
    models, findings = read_models(project.models)
    return models, Report([*project.report.findings, *findings])


@asynccontextmanager
async def _opened(
    models: list[ModelDefinition], url: str | None, clock: Clock | None, log: Log
) -> AsyncIterator[Data]:
    database: Database | LateData = LateData(log, url=url, clock=clock)
    if models:
        # SQLAlchemy costs a second; a project without data models does without it.
        from turnline.flow.data.database import open_data  # noqa: PLC0415

        database = await open_data(models, log=log, url=url, clock=clock)
    try:
        yield database
    finally:
        await database.close()


def _timed(flow: Flow, seconds: float | None) -> Flow:
    """The flow; where it does not say how long a run may take, the project does."""
    limits = flow.spec.limits
    if seconds is None or limits.timeout is not None:
        return flow
    spec = flow.spec.model_copy(update={"limits": limits.model_copy(update={"timeout": seconds})})
    return flow.model_copy(update={"spec": spec})


def _with_model(agent: Agent, model: str | None) -> Agent:
    """The agent; where it names no model, with the project's."""
    if model is None or agent.config is not None:
        return agent
    twin = copy(agent)
    twin.config = model
    return twin
