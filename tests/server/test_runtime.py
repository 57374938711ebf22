"""A project at work: opened once, closed in order, from a folder or from parts."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import msgspec
import pytest

from turnline.client.embedded import Hub
from turnline.core.directory import DIRECTORY_CHANNEL, EV_PARTICIPANT_REGISTERED, RESERVED_NAMES
from turnline.core.event_types import HUB
from turnline.core.governance import Passport, Registrar, Registration, Resume
from turnline.errors import HubClosed, NameTaken
from turnline.errors.flows import BadDocuments
from turnline.flow.driver import DRIVER
from turnline.flow.project import load_project
from turnline.flow.work import Services
from turnline.log.address import open_log
from turnline.log.memory import MemoryLog
from turnline.log.seals import SEALS_CHANNEL
from turnline.log.sqlite import SqliteLog
from turnline.server.mcp import CALLER
from turnline.server.runtime import Runtime, open_runtime, runtime_of
from turnline.testing import ManualClock
from turnline.testing.lines import line

from .stage import runtime_with

WORK = "steps: [{id: only, runner: work}]"
FLOWS = """
kind: Workflow
metadata: {name: save}
spec:
  context: {models: [{name: Lead}]}
  steps: [{id: save, runner: save}]
---
kind: Workflow
metadata: {name: talk}
spec:
  limits: {timeout: 5m}
  steps:
    - id: talk
      channel: {agents: [ada, bob], message: "Hello {{ name }}", max_turns: 2, into: said}
---
kind: ModelDefinition
metadata: {name: Lead}
spec: {fields: {email: {type: string, required: true}}}
"""
CODE = """
from turnline import Agent
from turnline.flow.node import node
from turnline.testing import ScriptedModel

ada = Agent("ada", config=ScriptedModel("hi, I am ada"))
bob = Agent("bob", config=ScriptedModel("hi, I am bob"))


@node("save")
async def save(ctx):
    row = await ctx["_db"]["Lead"].add(email=ctx["email"])
    return {"id": str(row["id"]), "count": len(await ctx["_db"]["Lead"].list())}
"""


def folder(path: Path, settings: str = "") -> Path:
    (path / "nodes").mkdir()
    (path / "nodes" / "all.py").write_text(CODE)
    (path / "flows.yaml").write_text(FLOWS)
    (path / "turnline.yaml").write_text(settings)
    return path


async def test_a_project_runs_with_its_nodes_its_data_and_its_agents(tmp_path: Path) -> None:
    async with open_runtime(load_project(folder(tmp_path))) as runtime:
        first = await runtime.runs.wait(await runtime.runs.start("save", {"email": "a@example.com"}))
        talk = await runtime.runs.wait(await runtime.runs.start("talk", {"name": "Ann"}))
        address = runtime.hub.log.address
    async with open_runtime(load_project(tmp_path)) as runtime:
        second = await runtime.runs.wait(await runtime.runs.start("save", {"email": "b@example.com"}))

    assert (first.data["count"], second.data["count"]) == (1, 2)
    assert talk.data == {"name": "Ann", "said": "hi, I am bob"}
    assert address == f"sqlite:///{tmp_path}/.turnline/log.db"


async def test_the_log_can_be_chosen(tmp_path: Path) -> None:
    async with open_runtime(load_project(folder(tmp_path)), log_address="memory:") as runtime:
        assert isinstance(runtime.hub.log, MemoryLog)
    async with open_runtime(load_project(tmp_path), log_address=f"sqlite:///{tmp_path}/other.db") as runtime:
        assert isinstance(runtime.hub.log, SqliteLog)

    assert not (tmp_path / ".turnline").exists()


def test_documents_with_mistakes_are_told_before_anything_is_opened(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "bad.yaml").write_text("kind: ModelDefinition\nmetadata: {name: Bad}\nspec: {feilds: {}}\n")
    (tmp_path / "worse.yaml").write_text("kind: Workflow\nmetadata: {name: worse}\nspec: {steps: []}\n")

    with pytest.raises(BadDocuments) as caught:
        runtime_of(load_project(tmp_path))

    assert {finding["file"] for finding in caught.value.findings} == {
        str(tmp_path / "bad.yaml"),
        str(tmp_path / "worse.yaml"),
    }


def test_the_projects_time_limit_is_for_flows_that_have_none(tmp_path: Path) -> None:
    runtime = runtime_of(load_project(folder(tmp_path, "limits: {timeout: 1h}")))

    timeouts = {name: flow.spec.limits.timeout for name, flow in runtime.flows.items()}
    assert timeouts == {"save": 3600.0, "talk": 300.0}


async def test_a_runtime_is_made_before_it_is_opened_and_opened_once() -> None:
    runtime = runtime_with(WORK, work=lambda ctx: None)
    assert (list(runtime.flows), runtime.status) == (["main"], "new")
    with pytest.raises(HubClosed):
        _ = runtime.hub

    async with runtime:
        assert runtime.is_ready
    with pytest.raises(HubClosed):
        _ = runtime.driver
    with pytest.raises(RuntimeError, match="closed"):
        await runtime.__aenter__()


async def squat_driver(address: str, kind: str) -> Registration:
    """Write a registration that no server accepts."""
    log = open_log(address)
    passport = Passport(name=DRIVER, kind=kind, owner="mallory")
    squatter = Registration(agent_id="flows-0", passport=passport, user="mallory")
    head = await log.head(DIRECTORY_CHANNEL)
    assert head is not None
    plain = line(DIRECTORY_CHANNEL, head.seq + 1, data=msgspec.to_builtins(squatter), sender_id=HUB)
    written = msgspec.structs.replace(plain, event_type=EV_PARTICIPANT_REGISTERED)
    await log.append(DIRECTORY_CHANNEL, [written], after=head.seq)
    await log.close()
    return squatter


@pytest.mark.parametrize("kind", ["agent", "human"])
async def test_a_user_who_squats_the_names_of_the_project_does_not_stop_it(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The names were free when the user took them. The driver's name is on the log all the same."""
    project, address = load_project(folder(tmp_path)), f"sqlite:///{tmp_path}/log.db"
    squatters, by = {}, Registrar("mallory", is_admin=True)
    hub = await Hub.open(address)
    for name in ("Ada", "bob"):
        passport = Passport(name=name, kind=kind, owner="mallory")
        squatters[name] = await hub.enrol(passport, Resume(summary="Trust me."), None, by=by)
    await hub.close()
    squatters["flows"] = await squat_driver(address, kind)
    async with open_runtime(project, log_address=address) as runtime:
        talk = await runtime.runs.wait(await runtime.runs.start("talk", {"name": "Ann"}))
        registered = {one.name: one for one in runtime.hub.participants()}

    assert talk.data == {"name": "Ann", "said": "hi, I am bob"}
    assert set(registered) == {"ada", "bob", DRIVER}
    assert {one.passport.owner for one in registered.values()} == {""}
    assert registered["bob"].resume.summary == ""
    assert not {one.agent_id for one in registered.values()} & {one.agent_id for one in squatters.values()}
    assert "which the user 'mallory' had registered" in caplog.text


