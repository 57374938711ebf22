"""The expression language of `Expr("...")`, YAML routers and `when:` (F10).

    urgent = compile_expression("lead_score > 80 and priority == 'urgent'")
    urgent.holds({"lead_score": 90})    # False: `priority` is missing, and missing is None

Jinja2 lends its grammar only: its parser makes a tree, and each kind of node on
our list (`_READERS`) becomes a small function over JSON.

Rule 1: what is not on the list cannot be said. Nothing is compiled to Python
and no attribute of a Python object is ever read, so there is no sandbox to
escape from. A refusal comes when the expression is compiled, never later.

Rule 2: evaluation answers, always. It raises nothing, changes nothing, and
returns JSON that shares nothing with the names. What cannot be computed is
None, and a condition that comes to None does not hold.

Rule 3: cost is bounded: text, tree and nesting when the expression is compiled, the
data it reads by `Steps`. Whoever runs out of steps gets None for all of it.

Rule 4: the same text and names give the same answer, in a router and in a graph.

What the words mean: a name is a context key, and a missing one is None. `a.b`
and `a['b']` read a mapping, `a[0]` a list; anything absent is None. `==` is
JSON's: by kind, then by value, so `true == 1` is false and `1 == 1.0` true.
`<`, `<=`, `>`, `>=` know numbers and texts; between other kinds, and with None,
they are false. `!=` and `not in` are the opposites of `==` and `in`: true of
what is missing. `and` and `or` give back an operand, as in Python. Arithmetic
is for numbers, and booleans are none; dividing by zero is None. `+` joins two
texts, `~` joins texts, numbers and booleans. Names that start with `_` belong to
the engine and are refused; keys inside a value are the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NoReturn, TypeVar, cast

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from turnline.errors import BadExpression
from turnline.expressions import functions
from turnline.expressions.functions import FUNCTIONS, MAX_INTEGER_BITS, TESTS, Json, OutOfSteps, Steps, plain

MAX_CHARACTERS: Final = 4_000
MAX_NESTING: Final = 16
"""Open brackets and signs in a row. Jinja's parser recurses some fifteen calls for each."""
MAX_PARTS: Final = 300
"""Each is evaluated at most once. So this bounds a written list, too."""
MAX_DEPTH: Final = 32
"""Of the tree; a chain of `and` or of `or` counts once, however long."""

Names = Mapping[str, object]
Part = Callable[[Names, Steps], Json]
"""A piece of an expression, ready to be evaluated."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression. Two of the same text are equal."""

    text: str
    names: frozenset[str] = field(compare=False)
    """The context keys it reads."""
    _size: int = field(compare=False, repr=False)
    _part: Part = field(compare=False, repr=False)

    def evaluate(self, names: Names, *, steps: Steps | None = None) -> Json:
        """What the expression comes to, as JSON of its own; None when it costs more than `steps`."""
        steps = Steps() if steps is None else steps
        try:
            steps.pay(self._size)
            return functions.copied(self._part(names, steps), steps)
        except OutOfSteps:
            return None

    def holds(self, names: Names, *, steps: Steps | None = None) -> bool:
        """Whether it comes to anything but None, false, zero, or something empty."""
        try:
            return self.holds_within(names, Steps() if steps is None else steps)
        except OutOfSteps:
            return False

    def holds_within(self, names: Names, steps: Steps) -> bool:
        """`holds`, for who has to know that the steps were not enough: raises `OutOfSteps`."""
        steps.pay(self._size)
        return bool(self._part(names, steps))


def compile_expression(text: str) -> Expression:
    """Read `text`, once for many evaluations, or raise `BadExpression` saying what is not allowed."""
    reader = Reader(text)
    part = reader.part(_parsed(text))
    return Expression(text, frozenset(reader.names), reader.size, part)


