"""F9: strict templates. What they mean inside a step's data is in `tests/flow/test_values.py`."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from turnline.errors import BadExpression
from turnline.expressions.functions import OutOfSteps, Steps
from turnline.expressions.strict import Missing, compile_strict
from turnline.expressions.template import compile_template

NAMES: dict[str, object] = {"a": 1, "b": [1, {"c": None}], "huge": 2**300}


def test_f9_what_is_missing_is_named_with_its_line() -> None:
    with pytest.raises(Missing) as caught:
        compile_strict("x\n\n{{ b[1].d.e }}").render(NAMES, Steps())

    assert (caught.value.key, caught.value.line) == ("b[1].d", 3)


def test_f9_a_value_no_expression_may_touch_is_as_good_as_missing() -> None:
    with pytest.raises(Missing):
        compile_strict("{{ huge }}").render(NAMES, Steps())


def test_f9_what_costs_too_much_is_an_error() -> None:
    with pytest.raises(OutOfSteps):
        compile_strict("{% for x in b %}{{ x }}{% endfor %}").render(NAMES, Steps(3))


def test_f9_the_names_and_the_secrets_it_reads_are_known() -> None:
    template = compile_strict("{{ a }}{% for x in b %}{{ x }}{% endfor %}{{ secret.KEY ~ secret['OTHER'] }}")

    assert template.names == {"a", "b"}
    assert template.secrets == {"KEY", "OTHER"}


def test_f9_one_expression_alone_has_a_value_and_anything_else_a_text() -> None:
    assert compile_strict("{{ b }}").value(NAMES, Steps()) == [1, {"c": None}]
    assert compile_strict("{{ b }}.").value(NAMES, Steps()) == '[1,{"c":null}].'


def test_two_of_the_same_text_are_equal() -> None:
    assert compile_strict("{{ a }}") == compile_strict("{{ a }}")
    assert compile_strict("{{ a }}") != compile_strict("{{ b }}")


def test_f9_where_nothing_is_missing_it_says_what_a_lenient_template_says() -> None:
    text = "{{ a }} {{ b[0] }} {% if a == 1 %}{{ b[1].c|default('-') }}{% endif %} {{ a is defined }}"

    assert compile_strict(text).render(NAMES, Steps()) == compile_template(text).render(NAMES) == "1 1 - true"


def test_f9_a_long_text_is_rendered_whole_by_both() -> None:
    long = "x" * 100_000

    assert compile_strict("{{ long }}.").render({"long": long}, Steps()) == long + "."
    assert compile_template("{{ long }}.").render({"long": long}) == long + "."


@given(st.text(alphabet="ab{}%|[]().'_ secrtdfaulifo0", max_size=60))
def test_f9_any_text_renders_is_refused_or_misses_something(text: str) -> None:
    try:
        rendered = compile_strict(text).render({**NAMES, "secret": {}}, Steps())
    except (BadExpression, Missing):
        return
    assert isinstance(rendered, str)


@given(st.text(max_size=60))
def test_f9_what_a_lenient_template_refuses_a_strict_one_refuses(text: str) -> None:
    try:
        compile_template(text)
    except BadExpression:
        with pytest.raises(BadExpression):
            compile_strict(text)
