"""F14: what a test file may look like, and what is said of one that may not."""

from __future__ import annotations

import pytest

from turnline.flow.testing.definition import Answers, Gives, Raises
from turnline.flow.testing.documents import Cases, cases_in
from turnline.flow.yaml_document import read_yaml

LONG = """\
kind: Test
metadata: {name: first}
spec: {flow: leads, given: {email: a@b.c}}
---
kind: Test
metadata:
  name: second
spec:
  flow: leads
"""
SHORT = """\
- name: first
  flow: leads
  given: {email: a@b.c}
- kind: Test
  metadata: {name: second}
  spec: {flow: leads}
"""


def read_cases(text: str, *, file: str = "tests/it.yaml") -> Cases:
    read = [cases_in(document) for document in read_yaml(text, file=file).documents]
    cases = [case for one in read for case in one.cases]
    return Cases(tuple(cases), tuple(finding for one in read for finding in one.findings))


@pytest.mark.parametrize("text", [LONG, SHORT])
def test_f14_a_file_holds_several_documents_or_a_list_of_cases(text: str) -> None:
    read = read_cases(text, file="tests/it.yaml")

    assert read.findings == ()
    assert [(one.case.name, one.case.spec.flow) for one in read.cases] == [
        ("first", "leads"),
        ("second", "leads"),
    ]
    assert read.cases[0].case.spec.given == {"email": "a@b.c"}


def test_f14_a_case_knows_its_line() -> None:
    assert [one.line for one in read_cases(LONG, file="x").cases] == [1, 5]
    assert [one.line for one in read_cases(SHORT, file="x").cases] == [1, 4]


def test_f14_a_stub_is_one_shape_or_a_list_of_them() -> None:
    text = "- {name: it, flow: f, stub: {a: {updates: {x: 1}}, b: [{error: no}, {answer: {ok: true}}]}}"
    [written] = read_cases(text, file="x").cases

    assert written.case.spec.stub == {
        "a": [Gives(updates={"x": 1})],
        "b": [Raises(error="no"), Answers(answer={"ok": True})],
    }


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("- name: it\n  flow: f\n  stubs: {}\n", 3, "did you mean 'stub'?"),
        ("- name: it\n  flow: f\n  stub: {a: {update: {}}}\n", 3, "did you mean 'updates'?"),
        ("- name: it\n  flow: f\n  stub:\n    a:\n      - {error: x, signal: y}\n", 5, "signal"),
        ("- flow: f\n", 1, "add `name:`"),
        ("kind: Tset\nmetadata: {name: it}\nspec: {flow: f}\n", 1, "expected: Test"),
        ("- name: it\n  flow: f\n  expect:\n    status: ok\n", 4, "succeeded, failed"),
    ],
)
def test_f14_a_mistake_is_told_with_its_line_and_the_nearest_name(text: str, line: int, said: str) -> None:
    read = read_cases(text, file="tests/it.yaml")

    [finding] = read.findings
    assert (finding.file, finding.line) == ("tests/it.yaml", line)
    assert said in str(finding)
    assert read.cases == ()


def test_f14_a_mistake_in_one_case_leaves_the_others() -> None:
    read = read_cases("- {name: bad}\n- {name: good, flow: f}\n", file="x")

    assert [one.case.name for one in read.cases] == ["good"]
    assert len(read.findings) == 1
