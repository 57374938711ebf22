"""A picture in plain text, for a terminal: a box for everybody, and below it where the floor goes.

    +---------+
    | drafter |
    +---------+
      |--> reviewer
      '-- approved = True --> [closed: approved]

Cycles need no lines across the page: an arrow ends at a name, and each name has its box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from turnline.core.study.picture import ANYONE, Edge, Node, Picture
from turnline.core.study.wording import turns_told

WIDTH: Final = 80


def boxes(picture: Picture) -> str:
    """Return the picture as text, of lines of at most `WIDTH` characters where names allow it."""
    blocks = ["\n".join(_block(picture, node)) for node in _ordered(picture)]
    limit = [] if picture.max_turns is None else [f"Closes after {turns_told(picture.max_turns)}."]
    return "\n\n".join([*blocks, *limit]) + "\n"


def _ordered(picture: Picture) -> list[Node]:
    """Everybody who has a box, as the floor comes to them; `anyone` last."""
    onwards: dict[str, list[str]] = {}
    for edge in picture.edges:
        onwards.setdefault(edge.source, []).append(edge.target)
    first = [one.id for one in picture.nodes if one.is_first]
    pending, found = [*first, *(one.id for one in picture.nodes)], dict[str, None]()
    while pending:
        one = pending.pop(0)
        if one not in found:
            found[one] = None
            pending = [*onwards.get(one, []), *pending] if one in first else [*pending, *onwards.get(one, [])]
    nodes = [picture.node(one) for one in found]
    drawn = [one for one in nodes if one.kind not in ("close", "someone") or one.id in onwards]
    return sorted(drawn, key=lambda one: one.id == ANYONE)


def _block(picture: Picture, node: Node) -> Iterator[str]:
    label = _plain(node.label)
    line = f"+{'-' * (len(label) + 2)}+"
    notes = [note for note in ("first" if node.is_first else "", _plain(node.detail) or _kind(node)) if note]
    yield line
    yield f"| {label} |  {', '.join(notes)}".rstrip()
    yield line
    edges = [one for one in picture.edges if one.source == node.id]
    if not edges and any(one.source == ANYONE for one in picture.edges):
        yield "  '--> as anyone, below"
    for place, edge in enumerate(edges):
        yield from _arrow(picture, edge, "'" if place + 1 == len(edges) else "|")


def _kind(node: Node) -> str:
    return {"human": "a person", "step": "a step", "remote_agent": "elsewhere"}.get(node.kind, "")


def _arrow(picture: Picture, edge: Edge, corner: str) -> Iterator[str]:
    target = _end(picture, edge)
    if not edge.label:
        yield f"  {corner}--> {target}"
        return
    label = _plain(edge.label)
    line = f"  {corner}-- {label} --> {target}"
    if len(line) <= WIDTH:
        yield line
        return
    head, *rest = _wrapped(label)
    yield f"  {corner}-- {head}"
    bar = " " if corner == "'" else "|"
    for one in rest:
        yield f"  {bar}   {one}"
    yield f"  {bar}   --> {target}"


def _end(picture: Picture, edge: Edge) -> str:
    node = picture.node(edge.target)
    label = _plain(node.label)
    if edge.target == edge.source:
        return "the same again"
    return f"[closed: {label}]" if node.kind == "close" else f"({label})" if node.kind == "someone" else label


def _wrapped(text: str) -> Sequence[str]:
    return wrap(text, WIDTH - 8) or [""]


def _plain(text: str) -> str:
    """One line for a terminal: nothing in a name is a command."""
    return "".join(one if one.isprintable() else " " for one in text)
