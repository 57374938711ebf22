"""What is wrong, where, and what to do: for people and for programs."""

from __future__ import annotations

import json

import pytest

from turnline.errors import BadDocuments
from turnline.flow.finding import MAX_LINE_CHARACTERS, Finding, Report, nearest

ERROR = Finding(
    code="TL011", message="no key 'promt' is known here", file="b.yaml", line=3, column=7,
    found="promt", expected="prompt, tools", fix="did you mean 'prompt'?",
)  # fmt: skip
WARNING = Finding(code="TL103", message="no limit", file="a.yaml", severity="warning")


def test_a_finding_says_where_what_and_what_to_do() -> None:
    assert str(ERROR).splitlines() == [
        "b.yaml:3:7: TL011 no key 'promt' is known here",
        "    found: promt",
        "    expected: prompt, tools",
        "    do: did you mean 'prompt'?",
    ]


def test_a_warning_says_that_it_is_one_and_what_is_not_known_is_left_out() -> None:
    assert str(WARNING) == "a.yaml:1:1: warning: TL103 no limit"


def test_what_a_document_holds_cannot_move_the_cursor_or_fill_the_screen() -> None:
    finding = Finding(code="TL1", message="a\x1b[2Jb\nc", file="a.yaml", found="x" * 10_000)

    assert str(finding).splitlines()[0] == "a.yaml:1:1: TL1 a [2Jb c"
    assert max(map(len, str(finding).splitlines())) == MAX_LINE_CHARACTERS


def test_a_report_is_in_the_order_of_files_lines_and_columns() -> None:
    later = Finding(code="TL001", message="x", file="b.yaml", line=10)

    assert Report([later, ERROR, WARNING]).findings == (WARNING, ERROR, later)


def test_a_report_has_each_finding_once() -> None:
    report = Report([ERROR])
    report.add(ERROR, WARNING)

    assert len(report.findings) == 2


def test_a_report_for_people_ends_with_how_many() -> None:
    assert str(Report([ERROR, WARNING])).splitlines()[-1] == "1 error and 1 warning in 2 files."
    assert str(Report([WARNING])).splitlines()[-1] == "1 warning in 1 file."
    assert str(Report()) == ""


def test_a_report_for_programs_is_json() -> None:
    data = json.loads(json.dumps(Report([ERROR, WARNING]).to_dict()))

    assert (data["ok"], data["errors"], data["warnings"]) == (False, 1, 1)
    assert data["findings"][1] == {
        "code": "TL011",
        "message": "no key 'promt' is known here",
        "file": "b.yaml",
        "line": 3,
        "column": 7,
        "found": "promt",
        "expected": "prompt, tools",
        "fix": "did you mean 'prompt'?",
        "severity": "error",
    }


def test_an_error_is_raised_with_the_whole_report() -> None:
    report = Report([ERROR, WARNING])

    with pytest.raises(BadDocuments) as raised:
        report.raise_if_bad()
    assert str(raised.value) == str(report)
    assert [one["code"] for one in raised.value.findings] == ["TL103", "TL011"]


def test_a_warning_is_no_reason_to_raise() -> None:
    report = Report([WARNING])
    report.raise_if_bad()

    assert (report.errors, report.warnings) == ((), (WARNING,))


def test_the_nearest_name_is_found_whatever_its_case() -> None:
    assert nearest("LEAD", ["Lead", "Company"]) == "did you mean 'Lead'?"
    assert nearest("xyz", ["Lead", "Company"]) == ""