async def test_an_agent_of_the_project_cannot_have_a_name_of_the_system(tmp_path: Path) -> None:
    folder(tmp_path)
    code = tmp_path / "nodes" / "all.py"
    code.write_text(code.read_text().replace('Agent("ada"', 'Agent("Flows"'))
    flows = tmp_path / "flows.yaml"
    flows.write_text(flows.read_text().replace("[ada, bob]", "[Flows, bob]"))

    with pytest.raises(NameTaken, match="The system has the names"):
        async with open_runtime(load_project(tmp_path)):
            pass


def test_every_participant_of_the_system_has_a_reserved_name() -> None:
    assert {DRIVER, CALLER, HUB} <= set(RESERVED_NAMES)


async def test_what_was_opened_is_closed_when_the_rest_cannot_be() -> None:
    closed: list[str] = []

    class WatchedLog(MemoryLog):
        async def close(self) -> None:
            closed.append("log")
            await super().close()

    def no_data(log: object) -> object:
        raise OSError("no data today")

    runtime = Runtime(Services(), open_log=WatchedLog, open_data=no_data)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="no data today"):
        await runtime.__aenter__()

    assert closed != []
    assert runtime.status == "closed"


async def test_runs_go_on_at_the_next_start(tmp_path: Path) -> None:
    """F7: a process that ends in the middle of a step leaves a run that the next one takes up."""
    log = MemoryLog()
    flow = "steps: [{id: ask, kind: human, human: {title: 'Sure?', form: {ok: boolean}}}]"
    async with runtime_with(flow, log=lambda: log) as runtime:
        run_id = await runtime.runs.start("main", {})
        await runtime.runs.wait(run_id)
    async with runtime_with(flow, log=lambda: log) as runtime:
        [task] = await runtime.tasks.list()
        await runtime.tasks.answer(task.task_id, {"ok": True}, by="ann")
        while not (state := await runtime.runs.state(run_id)).is_over:
            await runtime.runs.wait_beyond(run_id, state.seq)

    assert state.context_vars == {"ok": True}


async def test_a_server_seals_its_log_when_something_was_appended(tmp_path: Path) -> None:
    """Y4: two servers on one log; each line of `_seals` follows the one before."""
    path, clock = tmp_path / "log.db", ManualClock()

    def runtime() -> Runtime:
        log = partial(SqliteLog, path, durability="process", poll_seconds=0.02)
        return Runtime(Services(), open_log=log, clock=clock, seal_seconds=60)

    async with runtime() as first, runtime():
        log = first.hub.log
        clock.advance(60)
        async with asyncio.timeout(60):
            async for head in log.tail():
                if head.channel_id == SEALS_CHANNEL:
                    break
        sealed = [line async for line in log.read(SEALS_CHANNEL)]

    assert len(sealed) == 1
    assert DIRECTORY_CHANNEL in [channel for channel, _, _ in sealed[0].event_data["ends"]]
