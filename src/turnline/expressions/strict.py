"""Strict templates: what is not there is an error, and so is what costs too much (F9).

    Hello {{ name }}                      text
    {{ order.lines }}                     the value itself: a list stays a list
    Bearer {{ secret.API_KEY }}           a secret, by its name

The grammar and the words are those of `template`. A prompt of an agent does without
what is missing; a request to another system must not, nor may it be cut off.

Rule 1: a name, a key or an item that is not there raises `Missing`. `default(...)` and
`is defined` are how a template says that something may be absent. A value that is
there and is None is no text.

Rule 2: `secret` is no context key. It is only read as `secret.NAME`, and which names
those are is known before anything is rendered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from jinja2 import nodes

from turnline.expressions.functions import TESTS, Json, Steps, plain
from turnline.expressions.language import Names, Part
from turnline.expressions.template import Block, TemplateReader, Text, blocks, parsed

SECRET: Final = "secret"
_ABSENT_ALLOWED: Final = frozenset({"defined", "undefined"})


class Missing(Exception):
    """A template reads something that is not there."""

    def __init__(self, key: str, line: int) -> None:
        self.key = key
        self.line = line
        super().__init__(key)


@dataclass(frozen=True, slots=True)
class StrictTemplate:
    """A compiled strict template. Two of the same text are equal."""

    text: str
    names: frozenset[str] = field(compare=False)
    """The context keys it reads."""
    secrets: frozenset[str] = field(compare=False)
    """The secrets it reads."""
    _blocks: tuple[Block, ...] = field(compare=False, repr=False)
    _whole: Part | None = field(compare=False, repr=False)

    def render(self, names: Names, steps: Steps) -> str:
        """The text with everything filled in. Raises `Missing` and `OutOfSteps`."""
        written = Text()
        for block in self._blocks:
            block(names, steps, written)
        return "".join(written.pieces)

    def value(self, names: Names, steps: Steps) -> Json:
        """What `{{ expression }}` alone comes to; of anything else, the text. It may share with `names`."""
        return self.render(names, steps) if self._whole is None else self._whole(names, steps)


def compile_strict(text: str) -> StrictTemplate:
    """Read `text`, once for many renderings, or raise `BadExpression` saying what is not allowed."""
    tree, reader = parsed(text), StrictReader(text)
    ready = blocks(reader, tree.body)
    reader.check_secrets()
    whole = _only_expression(tree.body)
    return StrictTemplate(
        text,
        frozenset(reader.names - {SECRET}),
        frozenset(reader.secrets),
        ready,
        None if whole is None else reader.known(whole),
    )


class StrictReader(TemplateReader):
    """Reads what `Reader` reads, so that what is absent is noticed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.secrets: set[str] = set()
        self._bare_secrets = 0
        self._parts: dict[int, Part] = {}
        """By the node's identity: the tree lives as long as it is read."""

    def part(self, node: nodes.Node) -> Part:
        lenient = super().part(node)
        self._parts[id(node)] = part = self._strict(node, lenient)
        return part

    def known(self, node: nodes.Node) -> Part:
        """The part of a node that has been read."""
        return self._parts[id(node)]

    def check_secrets(self) -> None:
        if self._bare_secrets:
            self.refuse("secrets are read by name, as in {{ secret.API_KEY }}")

    def _strict(self, node: nodes.Node, lenient: Part) -> Part:
        match node:
            case nodes.Name(name=key):
                self._bare_secrets += key == SECRET
                return _named(key, node.lineno)
            case nodes.Getattr(node=holder, attr=key):
                self._note_secret(holder, key)
                return _held(self.known(holder), _constant(key), _path(node), node.lineno)
            case nodes.Getitem(node=holder, arg=key):
                self._note_secret(holder, key.value if isinstance(key, nodes.Const) else None)
                return _held(self.known(holder), self.known(key), _path(node), node.lineno)
            case nodes.Test(name=name) if name in _ABSENT_ALLOWED:
                return _otherwise(lenient, _constant(TESTS[name](None)))
            case (
                nodes.Filter(name="default", node=nodes.Expr() as value, args=[fallback])
                | nodes.Call(node=nodes.Name(name="default"), args=[value, fallback])
            ):
                return _default(self.known(value), self.known(fallback))
        return lenient

    def _note_secret(self, holder: nodes.Node, key: object) -> None:
        if isinstance(holder, nodes.Name) and holder.name == SECRET and isinstance(key, str):
            self._bare_secrets -= 1
            self.secrets.add(key)


def _named(key: str, line: int) -> Part:
    def read(names: Names, steps: Steps) -> Json:
        if key not in names:
            raise Missing(key, line)
        return _kept(names[key], key, line)

    return read


def _held(holder: Part, key: Part, path: str, line: int) -> Part:
    def read(names: Names, steps: Steps) -> Json:
        held, place = holder(names, steps), key(names, steps)
        if isinstance(held, dict) and isinstance(place, str) and place in held:
            return _kept(held[place], path, line)
        if isinstance(held, list) and type(place) is int and -len(held) <= place < len(held):
            return _kept(held[place], path, line)
        raise Missing(path, line)

    return read


def _kept(value: object, path: str, line: int) -> Json:
    """`value`; one that no expression may touch (a huge integer) is as good as missing."""
    read = plain(value)
    if read is None and value is not None:
        raise Missing(path, line)
    return read


def _default(part: Part, fallback: Part) -> Part:
    """`part`, or `fallback`, which is looked at only then."""
    found = _otherwise(part, _constant(None))

    def read(names: Names, steps: Steps) -> Json:
        value = found(names, steps)
        return fallback(names, steps) if value is None else value

    return read


def _otherwise(part: Part, fallback: Part) -> Part:
    def read(names: Names, steps: Steps) -> Json:
        try:
            return part(names, steps)
        except Missing:
            return fallback(names, steps)

    return read


def _constant(value: Json) -> Part:
    return lambda names, steps: value


def _path(node: nodes.Node) -> str:
    """How a key is written, as far as that can be known: `order.lines[0].sku`."""
    match node:
        case nodes.Name(name=name):
            return name
        case nodes.Getattr(node=holder, attr=key):
            return f"{_path(holder)}.{key}"
        case nodes.Getitem(node=holder, arg=nodes.Const(value=key)):
            return f"{_path(holder)}[{key!r}]"
        case nodes.Getitem(node=holder):
            return f"{_path(holder)}[...]"
    return "(...)"


def _only_expression(body: Sequence[nodes.Node]) -> nodes.Expr | None:
    """The expression of a template that is nothing else, space around it aside."""
    pieces: list[nodes.Expr] = []
    for node in body:
        if not isinstance(node, nodes.Output):
            return None
        pieces += [piece for piece in node.nodes if not _is_space(piece)]
    only = pieces[0] if len(pieces) == 1 else None
    return None if isinstance(only, nodes.TemplateData) else only


def _is_space(piece: nodes.Expr) -> bool:
    return isinstance(piece, nodes.TemplateData) and not piece.data.strip()
