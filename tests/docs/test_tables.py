"""Tables that somebody wrote say what the code says."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT
from turnline.server.auth.operations import OPERATIONS

HELP = ROOT / "src" / "turnline" / "server" / "studio" / "static" / "parts" / "help.js"


def rows(page: str, head: str) -> list[tuple[str, str]]:
    """The rows of the table with this head."""
    _, _, text = (DOCS / page).read_text().partition(f"| {head} |\n| --- | --- |\n")
    table = text.partition("\n\n")[0]
    return re.findall(r"^\| (.+) \| (.+) \|$", table, re.MULTILINE)


def test_the_page_on_security_lists_every_operation_and_its_scope() -> None:
    listed = {
        name.strip("`"): scope.strip("`")
        for name, scope in rows("security.md", "operation | needs the scope")
    }

    assert listed == OPERATIONS


def test_the_page_on_the_studio_lists_its_shortcuts() -> None:
    known = re.findall(r'\["([^"]+)", "([^"]+)"\]', HELP.read_text())
    listed = [
        (key.replace("` `", "  ").strip("`"), said) for key, said in rows("studio.md", "key | what it does")
    ]

    assert listed == known
