"""What pydantic has against a document, at the place it is about."""

from __future__ import annotations

import pytest

from turnline.flow.definition.flow import Flow
from turnline.flow.environment import filled_in
from turnline.flow.finding import Finding
from turnline.flow.mistake import (
    BAD_DURATION,
    BAD_TEXT,
    BAD_VALUE,
    MISSING_KEY,
    UNKNOWN_KEY,
    UNKNOWN_KIND,
    parsed,
)
from turnline.flow.testing.definition import Case
from turnline.flow.yaml_document import MAX_FINDINGS, read_yaml

HEAD = "metadata: {name: f}\nspec:\n  steps:\n"


def mistakes(text: str, **environment: str) -> list[Finding]:
    (document,) = read_yaml(text, file="f.yaml").documents
    filled, _ = filled_in(document, environment)
    flow, findings = parsed(Flow, filled)
    assert (flow is None) == bool(findings)
    return findings


def mistake(text: str, **environment: str) -> Finding:
    (only,) = mistakes(text, **environment)
    return only


def step(text: str, **environment: str) -> Finding:
    """The one mistake of a step on line 4, from column 7."""
    return mistake(f"{HEAD}    - {text}\n", **environment)


def place(finding: Finding) -> tuple[str, int, int]:
    return finding.code, finding.line, finding.column


def test_a_good_document_is_what_it_says() -> None:
    (document,) = read_yaml(f"{HEAD}    - {{id: a, runner: x}}\n", file="f.yaml").documents
    flow, findings = parsed(Flow, document)

    assert findings == []
    assert flow is not None
    assert flow.steps[0].id == "a"


def test_an_unknown_key_is_told_at_the_key_with_the_nearest_one() -> None:
    finding = step("{id: a, runner: x, tmeout: 3s}")

    assert place(finding) == (UNKNOWN_KEY, 4, 26)
    assert (finding.found, finding.fix) == ("tmeout", "did you mean 'timeout'?")
    assert "retry" in finding.expected


@pytest.mark.parametrize(
    ("text", "column", "fix"),
    [
        ("{id: a, agent: {promt: hi}}", 23, "prompt"),
        ("{id: a, agent: {output: {mapp: {}}}}", 32, "map"),
        ("{id: a, runner: x, retry: {attemps: 3}}", 34, "attempts"),
        ("{id: a, parallel: {branches: {b: [{id: c, human: {titel: x, title: x}}]}}}", 57, "title"),
        ("{id: a, for_each: {items: x, steps: [{id: b, wait: {fro: 3s, event: e}}]}}", 59, "for"),
    ],
)
def test_the_place_is_right_however_deep_it_is(text: str, column: int, fix: str) -> None:
    finding = step(text)

    assert place(finding) == (UNKNOWN_KEY, 4, column)
    assert finding.fix == f"did you mean {fix!r}?"


def test_a_key_that_belongs_into_a_block_is_sent_there() -> None:
    assert step("{id: a, kind: agent, prompt: hi}").fix == "write it inside `agent:`"


def test_a_step_without_a_kind_may_have_meant_a_block() -> None:
    missing, unknown = mistakes(f"{HEAD}    - {{id: a, wokflow: {{name: b}}}}\n")

    assert (missing.code, unknown.code) == (MISSING_KEY, UNKNOWN_KEY)
    assert unknown.fix == "did you mean 'workflow'?"
    assert "workflow" in missing.expected


def test_the_second_half_of_a_text_with_a_comma_is_known_as_such() -> None:
    finding = mistake(
        "metadata: {name: f, description: Save, score and route}\nspec: {steps: [{id: a, runner: x}]}"
    )

    assert place(finding) == (UNKNOWN_KEY, 1, 40)
    assert finding.fix == "put a text with a comma in it in quotes"


def test_names_that_python_has_are_no_keys_of_a_document() -> None:
    finding = step("{id: a, for_each: {items: x, as_: y, steps: [{id: b, runner: c}]}}")

    assert (finding.code, finding.fix) == (UNKNOWN_KEY, "did you mean 'as'?")


def test_a_missing_key_is_told_where_it_is_missing() -> None:
    assert place(step("{id: a, human: {form: {}}}")) == (MISSING_KEY, 4, 22)
    assert place(step("{runner: a}")) == (MISSING_KEY, 4, 7)


def test_an_unknown_kind_is_told_at_the_kind_with_the_nearest_one() -> None:
    finding = step("{id: a, kind: agnet}")

    assert place(finding) == (UNKNOWN_KIND, 4, 21)
    assert (finding.found, finding.fix) == ("agnet", "did you mean 'agent'?")
    assert "api_call" in finding.expected


def test_a_kind_that_is_no_text_is_told_at_the_kind() -> None:
    assert place(step("{id: a, kind: 3}")) == (UNKNOWN_KIND, 4, 21)


def test_what_is_no_step_is_told() -> None:
    assert place(step("save")) == (BAD_VALUE, 4, 7)


