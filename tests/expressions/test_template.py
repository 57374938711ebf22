"""Templates: what they can say, what they cannot, and what it may cost."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from turnline.errors import BadExpression
from turnline.expressions.functions import Steps
from turnline.expressions.template import MAX_TEXT_CHARACTERS, compile_template

ORDER = {"lines": [{"sku": "a", "count": 2}, {"sku": "b", "count": 1}], "paid": True}


def rendered(text: str, **names: object) -> str:
    return compile_template(text).render(names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("Hello {{ name }}.", "Hello Ann."),
        ("{{ name|upper }}", "ANN"),
        ("{{ order.lines[0].sku }}", "a"),
        ("{{ missing }}|", "|"),
        ("{{ 1.5 }} {{ 3 }} {{ true }}", "1.5 3 true"),
        ("{{ order.lines[1] }}", '{"sku":"b","count":1}'),
        ("{% if order.paid %}paid{% else %}open{% endif %}", "paid"),
        ("{% if missing %}a{% elif name == 'Ann' %}b{% else %}c{% endif %}", "b"),
        ("{% for line in order.lines %}{{ line.sku }}{{ line.count }} {% endfor %}", "a2 b1 "),
        ("{% for line in missing %}x{% else %}none{% endfor %}", "none"),
        ("{# a comment #}after", "after"),
    ],
)
def test_f9_what_can_be_said(text: str, expected: str) -> None:
    assert rendered(text, name="Ann", order=ORDER) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{% set x = 1 %}",
        "{% include 'secrets' %}",
        "{% import 'os' as os %}",
        "{% extends 'base' %}",
        "{% macro m() %}{% endmacro %}",
        "{% call m() %}{% endcall %}",
        "{% with x = 1 %}{% endwith %}",
        "{% filter upper %}x{% endfilter %}",
        "{% block b %}{% endblock %}",
        "{% raw %}{{ x }}",
        "{{ ''.__class__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self.__init__ }}",
        "{{ lipsum() }}",
        "{{ x|attr('y') }}",
        "{{ 9**9**9 }}",
        "{{ _session }}",
        "{% for a in b if c %}{% endfor %}",
        "{% for a, b in c %}{% endfor %}",
        "{% for a in b recursive %}{% endfor %}",
        "{% if %}{% endif %}",
        "{{ x",
        "{% if a %}" * 500 + "{% endif %}" * 500,
        "{{ " + "(" * 500 + "1" + ")" * 500 + " }}",
        "x" * 200_000,
        "\ud800",
    ],
)
def test_f9_what_cannot_be_said_is_refused_when_it_is_compiled(text: str) -> None:
    with pytest.raises(BadExpression):
        compile_template(text)


def test_f9_what_a_value_contains_is_not_read_as_a_template() -> None:
    assert rendered("{{ name }}", name="{{ order }}{% if x %}", order=1) == "{{ order }}{% if x %}"


def test_the_names_a_template_reads_are_known_and_a_loops_own_is_none_of_them() -> None:
    template = compile_template("{{ a }}{% for item in b.c %}{{ item }}{{ d }}{% endfor %}")

    assert template.names == {"a", "b", "d"}


def test_a_loops_name_hides_a_context_key_only_inside_the_loop() -> None:
    assert rendered("{{ x }}{% for x in xs %}{{ x }}{% endfor %}{{ x }}", x="o", xs=["i"]) == "oio"


def test_a_rendering_that_costs_too_much_is_cut_off() -> None:
    loops = "{% for a in xs %}{% for b in xs %}{% for c in xs %}{{ a }}{% endfor %}{% endfor %}{% endfor %}"
    steps = Steps()

    text = compile_template(loops).render({"xs": list(range(500))}, steps=steps)

    assert len(text) < MAX_TEXT_CHARACTERS
    assert steps.left <= 0


def test_a_rendering_that_grows_too_long_is_cut_off() -> None:
    text = rendered("{% for a in xs %}{{ long }}{% endfor %}", xs=list(range(1000)), long="x" * 60_000)

    assert len(text) <= MAX_TEXT_CHARACTERS


@given(st.text(max_size=60))
def test_any_text_renders_or_is_refused(text: str) -> None:
    try:
        template = compile_template(text)
    except BadExpression:
        return
    assert isinstance(template.render({"a": 1, "b": [1, {"c": None}]}), str)
