"""F9: templates in a step's data."""

from __future__ import annotations

import pytest

from turnline.core.envelope import JsonObject
from turnline.errors import BadExpression, TemplateFailed
from turnline.flow.values import filled, headers, mapped, render, secrets_of, without

ORDER: JsonObject = {"lines": [{"sku": "a"}, {"sku": "b"}], "note": None, "total": 12.5}
PUBLIC: JsonObject = {"name": "Ann", "order": ORDER, "none": None, "zero": 0, "my-step": [1]}
KEYS = {"API_KEY": "canary-0123456789", "OTHER": "canary-other-secret"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("Hello {{ name }}", "Hello Ann"),
        ("{{ order.lines[1].sku }}", "b"),
        ("{{ order.lines[-1]['sku'] }}", "b"),
        ("{{ zero }}", "0"),
        ("{{ order.lines }}", '[{"sku":"a"},{"sku":"b"}]'),
        ("{{ none }}|{{ order.note }}|", "||"),
        ("{{ phone|default('-') }}", "-"),
        ("{{ default(order.vat.rate, zero) }}", "0"),
        ("{{ name|default(missing) }}", "Ann"),
        ("{% if phone is defined %}yes{% else %}no{% endif %}", "no"),
        ("{% if phone is undefined or phone > 3 %}no{% endif %}", "no"),
        ("{% for line in order.lines %}{{ line.sku }}{{ name }} {% endfor %}", "aAnn bAnn "),
    ],
)
def test_f9_text_is_filled_in(text: str, expected: str) -> None:
    assert render(text, PUBLIC) == expected


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{{ phone }}", "phone"),
        ("{{ phone.number }}", "phone"),
        ("{{ order.vat }}", "order.vat"),
        ("{{ order.lines[2].sku }}", "order.lines[2]"),
        ("{{ order['vat'] }}", "order['vat']"),
        ("{{ order.lines[name] }}", "order.lines[...]"),
        ("{{ name.first }}", "name.first"),
        ("{{ order.note.author }}", "order.note.author"),
        ("{% if phone %}x{% endif %}", "phone"),
        ("{% for x in phones %}x{% endfor %}", "phones"),
        ("{% for x in order.lines %}{{ x.price }}{% endfor %}", "x.price"),
        ("{{ phone|upper }}", "phone"),
        ("{{ phone is none }}", "phone"),
        ("{{ phone|default(mobile) }}", "mobile"),
        ("{{ 'a' ~ phone }}", "phone"),
        ("{{ phone == 1 or name == 'Ann' }}", "phone"),
    ],
)
def test_f9_what_is_not_there_is_an_error_that_names_it_and_its_place(text: str, key: str) -> None:
    with pytest.raises(TemplateFailed) as caught:
        render(text, PUBLIC, at="agent.prompt")

    assert caught.value.at == "agent.prompt"
    assert f"there is no {key!r}" in str(caught.value)


def test_f9_of_a_longer_template_the_line_is_told() -> None:
    with pytest.raises(TemplateFailed, match=r"'phone' \(line 3\)"):
        render("Hello\n{{ name }}\n{{ phone }}", PUBLIC)


def test_f9_an_error_holds_no_value() -> None:
    with pytest.raises(TemplateFailed) as caught:
        render("{{ token }}{{ missing }}", {"token": "canary-0123456789"})

    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ order.lines }}", [{"sku": "a"}, {"sku": "b"}]),
        ("{{ zero }}", 0),
        ("  {{ order.total }}\n", 12.5),
        ("{{ none }}", None),
        ("{{ zero == 0 }}", True),
        ("{{ missing|default([]) }}", []),
        ("{# why #}{{ zero }}", 0),
        ("{{ zero }}.", "0."),
        ("{{ zero }}{{ zero }}", "00"),
        ("{% if true %}{{ zero }}{% endif %}", "0"),
        ("plain", "plain"),
    ],
)
def test_f9_one_expression_alone_keeps_its_type(text: str, expected: object) -> None:
    found = filled(text, PUBLIC)

    assert found == expected
    assert type(found) is type(expected)


def test_f9_templates_are_filled_in_however_deep_and_keys_are_left_alone() -> None:
    data = {"to": ["{{ name }}", {"{{ name }}": "{{ order.lines[0] }}"}], "n": 3, "on": True, "no": None}

    assert filled(data, PUBLIC) == {
        "to": ["Ann", {"{{ name }}": {"sku": "a"}}],
        "n": 3,
        "on": True,
        "no": None,
    }


def test_f9_the_place_of_an_error_inside_data_is_told() -> None:
    with pytest.raises(TemplateFailed, match=r"api_call\.json\.to\[1\]\.phone cannot be filled in"):
        filled({"to": ["x", {"phone": "{{ phone }}"}]}, PUBLIC, at="api_call.json")


def test_f9_what_a_value_contains_is_never_read_as_a_template() -> None:
    public: JsonObject = {"name": "{{ order }}{% for %}", "deep": ["{{ name }}"], "order": 1}

    assert render("{{ name }}", public) == "{{ order }}{% for %}"
    assert filled({"a": "{{ deep }}"}, public) == {"a": ["{{ name }}"]}
    assert mapped({"a": "name", "b": "{{ name }}", "c": "x{{ name }}"}, public) == {
        "a": "{{ order }}{% for %}",
        "b": "{{ order }}{% for %}",
        "c": "x{{ order }}{% for %}",
    }


@pytest.mark.parametrize(
    "text", ["{{ _user_id }}", "{{ name.__class__ }}", "{% include 'x' %}", "{{ 9**9 }}"]
)
def test_f9_what_cannot_be_said_is_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        render(text, {"_user_id": "u1", "name": "Ann"})


