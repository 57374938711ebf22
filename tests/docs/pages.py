"""The pages of the documentation, as data: which blocks of which language stand on them.

Where a page has `console` blocks, a block whose first line is `# some/file.py` is that file, in the
folder of whoever types what the console shows. A `text` block directly below a Python block is
what the page's program prints.
"""

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
_FILE: Final = re.compile(r"# ([\w./-]+\.(?:py|yaml))\n")
_PRINTED: Final = re.compile(
    r"^```python\n(?:(?!```).*\n)*```\n\n```text\n((?:(?!```).*\n)*)```$", re.MULTILINE
)


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


def files_of(page: Path) -> dict[str, str]:
    """Path -> text, of the files that the page shows; none where nobody types anything."""
    if not blocks_of(page, "console"):
        return {}
    named = [(_FILE.match(one.text), one.text) for one in blocks_of(page, "python", "yaml")]
    return {found[1]: text for found, text in named if found}


def program_of(page: Path) -> list[Block]:
    """The Python blocks that are one program: those that are no file of their own."""
    files = files_of(page).values()
    return [one for one in blocks_of(page, "python") if one.text not in files]


def printed_by(page: Path) -> list[str]:
    """What the page says that its program prints, in order."""
    return _PRINTED.findall(page.read_text())
