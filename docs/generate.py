"""Writes the pages of docs/ that follow from the code: `python -m docs.generate`, or `--check`.

A page that stands here is never changed by hand. `--check` writes nothing, names the pages that are
stale, and exits 1 if there are any; a test runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from docs.builders import command_line, cookbook, flows_reference, limits

DOCS: Final = Path(__file__).parent
NOTE: Final = "<!-- Written by docs/generate.py: run it again instead of changing this page. -->\n\n"
PAGES: Final[dict[str, Callable[[], str]]] = {
    "flows-reference.md": flows_reference.page,
    "command-line.md": command_line.page,
    "operations/limits.md": limits.page,
    "cookbook/index.md": cookbook.index,
    **{f"cookbook/{name}.md": one for name, one in cookbook.pages().items()},
}


def main(arguments: list[str]) -> int:
    """Write the pages, or say which ones are stale."""
    is_check = "--check" in arguments
    stale = [name for name, written in PAGES.items() if _is_stale(name, NOTE + written(), is_check)]
    for name in stale:
        print(f"docs/{name} {'is stale: run python -m docs.generate' if is_check else 'is written anew'}")
    return 1 if stale and is_check else 0


def _is_stale(name: str, text: str, is_check: bool) -> bool:
    path = DOCS / name
    if path.is_file() and path.read_text() == text:
        return False
    if not is_check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
