"""`turnline graph`: a picture of whatever the file holds, in four formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from turnline.cli.check import check
from turnline.cli.graph import EXAMPLE, graph
from turnline.core.graph import round_robin, sequence
from turnline.errors import BadDocuments

FLOW = "- {id: a, wait: {for: 1s}}\n- {id: b, wait: {for: 1s}}\n"

app = typer.Typer(add_completion=False, rich_markup_mode=None)
app.command(epilog=EXAMPLE)(graph)
app.command()(check)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def turnline(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


def a_graph(name: str = "talk.json", *speakers: str) -> str:
    return write(name, json.dumps(sequence(speakers or ("ann", "ben")).to_dict(), indent=2))


def test_a_graph_is_drawn_in_the_terminal() -> None:
    done = turnline("graph", a_graph())

    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "+-----+",
        "| ann |  first",
        "+-----+",
        "  '--> ben",
        "",
        "+-----+",
        "| ben |",
        "+-----+",
        "  '-- otherwise --> [closed: sequence_complete]",
    ]


def test_a_flow_is_drawn_with_its_signals() -> None:
    done = turnline("graph", write("small.yaml", FLOW.replace("1s}}", "1s}, routes: {error: a}}", 1)))

    assert "  |-- error --> the same again\n  '--> b" in done.stdout


@pytest.mark.parametrize(
    ("format_", "first"), [("mermaid", "flowchart TD"), ("dot", "digraph {"), ("json", "{")]
)
def test_other_programs_get_text_of_their_own(format_: str, first: str) -> None:
    done = turnline("graph", a_graph(), "--format", format_)

    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, first)


def test_json_has_nodes_and_edges_with_labels() -> None:
    told = json.loads(turnline("graph", a_graph(), "--format", "json").stdout)

    assert [one["label"] for one in told["nodes"]] == ["ann", "ben", "sequence_complete"]
    assert told["edges"][1] == {
        "source": "participant:ben",
        "target": "close:sequence_complete",
        "label": "otherwise",
        "index": None,
    }


def test_of_several_graphs_text_shows_all_and_the_rest_ask_which() -> None:
    file = write("two.py", "from turnline.network import sequence\none = sequence('ab')[:0]\n")
    assert turnline("graph", file).exit_code != 0

    file = write(
        "two.py",
        "from turnline.network import sequence\none = sequence(['a', 'b'])\ntwo = sequence(['c', 'd'])\n",
    )
    every, which, chosen = (
        turnline("graph", file),
        turnline("graph", file, "--format", "dot"),
        turnline("graph", file, "--format", "dot", "--name", "two"),
    )

    assert every.stdout.startswith("one\n===\n\n+---+\n| a |")
    assert (which.exit_code, "one, two; say which with --name" in " ".join(which.output.split())) == (2, True)
    assert ('label="c"' in chosen.stdout, 'label="a"' in chosen.stdout) == (True, False)


def test_an_unknown_name_and_a_file_with_nothing_in_it_are_refused() -> None:
    assert turnline("graph", a_graph(), "--name", "tlak").exit_code == 2
    assert turnline("graph", write("empty.py", "x = 1\n")).exit_code == 2


def test_a_document_with_mistakes_is_refused_with_all_of_them() -> None:
    bad = turnline("graph", write("bad.yaml", "- {id: a, wiat: {for: 1s}}\n"))

    assert isinstance(bad.exception, BadDocuments)
    assert "TL011" in str(bad.exception)


def test_help_has_an_example() -> None:
    assert (
        "turnline graph workflows/lead_processing.yaml --format mermaid" in turnline("graph", "--help").output
    )


# --- `turnline check` of graphs ---


def test_check_fails_on_a_graph_with_a_trap_and_says_where() -> None:
    file = write("ring.json", json.dumps(round_robin(["ann", "ben"]).to_dict(), indent=2))
    done = turnline("check", file)

    assert done.exit_code == 1
    line = Path(file).read_text().splitlines().index('  "max_turns": null') + 1
    assert done.stdout.startswith(f"ring.json:{line}:16: G302 ann -> ben -> ann goes on for ever")


def test_check_counts_graphs_that_are_clean() -> None:
    assert turnline("check", a_graph()).output == "1 graph, no problems.\n"
    write("small.yaml", FLOW)
    write("graph.yaml", Path(a_graph()).read_text())
    assert turnline("check", "small.yaml", "graph.yaml").output == "1 flow, 1 graph, no problems.\n"
    told = json.loads(turnline("check", "graph.yaml", "--json").stdout)
    assert (told["graphs"], told["ok"]) == (1, True)


def test_check_runs_a_python_file_only_if_it_is_named() -> None:
    write("ring.py", "from turnline.network import round_robin\nring = round_robin(['a', 'b'])\n")
    write("small.yaml", FLOW)

    assert turnline("check").exit_code == 0
    named = turnline("check", "ring.py")
    assert (named.exit_code, named.stdout.startswith("ring.py:2:1: G302 ring.max_turns: a -> b -> a")) == (
        1,
        True,
    )
