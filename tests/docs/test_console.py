"""What a page's `console` blocks show being typed prints what stands below it.

    $ python story.py           run in a folder with the page's files, in order
    ...                         what it prints; `…` stands for anything, alone for any lines
    $ turnline serve shop &     goes on beside the rest, once it has said what stands below it

The port 8484 is another one here. What the page leaves out below a command is not looked at.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks_of, files_of

WITHIN_SECONDS = 120.0
PORT = "8484"
KILLED = 137

CONSOLE = [page for page in PAGES if blocks_of(page, "console")]


@dataclass(frozen=True, slots=True)
class Typed:
    """A command, and what the page says that it prints."""

    line: str
    shown: str


def typed_on(page: Path) -> Iterator[Typed]:
    text = "".join(one.text for one in blocks_of(page, "console")).replace("\\\n", "")
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        yield Typed(line.strip(), shown)


def pattern(shown: str) -> str:
    lines = (
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
        for line in shown.splitlines()
    )
    return "".join(lines)


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    return {"PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "120"}


def run(typed: Typed, folder: Path) -> str:
    done = subprocess.run(
        ["/bin/sh", "-c", typed.line],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=WITHIN_SECONDS,
    )
    if done.returncode in (KILLED, -signal.SIGKILL) and "Killed" not in done.stdout:
        return done.stdout + "Killed\n"  # As a shell at a terminal says it.
    return done.stdout if done.stdout.endswith("\n") or not done.stdout else done.stdout + "\n"


@contextmanager
def beside(typed: Typed, folder: Path) -> Iterator[str]:
    """What the command says first; it goes on until the page has been played."""
    command = ["/bin/sh", "-c", f"exec {typed.line.removesuffix('&')}"]
    with subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        said = ""
        try:
            while not re.fullmatch(pattern(typed.shown), said):
                line = process.stdout.readline()
                assert line, f"it ended, and said:\n{said}"
                said += line
            yield said
        finally:
            process.terminate()
            process.stdout.read()
            process.wait(WITHIN_SECONDS)


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


@pytest.mark.parametrize("page", CONSOLE, ids=[str(page.relative_to(ROOT)) for page in CONSOLE])
def test_what_is_typed_prints_what_stands_below_it(page: Path, tmp_path: Path) -> None:
    if any(one.line.startswith("curl ") for one in typed_on(page)) and shutil.which("curl") is None:
        pytest.skip("there is no curl")
    for name, text in files_of(page).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    port = free_port()

    with ExitStack() as stack:
        for typed in typed_on(page):
            here = Typed(typed.line.replace(PORT, port), typed.shown.replace(PORT, port))
            if here.line.endswith("&"):
                stack.enter_context(beside(here, tmp_path))
                continue
            said = run(here, tmp_path)

            assert not here.shown or re.fullmatch(pattern(here.shown), said), f"$ {here.line}\n{said}"
