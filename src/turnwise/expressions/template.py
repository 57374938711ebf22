"""Templates: text with expressions in it, for prompts.

    Customer: {{ name }}
    {% if urgent %}Be quick.{% endif %}
    {% for item in order.lines %}- {{ item.sku }}
    {% endfor %}

Jinja2 lends its grammar, the expression language its evaluator: `{{ }}`, `{% if %}`
and `{% for %}`, and nothing else. So the rules of `language` hold here too: what is
not on the list cannot be said, rendering raises nothing and changes nothing, and
its cost is bounded. A value that comes to None is no text; lists and objects are
written as JSON. What a value contains is never read as a template again.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec
from jinja2 import Environment, TemplateSyntaxError, nodes

from turnwise.errors import BadExpression
from turnwise.expressions import functions
from turnwise.expressions.functions import Json, OutOfSteps, Steps
from turnwise.expressions.language import Names, Reader, check_nesting, is_unicode

MAX_TEMPLATE_CHARACTERS: Final = 100_000
MAX_TEXT_CHARACTERS: Final = 1_000_000
"""Of what a template renders to."""

_GRAMMAR: Final = Environment(
    autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)

Block = Callable[[Names, Steps, "_Text"], None]
"""A piece of a template, ready to be rendered."""


class _Text:
    """The text so far, and how much more of it there may be."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._room = MAX_TEXT_CHARACTERS

    def write(self, piece: str) -> None:
        self._room -= len(piece)
        if self._room < 0:
            raise OutOfSteps
        self.pieces.append(piece)


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template. Two of the same text are equal."""

    text: str
    names: frozenset[str] = field(compare=False)
    """The context keys it reads."""
    _blocks: tuple[Block, ...] = field(compare=False, repr=False)

    def render(self, names: Names, *, steps: Steps | None = None) -> str:
        """The text with everything filled in; what came before the limit, if it costs more than that."""
        written, budget = _Text(), Steps() if steps is None else steps
        try:
            for block in self._blocks:
                block(names, budget, written)
        except OutOfSteps:
            pass  # Cut off, as a prompt that is too long would be anyway.
        return "".join(written.pieces)


def compile_template(text: str) -> Template:
    """Read `text`, once for many renderings, or raise `BadExpression` saying what is not allowed."""
    if len(text) > MAX_TEMPLATE_CHARACTERS or not is_unicode(text):
        raise BadExpression(
            text, because=f"it is too long, or not Unicode; at most {MAX_TEMPLATE_CHARACTERS}"
        )
    try:
        check_nesting(_GRAMMAR.lexer.tokeniter(text, None), text)
        tree = _GRAMMAR.parse(text)
    except TemplateSyntaxError as error:
        raise BadExpression(text, because=f"line {error.lineno} does not parse: {error.message}") from None
    except RecursionError:
        raise BadExpression(text, because="it is nested too deeply") from None
    reader = Reader(text)
    blocks = _blocks(reader, tree.body)
    return Template(text, frozenset(reader.names), blocks)


def _blocks(reader: Reader, body: Sequence[nodes.Node]) -> tuple[Block, ...]:
    return tuple(_block(reader, node) for node in body)


def _block(reader: Reader, node: nodes.Node) -> Block:
    match node:
        case nodes.Output(nodes=pieces):
            return _sequence(tuple(_piece(reader, piece) for piece in pieces))
        case nodes.If():
            return _choice(reader, node)
        case nodes.For():
            return _loop(reader, node)
    what = type(node).__name__.lower()
    reader.refuse(f"{{% {what} %}} is not part of the language; if and for are")


def _piece(reader: Reader, node: nodes.Expr) -> Block:
    if isinstance(node, nodes.TemplateData):
        data = node.data
        return lambda names, steps, text: text.write(data)
    part = reader.part(node)
    return lambda names, steps, text: text.write(_shown(part(names, steps), steps))


def _sequence(blocks: tuple[Block, ...]) -> Block:
    def all_of_them(names: Names, steps: Steps, text: _Text) -> None:
        for block in blocks:
            block(names, steps, text)

    return all_of_them


def _choice(reader: Reader, node: nodes.If) -> Block:
    cases = [(node.test, node.body), *((case.test, case.body) for case in node.elif_)]
    ready = [(reader.part(test), _sequence(_blocks(reader, body))) for test, body in cases]
    otherwise = _sequence(_blocks(reader, node.else_))

    def first_that_holds(names: Names, steps: Steps, text: _Text) -> None:
        steps.pay(1)
        for test, block in ready:
            if test(names, steps):
                return block(names, steps, text)
        return otherwise(names, steps, text)

    return first_that_holds


def _loop(reader: Reader, node: nodes.For) -> Block:
    if not isinstance(node.target, nodes.Name) or node.recursive or node.test is not None:
        reader.refuse("a loop is written {% for item in list %}")
    items, name = reader.part(node.iter), node.target.name
    body = _sequence(_local(reader, name, node.body))
    otherwise = _sequence(_blocks(reader, node.else_))

    def over_each(names: Names, steps: Steps, text: _Text) -> None:
        found = items(names, steps)
        values: list[Json] = found if isinstance(found, list) else []
        outer = cast("MutableMapping[str, object]", names)  # Only read.
        for value in values:
            steps.pay(1)
            body(ChainMap({name: value}, outer), steps, text)
        if not values:
            otherwise(names, steps, text)

    return over_each


def _local(reader: Reader, name: str, body: Sequence[nodes.Node]) -> tuple[Block, ...]:
    """The blocks of a loop; its variable is not a context key, unless it is read outside too."""
    outside = name in reader.names
    blocks = _blocks(reader, body)
    if not outside:
        reader.names.discard(name)
    return blocks


def _shown(value: Json, steps: Steps) -> str:
    if value is None:
        return ""
    if isinstance(value, list | dict):
        return msgspec.json.encode(functions.copied(value, steps)).decode()
    return str(functions.joined((value,), steps) or "")
