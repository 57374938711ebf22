"""The graphs of examples/patterns, as the programs give them to `run_sync`."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, NoReturn

import pytest

from turnline.core.graph import TransitionGraph

COOKBOOK = sorted((Path(__file__).parents[3] / "examples" / "patterns").glob("*.py"))


def played(file: Path) -> tuple[TransitionGraph, dict[str, Any]]:
    """The graph that a program runs, and the rest of what it gives."""
    ran: list[tuple[TransitionGraph, dict[str, Any]]] = []

    def run_sync(graph: TransitionGraph, **options: Any) -> NoReturn:
        ran.append((graph, options))
        raise SystemExit

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("turnline.client.run.run_sync", run_sync)
        with pytest.raises(SystemExit):
            runpy.run_path(str(file), run_name="__main__")
    ((graph, options),) = ran
    return graph, options
