"""F9, F10: hostile templates and expressions, all of them in one process that may take little.

The process has 100 MB of address space above what it needs to start, and a second of
CPU time for each text. Each is read as an expression, as a template and as a strict one,
and what compiles is evaluated over heavy data. It is refused when it is compiled, or it answers.
`test_hostile.py` has more expressions, one at a time and counted in steps.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import pytest
from jinja2 import Environment

from tests.expressions.test_hostile import HEAVY, MEGABYTE
from turnline.errors import BadExpression
from turnline.expressions import compile_expression
from turnline.expressions.functions import OutOfSteps, Steps, copied
from turnline.expressions.language import MAX_CHARACTERS
from turnline.expressions.strict import Missing, compile_strict
from turnline.expressions.template import MAX_TEXT_CHARACTERS, compile_template

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits of a process are Linux's")

HEADROOM = 100 * MEGABYTE
MOST_GROWTH = 64 * MEGABYTE
MOST_SECONDS = 1.0
MOST_ANSWER = 8 * MEGABYTE
ROOT = Path(__file__).parents[2]


def loops(depth: int, body: str, over: str = "long") -> str:
    return f"{{% for a in {over} %}}" * depth + body + "{% endfor %}" * depth


REFUSED_EXPRESSIONS = [
    # Walks from a value to its class, and from there to everything.
    "''.__class__.__mro__[1].__subclasses__()[104]",
    "''['__class__']",
    "''['\\x5f\\x5fclass\\x5f\\x5f']",
    "''['\\u005f\\u005fclass\\u005f\\u005f']",
    "words[0].__class__.__base__",
    "(1).__class__",
    "1.0.__class__",
    "true.__class__",
    "[].__class__.__init__",
    "{}.__class__.__bases__[0]",
    "text|attr('__class__')",
    "text|attr('_' ~ '_class_' ~ '_')",
    "text|attr(['__cla', 'ss__']|join)",
    "text|map(attribute='__class__')",
    "words|map('attr', '__class__')|list",
    "words|groupby('__class__')",
    "words|selectattr('__class__')",
    "words|sum(attribute='__class__')",
    # Words that mean something to Jinja.
    "lipsum.__globals__['os'].popen('id').read()",
    "cycler.__init__.__globals__.os",
    "joiner.__init__.__globals__.os",
    "namespace.__init__.__globals__.os",
    "namespace(a=9).a",
    "self.__init__.__globals__.__builtins__",
    "self._TemplateReference__context.cycler()",
    "g.pop.__globals__.__builtins__.__import__('os')",
    "caller()",
    "loop.changed(1)",
    "gettext('a')",
    # Format strings.
    "'{0.__class__.__init__.__globals__}'.format(text)",
    "'{0.__class__}'|format(text)",
    "'%1000000000s'|format(text)",
    "'{:>1000000000}'.format(1)",
    "text.format_map(wide)",
    "'%*d'|format(1000000000, 1)",
    # Arithmetic without end.
    "9**(9**9)",
    "9**9**9**9**9**9",
    "2**-2**2**9999",
    "(9**9)**(9**9)",
    "1" + "0" * 3_990,
    "0x" + "f" * 3_990,
    "0b" + "1" * 3_990,
    "1e9999999",
    "1_000" + "_000" * 900,
    "1.\u0663",
    # Filters and functions that grow what they are given.
    "'a'|center(10**10)",
    "'a'|indent(10**10)",
    "'a'|wordwrap(1)|wordwrap(1)",
    "text|replace('a', text)",
    "text|list|join(text)",
    "words|join(text)",
    "long|batch(1)|list",
    "long|slice(1000000000)|list",
    "wide|tojson(indent=1000000000)",
    "deep|pprint",
    "wide|xmlattr",
    "text|urlize",
    "text|striptags",
    "range(10**10)|list",
    "range(0, 10**10)|sum",
    "dict(a=wide, b=wide)",
    "text|random",
    "long|sort|unique|list",
    "text is matching('(a+)+$')",
    "text|regex_search('(a|a)*$')",
    # Nesting and length.
    "(" * 1_900 + "a" + ")" * 1_900,
    "a" + "[0" * 1_000 + "]" * 1_000,
    "len(" * 900 + "a" + ")" * 900,
    "{'a':" * 700 + "1" + "}" * 700,
    "-" * 3_900 + "1",
    "not " * 990 + "a",
    "a" + " if a else a" * 320,
    "a" + ".a" * 1_900,
    "a" + "|upper" * 600,
    "a" + "~a" * 1_900,
    "max(" + "1," * 1_900 + "1)",
    "a" * 5_000,
    # Text that is not what it looks like.
    "\uff3f\uff3fclass\uff3f\uff3f",
    "text\u200b.upper",
    "text\u2024__class__",
    "\u202etxet",
    "a\x00b",
    "'\ud800'",
    "'\\ud800'",
    "'\\N{LATIN SMALL LETTER A}'",
    "text[::1]",
    "lambda: text",
    "a := 1",
    "a if",
    "{{ a }}",
    "{% if a %}",
    "a }}{{ __class__",
    "a %}{% set b = 1",
]

REFUSED_TEMPLATES = [
    "{{ ''.__class__.__mro__ }}",
    "{% set x = text.__class__ %}{{ x }}",
    "{% for c in [].__class__.__base__.__subclasses__() %}{{ c }}{% endfor %}",
    "{% if ''.__class__ %}a{% endif %}",
    "{% for _ in long %}{{ _ }}{% endfor %}",
    "{% for a.b in long %}{% endfor %}",
    "{% for a, b in wide %}{% endfor %}",
    "{% for a in long recursive %}{{ loop(long) }}{% endfor %}",
    "{% for a in long if a %}{% endfor %}",
    "{% for a in range(10**10) %}{{ a }}{% endfor %}",
    "{% for a in long %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{% from 'os' import system %}",
    "{% extends text %}",
    "{% block a %}{{ super() }}{% endblock %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m(x) %}{{ caller() }}{% endmacro %}{% call m(1) %}{% endcall %}",
    "{% call lipsum(n=100000) %}{% endcall %}",
    "{% set a = text %}{% set a = a ~ a %}",
    "{% set ns = namespace(x='a') %}{% for i in long %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{% set a %}{{ text }}{% endset %}",
    "{% with a = text ~ text %}{{ a }}{% endwith %}",
    "{% filter upper %}{{ text }}{% endfilter %}",
    "{% filter replace('a', text) %}a{% endfilter %}",
    "{% autoescape true %}{{ text }}{% endautoescape %}",
    "{% do long.append(1) %}",
    "{% debug %}",
    "{% trans %}a{% endtrans %}",
    "{% raw %}{{ a }}",
    "{# {{ a }}",
    "{{ lipsum(n=100000) }}",
    "{{ 9**(9**9) }}",
    "{{ 'a' * 10**10 }}",
    "{{ " + "9" * 90_000 + " }}",
    "{{ 1.\u0663 }}",
    "{{ " + "1_" * 40_000 + "1 }}",
    "{{ a" + "+a" * 40_000 + " }}",
    "{{ a" + "<a" * 40_000 + " }}",
    "{{ a" + "|upper" * 14_000 + " }}",
    "{{ a" + "[a]" * 30_000 + " }}",
    "{{ [" + "a," * 45_000 + "] }}",
    "{{ len(" + "a=a," * 24_000 + ") }}",
    "{{ " + "'a' " * 24_000 + " }}",
    "{{ a }}" * 14_000,
    "{% if a %}{% endif %}" * 4_700,
    "{% if a %}" + "{% elif a %}" * 8_000 + "{% endif %}",
    "{% if a %}" * 17 + "{% endif %}" * 17,
    "{% if a %}" * 190 + "{% endif %}" * 190,
    "{% if a %}{% else %}" * 190 + "{% endif %}" * 190,
    loops(190, "a"),
    loops(2_000, "a"),
    "{% macro a() %}" * 1_000 + "{% endmacro %}" * 1_000,
    "{{ " + "(" * 40_000 + ")" * 40_000 + " }}",
    "{% raw %}" * 10_000,
    "{%" * 50_000,
    "{#" * 50_000,
    "{{" * 50_000,
    "{" * 99_000,
    "{% for " + "a," * 40_000 + " in long %}{% endfor %}",
    "a" * 100_001,
    "{{ '\ud800' }}",
    "\x00",
]

HARMLESS_EXPRESSIONS = [
    # None of these says anything: a word of elsewhere is a key that nobody has set.
    "lipsum",
    "cycler.next",
    "text.upper",
    "text.format",
    "long.append",
    "wide.items",
    "long['__' ~ 'class__']",
    "wide['_' ~ '_class__']",
    "'a' * 10000000000",
    "[0] * 10000000000",
    "'%1000000000d' % 1",
    "n * n",
    "n" + "*n" * 30,
    "f * f",
    "-f - f - f",
    "text ~ text",
    "near ~ near",
    "near + near",
    "upper(text)",
    "long[99999999999]",
    "wide[text]",
    "round(f, 400)",
    "int('9' ~ '9' ~ near)",
    "'ß\u0390\ufb03'|upper|upper|upper|count > 99",
    "[" + "long," * 200 + "]",
    "[" + "near ~ 'a'," * 60 + "]",
    "{" + "'a': [wide, wide]," * 60 + "}",
    "[[[[[[[[[[[[long]]]]]]]]]]]] == [[[[[[[[[[[[long]]]]]]]]]]]] and wide == wide",
    "deep == deep and text == text and not (long == long)",
    " or ".join(["'x' in words"] * 60),
    " or ".join(["contains(text, 'ba' ~ 'ab' ~ 'c')"] * 30),
    " + ".join(["sum(long)"] * 20) + " + none",
    " or ".join(["max(words) < min(words)"] * 40),
    " and ".join(["len(long) > 0"] * 70) + " and none",
]

HARMLESS_TEMPLATES = [
    "{{ lipsum }}{{ cycler }}{{ self }}{{ range }}{{ loop }}",
    "{{ text.format }}{{ wide.items }}",
    "{% raw %}{{ ''.__class__ }}{% endraw %}",
    "{% print(text) %}",
    "{{ '{{ 9**9 }}' }}",
    "{{ wide }}{{ long }}{{ words }}{{ deep }}",
    "{{ text }}" * 250,
    "{{ near }}" * 250,
    "{% for near in words %}{{ near }}{% endfor %}{{ near }}",
    "{% for __class__ in long %}{% endfor %}",
    loops(1, "x" * 90_000),
    loops(1, "{{ near }}"),
    loops(1, "{{ wide }}"),
    loops(1, "{% if near ~ 'a' %}{% endif %}"),
    loops(1, "{% if near|upper|lower %}{% endif %}"),
    loops(1, "{% if 'b' in text %}{% endif %}"),
    loops(1, "{% if near|endswith(near) %}{% endif %}"),
    loops(1, "{% if wide == wide %}{% endif %}"),
    loops(1, "{% if [" + "a," * 280 + "] %}{% endif %}"),
    loops(1, "{% if " + "1 and " * 280 + "1 %}{% endif %}"),
    loops(1, "{% if (" + "1.2345678901234~" * 280 + "1) %}{% endif %}"),
    loops(1, "{% if false %}" + "{% elif false %}" * 280 + "{% endif %}"),
    loops(1, "x{# #}" * 2_400),
    loops(2, "{{ a }}"),
    loops(3, "{{ text }}"),
    loops(16, "{{ a }}{{ missing }}"),
    loops(14, loops(1, "{{ missing }}" * 100), over="[1]"),
    loops(12, "", over="[1, 2]"),
    "{% if a %}" + " " * 90_000 + "{% endif %}",
    "{%- if a" + " " * 90_000 + "-%}{%- endif -%}",
    "\n" * 90_000 + "{{ a }}",
    (" " * 300 + "{{- a -}}") * 250,
    "}}%}#}" * 16_000,
]

CORPUS = {
    "refused expression": REFUSED_EXPRESSIONS,
    "refused template": REFUSED_TEMPLATES,
    "harmless expression": HARMLESS_EXPRESSIONS,
    "harmless template": HARMLESS_TEMPLATES,
}
CASES = [(kind, place) for kind, texts in CORPUS.items() for place in range(len(texts))]


class Ending(TypedDict):
    """What became of a text: refused, answered, or the name of what it raised."""

    end: str
    size: int
    seconds: float


Row = dict[str, Ending]
"""Of a text: read as an expression, as a template, and as a strict one."""
Measured = dict[tuple[str, int], Row]


# --- in the process that may take little ---


def _evaluated(text: str) -> object:
    expression = compile_expression(text)
    expression.holds(HEAVY)
    return expression.evaluate(HEAVY)


def _rendered(text: str) -> object:
    return compile_template(text).render(HEAVY)


def _strictly(text: str) -> object:
    template, steps = compile_strict(text), Steps()
    try:
        return copied(template.value(HEAVY, steps), steps)
    except (Missing, OutOfSteps):
        return None


def _ending(act: Callable[[str], object], text: str) -> Ending:
    began, size = time.process_time(), 0
    try:
        size = len(json.dumps(act(text)))
        end = "answered"
    except BadExpression:
        end = "refused"
    except Exception as error:
        end = type(error).__name__
    return {"end": end, "size": size, "seconds": time.process_time() - began}


def _confine(seconds: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    space = pages * resource.getpagesize() + HEADROOM
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    used = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, used + seconds))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_corpus() -> None:
    _confine(2 * len(CASES))
    before = _peak()
    rows: list[Row] = []
    for kind, place in CASES:
        text = CORPUS[kind][place]
        inside = f"{{{{ {text} }}}}" if kind.endswith("expression") else text
        row = {"expression": _ending(_evaluated, text), "template": _ending(_rendered, inside)}
        rows.append(row | {"strict": _ending(_strictly, inside)})
    sys.stdout.write(json.dumps({"growth": _peak() - before, "rows": rows}))


def run_twin() -> None:
    _confine(1)
    try:
        Environment().from_string("{{ 'a' * 10**9 }}").render()
    except MemoryError:
        sys.stdout.write("out of memory\n")
    sys.stdout.flush()
    Environment().from_string("{{ 9**(9**9) }}").render()


# --- the tests ---


def in_a_small_process(function: str) -> subprocess.CompletedProcess[str]:
    code = f"from tests.expressions.test_hostile_corpus import {function}; {function}()"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def measured() -> Measured:
    done = in_a_small_process("run_corpus")
    assert done.returncode == 0, done.stderr[-2_000:]
    told = json.loads(done.stdout)
    assert told["growth"] < MOST_GROWTH
    return dict(zip(CASES, told["rows"], strict=True))


def test_the_corpus_has_ninety_texts_of_each_sort() -> None:
    expressions = {*REFUSED_EXPRESSIONS, *HARMLESS_EXPRESSIONS}
    templates = {*REFUSED_TEMPLATES, *HARMLESS_TEMPLATES}

    assert min(len(expressions), len(templates)) >= 90


@pytest.mark.parametrize(("kind", "place"), CASES)
def test_a_hostile_text_is_refused_or_answers_within_its_limits(
    kind: str, place: int, measured: Measured
) -> None:
    end, sort = kind.split()
    row = measured[kind, place]

    assert row[sort]["end"] == ("refused" if end == "refused" else "answered")
    assert {one["end"] for one in row.values()} <= {"refused", "answered"}
    assert max(one["seconds"] for one in row.values()) < MOST_SECONDS
    assert max(one["size"] for one in row.values()) <= MOST_ANSWER


def test_what_is_refused_as_an_expression_is_refused_inside_a_template(
    measured: Measured,
) -> None:
    """But for those that close the braces, and those that are only too long."""
    ends = {
        text: measured["refused expression", place]["template"]["end"]
        for place, text in enumerate(REFUSED_EXPRESSIONS)
        if "}}" not in text and "%}" not in text and len(text) <= MAX_CHARACTERS
    }

    assert {text for text, end in ends.items() if end != "refused"} == set()


def test_what_a_template_writes_is_never_longer_than_it_may_be() -> None:
    texts = [compile_template(text).render(HEAVY) for text in HARMLESS_TEMPLATES[:12]]

    assert max(map(len, texts)) > MAX_TEXT_CHARACTERS * 0.9
    assert max(map(len, texts)) <= MAX_TEXT_CHARACTERS


def test_the_process_is_as_small_as_it_says() -> None:
    """The twin: plain Jinja runs out of memory in it, and then out of time."""
    done = in_a_small_process("run_twin")

    assert done.stdout == "out of memory\n"
    assert done.returncode < 0
