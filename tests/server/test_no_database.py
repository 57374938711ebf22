"""Data models need a database: NATS has none, and a log in memory keeps nothing (Y10)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.projects import call, project, turnline
from tests.nats_servers import NatsServer
from tests.server.test_projects import SESSION_FLOW, SESSION_NODE, ended
from turnline.errors import NoDatabase
from turnline.flow.project import load_project
from turnline.server.runtime import open_runtime, runtime_of

MODEL = "kind: ModelDefinition\nmetadata: {name: Lead}\nspec: {fields: {score: integer}}\n"
FLOW = "steps: [{id: find, model_op: {model: Lead, op: list}}]\ncontext: {models: [{name: Lead}]}\n"
NATS = "nats://me:hidden@127.0.0.1:1/leads"


def with_models(folder: Path, settings: str) -> Path:
    return project(folder, models__lead_yaml=MODEL, workflows__main_yaml=FLOW, turnline_yaml=settings)


@pytest.mark.parametrize("address", [NATS, "memory:"])
def test_serve_refuses_data_models_on_a_log_without_a_database(tmp_path: Path, address: str) -> None:
    folder = with_models(tmp_path, f"log: '{address}'")

    told = turnline("serve", str(folder), "--port", "0", cwd=tmp_path)

    assert told.code == 1
    assert "Set `database:` in turnline.yaml" in told.err
    assert "hidden" not in told.err


@pytest.mark.parametrize("log", ["nats://127.0.0.1:1/leads", "memory:"])
def test_check_finds_data_models_on_a_log_without_a_database(tmp_path: Path, log: str) -> None:
    told = call("check", str(with_models(tmp_path, f"name: it\nlog: '{log}'")), "--json")
    [finding] = [one for one in json.loads(told.out)["findings"] if one["code"] == "TL310"]

    assert told.code == 1
    assert (Path(finding["file"]).name, finding["line"]) == ("turnline.yaml", 2)
    assert "database: sqlite:///data.db" in finding["fix"]


@pytest.mark.parametrize("settings", ["name: it", f"log: {NATS}\ndatabase: 'sqlite:///data.db'"])
def test_check_finds_nothing_where_there_is_a_database(tmp_path: Path, settings: str) -> None:
    assert "TL310" not in call("check", str(with_models(tmp_path, settings))).out


async def test_doctor_finds_data_models_on_a_log_without_a_database(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    def found(settings: str) -> list[str]:
        folder = with_models(tmp_path, settings)
        told = call("doctor", str(folder), "--json")
        return [one["do"] for one in json.loads(told.out)["findings"] if one["what"] == "data models"]

    address = nats_server.fresh()
    without = await asyncio.to_thread(found, f"log: '{address}'")
    set_ = await asyncio.to_thread(found, f"log: {address}\ndatabase: 'sqlite:///data.db'")
    in_memory = await asyncio.to_thread(found, "log: 'memory:'")

    assert (
        without == in_memory == ["Set database: in turnline.yaml, for example database: sqlite:///data.db."]
    )
    assert set_ == []


async def test_with_dev_a_log_in_memory_keeps_the_rows_and_nats_does_not(tmp_path: Path) -> None:
    folder = load_project(with_models(tmp_path, "log: 'memory:'"))
    folder.check_database(is_dev=True)
    async with open_runtime(folder) as runtime:
        done = await ended(runtime, await runtime.runs.start("main", {}))

    assert done.data == {"find": []}
    with pytest.raises(NoDatabase):
        folder.check_database(NATS, is_dev=True)
    with pytest.raises(NoDatabase):
        runtime_of(folder, log_address=NATS)


@pytest.mark.parametrize("has_database", [True, False])
async def test_f2_on_nats_a_session_needs_the_setting(
    tmp_path: Path, nats_server: NatsServer, has_database: bool
) -> None:
    settings = f"database: 'sqlite:///{tmp_path}/data.db'" if has_database else "name: it"
    node = dedent(SESSION_NODE)
    folder = project(tmp_path, turnline_yaml=settings, workflows__main_yaml=SESSION_FLOW, nodes__it_py=node)
    async with open_runtime(load_project(folder), log_address=nats_server.fresh()) as runtime:
        done = await ended(runtime, await runtime.runs.start("main", {}))

    if has_database:
        assert done.data == {"marks": 1}
    else:
        assert done.error is not None
        assert "the log (nats:) has none of its own. Set `database:`" in done.error.message
