"""P1: the ten patterns run as they stand, and with a real model by changing one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnline.testing import ModelServer

FOLDER = Path(__file__).parents[2] / "examples" / "patterns"
PATTERNS = {
    "pipeline": ("sequence_complete", "user researcher writer editor"),
    "hierarchical": ("complete", "user coordinator coder coordinator tester coordinator"),
    "star": ("synthesised", "user planner weather planner events planner"),
    "escalation": ("resolved", "user tier1 tier2 engineer"),
    "redundant": ("sequence_complete", "user bold cautious odd evaluator"),
    "feedback_loop": ("approved", "user drafter reviewer drafter reviewer"),
    "context_aware_routing": ("answered", "user triage security"),
    "triage_with_tasks": ("sequence_complete", "user triage researcher writer"),
    "nesting": ("published", "user writing publisher"),
}
"""Why it closed, and who spoke."""
CHOICE = "MODEL: str | None = None"
MOST_LINES = 60
PATIENCE_SECONDS = 60


def ran(file: Path, **environment: str) -> list[str]:
    """What the program printed, in lines."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, **environment},
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_there_are_all_of_them() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} >= PATTERNS.keys()


@pytest.mark.parametrize("name", PATTERNS)
def test_p1_a_pattern_runs_as_it_stands(name: str) -> None:
    reason, speakers = PATTERNS[name]
    said, (closed, *_) = _split(ran(FOLDER / f"{name}.py"))

    assert closed == f"(closed: {reason})"
    assert [line.partition(":")[0] for line in said] == speakers.split()


def test_p1_fan_out_asks_at_once_and_gathers_in_order() -> None:
    lines = ran(FOLDER / "fan_out.py")

    gathered = [line.partition(":")[0] for line in lines if line and not line.startswith("(")]
    assert gathered == ["user", "opinions", "seller", "coder", "chair", "asked at once"]
    assert "(closed: decided)" in lines
    assert lines[-1] == "asked at once: lawyer, seller, coder"


@pytest.mark.parametrize("name", [*PATTERNS, "fan_out"])
def test_p1_a_pattern_is_a_page_with_one_line_that_chooses_the_model(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()

    assert len(text.splitlines()) < MOST_LINES
    assert text.count(CHOICE) == 1


def test_p1_with_that_line_changed_a_real_model_is_asked(tmp_path: Path) -> None:
    """A server that speaks the provider's wire format stands in for the provider."""
    text = (FOLDER / "pipeline.py").read_text()
    (tmp_path / "pipeline.py").write_text(text.replace(CHOICE, 'MODEL = "openai:any"'))

    with ModelServer("three facts", "a paragraph", "a sentence") as server:
        said, _ = _split(ran(tmp_path / "pipeline.py", OPENAI_BASE_URL=server.url, OPENAI_API_KEY="none"))

    assert said[1:] == ["researcher: three facts", "writer: a paragraph", "editor: a sentence"]
    assert len(server.requests) == 3


def _split(lines: list[str]) -> tuple[list[str], list[str]]:
    """What was said, and what came after it."""
    end = next(number for number, line in enumerate(lines) if line.startswith("(closed: "))
    return lines[:end], lines[end:]