_GRAMMAR: Final = Environment(autoescape=False)  # It parses; it never renders.
_SIGNS: Final = frozenset({"-", "+", "not"})
_ODD_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*(\\[^\\'\"nrtu])")
_ODD_ENDS: Final = {
    "assign": "'=' does not compare; write '=='",
    "variable_end": "it is an expression, not a template; leave out the braces",
    "comma": "it is two expressions; put a list in [brackets]",
}


def _parsed(text: str) -> nodes.Expr:
    _check_text(text)
    try:
        check_nesting(_GRAMMAR.lexer.tokeniter(text, None, None, "variable"), text)
        parser = Parser(_GRAMMAR, text, state="variable")
        tree = parser.parse_expression()
        if not parser.stream.eos:
            rest = parser.stream.current
            _refuse(text, _ODD_ENDS.get(rest.type, f"it should have ended before {str(rest.value)!r}"))
    except TemplateSyntaxError as error:
        _refuse(text, f"it does not parse: {(error.message or '').rstrip('.')}")
    except (SyntaxError, ValueError):  # Python's own, from numerals such as "1.٣".
        _refuse(text, "it does not parse: a number is misspelt")
    except RecursionError:  # The limits keep clear of it, unless the caller's own stack is nearly full.
        _refuse(text, "it is nested too deeply")
    return tree


def _check_text(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        _refuse(text, f"it has {len(text)} characters, at most {MAX_CHARACTERS} are allowed")
    if not text.strip():
        _refuse(text, "it is empty")
    if text.lstrip().startswith(("{{", "{%", "{#")):
        _refuse(text, _ODD_ENDS["variable_end"])
    if not is_unicode(text):
        _refuse(text, "it is not valid Unicode text")


def is_unicode(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def check_nesting(tokens: Iterable[tuple[int, str, str]], text: str) -> None:
    """Refuse what would make the parser recurse deeply, and escapes that Python only half knows."""
    open_brackets = signs = 0
    for _, kind, word in tokens:
        if kind == "string" and (odd := _ODD_ESCAPE.search(word)):
            _refuse(text, f"{odd[1]} is no escape here; write a backslash as \\\\")
        if kind != "whitespace":
            signs = signs + 1 if word in _SIGNS else 0
        if kind == "operator":
            open_brackets += (word in "([{") - (word in ")]}")
        if open_brackets + signs > MAX_NESTING:
            _refuse(text, f"it is nested too deeply; at most {MAX_NESTING} brackets or signs may be open")


def _refuse(text: str, because: str) -> NoReturn:
    raise BadExpression(text, because=because) from None


class Reader:
    """Turns the tree of one expression into a part; counts what it reads, and notes the names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: set[str] = set()
        self.size = 0
        self._depth = 0

    def part(self, node: nodes.Node) -> Part:
        self.size += 1
        self._depth += 1
        if self.size > MAX_PARTS or self._depth > MAX_DEPTH:
            self.refuse(f"it is too large; it may have {MAX_PARTS} parts, nested {MAX_DEPTH} deep")
        read = _READERS.get(type(node))
        if read is None:
            what = _UNSPOKEN.get(type(node), type(node).__name__.lower())
            self.refuse(f"{what} is not part of the language")
        part = read(self, node)
        self._depth -= 1
        return part

    def key(self, key: str) -> str:
        # A key inside a value is the user's own; two underscores are nobody's.
        if key.startswith("__"):
            self.refuse(f"{key!r} is reserved; no key starts with __")
        return key

    def refuse(self, because: str) -> NoReturn:
        _refuse(self.text, because)


_READERS: Final[dict[type[nodes.Node], Callable[[Reader, nodes.Node], Part]]] = {}
"""The language: the kinds of node that have a meaning. Exact types; a subclass is another kind."""
_UNSPOKEN: Final[dict[type[nodes.Node], str]] = {nodes.Pow: "the operator **", nodes.Slice: "a slice"}
_KEYWORDS: Final = frozenset({"and", "or", "not", "in", "is", "if", "else"})

_Node = TypeVar("_Node", bound=nodes.Node)
_Read = Callable[[Reader, _Node], Part]


def _reads(*kinds: type[_Node]) -> Callable[[_Read[_Node]], _Read[_Node]]:
    def listed(read: _Read[_Node]) -> _Read[_Node]:
        for kind in kinds:
            _READERS[kind] = cast("_Read[nodes.Node]", read)
        return read

    return listed


@_reads(nodes.Const)
def _constant(reader: Reader, node: nodes.Const) -> Part:
    value = node.value
    if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        reader.refuse(f"an integer has more than {MAX_INTEGER_BITS} bits")
    if isinstance(value, float) and not isfinite(value):
        reader.refuse("a number is too large")
    if isinstance(value, str) and not is_unicode(value):
        reader.refuse("a text is not valid Unicode")
    return lambda names, steps: value


@_reads(nodes.Name)
def _name(reader: Reader, node: nodes.Name) -> Part:
    key = node.name
    if key.startswith("_"):
        reader.refuse(f"{key!r} is reserved; names that start with _ belong to the engine")
    if key in _KEYWORDS:
        reader.refuse(f"something is missing beside {key!r}")
    reader.names.add(key)
    return lambda names, steps: plain(names.get(key))


@_reads(nodes.Getattr)
def _attribute(reader: Reader, node: nodes.Getattr) -> Part:
    holder, key = reader.part(node.node), reader.key(node.attr)
    return lambda names, steps: functions.item(holder(names, steps), key)


@_reads(nodes.Getitem)
def _item(reader: Reader, node: nodes.Getitem) -> Part:
    if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
        reader.key(node.arg.value)
    holder, key = reader.part(node.node), reader.part(node.arg)
    return lambda names, steps: functions.item(holder(names, steps), key(names, steps))


@_reads(nodes.List, nodes.Tuple)
def _list(reader: Reader, node: nodes.Literal) -> Part:
    items = tuple(map(reader.part, node.iter_child_nodes()))
    return lambda names, steps: [item(names, steps) for item in items]


@_reads(nodes.Dict)
def _mapping(reader: Reader, node: nodes.Dict) -> Part:
    items = tuple((_literal_key(reader, pair.key), reader.part(pair.value)) for pair in node.items)
    return lambda names, steps: {key: value(names, steps) for key, value in items}


def _literal_key(reader: Reader, node: nodes.Expr) -> str:
    if not isinstance(node, nodes.Const) or not isinstance(node.value, str):
        reader.refuse("the keys of a mapping are written as text in quotes")
    return reader.key(node.value)


@_reads(nodes.And, nodes.Or)
def _and_or(reader: Reader, node: nodes.BinExpr) -> Part:
    first, *others = [reader.part(operand) for operand in _chain(node)]
    goes_on = type(node) is nodes.And

    def until_settled(names: Names, steps: Steps) -> Json:
        value = first(names, steps)
        for other in others:
            if bool(value) is not goes_on:
                break
            value = other(names, steps)
        return value

    return until_settled


def _chain(node: nodes.BinExpr) -> list[nodes.Expr]:
    """The operands of `a or b or c`, which Jinja nests to the left."""
    operands: list[nodes.Expr] = []
    rest: nodes.Expr = node
    while isinstance(rest, nodes.BinExpr) and type(rest) is type(node):
        operands.append(rest.right)
        rest = rest.left
    return [rest, *reversed(operands)]


@_reads(nodes.CondExpr)
def _conditional(reader: Reader, node: nodes.CondExpr) -> Part:
    test, one = reader.part(node.test), reader.part(node.expr1)
    other = reader.part(nodes.Const(None) if node.expr2 is None else node.expr2)
    return lambda names, steps: one(names, steps) if test(names, steps) else other(names, steps)


_Compare = Callable[[Json, Json, Steps], bool]
_COMPARISONS: Final[Mapping[str, _Compare]] = {
    "eq": functions.equal,
    "ne": lambda left, right, steps: not functions.equal(left, right, steps),
    "lt": functions.before,
    "lteq": functions.before_or_at,
    "gt": lambda left, right, steps: functions.before(right, left, steps),
    "gteq": lambda left, right, steps: functions.before_or_at(right, left, steps),
    "in": lambda left, right, steps: functions.contains(right, left, steps),
    "notin": lambda left, right, steps: not functions.contains(right, left, steps),
}


@_reads(nodes.Compare)
def _compare(reader: Reader, node: nodes.Compare) -> Part:
    first = reader.part(node.expr)
    others = tuple((_COMPARISONS[operand.op], reader.part(operand.expr)) for operand in node.ops)

    def all_hold(names: Names, steps: Steps) -> bool:
        left = first(names, steps)
        for compare, other in others:
            right = other(names, steps)
            if not compare(left, right, steps):
                return False
            left = right
        return True

    return all_hold


_ARITHMETIC: Final[Mapping[type[nodes.BinExpr], Callable[[Json, Json, Steps], Json]]] = {
    nodes.Add: functions.add,
    nodes.Sub: functions.subtract,
    nodes.Mul: functions.multiply,
    nodes.Div: functions.divide,
    nodes.FloorDiv: functions.divide_down,
    nodes.Mod: functions.remainder,
}


@_reads(*_ARITHMETIC)
def _arithmetic(reader: Reader, node: nodes.BinExpr) -> Part:
    compute = _ARITHMETIC[type(node)]
    left, right = reader.part(node.left), reader.part(node.right)
    return lambda names, steps: compute(left(names, steps), right(names, steps), steps)


_UNARY: Final[Mapping[type[nodes.UnaryExpr], Callable[[Json, Steps], Json]]] = {
    nodes.Not: lambda value, steps: not value,
    nodes.Neg: lambda value, steps: functions.subtract(0, value, steps),
    nodes.Pos: lambda value, steps: functions.number(value),
}


@_reads(*_UNARY)
def _unary(reader: Reader, node: nodes.UnaryExpr) -> Part:
    compute, part = _UNARY[type(node)], reader.part(node.node)
    return lambda names, steps: compute(part(names, steps), steps)


@_reads(nodes.Concat)
def _concat(reader: Reader, node: nodes.Concat) -> Part:
    parts = tuple(reader.part(each) for each in node.nodes)
    return lambda names, steps: functions.joined((part(names, steps) for part in parts), steps)


@_reads(nodes.Call)
def _call(reader: Reader, node: nodes.Call) -> Part:
    called = node.node
    if isinstance(called, nodes.Getattr) and called.attr in FUNCTIONS:
        reader.refuse(f"values have no methods; write {called.attr}(value)")
    if not isinstance(called, nodes.Name):
        reader.refuse("only a function of the list can be called")
    return _applied(reader, called.name, node, node.args)


@_reads(nodes.Filter)
def _filter(reader: Reader, node: nodes.Filter) -> Part:
    return _applied(reader, node.name, node, [cast("nodes.Expr", node.node), *node.args])


def _applied(reader: Reader, name: str, node: nodes.Call | nodes.Filter, args: list[nodes.Expr]) -> Part:
    if node.kwargs or node.dyn_args or node.dyn_kwargs:
        reader.refuse(f"{name} takes its arguments by place, without names or stars")
    function = FUNCTIONS.get(name) or reader.refuse(_unknown("function", name, FUNCTIONS))
    if not function.fewest <= len(args) <= function.most:
        most = function.most
        expected = most if function.fewest == most else f"{function.fewest} to {most}"
        reader.refuse(f"{name} has {len(args)} arguments; it takes {expected}")
    compute, parts = function.compute, tuple(map(reader.part, args))
    return lambda names, steps: compute(steps, *(part(names, steps) for part in parts))


@_reads(nodes.Test)
def _test(reader: Reader, node: nodes.Test) -> Part:
    if node.args or node.kwargs or node.dyn_args or node.dyn_kwargs:
        reader.refuse(f"'is {node.name}' takes no argument")
    test = TESTS.get(node.name) or reader.refuse(_unknown("test", node.name, TESTS))
    part = reader.part(node.node)
    return lambda names, steps: test(part(names, steps))


def _unknown(what: str, name: str, known: Mapping[str, object]) -> str:
    return f"{name!r} is no {what} here; known are {', '.join(sorted(known))}"
