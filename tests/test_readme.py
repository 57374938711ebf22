"""The README's example runs and prints a conversation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)

    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "user: How does HTTPS work?",
        "writer: HTTPS wraps HTTP in TLS, and so on.",
        "editor: HTTPS is HTTP inside TLS.",
        "(closed: sequence_complete)",
    ]
