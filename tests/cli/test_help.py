"""`--help` is read by strangers: each verb says in a line what it does, and the line is whole."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from turnline.cli import app


@pytest.mark.parametrize("group", [[], ["channels"], ["runs"], ["token"], ["log"], ["db"]], ids=" ".join)
def test_no_line_of_a_list_of_verbs_is_cut(group: list[str]) -> None:
    told = CliRunner().invoke(app, [*group, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).output
    verbs = told.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()

    assert verbs
    assert [line for line in verbs if line.rstrip().endswith("...")] == []


@pytest.mark.parametrize("group", ["channels", "runs"])
def test_a_group_says_which_log_it_looks_at_and_has_an_example(group: str) -> None:
    told = " ".join(CliRunner().invoke(app, [group, "--help"]).output.split())

    assert "--log or --dir says which log" in told
    assert f"Example: turnline {group} list" in told
