"""Nothing names a command that does not exist: pages, help texts and errors (Y10)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from tests.docs.pages import PAGES, ROOT
from turnline.cli import app

PLACES = [
    *PAGES,
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/plan.md")),
    *sorted(path for ending in ("py", "md", "js") for path in (ROOT / "src").rglob(f"*.{ending}")),
]
COMMAND = re.compile(
    r"""(?:^\s*|[`|&($] *|(?<!b)["']|[:=] |\b[Rr]un )turnline ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?""",
    re.MULTILINE,
)
"""A command as it is written: at the start of a line, in quotes, after a pipe, `Example:` or `Run`."""
FEW = 150
VERBS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def mentions() -> Iterator[tuple[str, str, str]]:
    """Each place that names a command, the verb, and the word after it."""
    for path in PLACES:
        text = path.read_text()
        for found in COMMAND.finditer(text):
            line = text.count("\n", 0, found.start(1)) + 1
            yield f"{path.relative_to(ROOT)}:{line}", found[1], found[2] or ""


def is_verb(verb: str, word: str) -> bool:
    command = VERBS.get(verb)
    verbs = getattr(command, "commands", None)
    return command is not None and (not word or verbs is None or word in verbs)


def test_each_command_that_is_named_exists() -> None:
    found = list(mentions())

    assert len(found) > FEW
    assert [(where, verb, word) for where, verb, word in found if not is_verb(verb, word)] == []


@pytest.mark.parametrize(
    "text",
    [
        "Run `turnline db migrate`.",
        "Example: turnline move leads",
        "turnline log mend log.db",
        "$ turnline move leads",
        'f"turnline move {name}"',
        "turnline log export a.db | turnline log put -",
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str) -> None:
    assert not all(is_verb(found[1], found[2] or "") for found in COMMAND.finditer(text))
