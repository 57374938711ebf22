"""F10: what an attacker may write, and what it may cost. No test here looks at a clock.

An escape is refused or reads a missing key; an attack on time or memory is
refused or ends within its steps. Each corpus has a twin that shows it bites.
"""

from __future__ import annotations

import json
from copy import deepcopy

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from jinja2 import Environment

from turnline.errors import BadExpression
from turnline.expressions.functions import MAX_RESULT_CHARACTERS, MAX_STEPS, Json, Steps
from turnline.expressions.language import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_NESTING,
    MAX_PARTS,
    compile_expression,
)

LEAD: dict[str, Json] = {
    "lead_score": 90,
    "name": "Jane",
    "tags": ["new", "eu"],
    "order": {"lines": [{"sku": "a"}], "paid": True, "_id": 7},
}
MEGABYTE = 1024 * 1024

ESCAPES = r"""
''.__class__
''.__class__.__mro__[1].__subclasses__()
().__class__.__base__
[].__class__.__base__.__subclasses__()
{}.__class__
name.__class__
name['__class__']
name["\u005f\u005fclass\u005f\u005f"]
name|attr('__class__')
name|attr('upper')
lead_score.__init__.__globals__
tags.__len__()
tags.append(1)
tags.clear()
tags.pop()
order.update({'a': 1})
order.items()
order.get('paid')
'{0.__class__}'.format(name)
'{0.__class__}'|format(name)
name.format_map(order)
name.encode()
name.join(tags)
name.upper()
self.__init__
cycler.__init__.__globals__.os
cycler('a')
joiner()
namespace(a=1)
dict(a=1)
range(10)
lipsum()
lipsum.__globals__['os'].popen('id')
lipsum.__globals__.__builtins__.eval('1')
config.items()
request.application.__globals__
url_for.__globals__
get_flashed_messages.__globals__
environment.from_string('{{ 1 }}')()
loop.index()
super()
caller()
eval('1')
exec('1')
open('/etc/passwd')
__import__('os')
getattr(name, 'upper')
vars(order)
type(name)
print(name)
breakpoint()
tags|map('upper')
tags|map(attribute='__class__')
tags|select('string')
tags|sort
tags|join
tags|list
tags|batch(2)
order|dictsort
order|items
order|tojson
order|pprint
name|safe
name|replace('a', 'b')
name|center(10)
name|wordwrap(1)
name|urlize
name|xmlattr
name|random
len(*tags)
len(**order)
upper(value=name)
(lower if true else upper)(name)
[lower][0](name)
len(len)(name)
name is sameas(name)
name is callable
name is in(tags)
name is divisibleby 3
lambda: 1
lambda x: x
[x for x in tags]
{x: x for x in tags}
tags if x for x in tags
import os
from os import popen
def f(): 1
while true: 1
a = 1
a := 1
a; b
yield 1
await name
{% if true %}1{% endif %}
{% set x = 1 %}
{{ name }}
{# comment #}
1 }}{{ name
1 %}{% if true
name }}
f'{name}'
b'abc'
`id`
$name
@name
name!r
name[::2]
name[:]
tags[0, 1]()
_
__builtins__
_session
order['__class__']
order.__dict__
order.lines[0].__class__
""".strip().splitlines()

HARMLESS = r"""
self._TemplateReference__context
ctx._session
self
cycler
lipsum
range
loop
config
environment
eval
name.upper
order.items
tags.append
name.format
name['_' ~ '_class_' ~ '_']
order['_' + '_class__']
lead_score.real
'%s' % name
'{0}' % order
tags[0, 1]
tags['append']
tags['__' ~ 'len__']
missing[name]
""".strip().splitlines()


def test_the_corpus_has_sixty_escapes() -> None:
    assert len(set(ESCAPES)) >= 60


