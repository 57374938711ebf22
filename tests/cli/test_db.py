"""`turnline db`: a plan changes nothing, `apply` makes what it says, and two at once do no harm (Y10)."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.projects import call, project
from tests.postgres import Postgres, run as run_sql
from turnline.errors import ModelsRefused, NoDatabase

OLD = "kind: ModelDefinition\nmetadata: {name: Lead}\nspec: {fields: {email: string, score: string}}\n"
NEW = """
kind: ModelDefinition
metadata: {name: Lead, version: v2}
spec:
  fields:
    mail: {type: string, renamed_from: email}
    score: {type: integer}
    city: {type: string, index: true}
---
kind: ModelDefinition
metadata: {name: Company}
spec: {fields: {name: string}}
"""
CHANGES = [
    "new table company",
    "new column lead.city",
    "column lead.email renamed to mail",
    "column lead.score converted from string to integer",
    "new index ix_lead_city",
]
ROWS = 2_000
"""Enough for two processes to meet."""


def place(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder / 'log.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.fresh()


def sql(address: str, statement: str) -> list[tuple[object, ...]]:
    if address.startswith("postgres"):
        return run_sql(address, statement)
    with closing(sqlite3.connect(address.removeprefix("sqlite:///"))) as connection, connection:
        return connection.execute(statement).fetchall()


def lead(number: int, score: str) -> str:
    now = "2030-01-01 00:00:00+00"
    return f"('{number:036}', '{now}', '{now}', 'lead{number}@example.com', '{score}')"


def fill(folder: Path, address: str, *scores: str) -> None:
    project(folder, models__lead_yaml=OLD)
    call("db", "apply", str(folder), "--log", address)
    rows = ", ".join(lead(number, score) for number, score in enumerate(scores))
    sql(address, f"INSERT INTO lead (id, created_at, updated_at, email, score) VALUES {rows}")
    project(folder, models__lead_yaml=NEW)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_plan_says_what_apply_then_does(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    address = place(kind, tmp_path, request)
    fill(tmp_path, address, "1", "2")
    planned = call("db", "plan", str(tmp_path), "--log", address, "--json")
    assert sql(address, "SELECT email FROM lead WHERE score = '1'") == [("lead0@example.com",)]
    applied = call("db", "apply", str(tmp_path), "--log", address, "--json")

    found = json.loads(planned.out)
    assert (planned.code, found["ok"], found["changes"], found["losses"]) == (0, True, CHANGES, [])
    assert (applied.code, json.loads(applied.out)["changes"]) == (0, CHANGES)
    assert sql(address, "SELECT mail FROM lead WHERE score = 1") == [("lead0@example.com",)]
    assert "no changes" in call("db", "plan", str(tmp_path), "--log", address).out


def test_a_change_that_loses_values_needs_a_flag(tmp_path: Path) -> None:
    address = place("sqlite", tmp_path, None)  # type: ignore[arg-type]
    fill(tmp_path, address, "1", "many")
    planned = call("db", "plan", str(tmp_path), "--log", address)
    with pytest.raises(ModelsRefused, match="--allow-loss"):
        call("db", "apply", str(tmp_path), "--log", address)
    assert sql(address, "SELECT score FROM lead ORDER BY id") == [("1",), ("many",)]

    call("db", "apply", str(tmp_path), "--log", address, "--allow-loss")
    assert planned.code == 1
    assert "needs --allow-loss:\n  lead.score: 1 of 2 rows hold what is not integer" in planned.out
    assert sql(address, "SELECT score FROM lead ORDER BY id") == [(1,), (None,)]


def test_a_plan_makes_no_file(tmp_path: Path) -> None:
    project(tmp_path, models__lead_yaml=OLD)
    told = call("db", "plan", str(tmp_path))

    assert (told.code, "new table lead" in told.out) == (0, True)
    assert not (tmp_path / ".turnline").exists()


@pytest.mark.parametrize("log", ["memory:", "nats://me:hidden@127.0.0.1:1/leads"])
@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_without_a_database_there_is_nothing_to_migrate(tmp_path: Path, log: str, verb: str) -> None:
    project(tmp_path, models__lead_yaml=OLD, turnline_yaml=f"log: '{log}'")
    with pytest.raises(NoDatabase, match="Set `database:`") as error:
        call("db", verb, str(tmp_path))
    assert "hidden" not in str(error.value)

    project(tmp_path, turnline_yaml=f"log: '{log}'\ndatabase: 'sqlite:///{tmp_path}/data.db'")
    assert "new table lead" in call("db", verb, str(tmp_path)).out


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_processes_that_migrate_at_once_do_no_harm(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = place(kind, tmp_path, request)
    fill(tmp_path, address, *map(str, range(ROWS)))
    command = [sys.executable, "-m", "turnline", "db", "apply", str(tmp_path), "--log", address, "--json"]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    ended = [(*process.communicate(timeout=120), process.returncode) for process in started]

    assert [code for _, _, code in ended] == [0, 0], ended
    assert sorted((json.loads(out)["changes"] for out, _, _ in ended), key=len) == [[], CHANGES]
    assert sql(address, "SELECT count(*), sum(score) FROM lead") == [(ROWS, sum(range(ROWS)))]
