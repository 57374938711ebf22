"""docs/cookbook/: a page for each program of examples/patterns, with its picture and what it leaves on the log.

The program is run here, on a log of its own; what the page shows is what it printed and wrote.
"""

from __future__ import annotations

import io
import re
import runpy
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from typer.testing import CliRunner

import turnline
from docs.builders.tables import table
from turnline.cli import app

PATTERNS: Final = Path(__file__).parents[2] / "examples" / "patterns"
_TIME: Final = re.compile(r"^( *\d+) \d\d:\d\d:\d\d ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a page says in words."""

    title: str
    use: str
    rules: str


RECIPES: Final[dict[str, Recipe]] = {
    "pipeline": Recipe(
        "Pipeline",
        "The work has a fixed order: each hands on what it has made, and the last one ends it.",
        "`sequence([...])` is the whole graph. The same name may stand in it twice; it then speaks twice. After the last one the "
        "channel closes with the reason `sequence_complete`.",
    ),
    "hierarchical": Recipe(
        "Hierarchical",
        "A coordinator gives out pieces of work and gets every one of them back.",
        "A tool that returns `Handoff` moves the floor without a rule for it. The rules bring it back: `FromSpeaker(...)` to the "
        "coordinator, whoever was asked. A tool with a name of its own, `conclude`, ends it.",
    ),
    "star": Recipe(
        "Star",
        "One in the middle asks several specialists, one after another, and puts their answers together.",
        "`ToolCalled` routes on the tool of a turn; the first tool that some rule waits for is the one that counts. The default brings "
        "the floor back to the middle.",
    ),
    "escalation": Recipe(
        "Escalation",
        "Whoever cannot solve it passes it up, from level to level.",
        "The tool returns `Handoff`, and whom it names has the floor, without a rule for it; so the picture does not show these "
        "moves, and the log does, as `(handoff)`. The last level has no such tool: there is nobody above it. What nobody resolves "
        "closes as `unresolved`, by the default.",
    ),
    "redundant": Recipe(
        "Redundant",
        "Several answer the same question in their own way, and somebody compares.",
        "In a sequence each sees what came before; for answers that do not know of each other, see [fan-out](fan_out.md).",
    ),
    "feedback_loop": Recipe(
        "Feedback loop",
        "A draft goes back and forth until somebody approves it, or the turns are used up.",
        "The reviewer's tool writes a context variable; the rule that looks at it stands *first*, for rules are tried in their order. "
        "`max_turns` ends a loop that nobody approves: lint finding G303 asks for it.",
    ),
    "context_aware_routing": Recipe(
        "Context-aware routing",
        "What was found out decides who is next.",
        "`ContextEquals` looks at a context variable, which stays set: a rule that looks at nothing else would hold again after the "
        "specialist's own turn (lint finding G301). So the rules that end the conversation stand before it.",
    ),
    "triage_with_tasks": Recipe(
        "Triage with tasks",
        "One writes a list of tasks into the context; the others work it off.",
        "A context variable may be any JSON. A tool writes it, by `ToolResult(..., context={...})` or `update_context`, and a prompt "
        "reads it: `{{ research }}`. The order of the agents is fixed; what each of them has to do is not.",
    ),
    "fan_out": Recipe(
        "Fan-out",
        "Several are asked at once, and do not see each other's answers.",
        "`FanOutTarget([...], step=, into=)` gives the floor to a step. It opens a channel for each, waits for all, and is a turn "
        "itself; the answers are in the order of the graph, whoever was first. After a crash only those that are missing are asked.",
    ),
    "nesting": Recipe(
        "Nesting",
        "A piece of the work is a conversation of its own.",
        "`NestedTarget(graph, step=)` runs another graph on another channel; its last words are the step's turn. "
        "`turnline channels list` shows both channels, the inner one with its `parent_id`.",
    ),
}


def pages() -> dict[str, Callable[[], str]]:
    """File's name without its suffix -> what writes it."""
    return {name: partial(_page, name, recipe) for name, recipe in RECIPES.items()}


def index() -> str:
    """The page that leads to the others."""
    rows = [(f"[{one.title}]({name}.md)", one.use) for name, one in RECIPES.items()]
    return (
        "# Cookbook\n\nEach page is a whole program of `examples/patterns`, its picture, and what it left on the log. As they stand "
        "they follow a script and need no key; one line, `MODEL`, asks a real model.\n\n"
        + table(("pattern", "when"), rows)
    )


def _page(name: str, recipe: Recipe) -> str:
    program = (PATTERNS / f"{name}.py").read_text()
    printed, lines = _ran(name)
    parts = [
        f"# {recipe.title}\n\n{recipe.use}\n",
        f"```python\n{program.rstrip()}\n```\n",
        f"```text\n{printed}\n```\n",
        f"## How the floor moves\n\n{recipe.rules}\n",
        _picture(name),
        f"## What is on the log\n\n`turnline channels show`, without the times; behind each turn, who is next and which rule said so.\n\n```text\n{lines}\n```\n",
    ]
    return "\n".join(parts)


def _picture(name: str) -> str:
    file = f"examples/patterns/{name}.py"
    named = ["--name", "graph"] if name == "nesting" else []
    boxes = _told("graph", str(PATTERNS / f"{name}.py"), *named)
    chart = _told("graph", str(PATTERNS / f"{name}.py"), *named, "--format", "mermaid")
    shown = " ".join(["turnline graph", file, *named])
    return (
        f"```sh\n{shown}\n{shown} --format mermaid\n```\n\n```text\n{boxes}\n```\n\n"
        f"The same for programs that draw Mermaid:\n\n```mermaid\n{chart}\n```\n"
    )


def _ran(name: str) -> tuple[str, str]:
    """What the program prints, and what its channel's log tells."""
    run_sync = turnline.run_sync
    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as printed:
        log = f"sqlite:///{folder}/log.db"
        try:
            turnline.run_sync = partial(run_sync, log=log, channel_id=name)
            runpy.run_path(str(PATTERNS / f"{name}.py"), run_name="__main__")
        finally:
            turnline.run_sync = run_sync
        lines = _told("channels", "show", name, "--lines", "1000", "--log", log)
    return printed.getvalue().rstrip(), _TIME.sub(r"\1 ", lines)


def _told(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    if done.exit_code:
        raise SystemExit(f"turnline {' '.join(words)}: {done.output}")
    return "\n".join(line.rstrip() for line in done.output.rstrip().splitlines())
