"""A picture as Mermaid text.

    flowchart TD
        start((" ")) --> n0
        n0["drafter"] --> n1

Rule: names are data. Whatever is no letter, digit or plain sign is written as its number, so
no name ends a label, begins a directive or becomes HTML.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turnline.core.study.picture import Node, Picture
from turnline.core.study.wording import turns_told

_PLAIN: Final = frozenset(" _.,:=/+*-()!?'")
_MOST_CHARACTERS: Final = 120
_SHAPES: Final = {
    "human": ('(["', '"])'),
    "step": ('[["', '"]]'),
    "close": ('(("', '"))'),
    "anyone": ('{{"', '"}}'),
    "someone": ('{{"', '"}}'),
}


def mermaid(picture: Picture) -> str:
    """Return the picture as the text of a Mermaid flowchart."""
    return "\n".join(["flowchart TD", *(f"    {line}" for line in _lines(picture)), ""])


def _lines(picture: Picture) -> Iterator[str]:
    short = {node.id: f"n{place}" for place, node in enumerate(picture.nodes)}
    for node in picture.nodes:
        yield f"{short[node.id]}{_shape(node)}"
        if node.is_first:
            yield f'start((" ")) --> {short[node.id]}'
    for edge in picture.edges:
        label = f'|"{_escaped(edge.label)}"|' if edge.label else ""
        yield f"{short[edge.source]} -->{label} {short[edge.target]}"
    if picture.max_turns is not None:
        yield f'limit["closes after {turns_told(picture.max_turns)}"]'
        yield "style limit stroke-dasharray: 4"


def _shape(node: Node) -> str:
    before, after = _SHAPES.get(node.kind, ('["', '"]'))
    text = f"{node.label}: {node.detail}" if node.detail else node.label
    return f"{before}{_escaped(text)}{after}"


def _escaped(text: str) -> str:
    cut = text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
    return "".join(one if one.isalnum() or one in _PLAIN else f"#{ord(one)};" for one in cut)