@pytest.mark.parametrize("text", ["1 parsec", "fast", "10", "-3s"])
def test_a_bad_duration_is_told_at_its_text(text: str) -> None:
    finding = step(f"{{id: a, runner: x, timeout: '{text}'}}")

    assert place(finding) == (BAD_DURATION, 4, 35)
    assert finding.found == repr(text)


def test_a_duration_of_the_wrong_type_is_told_too() -> None:
    assert place(step("{id: a, runner: x, timeout: [1]}")) == (BAD_VALUE, 4, 35)


def test_f10_a_bad_expression_is_told_at_its_text() -> None:
    finding = step("{id: a, router: {conditions: [{signal: b, if: 'x =='}]}}")

    assert place(finding) == (BAD_TEXT, 4, 53)
    assert "does not parse" in finding.message


def test_f9_a_bad_template_is_told_at_its_text() -> None:
    finding = step("{id: a, agent: {prompt: '{{ x'}}")

    assert place(finding) == (BAD_TEXT, 4, 31)


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        ("metadata: {name: f, version: 2}", "2", "a text"),
        ("metadata: {name: 3 f}", "'3 f'", "a letter"),
        ("metadata: f", "'f'", "a mapping"),
        ("metadata: {name: f}\napiVersion: true", "true", "a text"),
    ],
)
def test_a_wrong_value_is_told_with_what_was_expected(text: str, found: str, expected: str) -> None:
    finding = mistake(f"{text}\nspec: {{steps: [{{id: a, runner: x}}]}}")

    assert finding.code == BAD_VALUE
    assert finding.found == found
    assert finding.expected.startswith(expected)


def test_a_number_where_a_text_belongs_wants_quotes() -> None:
    assert step("{id: a, runner: 5}").fix == "put it in quotes: '5'"


def test_one_of_a_few_words_has_the_nearest_one() -> None:
    assert step("{id: a, api_call: {url: x, method: pots}}").fix == "did you mean 'POST'?"


def test_a_key_that_cannot_be_a_name_is_told_at_the_key() -> None:
    finding = step("{id: a, parallel: {branches: {b c: [{id: d, runner: x}]}}}")

    assert place(finding) == (BAD_VALUE, 4, 37)


def test_what_a_part_refuses_as_a_whole_is_told_where_it_begins() -> None:
    finding = step("{id: a, wait: {for: 3s, event: e}}")

    assert place(finding) == (BAD_VALUE, 4, 21)
    assert "exactly one" in finding.message


def test_a_short_field_with_a_mistake_has_the_place_of_its_text() -> None:
    text = "metadata: {name: f}\nspec: {trigger: {path: /, input: {a: strng}}, steps: [{id: a, runner: x}]}"
    finding = mistake(text)

    assert place(finding) == (BAD_VALUE, 2, 38)
    assert finding.fix == "did you mean 'string'?"


@pytest.mark.parametrize("pattern", ["[", "(?=x)", "(a)\\1"])
def test_a_pattern_that_cannot_be_matched_is_told_at_its_text(pattern: str) -> None:
    finding = step(f"{{id: a, human: {{title: t, form: {{f: {{pattern: '{pattern}'}}}}}}}}")

    assert place(finding) == (BAD_VALUE, 4, 53)
    assert finding.expected.startswith("a regular expression")


def test_every_mistake_is_told_at_once() -> None:
    text = f"{HEAD}    - {{id: a, kind: nobody}}\n    - {{id: 1, runner: x, foo: 1}}\n    - 5\n"

    assert [one.code for one in mistakes(text)] == [UNKNOWN_KIND, BAD_VALUE, UNKNOWN_KEY, BAD_VALUE]


def test_the_mistakes_of_one_document_are_limited() -> None:
    assert len(mistakes(HEAD + "    - 5\n" * 1_000)) == MAX_FINDINGS


def test_a_value_that_has_a_finding_has_no_second_one() -> None:
    (document,) = read_yaml(f"{HEAD}    - {{id: a, runner: &x 3}}\n", file="f.yaml").documents

    assert parsed(Flow, document) == (None, [])


@pytest.mark.parametrize(
    "text",
    [
        "{id: a, kind: '${X}'}",
        "{id: a, runner: x, timeout: '${X}'}",
        "{id: a, router: {conditions: [{signal: b, if: '${X} =='}]}}",
        "{id: a, agent: {prompt: '{{ ${X}'}}",
        "{id: '${X} 3', runner: x}",
        "{id: a, api_call: {url: x, method: '${X}'}}",
        "'${X}'",
    ],
)
def test_no_mistake_shows_what_a_variable_stands_for(text: str) -> None:
    finding = step(text, X="canary")

    assert "canary" not in str(finding)
    assert "${X}" in str(finding)


def test_other_definitions_are_read_the_same_way() -> None:
    text = "kind: Test\nmetadata: {name: n}\nspec: {flow: f, stub: {a: {sgnal: x}, b: [{error: 3}]}}\n"
    (document,) = read_yaml(text, file="t.yaml").documents
    case, (one, other) = parsed(Case, document)

    assert case is None
    assert (place(one), one.fix) == ((UNKNOWN_KEY, 3, 28), "did you mean 'signal'?")
    assert place(other) == (BAD_VALUE, 3, 51)
