"""YAML -> JSON and places; whatever is wrong is a finding, and nothing is raised."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, strategies as st

from turnline.flow.finding import Finding
from turnline.flow.yaml_document import (
    BAD_KEY,
    MAX_DEPTH,
    MAX_FILE_BYTES,
    MAX_FINDINGS,
    MAX_VALUES,
    NOT_JSON,
    NOT_PLAIN,
    NOT_TEXT,
    SYNTAX,
    TOO_LARGE,
    TWICE,
    YamlDocument,
    read_yaml,
)

FILE = "a.yaml"


def document(text: str) -> YamlDocument:
    read = read_yaml(text, file=FILE)
    assert read.findings == ()
    (only,) = read.documents
    return only


def wrong(content: str | bytes) -> Finding:
    (only,) = read_yaml(content, file=FILE).findings
    return only


def place(finding: Finding) -> tuple[str, int, int]:
    return finding.code, finding.line, finding.column


def test_a_file_holds_many_documents() -> None:
    read = read_yaml("a: 1\n---\n- b\n---\n", file=FILE)

    assert [one.data for one in read.documents] == [{"a": 1}, ["b"], None]


def test_an_empty_file_holds_none() -> None:
    assert read_yaml("# nothing\n", file=FILE).documents == ()


def test_plain_scalars_are_those_of_yaml_1_2_and_quoted_ones_are_texts() -> None:
    data = document("on: yes\nn: 3\nt: true\nq: '3'\nd: \"true\"\nb: |\n  5\ne:\n").data

    assert data == {"on": "yes", "n": 3, "t": True, "q": "3", "d": "true", "b": "5\n", "e": None}


def test_every_value_and_every_key_has_its_place() -> None:
    read = document("steps:\n  - id: save\n    routes: {ok: b}\n")

    assert read.position(("steps",)) == (2, 3)
    assert read.position(("steps", 0)) == (2, 5)
    assert read.position(("steps", 0, "id")) == (2, 9)
    assert read.key_position(("steps", 0, "routes")) == (3, 5)
    assert read.key_position(("steps", 0, "routes", "ok")) == (3, 14)
    assert read.position(("steps", 0, "routes", "ok")) == (3, 18)


def test_columns_count_characters() -> None:
    assert document("{ä€𝄞: [x]}").position(("ä€𝄞", 0)) == (1, 8)


def test_what_is_not_there_has_the_place_of_what_is_around_it() -> None:
    read = document("a:\n  b: 1\n")

    assert read.position(("a", "c", 3, "d")) == (2, 3)
    assert read.key_position(("a", "c")) == (2, 3)


def test_a_key_without_a_value_in_a_flow_mapping_is_known_as_bare() -> None:
    read = document("{d: Save, score and route: , e: ~, f: ''}")

    assert ("score and route",) in read.bare
    assert ("d",) not in read.bare
    assert ("e",) not in read.bare


def test_a_key_that_is_written_twice_is_refused_and_both_places_are_told() -> None:
    finding = wrong("a: 1\nb: 2\na: 3\n")

    assert place(finding) == (TWICE, 3, 1)
    assert "first at 1:1" in finding.message


def test_the_same_key_in_two_mappings_is_not_twice() -> None:
    assert document("- {a: 1}\n- {a: 2}\n").data == [{"a": 1}, {"a": 2}]


def test_what_stands_under_a_key_written_twice_does_not_count() -> None:
    (read,) = read_yaml("a: 1\na: {b: [2]}\nc: 3\n", file=FILE).documents

    assert read.data == {"a": 1, "c": 3}


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a: &x 1", 1, 4),
        ("&x a: 1", 1, 1),
        ("- !!str 3", 1, 3),
        ("- !mine {a: 1}", 1, 3),
        ("<<: {a: 1}", 1, 1),
        ("!!str a: 1", 1, 1),
    ],
)
def test_anchors_tags_and_merge_keys_are_refused(text: str, line: int, column: int) -> None:
    assert place(wrong(text)) == (NOT_PLAIN, line, column)


def test_an_alias_is_refused_and_so_is_its_anchor() -> None:
    findings = read_yaml("a: &x [1]\nb: *x\n", file=FILE).findings

    assert [place(one) for one in findings] == [(NOT_PLAIN, 1, 4), (NOT_PLAIN, 2, 4)]


def test_aliases_cannot_multiply() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
    )

    assert {one.code for one in read_yaml(bomb, file=FILE).findings} == {NOT_PLAIN}


def test_a_quoted_merge_key_is_a_key() -> None:
    assert document("'<<': 1").data == {"<<": 1}


@pytest.mark.parametrize("key", ["1", "1.5", "true", "~", "null", "? [a]\n", "? {a: b}\n"])
def test_a_key_that_is_no_text_is_refused(key: str) -> None:
    assert wrong(f"{key}: 1").code == BAD_KEY


def test_a_template_without_quotes_wants_them() -> None:
    finding = wrong("title: {{ name }}")

    assert place(finding) == (BAD_KEY, 1, 9)
    assert "quotes" in finding.fix


@pytest.mark.parametrize("key", ["on", "no", "'1'", "if", "2026-01-31"])
def test_a_key_that_looks_like_something_else_is_a_text(key: str) -> None:
    assert list(document(f"{key}: 1").data) == [key.strip("'")]


def test_a_value_with_a_finding_is_known_as_refused() -> None:
    (read,) = read_yaml("a: .nan\nb: &x 1\n", file=FILE).documents

    assert read.refused == {("a",), ("b",)}


def test_a_number_that_json_has_not_is_refused() -> None:
    assert place(wrong("a:\n  b: .inf\n")) == (NOT_JSON, 2, 6)


@pytest.mark.parametrize(
    ("text", "line", "column", "word"),
    [
        ("a: b: c", 1, 5, "quotes"),
        ("a:\n\tb: 1", 2, 1, "spaces"),
        ("a: [1, 2", 2, 1, ""),
        ('a: "x', 1, 6, ""),
        ("a: 1\n b: 2", 2, 3, "quotes"),
        ("a: [x${Y}]", 1, 7, "quotes"),
    ],
)
def test_what_is_not_yaml_is_told_with_its_place(text: str, line: int, column: int, word: str) -> None:
    finding = wrong(text)

    assert place(finding) == (SYNTAX, line, column)
    assert word in finding.fix


def test_documents_before_a_syntax_error_are_read() -> None:
    read = read_yaml("a: 1\n---\nb: [", file=FILE)

    assert [one.data for one in read.documents] == [{"a": 1}]
    assert [one.code for one in read.findings] == [SYNTAX]


@pytest.mark.parametrize(
    ("content", "line", "column"),
    [(b"a: 1\nb: \xff", 2, 4), ("a: 1\nb: x\x07", 2, 5), ("\ud800", 1, 1), ('- "\\0"', 1, 3)],
)
def test_what_is_no_text_is_refused(content: str | bytes, line: int, column: int) -> None:
    assert place(wrong(content)) == (NOT_TEXT, line, column)


def test_a_byte_order_mark_is_passed_over() -> None:
    assert document("\ufeffa: 1").data == {"a": 1}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("#" * (MAX_FILE_BYTES + 1), id="bytes"),
        pytest.param("é" * (MAX_FILE_BYTES // 2 + 1), id="bytes of characters"),
        pytest.param("[" + "1," * MAX_VALUES + "]", id="values"),
        pytest.param("[" * (MAX_DEPTH + 1), id="depth"),
        pytest.param("- " * 300_000, id="depth of a list"),
        pytest.param("? " + "[" * 500_000, id="depth of a key"),
        pytest.param("a: 1\na: " + "[" * 500_000, id="depth of a value that does not count"),
        pytest.param("{? [" + "1," * MAX_VALUES, id="values that do not count"),
    ],
)
def test_size_depth_and_number_are_limited(content: str) -> None:
    assert read_yaml(content, file=FILE).findings[-1].code == TOO_LARGE


def test_the_deepest_allowed_is_read() -> None:
    assert document("[" * MAX_DEPTH + "]" * MAX_DEPTH).data


def test_findings_of_one_file_are_limited() -> None:
    assert len(read_yaml("{" + "a: 1, " * 1_000 + "}", file=FILE).findings) == MAX_FINDINGS


SHAPED = st.text(alphabet="ab1:-?[]{},&*!|>'\"%#~<\n\t \\.u0\x85é\ud800\x00", max_size=60)


@given(st.text() | SHAPED | st.binary())
@example("? ")
@example("%YAML 1.2\n---\n")
@example("!<x> a")
def test_whatever_is_read_comes_to_documents_and_findings(content: str | bytes) -> None:
    read = read_yaml(content, file=FILE)

    json.dumps([one.data for one in read.documents], allow_nan=False)
    assert all(one.line >= 1 and one.column >= 1 and one.message for one in read.findings)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("aé:{}[]#&*!|>'\"%@`- \n", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab:# -", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_json_is_yaml_and_every_part_of_it_has_a_place(data: object) -> None:
    read = document(json.dumps(data, ensure_ascii=False))

    assert read.data == data
    assert set(read.keys) <= set(read.values)