@pytest.mark.parametrize("text", ESCAPES)
def test_an_escape_is_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        compile_expression(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_a_word_that_means_something_elsewhere_is_a_missing_key_here(text: str) -> None:
    assert compile_expression(text).evaluate(LEAD) is None


def test_the_corpus_bites() -> None:
    """The twin: under plain Jinja, the walks of the corpus arrive at things that are not JSON."""
    walks = [text for text in ESCAPES if "__class__" in text and "popen" not in text and "{{" not in text]
    reached = []
    for text in walks:
        try:
            found = Environment().compile_expression(text)(**deepcopy(LEAD))
            json.dumps(found)
        except TypeError:
            reached.append(text)
        except Exception:
            continue
    assert len(reached) >= 5


HEAVY: dict[str, object] = {
    "n": 2**200,
    "f": 1e308,
    "text": "ab" * 500_000,
    "near": "a" * (MAX_RESULT_CHARACTERS - 1),
    "long": list(range(90_000)),
    "words": ["word"] * 90_000,
    "wide": {str(key): key for key in range(90_000)},
    "deep": json.loads("[" * 60 + "]" * 60),
}

ATTACKS = [
    "9**(9**9)",
    "9**9**9**9**9",
    "2**2",
    "'a' * 10**10",
    "'a' * 10000000000",
    "[0] * 10000000000",
    "(1, 2) * 1000000",
    "range(10000000000)",
    "range(99999999)|list|length",
    "lipsum(n=100000)",
    "'%9999999999d' % 1",
    "'{:9999999999}'.format(1)",
    "'a'|center(9999999999)",
    "9" * 3_999,
    "0x" + "f" * 3_000,
    "1e" + "9" * 3_000,
    "1_" * 1_999 + "1",
    "(" * 3_000,
    "(" * 1_500 + "1" + ")" * 1_500,
    "[" * 1_500 + "]" * 1_500,
    "{'a':" * 600 + "1" + "}" * 600,
    "-" * 3_999,
    "- " * 1_900 + "1",
    "not " * 900 + "1",
    "a[" * 1_000 + "0" + "]" * 1_000,
    "len(" * 700 + "a" + ")" * 700,
    "a" + ".b" * 1_900,
    "a" + "|lower" * 600,
    "1" + "+1" * 1_900,
    "'a'" + "~'a'" * 900,
    "1 if 1 else " * 320 + "1",
    "1" + "<2" * 1_900,
    "a" * 1_000_000,
    "'" + "a" * 1_000_000 + "'",
    "[" + "0," * 1_900 + "]",
    "'" + "\\" * 3_000,
    "n" + "*n" * 30,
    "9999999999*9999999999*" * 12 + "1",
    "f" + "*f" * 30,
    "near" + "~near" * 30,
    "text ~ text",
    "upper(text) ~ lower(text)",
    "[" + "near~'a'," * 40 + "]",
    "[" + "text," * 200 + "]",
    "[" + "long," * 200 + "]",
    "{'a': wide, 'b': wide, 'c': wide}",
    "[[long, long], [long, long]] == [[long, long], [long, long]]",
    "wide == wide and wide == wide",
    " or ".join(["'x' in words"] * 60),
    " or ".join(["contains(text, 'ba' ~ 'ab' ~ 'c')"] * 30),
    " + ".join(["sum(long)"] * 20),
    " or ".join(["max(words) < min(words)"] * 40),
    "deep == deep",
]


def test_the_corpus_has_thirty_attacks() -> None:
    assert len(set(ATTACKS)) >= 30


@pytest.mark.parametrize("place", range(len(ATTACKS)))
def test_an_attack_is_refused_or_ends_within_its_steps(place: int) -> None:
    """What it costs in memory: `tests/faults/test_hostile_memory.py`."""
    steps = Steps()
    try:
        found = compile_expression(ATTACKS[place]).evaluate(HEAVY, steps=steps)
    except BadExpression:
        found = None

    assert found is None or steps.left >= 0
    assert len(json.dumps(found)) <= 8 * MEGABYTE


def test_out_of_steps_is_none_for_the_whole_expression_and_holds_nothing() -> None:
    """Also under `not`: what was never worked out is not a reason to go anywhere."""
    search = " or ".join(["'x' in words"] * 60)
    for text in (search, f"not ({search})", f"[{search}]", f"({search}) == none"):
        costly = compile_expression(text)
        assert costly.evaluate(HEAVY) is None
        assert costly.holds(HEAVY) is False


def test_the_budget_is_what_ends_it() -> None:
    """The twin: without the budget the same expression goes on, far past it."""
    endless = Steps(10**9)
    costly = compile_expression(" or ".join(["'x' in words"] * 10))
    assert costly.evaluate(HEAVY, steps=endless) is False
    assert 10**9 - endless.left > 5 * MAX_STEPS


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("'" + "a" * (MAX_CHARACTERS - 2) + "'", True),
        ("'" + "a" * (MAX_CHARACTERS - 1) + "'", False),
        ("(" * MAX_NESTING + "1" + ")" * MAX_NESTING, True),
        ("(" * (MAX_NESTING + 1) + "1" + ")" * (MAX_NESTING + 1), False),
        ("a" + "+1" * (MAX_DEPTH - 1), True),
        ("a" + "+1" * MAX_DEPTH, False),
        ("[" + "0," * (MAX_PARTS - 1) + "]", True),
        ("[" + "0," * MAX_PARTS + "]", False),
        (" or ".join(["a"] * (MAX_PARTS - 1)), True),
    ],
)
def test_the_limits_are_where_they_say(text: str, fits: bool) -> None:
    try:
        compile_expression(text)
    except BadExpression:
        assert not fits
    else:
        assert fits


SOUP = st.lists(
    st.sampled_from(
        """a name tags order missing _a 0 1 2.5 'x' '' true none ( ) [ ] { } . , : | ~ + - * / // % ** ==
        != < > = is in not and or if else len lower max number defined }} %} {{ # \\ ! @ \u0663""".split()  # noqa: SIM905
    ),
    max_size=25,
).map(" ".join)
NUMERALS = st.text(alphabet="'\"\\ab01.\u0663e_({[]})|~-+ ", max_size=40)
patiently = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])


@patiently
@given(text=SOUP | NUMERALS | st.text(max_size=60))
def test_any_text_at_all_compiles_or_is_refused(text: str) -> None:
    try:
        expression = compile_expression(text)
    except BadExpression:
        return
    json.dumps(expression.evaluate(LEAD), allow_nan=False)
