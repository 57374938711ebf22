"""The pages that follow from the code say what the code says."""

from __future__ import annotations

import subprocess
import sys

from tests.docs.pages import DOCS, ROOT

WITHIN_SECONDS = 120.0


def test_no_generated_page_is_stale() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "docs.generate", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_SECONDS,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_a_page_for_every_pattern() -> None:
    programs = {path.stem for path in (ROOT / "examples" / "patterns").glob("*.py")}

    assert {path.stem for path in (DOCS / "cookbook").glob("*.md")} == programs | {"index"}
