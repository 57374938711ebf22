"""The graphs of a Python file that somebody named."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnline.flow.graph_module import graphs_of

PROGRAM = """\
from turnline.network import lint, round_robin, sequence

line = sequence(["ann", "ben"])
talk = (
    round_robin(["ann", "ben"])
)

if __name__ == "__main__":
    raise SystemExit("nobody runs this")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "graphs.py"
    path.write_text(PROGRAM)
    return path


def test_graphs_are_found_by_their_names_in_their_order(file: Path) -> None:
    graphs, findings = graphs_of(file)

    assert [(one.name, one.line) for one in graphs] == [("line", 3), ("talk", 4)]
    assert findings == []


def test_a_finding_names_the_graph_and_its_line(file: Path) -> None:
    graphs, _ = graphs_of(file)
    (found,) = [finding for one in graphs for finding in one.findings]

    assert (found.code, found.file, found.line) == ("G302", str(file), 4)
    assert found.message.startswith("talk.max_turns: ann -> ben -> ann goes on for ever")


def test_a_file_that_cannot_be_executed_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("from turnline.network import nothing_of_the_kind\n")
    graphs, (finding,) = graphs_of(path)

    assert (graphs, finding.code, finding.line) == ([], "TL031", 1)
