"""Projects in a folder of a test, and the command line: in this process, or in one of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from turnline.cli import app


class Called(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


def call(*arguments: str) -> Called:
    """Call the command line in this process, in its working folder. Raises what Turnline raises."""
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Called(done.exit_code, done.stdout, done.stderr)


def turnline(*arguments: str, cwd: Path, stdin: int = subprocess.DEVNULL) -> Called:
    """The same, as somebody calls it."""
    command = [sys.executable, "-m", "turnline", *arguments]
    done = subprocess.run(
        command, cwd=cwd, stdin=stdin, capture_output=True, text=True, check=False, timeout=60
    )
    return Called(done.returncode, done.stdout, done.stderr)


def project(folder: Path, **files: str) -> Path:
    """Write files: `nodes__it_py="..."` is nodes/it.py."""
    for name, text in {"turnline_yaml": "name: it", **files}.items():
        stem, _, suffix = name.replace("__", "/").rpartition("_")
        path = folder / f"{stem}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
