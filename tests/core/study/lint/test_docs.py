"""docs/lint.md: each code has a graph with it and one that is clean, and both are what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import turnline.network
from turnline.core.study import lint as lint_package
from turnline.core.study.lint import lint

PAGE = (Path(__file__).parents[4] / "docs" / "lint.md").read_text()
SECTIONS = {
    title[:4]: (title, re.findall(r"```python (bad|good)\n(.*?)```", body, re.DOTALL))
    for title, body in re.findall(r"^## (G.*?)\n(.*?)(?=^## )", PAGE, re.DOTALL | re.MULTILINE)
}


def findings_of(block: str) -> list[Any]:
    names: dict[str, Any] = dict(vars(turnline.network))
    exec(block, names)
    return list(lint(names["graph"], **names.get("given", {})))


@pytest.mark.parametrize("code", SECTIONS)
def test_a_bad_graph_has_the_finding_and_a_good_one_has_none(code: str) -> None:
    title, blocks = SECTIONS[code]
    (bad,) = [block for kind, block in blocks if kind == "bad"]
    (good,) = [block for kind, block in blocks if kind == "good"]
    found = [one for one in findings_of(bad) if one.code == code]

    assert found
    assert {one.severity for one in found} == {"warning" if "(warning)" in title else "error"}
    assert all(one.message and one.found and one.expected and one.fix for one in found)
    assert findings_of(good) == []


def test_every_code_has_a_section_and_a_line_in_the_module() -> None:
    told = re.findall(r"^    (G\d+)", lint_package.__doc__ or "", re.MULTILINE)

    assert list(SECTIONS) == told
