"""`turnline new`: what it makes runs at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnline.cli.new import run, template
from turnline.errors import NameTaken

from .projects import turnline


def test_a_new_project_checks_tests_and_runs(tmp_path: Path) -> None:
    made = turnline("new", "tickets", cwd=tmp_path)
    checked = turnline("check", "tickets", cwd=tmp_path)
    tested = turnline("test", "tickets", cwd=tmp_path)
    flow = ["tickets/workflows/ticket.yaml", "-i", "email=ann@example.com", "-i", "text=My invoice, now!"]
    ran = turnline("run", *flow, cwd=tmp_path)

    assert (made.code, made.err) == (0, "")
    assert checked.code == 0, checked.out + checked.err
    assert (tested.code, tested.out.splitlines()[-1]) == (0, "2 passed."), tested.out + tested.err
    assert ran.code == 0, ran.err
    assert '"topic": "billing"' in ran.out


def test_it_has_one_of_everything_and_says_what_to_try(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "it")

    files = sorted(
        str(path.relative_to(tmp_path / "it")) for path in (tmp_path / "it").rglob("*") if path.is_file()
    )
    assert files == [
        ".gitignore",
        "README.md",
        "agents/ticket_sorter.py",
        "models/ticket.yaml",
        "nodes/ticket_nodes.py",
        "tests/ticket.yaml",
        "turnline.yaml",
        "workflows/ticket.yaml",
    ]
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in said if line.startswith("    turnline ")] == ["test", "run", "serve"]
    assert len((tmp_path / "it" / "README.md").read_text().splitlines()) <= 10


def test_it_may_go_into_an_empty_folder_and_into_no_other(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "turnline.yaml").write_text("mine")

    with pytest.raises(NameTaken, match="is taken"):
        run(tmp_path)
    assert (tmp_path / "turnline.yaml").read_text() == "mine"


def test_a_file_in_its_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "it").write_text("mine")

    with pytest.raises(NameTaken):
        run(tmp_path / "it")
    assert (tmp_path / "it").read_text() == "mine"


def test_the_template_is_part_of_the_package() -> None:
    paths = [str(path) for path, _ in template()]

    assert "workflows/ticket.yaml" in paths
    assert not any("__pycache__" in path for path in paths)
