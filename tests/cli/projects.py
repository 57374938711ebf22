"""Projects in a folder of a test, and the command line as somebody calls it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO


def turnwise(
    *arguments: str, cwd: Path, stdin: IO[bytes] | int | None = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "turnwise", *arguments]
    return subprocess.run(
        command, cwd=cwd, stdin=stdin, capture_output=True, text=True, check=False, timeout=60
    )


def project(folder: Path, **files: str) -> Path:
    """Write files: `nodes__it_py="..."` is nodes/it.py."""
    for name, text in {"turnwise_yaml": "name: it", **files}.items():
        stem, _, suffix = name.replace("__", "/").rpartition("_")
        path = folder / f"{stem}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
