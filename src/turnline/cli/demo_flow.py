"""The demo's third act: a YAML flow over HTTP, whose server is killed while a run waits for a person."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from turnline.errors import TurnlineError

LEADS: Final = Path("examples/leads")
LEAD: Final = {"email": "jane@example.com", "name": "Jane Doe", "company": "Acme Inc", "priority": "urgent"}
_SAID: Final = re.compile(r"on (http://\S+);.*?\nDevelopment key[^\n]*\n  (\S+)\n", re.DOTALL)
"""The address and the development key in what `turnline serve --dev` prints."""


def is_playable() -> bool:
    """Whether the example lies beside us and what it needs is installed."""
    return LEADS.is_dir() and find_spec("starlette") is not None


def play(log: Path, console: Console) -> None:
    """Play it, where it can be; else say what is missing."""
    console.print("\n3. A YAML flow over HTTP: save a lead, score it, ask a person, answer\n", style="bold")
    if not is_playable():
        console.print("   It plays in a clone of the repository (examples/leads), with the extra [server].\n")
        return
    console.print(f"   turnline serve {LEADS} --dev", style="dim")  # Starting it takes a moment.
    with _server(log) as (address, key, process):
        console.print(Text.assemble("   POST /api/leads ", (_json(LEAD), "cyan")))
        status, run = _ask("POST", f"{address}/api/leads", key, LEAD)
        run_id = run["data"]["run_id"]
        console.print(f"   {status}: run {run_id} waits for a person\n", style="dim")
        process.send_signal(signal.SIGKILL)
        code = process.wait()
    console.print(f"   kill -9 (exit code {code}); the server is started again\n", style="bold red")
    with _server(log) as (address, key, _):
        [task] = [
            one for one in _ask("GET", f"{address}/tasks", key)[1]["data"]["tasks"] if one["run_id"] == run_id
        ]
        console.print(
            Text.assemble("   the task is still there: ", (task["title"], "cyan"), f" {_json(task['show'])}")
        )
        answer = {"answer": {"approved": True}}
        _ask("POST", f"{address}/tasks/{task['task_id']}/answer", key, answer)
        console.print(Text.assemble("   answered ", (_json(answer["answer"]), "cyan"), "; the run goes on"))
        run = _ended(address, key, run_id)
    console.print(Text.assemble("   ", (f"{run['status']}: ", "bold"), _json(run["data"])))


@contextmanager
def _server(log: Path) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "turnline", "serve", str(LEADS), "--dev", "--port", "0"]
    process = subprocess.Popen([*command, "--log", f"sqlite:///{log}"], stdout=subprocess.PIPE, text=True)
    try:
        yield *_said(process), process
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _said(process: subprocess.Popen[str]) -> tuple[str, str]:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if found := _SAID.search(text):
            return found[1], found[2]
    raise TurnlineError(f"the demo's server did not start; it said: {text or 'nothing'}")


def _ended(address: str, key: str, run_id: str) -> dict[str, Any]:
    """The run once it is over: its stream of events ends then."""
    _ask("GET", f"{address}/runs/{run_id}/events", key, accept="text/event-stream")
    run: dict[str, Any] = _ask("GET", f"{address}/runs/{run_id}", key)[1]["data"]
    return run


def _ask(
    method: str, url: str, key: str, body: object = None, *, accept: str = "application/json"
) -> tuple[int, dict[str, Any]]:
    import httpx2  # noqa: PLC0415  Installed with the flows.

    headers = {"Authorization": f"Bearer {key}", "Accept": accept}
    answer = httpx2.request(method, url, json=body, headers=headers, timeout=30)
    if answer.is_error:
        raise TurnlineError(
            f"the demo's server answered {method} {url} with {answer.text}; please report it."
        )
    return answer.status_code, answer.json() if accept == "application/json" else {}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
