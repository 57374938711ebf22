"""`${NAME}`: filled in from the environment, in what an author wrote, and never shown."""

from __future__ import annotations

import pytest

from turnline.flow.environment import MALFORMED, SECRET, UNSET, filled_in, secrets_filled_in
from turnline.flow.finding import Finding
from turnline.flow.yaml_document import MAX_FILE_BYTES, YamlDocument, read_yaml


def filled(text: str, **environment: str) -> tuple[YamlDocument, list[Finding]]:
    (document,) = read_yaml(text, file="a.yaml").documents
    return filled_in(document, environment)


def data(text: str, **environment: str) -> object:
    document, findings = filled(text, **environment)
    assert findings == []
    return document.data


def test_a_variable_is_filled_in_wherever_a_text_stands() -> None:
    text = "a: ${X}\nb: [1, 'x-${X}-${Y}']\nc: {d: '${Y}'}\n"

    assert data(text, X="one", Y="two") == {"a": "one", "b": [1, "x-one-two"], "c": {"d": "two"}}


def test_what_was_filled_in_is_not_looked_at_again() -> None:
    assert data("a: ${X}", X="${Y} $${Y}", Y="no") == {"a": "${Y} $${Y}"}


def test_two_dollars_stand_for_the_characters_themselves() -> None:
    assert data("a: $${X} $5 $X {X}") == {"a": "${X} $5 $X {X}"}


def test_keys_are_taken_as_they_are() -> None:
    assert data("${X}: 1", X="no") == {"${X}": 1}


def test_a_variable_that_is_not_set_is_a_finding_at_its_text() -> None:
    _, (finding,) = filled("a: 1\nb: x ${HOMME}\n", HOME="canary")

    assert (finding.code, finding.line, finding.column) == (UNSET, 2, 4)
    assert finding.fix == "did you mean 'HOME'?"
    assert "canary" not in str(finding)


def test_a_value_with_a_finding_has_no_second_one() -> None:
    document, _ = filled("a: ${NOBODY}")

    assert ("a",) in document.refused


@pytest.mark.parametrize("text", ["${", "${}", "${ X }", "${X:-1}", "${1X}"])
def test_what_is_no_variable_is_a_finding(text: str) -> None:
    _, findings = filled(f"a: '{text}'", X="1")

    assert [one.code for one in findings] == [MALFORMED]


@pytest.mark.parametrize("value", ["\ud800canary", "canary" * MAX_FILE_BYTES])
def test_a_value_that_cannot_be_kept_is_a_finding_without_it(value: str) -> None:
    _, (finding,) = filled("a: ${X}", X=value)

    assert finding.code == MALFORMED
    assert "canary" not in str(finding)


def test_the_text_as_it_was_written_is_kept() -> None:
    document, _ = filled("a: ['x-${X}']\nb: 2\n", X="canary")

    assert document.written == {("a", 0): "x-${X}"}
    assert document.as_written("found x-canary", ("a", 0)) == "found x-${X}"
    assert document.as_written("found 2", ("b",)) == "found 2"


def test_a_document_shows_nothing_of_its_data() -> None:
    document, _ = filled("a: ${X}", X="canary")

    assert "canary" not in repr(document)


@pytest.mark.parametrize(
    "name",
    [
        "API_KEY",
        "OPENAI_API_KEY",
        "apikey",
        "DB_PASSWORD",
        "DB_PWD",
        "SECRET_1",
        "GITHUB_TOKEN",
        "PRIVATE_KEY",
        "SIGNING_KEY",
        "SMTP_PASS",
    ],
)
def test_a_workflow_with_a_secret_filled_in_would_put_it_on_the_log(name: str) -> None:
    document, _ = filled(f"a: ${{{name}}}", **{name: "canary"})
    (finding,) = secrets_filled_in(document)

    assert finding.code == SECRET
    assert f"{{{{ secret.{name} }}}}" in finding.fix
    assert "canary" not in str(finding)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("url: ${X}", "postgresql://app:p@db/leads"),
        ("url: ${X}", "https://user:pa@ss@example.com/?q=1"),
        ("url: 'redis://:${X}@cache/0'", "%%"),
        ("dsn: ${X}", "host=db user=app password=canary"),
        ("dsn: 'host=db password=${X} user=app'", "canary"),
        ("a: ${X}", "sk-canary0123456789abcdef"),
        ("a: ${X}", "-----BEGIN PRIVATE KEY-----canary"),
        ("headers: {Authorization: 'Bearer ${X}'}", "canary0123456789abcdef"),
        ("json: {password: '${X}'}", "canary"),
    ],
)
def test_a_variable_whose_value_holds_a_password_is_refused_in_a_workflow(text: str, value: str) -> None:
    document, findings = filled(text, X=value)
    (finding,) = secrets_filled_in(document)

    assert (findings, finding.code, finding.found) == ([], SECRET, "${X}")
    assert "holds a password or a key" in finding.message
    assert value not in str(finding)
    assert "canary" not in str(finding)


@pytest.mark.parametrize(
    "value",
    [
        "https://example.com:8080/a@b",
        "https://ann@example.com",
        "mailto:ann@example.com",
        "eu-west-1",
        "password",
    ],
)
def test_an_address_without_a_password_may_stand_in_a_workflow(value: str) -> None:
    document, _ = filled("url: ${X}/leads", X=value)

    assert secrets_filled_in(document) == []


@pytest.mark.parametrize("name", ["HOST", "SORT_KEY", "MONKEY", "TOKENIZER", "PWD"])
def test_a_variable_that_is_no_secret_may_stand_in_a_workflow(name: str) -> None:
    document, _ = filled(f"a: ${{{name}}} $${{API_KEY}}", **{name: "x"})

    assert secrets_filled_in(document) == []
