"""Secrets go to the project's own definitions: over a deploy, and not to what was imported."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.projects import call
from tests.flow.http_server import Answer, HttpServer
from tests.server.test_projects import ended, project
from turnline.flow.project import load_project
from turnline.flow.trust import KEY_FILE, KEY_VARIABLE
from turnline.flow.verdict import Verdict
from turnline.server.runtime import Runtime, open_runtime

SECRET: Final = "canary-4711"
FLOW: Final = """
    steps:
      - {id: ask, human: {title: ok?, form: {ok: boolean}}}
      - id: call
        kind: api_call
        api_call: {url: "URL", headers: {Authorization: "Bearer {{ secret.API }}"}, allow_private: true}
      - {id: end, kind: response, response: {mapping: {done: "true"}}}
"""
LATER: Final = "steps: [{id: other, kind: response, response: {mapping: {done: 'true'}}}]"


@pytest.fixture
def other() -> Iterator[HttpServer]:
    with HttpServer({"/": Answer(json={})}) as server:
        yield server


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API", SECRET)


def sent(other: HttpServer) -> list[str]:
    return [one.headers["authorization"] for one in other.received]


async def waiting_run(folder: Path, other: HttpServer, log: Path) -> str:
    """Start a run in a project of this flow, and leave it waiting for a person."""
    project(folder, workflows__main=FLOW.replace("URL", other.url + "/"))
    async with open_runtime(load_project(folder), log_address=str(log)) as runtime:
        run_id = await runtime.runs.start("main", {})
        await runtime.runs.wait(run_id)
    return run_id


async def answered(runtime: Runtime, run_id: str) -> Verdict:
    [task] = await runtime.tasks.list()
    await runtime.tasks.answer(task.task_id, {"ok": True}, by="ann")
    return await ended(runtime, run_id)


async def test_a_run_of_an_older_version_keeps_its_secrets_over_a_deploy(
    tmp_path: Path, other: HttpServer
) -> None:
    log = tmp_path / "log.db"
    run_id = await waiting_run(tmp_path / "shop", other, log)
    project(tmp_path / "shop", workflows__main=LATER)
    async with open_runtime(load_project(tmp_path / "shop"), log_address=str(log)) as runtime:
        verdict = await answered(runtime, run_id)

    assert (verdict.status, sent(other)) == ("succeeded", [f"Bearer {SECRET}"])
    assert stat.S_IMODE((tmp_path / "shop" / KEY_FILE).stat().st_mode) == 0o600


async def test_a_host_without_the_folder_needs_the_key_in_its_environment(
    tmp_path: Path, other: HttpServer
) -> None:
    log = tmp_path / "log.db"
    run_id = await waiting_run(tmp_path / "shop", other, log)
    project(tmp_path / "host", workflows__main=LATER)
    key = (tmp_path / "shop" / KEY_FILE).read_text()
    environ = {"API": SECRET, KEY_VARIABLE: key}
    async with open_runtime(
        load_project(tmp_path / "host"), log_address=str(log), environ=environ
    ) as runtime:
        verdict = await answered(runtime, run_id)

    assert (verdict.status, sent(other)) == ("succeeded", [f"Bearer {SECRET}"])


@pytest.mark.parametrize("trust", [False, True])
async def test_an_imported_definition_gets_no_secrets_until_it_is_trusted(
    tmp_path: Path, other: HttpServer, trust: bool
) -> None:
    run_id = await waiting_run(tmp_path / "theirs", other, tmp_path / "theirs.db")
    project(tmp_path / "ours", workflows__main=LATER)
    await asyncio.to_thread(move, tmp_path, trust=False)
    if trust:
        await asyncio.to_thread(move, tmp_path, trust=True)
    async with open_runtime(
        load_project(tmp_path / "ours"), log_address=str(tmp_path / "ours.db")
    ) as runtime:
        verdict = await answered(runtime, run_id)

    if trust:
        assert (verdict.status, sent(other)) == ("succeeded", [f"Bearer {SECRET}"])
    else:
        assert verdict.error is not None
        assert (verdict.error.step, sent(other)) == ("call", [])
        assert "import it again with --trust" in verdict.error.message
        assert SECRET not in verdict.error.message


async def test_marks_do_not_come_with_an_import_also_into_a_project_that_has_the_key(
    tmp_path: Path, other: HttpServer
) -> None:
    run_id = await waiting_run(tmp_path / "ours", other, tmp_path / "theirs.db")
    project(tmp_path / "ours", workflows__main=LATER)
    await asyncio.to_thread(move, tmp_path, trust=False)
    async with open_runtime(
        load_project(tmp_path / "ours"), log_address=str(tmp_path / "ours.db")
    ) as runtime:
        verdict = await answered(runtime, run_id)

    assert (verdict.status, sent(other)) == ("failed", [])


async def test_a_project_without_secrets_and_a_log_in_memory_leave_no_key_behind(
    tmp_path: Path, other: HttpServer
) -> None:
    project(tmp_path, workflows__main=LATER)
    async with open_runtime(load_project(tmp_path)):
        pass
    project(tmp_path, workflows__main=FLOW.replace("URL", other.url))
    async with open_runtime(load_project(tmp_path), log_address="memory:"):
        pass

    assert not (tmp_path / KEY_FILE).exists()


def move(folder: Path, *, trust: bool) -> None:
    """Move their log into ours, by the command line."""
    file = str(folder / "export.jsonl")
    assert call("log", "export", str(folder / "theirs.db"), "-o", file).code == 0
    words = ["--trust", "--dir", str(folder / "ours")] if trust else []
    told = call("log", "import", file, str(folder / "ours.db"), *words)

    assert told.code == 0
    assert (
        "trusted: main" if trust else "imported without secrets: 1 flow definition and 1 channel of a run."
    ) in told.err
