"""Projects on disk, run through their whole runtime: what files and restarts do to runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest

from turnline.flow.project import load_project
from turnline.flow.verdict import Verdict
from turnline.server.runtime import Runtime, open_runtime

SAFETY_SECONDS: Final = 60.0


def project(folder: Path, **files: str) -> Path:
    """A project; `nodes__work="..."` is the file nodes/work.py, `workflows__main` a YAML file."""
    for name, text in files.items():
        room, _, stem = name.partition("__")
        suffix = ".py" if room in ("nodes", "agents") else ".yaml"
        path = folder / room / f"{stem}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return folder


async def ended(runtime: Runtime, run_id: str) -> Verdict:
    async with asyncio.timeout(SAFETY_SECONDS):
        while not (state := await runtime.runs.state(run_id)).is_over:
            await runtime.runs.wait_beyond(run_id, state.seq)
        return await runtime.runs.verdict(run_id)


ASK_THEN_WORK = """
    steps:
      - {id: ask, human: {title: ok?, form: {ok: boolean}}}
      - {id: work, runner: work}
"""
WORK = """
    from turnline import node

    @node("work")
    def work(ctx):
        return {"worked": ctx["ok"]}
"""


async def test_f8_a_run_that_waits_finishes_on_what_it_started_with_when_its_file_is_edited(
    tmp_path: Path,
) -> None:
    folder = project(tmp_path, workflows__main=ASK_THEN_WORK, nodes__work=WORK)
    async with open_runtime(load_project(folder)) as runtime:
        run_id = await runtime.runs.start("main", {})
        await runtime.runs.wait(run_id)
    project(folder, workflows__main="steps: [{id: other, runner: work}]")
    async with open_runtime(load_project(folder)) as runtime:
        [task] = await runtime.tasks.list()
        await runtime.tasks.answer(task.task_id, {"ok": True}, by="ann")
        done = await ended(runtime, run_id)

    assert done.data == {"ok": True, "worked": True}


async def test_f8_a_run_that_waits_finishes_when_its_file_is_gone(tmp_path: Path) -> None:
    folder = project(tmp_path, workflows__main=ASK_THEN_WORK, nodes__work=WORK)
    async with open_runtime(load_project(folder)) as runtime:
        run_id = await runtime.runs.start("main", {})
        await runtime.runs.wait(run_id)
        (folder / "workflows" / "main.yaml").unlink()
    async with open_runtime(load_project(folder)) as runtime:
        [task] = await runtime.tasks.list()
        await runtime.tasks.answer(task.task_id, {"ok": False}, by="ann")
        done = await ended(runtime, run_id)

    assert (done.status, done.data) == ("succeeded", {"ok": False, "worked": False})


async def test_p1_a_conversation_between_agents_is_one_step(tmp_path: Path) -> None:
    folder = project(
        tmp_path,
        workflows__main="""
            steps:
              - id: discuss
                channel:
                  agents: [writer, critic]
                  pattern: sequence
                  message: "A slogan for {{ product }}"
                  map: {mood: mood}
                  into: slogan
              - {id: respond, kind: response, response: {mapping: {slogan: slogan, mood: mood}}}
        """,
        agents__people="""
            from turnline import Agent, ToolResult, tool
            from turnline.testing import ScriptedModel, call

            @tool
            def feel(mood: str) -> ToolResult:
                "Say how you feel."
                return ToolResult("noted", context={"mood": mood})

            writer = Agent("writer", "You write.", config=ScriptedModel("Tea is warm."))
            critic = Agent(
                "critic", "You judge.", tools=[feel],
                config=ScriptedModel(call("feel", mood="glad"), "Tea, warmly."),
            )
        """,
    )
    async with open_runtime(load_project(folder)) as runtime:
        done = await ended(runtime, await runtime.runs.start("main", {"product": "tea"}))

    assert (done.error, done.data) == (None, {"slogan": "Tea, warmly.", "mood": "glad"})


async def test_f2_what_a_model_says_cannot_reach_a_reserved_key(tmp_path: Path) -> None:
    folder = project(
        tmp_path,
        workflows__main="""
            steps:
              - {id: ask, kind: agent, agent: {name: rogue, prompt: hello, output: {format: json}}}
              - {id: look, runner: look}
        """,
        nodes__look="""
            from turnline import node

            @node("look")
            async def look(ctx):
                assert await ctx["_db"]["Thing"].list() == []
                return {"user": ctx.get("_user_id"), "response": ctx.get("_response")}
        """,
        models__thing="""
            kind: ModelDefinition
            metadata: {name: Thing}
            spec: {fields: {name: string}}
        """,
        agents__rogue="""
            from turnline import Agent
            from turnline.testing import ScriptedModel

            answer = '{"_db": {}, "_user_id": "root", "_response": {}, "said": 1}'
            rogue = Agent("rogue", config=ScriptedModel(answer))
        """,
    )
    text = (folder / "workflows" / "main.yaml").read_text()
    (folder / "workflows" / "main.yaml").write_text(f"context: {{models: [{{name: Thing}}]}}\n{text}")
    async with open_runtime(load_project(folder)) as runtime:
        run_id = await runtime.runs.start("main", {}, user_id="ann")
        done = await ended(runtime, run_id)
        lines = await runtime.hub.audit_log.read_all()

    assert (done.error, done.data) == (None, {"said": 1, "user": "ann", "response": None})
    dropped = [line.event_data for line in lines if line.event_type == "audit.reserved_keys_dropped"]
    assert dropped == [{"channel_id": run_id, "source": "model", "keys": ["_db", "_response", "_user_id"]}]


@pytest.mark.parametrize("allowed", [True, False])
async def test_f11_a_project_can_let_its_calls_reach_private_addresses(tmp_path: Path, allowed: bool) -> None:
    """Nothing listens on the port; what counts is whether the call was tried."""
    folder = project(tmp_path, workflows__main="steps: [{id: c, api_call: {url: 'http://127.0.0.1:9/'}}]")
    (folder / "turnline.yaml").write_text(f"allow_private: {str(allowed).lower()}")
    async with open_runtime(load_project(folder)) as runtime:
        done = await ended(runtime, await runtime.runs.start("main", {}))

    assert done.error is not None
    assert ("not allowed" in done.error.message or "private" in done.error.message) is not allowed


SESSION_FLOW = "steps: [{id: write, runner: write}]"
SESSION_NODE = """
    from sqlalchemy import text
    from turnline import node

    @node("write")
    async def write(ctx):
        session = ctx["_session"]
        await session.execute(text("CREATE TABLE IF NOT EXISTS marks (mark TEXT)"))
        await session.execute(text("INSERT INTO marks VALUES ('here')"))
        return {"marks": (await session.execute(text("SELECT count(*) FROM marks"))).scalar()}
"""


@pytest.mark.parametrize("log", ["sqlite", "memory"])
async def test_f2_a_project_without_data_models_has_a_session_on_the_logs_database(
    tmp_path: Path, log: str
) -> None:
    folder = project(tmp_path, workflows__main=SESSION_FLOW, nodes__write=SESSION_NODE)
    address = f"sqlite:///{tmp_path}/log.db" if log == "sqlite" else "memory:"
    async with open_runtime(load_project(folder), log_address=address) as runtime:
        found = [await ended(runtime, await runtime.runs.start("main", {})) for _ in range(2)]

    assert [one.data for one in found] == [{"marks": 1}, {"marks": 2}]
