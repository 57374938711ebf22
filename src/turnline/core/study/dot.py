"""A picture as DOT text, for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turnline.core.study.picture import Node, Picture
from turnline.core.study.wording import turns_told

_SHAPES: Final = {
    "human": "ellipse",
    "step": "component",
    "close": "doublecircle",
    "anyone": "hexagon",
    "someone": "hexagon",
}


def dot(picture: Picture) -> str:
    """Return the picture as the text of a DOT graph."""
    return "\n".join(["digraph {", *(f"    {line}" for line in _lines(picture)), "}", ""])


def _lines(picture: Picture) -> Iterator[str]:
    short = {node.id: f"n{place}" for place, node in enumerate(picture.nodes)}
    yield "node [shape=box];"
    if picture.max_turns is not None:
        yield f'label="closes after {turns_told(picture.max_turns)}";'
    for node in picture.nodes:
        yield f"{short[node.id]} [label={_quoted(_text(node))}{_shape(node)}];"
        if node.is_first:
            yield "start [shape=point];"
            yield f"start -> {short[node.id]};"
    for edge in picture.edges:
        label = f" [label={_quoted(edge.label)}]" if edge.label else ""
        yield f"{short[edge.source]} -> {short[edge.target]}{label};"


def _shape(node: Node) -> str:
    return f", shape={_SHAPES[node.kind]}" if node.kind in _SHAPES else ""


def _text(node: Node) -> str:
    return f"{node.label}: {node.detail}" if node.detail else node.label


def _quoted(text: str) -> str:
    plain = "".join(one if one.isprintable() else " " for one in text)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
