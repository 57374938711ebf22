"""A hook of mkdocs: a block that says what it shows (```` ```python bad ````) keeps that as a class, and `site.css` tells it.

mkdocs takes a fence with two words for plain text.
"""

from __future__ import annotations

import re
from typing import Any, Final

_TWO_WORDS: Final = re.compile(r"^```(\w+) (\w+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page as mkdocs reads it."""
    return _TWO_WORDS.sub(r"```{.\1 .\2}", markdown)
