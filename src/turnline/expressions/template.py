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
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec
from jinja2 import Environment, TemplateSyntaxError, nodes

from turnline.errors import BadExpression
from turnline.expressions import functions
from turnline.expressions.functions import Json, OutOfSteps, Steps
from turnline.expressions.language import MAX_NESTING, Names, Reader, check_nesting, is_unicode

MAX_TEMPLATE_CHARACTERS: Final = 100_000
MAX_TOKENS: Final = 10_000
"""What the parser may have to read, texts between the tags included."""
MAX_TEXT_CHARACTERS: Final = 1_000_000
"""Of what a template renders to."""

_GRAMMAR: Final = Environment(
    autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)

Block = Callable[[Names, Steps, "Text"], None]
"""A piece of a template, ready to be rendered."""


class Text:
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
        written, budget = Text(), Steps() if steps is None else steps
        try:
            for block in self._blocks:
                block(names, budget, written)
        except OutOfSteps:
            pass  # Cut off, as a prompt that is too long would be anyway.
        return "".join(written.pieces)


def compile_template(text: str) -> Template:
    """Read `text`, once for many renderings, or raise `BadExpression` saying what is not allowed."""
    tree, reader = parsed(text), TemplateReader(text)
    ready = blocks(reader, tree.body)
    return Template(text, frozenset(reader.names), ready)


def parsed(text: str) -> nodes.Template:
    """The tree of a template, or `BadExpression`."""
    if len(text) > MAX_TEMPLATE_CHARACTERS or not is_unicode(text):
        raise BadExpression(
            text, because=f"it is too long, or not Unicode; at most {MAX_TEMPLATE_CHARACTERS}"
        )
    try:
        check_nesting(_few(_GRAMMAR.lexer.tokeniter(text, None), text), text)
        return _GRAMMAR.parse(text)
    except TemplateSyntaxError as error:
        raise BadExpression(text, because=f"line {error.lineno} does not parse: {error.message}") from None
    except (SyntaxError, ValueError):  # Python's own, from numerals.
        raise BadExpression(text, because="a number is misspelt or too long") from None
    except RecursionError:
        raise BadExpression(text, because="it is nested too deeply") from None


_Token = tuple[int, str, str]


def _few(tokens: Iterable[_Token], text: str) -> Iterator[_Token]:
    """The tokens as they come; refused before the parser has to build a tree of too many."""
    for count, token in enumerate(tokens):
        if count >= MAX_TOKENS:
            raise BadExpression(text, because=f"it has more than {MAX_TOKENS} tokens")
        yield token


class TemplateReader(Reader):
    """Knows how many blocks are open: reading and rendering recurse for each."""

    nested = 0


def blocks(reader: TemplateReader, body: Sequence[nodes.Node]) -> tuple[Block, ...]:
    """The pieces of a tree, as `reader` reads the expressions in them."""
    if reader.nested > MAX_NESTING:
        reader.refuse(f"its blocks are nested too deeply; at most {MAX_NESTING} may be open")
    reader.nested += 1
    ready = tuple(_block(reader, node) for node in body)
    reader.nested -= 1
    return ready


def _block(reader: TemplateReader, node: nodes.Node) -> Block:
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
    def all_of_them(names: Names, steps: Steps, text: Text) -> None:
        for block in blocks:
            block(names, steps, text)

    return all_of_them


def _choice(reader: TemplateReader, node: nodes.If) -> Block:
    cases = [(node.test, node.body), *((case.test, case.body) for case in node.elif_)]
    ready = [(reader.part(test), _sequence(blocks(reader, body))) for test, body in cases]
    otherwise = _sequence(blocks(reader, node.else_))

    def first_that_holds(names: Names, steps: Steps, text: Text) -> None:
        steps.pay(1)
        for test, block in ready:
            if test(names, steps):
                return block(names, steps, text)
        return otherwise(names, steps, text)

    return first_that_holds


class _Scope(ChainMap[str, object]):
    """What the loops have named, and the context: two places to look, however deep the loop."""


def _loop(reader: TemplateReader, node: nodes.For) -> Block:
    if not isinstance(node.target, nodes.Name) or node.recursive or node.test is not None:
        reader.refuse("a loop is written {% for item in list %}")
    items, name, before = reader.part(node.iter), node.target.name, reader.size
    body = _sequence(_local(reader, name, node.body))
    cost = 1 + reader.size - before
    otherwise = _sequence(blocks(reader, node.else_))

    def over_each(names: Names, steps: Steps, text: Text) -> None:
        found = items(names, steps)
        values: list[Json] = found if isinstance(found, list) else []
        context = cast("MutableMapping[str, object]", names)  # Only read.
        local, outer = names.maps if isinstance(names, _Scope) else ({}, context)
        for value in values:
            steps.pay(cost)
            body(_Scope({**local, name: value}, outer), steps, text)
        if not values:
            otherwise(names, steps, text)

    return over_each


def _local(reader: TemplateReader, name: str, body: Sequence[nodes.Node]) -> tuple[Block, ...]:
    """The blocks of a loop; its variable is not a context key, unless it is read outside too."""
    outside = name in reader.names
    ready = blocks(reader, body)
    if not outside:
        reader.names.discard(name)
    return ready


def _shown(value: Json, steps: Steps) -> str:
    if value is None:
        return ""
    if isinstance(value, str):  # However long: `Text` says when it is too much.
        steps.pay_for_text(value)
        return value
    if isinstance(value, list | dict):
        return msgspec.json.encode(functions.copied(value, steps)).decode()
    return str(functions.joined((value,), steps) or "")