def test_f9_a_template_that_costs_too_much_is_refused_and_not_cut_off() -> None:
    loops = "{% for a in xs %}{% for b in xs %}{% for c in xs %}x{% endfor %}{% endfor %}{% endfor %}"

    with pytest.raises(TemplateFailed, match="costs too much"):
        render(loops, {"xs": list(range(500))})


def test_f9_a_text_that_grows_too_long_is_refused_and_not_cut_off() -> None:
    with pytest.raises(TemplateFailed, match="too long a text"):
        render("{% for a in xs %}{{ long }}{% endfor %}", {"xs": [1] * 100, "long": "x" * 60_000})


def test_f9_the_texts_of_one_value_share_one_limit() -> None:
    public = {"long": "x" * 500_000}

    assert len(filled(["-{{ long }}"], public)[0]) == 500_001
    with pytest.raises(TemplateFailed):
        filled(["-{{ long }}"] * 100, public)


def test_f9_a_long_text_is_filled_in_whole() -> None:
    long = "x" * 200_000

    assert render("{{ long }}.", {"long": long}) == long + "."


def test_f9_a_large_value_is_filled_in_whole() -> None:
    rows = [{"n": n} for n in range(200_000)]

    assert filled("{{ rows }}", {"rows": rows}) == rows
    assert mapped("rows", {"rows": rows}) == rows


# --- secrets ---


def test_f9_headers_may_hold_secrets() -> None:
    given = {
        "Authorization": "Bearer {{ secret.API_KEY }}",
        "X-Both": "{{ secret['OTHER'] }} {{ name }}",
        "A": "b",
    }

    assert headers(given, PUBLIC, KEYS.get) == {
        "Authorization": f"Bearer {KEYS['API_KEY']}",
        "X-Both": f"{KEYS['OTHER']} Ann",
        "A": "b",
    }


def test_f9_a_secret_is_asked_for_only_where_a_header_reads_it() -> None:
    asked: list[str] = []

    headers({"A": "{{ secret.API_KEY }}"}, PUBLIC, lambda name: asked.append(name) or KEYS[name])  # type: ignore[func-returns-value]

    assert asked == ["API_KEY"]


def test_f9_a_secret_of_the_context_is_not_the_servers() -> None:
    public: JsonObject = {"secret": {"API_KEY": "mine"}}

    assert headers({"A": "{{ secret.API_KEY }}"}, public, KEYS.get) == {"A": KEYS["API_KEY"]}


def test_f9_a_secret_nobody_has_set_is_an_error_that_names_it() -> None:
    with pytest.raises(TemplateFailed, match=r"headers\.A cannot be filled in: there is no secret 'NOPE'"):
        headers({"A": "{{ secret.NOPE }}"}, PUBLIC, KEYS.get)


def test_f9_a_secret_anywhere_else_is_an_error_that_says_so() -> None:
    for public in (PUBLIC, {"secret": {"API_KEY": "mine"}}):
        with pytest.raises(TemplateFailed, match="secrets are for headers only"):
            render("{{ secret.API_KEY }}", public)
        with pytest.raises(TemplateFailed, match="secrets are for headers only"):
            filled({"a": ["{{ secret.API_KEY }}"]}, public)
        with pytest.raises(TemplateFailed, match="secrets are for headers only"):
            mapped("{{ secret.API_KEY }}", public)


@pytest.mark.parametrize(
    "text",
    [
        "{{ secret }}",
        "{{ secret[name] }}",
        "{{ secret.API_KEY ~ secret }}",
        "{% for s in secret %}x{% endfor %}",
        "{% for secret in xs %}{{ secret }}{% endfor %}",
        "{{ len(secret) }}",
    ],
)
def test_f9_secrets_are_read_by_name_only(text: str) -> None:
    with pytest.raises(BadExpression, match="secrets are read by name"):
        headers({"A": text}, PUBLIC, KEYS.get)


def test_f9_what_comes_back_of_a_secret_is_masked_wherever_it_is() -> None:
    key = KEYS["API_KEY"]
    secrets = secrets_of({"A": "{{ secret.API_KEY }}", "B": "x"}, KEYS.get)

    assert secrets == [key]
    assert without({"a": [f"Bearer {key}"], key: 1, "b": KEYS["OTHER"]}, secrets) == {
        "a": ["Bearer ***"],
        "***": 1,
        "b": KEYS["OTHER"],
    }


# --- a response's mapping ---


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("name", "Ann"),
        ("order.total > 10", True),
        ("'ok'", "ok"),
        ("phone", None),
        ("order.vat.rate", None),
        ("{{ order.lines }}", [{"sku": "a"}, {"sku": "b"}]),
        ("{{ phone }}", None),
        ("{{ -zero }}", 0),
        ("{{- name }}", "Ann"),
        ("Hello {{ name }}{{ phone }}", "Hello Ann"),
        ("my-step", [1]),
        (5, 5),
        (None, None),
        ({"a": ["name", {"b": "zero"}], "c": True}, {"a": ["Ann", {"b": 0}], "c": True}),
    ],
)
def test_f9_a_mapping_holds_expressions_and_missing_is_none(value: object, expected: object) -> None:
    assert mapped(value, PUBLIC) == expected


def test_f9_a_mapping_that_costs_too_much_is_an_error_and_not_none() -> None:
    with pytest.raises(TemplateFailed, match=r"mapping\.a cannot be filled in: it costs too much"):
        mapped({"a": "[rows]"}, {"rows": [[n] for n in range(100_000)]})
