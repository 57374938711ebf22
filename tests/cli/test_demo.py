"""`turnline demo`, as somebody runs it who has read nothing else."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from turnline.agent.messages import ToolCall
from turnline.testing import ModelServer, call
from turnline.testing.model_server import Received

ROOT = Path(__file__).parents[2]


def turnline(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "turnline", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300)


def test_the_demo_ends_by_itself_and_tells_why_the_channel_closed(tmp_path: Path) -> None:
    done = turnline("demo", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "triage sets route = 'billing'" in done.stdout
    assert "-> billing, because ContextEquals(key='route', value='billing') (transition 1)" in done.stdout
    assert "closed: resolved" in done.stdout
    assert (tmp_path / ".turnline" / "demo.db").exists()
    assert "turnline new shop && turnline serve shop --dev" in done.stdout  # No example lies there.


def test_t3_the_demo_kills_a_process_in_mid_turn_and_goes_on_behind_the_same_line(tmp_path: Path) -> None:
    done = turnline("demo", cwd=tmp_path)

    assert "kill -9 (exit code -9) while the refund tool was running, behind line 12" in done.stdout
    assert "lines acknowledged before the kill and lost: 0" in done.stdout
    assert "replies of the models on the log: 4; requests they got: 4" in done.stdout
    assert "the tool in flight ran 2 times, under 1 idempotency key" in done.stdout


def test_the_demo_plays_its_flow_where_the_example_is_and_ends_with_three_commands_that_work() -> None:
    """In a clone: the third act too, with its server killed while a run waits for a person."""
    with TemporaryDirectory() as folder:
        log = Path(folder) / "demo.db"
        done = turnline("demo", "--log", str(log), cwd=ROOT)
        commands = re.findall(r"^ {3}\S*turnline (channels .*)$", done.stdout, re.MULTILINE)
        tried = [turnline(*shlex.split(command), cwd=ROOT) for command in commands]

    assert (done.returncode, done.stderr) == (0, "")
    assert "the task is still there: Escalate Jane Doe?" in done.stdout
    assert "succeeded: {" in done.stdout
    assert "http://127.0.0.1:8484/studio" in done.stdout
    assert [one.returncode for one in tried] == [0, 0]
    assert "ContextEquals" in tried[0].stdout or "from billing" in tried[0].stdout


def test_live_asks_the_model_that_is_named(tmp_path: Path) -> None:
    with ModelServer(_answers) as server:
        environ = {**os.environ, "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url}
        done = turnline("demo", "--live", "openai:gpt-5-mini", cwd=tmp_path, env=environ)

    assert (done.returncode, done.stderr) == (0, "")
    assert "editor: An answer." in done.stdout
    assert "closed: resolved" in done.stdout
    assert "the tool in flight ran 2 times, under 1 idempotency key" in done.stdout


def _answers(request: Received) -> str | ToolCall:
    """Call the agent's tool, and say something once it has answered."""
    tools = [
        one["name"] if "name" in one else one["function"]["name"] for one in request.json.get("tools", [])
    ]
    has_answer = "paid back" in str(request.json) or "routed to" in str(
        request.json.get("messages", request.json)
    )
    if not tools or has_answer:
        return "An answer."
    return call("route", desk="billing") if "route" in tools else call("pay_back", order=1042, amount=19.9)


def test_the_demo_can_be_run_again_on_the_same_file(tmp_path: Path) -> None:
    turnline("demo", "--log", "again.db", cwd=tmp_path)
    done = turnline("demo", "--log", "again.db", cwd=tmp_path)

    assert done.returncode == 0
    assert "closed: resolved" in done.stdout


def test_a_fork_of_an_earlier_demo_is_no_part_of_the_next_one(tmp_path: Path) -> None:
    """The second command to try leaves a channel on which billing has the floor, as in the next demo."""
    first = turnline("demo", cwd=tmp_path)
    [fork] = re.findall(r"turnline (channels fork .*)$", first.stdout, re.MULTILINE)
    turnline(*shlex.split(fork), cwd=tmp_path)

    done = turnline("demo", cwd=tmp_path)

    assert "kill -9 (exit code -9) while the refund tool was running, behind line 12" in done.stdout
    assert "replies of the models on the log: 4; requests they got: 4" in done.stdout
    assert "All of it is in .turnline/demo-2.db" in done.stdout


def test_a_log_that_cannot_be_used_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("these are not the bytes of a log, nor of any database at all")
    done = turnline("demo", "--log", "notes.db", cwd=tmp_path)

    assert done.returncode == 1
    assert done.stderr.startswith("turnline: the log at sqlite:///notes.db cannot be used: ")
    assert len(done.stderr.splitlines()) == 1


def test_help_lists_the_verbs_and_a_typo_gets_a_hint(tmp_path: Path) -> None:
    assert "demo" in turnline("--help", cwd=tmp_path).stdout
    assert "Example: turnline demo" in turnline("demo", "--help", cwd=tmp_path).stdout
    typo = turnline("dmo", cwd=tmp_path)
    assert typo.returncode == 2
    assert "Did you mean 'demo'?" in typo.stderr


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert turnline("--version", cwd=tmp_path).stdout.startswith("turnline 0.1")


def test_f7_the_demos_flow_goes_on_after_its_server_was_killed(tmp_path: Path) -> None:
    done = turnline("demo", "--log", str(tmp_path / "demo.db"), cwd=Path(__file__).parents[2])

    assert (done.returncode, done.stderr) == (0, "")
    assert "202: run" in done.stdout
    assert "the task is still there: Escalate Jane Doe?" in done.stdout
    assert 'succeeded: {"id":' in done.stdout
