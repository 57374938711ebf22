"""The pages of the documentation, as data: which blocks of which language stand on them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted(
    path for path in [*DOCS.rglob("*.md"), *ROOT.glob("examples/*/README.md")] if path.name != "plan.md"
)
_FENCED: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block."""

    page: Path
    language: str
    text: str
    line: int

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path, *languages: str) -> list[Block]:
    """The page's blocks of these languages, in order."""
    text = page.read_text()
    return [
        Block(page, found[1], found[2], text.count("\n", 0, found.start()) + 1)
        for found in _FENCED.finditer(text)
        if found[1] in languages
    ]
