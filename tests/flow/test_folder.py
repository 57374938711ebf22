"""Which files belong to a project, and that nothing else is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from turnline.flow import folder as module
from turnline.flow.folder import UNREADABLE, Folder, Unreadable, project_root
from turnline.flow.yaml_document import MAX_FILE_BYTES


def made(root: Path, *names: str, text: str = "") -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def folder(root: Path) -> Folder:
    return Folder(root, shown_as=Path("here"))


def shown(files: Folder, paths: list[Path]) -> list[str]:
    return [files.shown(path) for path in paths]


def test_every_yaml_file_below_is_a_document_but_for_the_settings(tmp_path: Path) -> None:
    made(tmp_path, "turnline.yaml", "b.yml", "a.yaml", "w/x/c.yaml", "notes.txt", "w/turnline.txt")
    files = folder(tmp_path)

    assert shown(files, files.documents()) == ["here/a.yaml", "here/b.yml", "here/w/x/c.yaml"]


def test_what_is_hidden_a_virtual_environment_or_another_project_is_passed_over(tmp_path: Path) -> None:
    made(tmp_path, ".github/a.yaml", ".turnline/b.yaml", ".c.yaml", "env/pyvenv.cfg", "env/d.yaml")
    made(tmp_path, "examples/turnline.yaml", "examples/e.yaml", "node_modules/x/f.yaml", "own.yaml")
    files = folder(tmp_path)

    assert shown(files, files.documents()) == ["here/own.yaml"]


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    made(tmp_path, "outside/a.yaml", "project/b.yaml")
    (tmp_path / "project" / "link").symlink_to(tmp_path / "outside")
    files = folder(tmp_path / "project")

    assert shown(files, files.documents()) == ["here/b.yaml"]


def test_a_file_outside_the_root_is_not_read(tmp_path: Path) -> None:
    made(tmp_path, "secret.yaml", "project/a.yaml", text="canary")
    link = tmp_path / "project" / "link.yaml"
    link.symlink_to(tmp_path / "secret.yaml")
    files = folder(tmp_path / "project")

    for path in (link, tmp_path / "secret.yaml", tmp_path / "project" / ".." / "secret.yaml"):
        with pytest.raises(Unreadable) as refused:
            files.read(path)
        assert refused.value.finding.code == UNREADABLE
        assert "outside" in refused.value.finding.message
    assert files.read(tmp_path / "project" / "a.yaml") == b"canary"


def test_a_link_within_the_root_is_read(tmp_path: Path) -> None:
    made(tmp_path, "a.yaml", text="here")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "a.yaml")

    assert folder(tmp_path).read(tmp_path / "link.yaml") == b"here"


def test_a_link_to_itself_a_pipe_and_what_is_not_there_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")

    for name in ("loop.yaml", "pipe.yaml", "absent.yaml"):
        with pytest.raises(Unreadable):
            folder(tmp_path).read(tmp_path / name)


def test_no_more_is_read_than_can_be_refused(tmp_path: Path) -> None:
    made(tmp_path, "a.yaml", text="#" * 3 * MAX_FILE_BYTES)

    assert len(folder(tmp_path).read(tmp_path / "a.yaml")) == MAX_FILE_BYTES + 1


def test_a_folder_with_too_much_in_it_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "a.yaml", "b/b.yaml", "c/c.yaml")
    monkeypatch.setattr(module, "MAX_FILES", 2)
    with pytest.raises(Unreadable, match="too large"):
        folder(tmp_path).documents()
    monkeypatch.setattr(module, "MAX_FILES", 3)
    monkeypatch.setattr(module, "MAX_FOLDERS", 2)
    with pytest.raises(Unreadable, match="too large"):
        folder(tmp_path).documents()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no such folder"):
        folder(tmp_path / "absent").documents()


def test_code_is_what_lies_in_nodes_and_agents(tmp_path: Path) -> None:
    made(tmp_path, "nodes/b.py", "nodes/a.py", "nodes/__init__.py", "nodes/_shared.py", "nodes/deep/c.py")
    made(tmp_path, "agents/ada.py", "setup.py", "nodes/notes.txt")
    files = folder(tmp_path)

    assert shown(files, files.code()) == [
        "here/nodes/__init__.py",
        "here/nodes/a.py",
        "here/nodes/b.py",
        "here/agents/ada.py",
    ]


def test_beside_a_lone_file_only_what_uses_turnline_is_code(tmp_path: Path) -> None:
    made(tmp_path, "flow.yaml", "script.py", text="print('turnline')")
    made(tmp_path, "a.py", text="from turnline import node")
    made(tmp_path, "b.py", text="import turnline.flow as f")
    made(tmp_path, "broken.py", text="from turnline import (")
    made(tmp_path, "below/c.py", text="import turnline")
    files = folder(tmp_path)

    assert shown(files, files.code_beside([tmp_path / "flow.yaml"])) == [
        "here/a.py",
        "here/b.py",
        "here/broken.py",
    ]


@pytest.mark.parametrize(
    ("program", "is_code"),
    [
        ("print(run_sync(graph, agents=[ada]))", False),
        ("result = turnline.run_sync(graph)", False),
        ("import asyncio\nasyncio.run(main())", False),
        ("with open('x') as file:\n    run_sync(graph)", False),
        ("if __name__ == '__main__':\n    run_sync(graph)", True),
        ("def main():\n    return run_sync(graph)", True),
        ("main = lambda: run_sync(graph)", True),
        (f"n = {'+'.join('1' * 900)}", True),
    ],
)
def test_beside_a_lone_file_a_program_that_runs_when_it_is_imported_is_not_code(
    tmp_path: Path, program: str, *, is_code: bool
) -> None:
    made(tmp_path, "flow.yaml")
    made(tmp_path, "program.py", text=f"import turnline\nfrom turnline import run_sync\n{program}\n")
    files = folder(tmp_path)

    assert bool(files.code_beside([tmp_path / "flow.yaml"])) is is_code


@pytest.mark.parametrize("sign", ["turnline.yaml", "nodes/a.py", "agents/a.py"])
def test_the_project_of_a_file_is_the_nearest_folder_that_looks_like_one(tmp_path: Path, sign: str) -> None:
    made(tmp_path, "turnline.yaml", f"p/{sign}", "p/w/x/a.yaml", "p/w/nodes/empty.txt")

    assert project_root([tmp_path / "p" / "w" / "x" / "a.yaml"]) == (tmp_path / "p", True)


def test_without_a_project_it_is_the_folder_that_the_files_share(tmp_path: Path) -> None:
    made(tmp_path, "a/x.yaml", "a/b/y.yaml")

    assert project_root([tmp_path / "a" / "x.yaml", tmp_path / "a" / "b" / "y.yaml"]) == (
        tmp_path / "a",
        False,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_somebody_else_left_there_is_not_the_project(tmp_path: Path) -> None:
    made(tmp_path, "nodes/evil.py", "mine/a.yaml", "mine/evil.py", text="import turnline")
    file = tmp_path / "mine" / "a.yaml"
    os.chown(tmp_path / "nodes", 4_000, -1)
    os.chown(tmp_path / "mine" / "evil.py", 4_000, -1)

    assert project_root([file]) == (tmp_path / "mine", False)
    assert folder(tmp_path / "mine").code_beside([file]) == []
