"""A project's Python files, imported under names of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from turnline.flow.finding import Finding
from turnline.flow.folder import Folder
from turnline.flow.modules import NOT_IMPORTED, Modules


def project(root: Path, **files: str) -> Path:
    """Files by their path, with `__` for a slash."""
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def loaded(root: Path) -> tuple[list[ModuleType], list[Finding]]:
    folder = Folder(root, shown_as=Path("here"))
    return Modules(folder).load(folder.code())


def modules(root: Path) -> list[ModuleType]:
    found, findings = loaded(root)
    assert findings == []
    return found


def value(root: Path) -> object:
    """What the last file calls `value`."""
    return modules(root)[-1].value


def finding(root: Path) -> Finding:
    _, (only,) = loaded(root)
    return only


def test_files_are_imported_and_know_their_own_names(tmp_path: Path) -> None:
    (module,) = modules(project(tmp_path, nodes__leads="class Lead: ...\nvalue = Lead.__module__"))

    assert module.value == module.__name__
    assert sys.modules[module.__name__] is module
    assert "nodes.leads" not in sys.modules


@pytest.mark.parametrize(
    "line",
    [
        "from nodes.a import value",
        "from .a import value",
        "import nodes.a\nvalue = nodes.a.value",
        "from nodes import a\nvalue = a.value",
        "from helpers import value",
        "import helpers.deep.inside as inside\nvalue = inside.value",
    ],
)
def test_files_import_each_other_as_if_started_from_their_folder(tmp_path: Path, line: str) -> None:
    text = "value = ['found']"
    project(tmp_path, nodes__a=text, nodes__b=line, helpers__deep__inside=text)
    (tmp_path / "helpers" / "__init__.py").write_text(text)

    assert value(tmp_path) == ["found"]


def test_a_file_is_executed_once_however_it_is_asked_for(tmp_path: Path) -> None:
    project(tmp_path, nodes__a="from nodes.b import value", nodes__b="value = object()")
    project(tmp_path, nodes__c="from .b import value\nimport nodes.b\nassert nodes.b.value is value")
    first, second, third = modules(tmp_path)

    assert first.value is second.value
    assert second.value is third.value


def test_files_that_import_each_other_in_a_circle_are_imported(tmp_path: Path) -> None:
    project(tmp_path, nodes__a="import nodes.b\nvalue = 1", nodes__b="import nodes.a\nvalue = 2")

    assert [module.value for module in modules(tmp_path)] == [1, 2]


def test_an_import_of_its_own_package_works_at_any_time(tmp_path: Path) -> None:
    project(
        tmp_path,
        nodes__a="value = 'late'",
        nodes__b="def call():\n    from .a import value\n    return value",
    )

    assert modules(tmp_path)[1].call() == "late"


def test_two_projects_do_not_meet(tmp_path: Path) -> None:
    one = project(tmp_path / "one", nodes__a="value = 1", nodes__b="from nodes.a import value")
    two = project(tmp_path / "two", nodes__a="value = 2", nodes__b="from nodes.a import value")

    assert (value(one), value(two)) == (1, 2)


def test_the_process_is_left_as_it_was(tmp_path: Path) -> None:
    names, paths, finders = set(sys.modules), list(sys.path), list(sys.meta_path)
    tests = sys.modules["tests"]
    project(tmp_path, nodes__a="from tests.x import value", tests__x="value = 1", helpers="")

    assert value(tmp_path) == 1
    assert {name for name in set(sys.modules) - names if not name.startswith("_turnline_project_")} == set()
    assert (sys.path, sys.meta_path, sys.modules["tests"]) == (paths, finders, tests)
    assert not list(tmp_path.rglob("__pycache__"))


def test_the_standard_library_and_turnline_stay_what_they_are(tmp_path: Path) -> None:
    project(
        tmp_path,
        nodes__a="import json, turnline\nvalue = json.dumps(turnline.__name__)",
        json="",
        turnline="",
    )

    assert value(tmp_path) == '"turnline"'


def test_a_project_that_is_loaded_again_is_imported_again(tmp_path: Path) -> None:
    project(tmp_path, nodes__a="from nodes._b import value", nodes___b="value = 1")
    first = value(tmp_path)
    project(tmp_path, nodes___b="value = 2")

    assert (first, value(tmp_path)) == (1, 2)


def test_an_error_is_told_at_the_line_of_the_project_that_led_to_it(tmp_path: Path) -> None:
    project(tmp_path, nodes__a="import json\n\njson.loads('{')\n")
    found = finding(tmp_path)

    assert (found.code, found.file, found.line) == (NOT_IMPORTED, "here/nodes/a.py", 3)
    assert "JSONDecodeError" in found.message


def test_an_error_in_a_file_that_is_imported_is_told_there(tmp_path: Path) -> None:
    project(tmp_path, nodes__a="from helpers import x", helpers="\nraise ValueError('no\\nmore')")
    found = finding(tmp_path)

    assert (found.file, found.line) == ("here/helpers.py", 2)
    assert found.message.endswith("ValueError: no")


def test_a_syntax_error_has_a_line_and_a_column(tmp_path: Path) -> None:
    found = finding(project(tmp_path, nodes__a="x = 1\ny = = 2\n"))

    assert (found.file, found.line, found.column) == ("here/nodes/a.py", 2, 5)


def test_a_module_that_is_missing_is_named_as_it_was_written(tmp_path: Path) -> None:
    own = finding(project(tmp_path / "own", nodes__a="import nodes.absent"))
    other = finding(project(tmp_path / "other", nodes__a="import absent_thing.deep"))

    assert own.message.endswith("No module named 'nodes.absent'")
    assert other.fix == "install what provides 'absent_thing'"


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nsys.exit(1)",
        "raise RuntimeError",
        "from turnline.flow.node import node\n@node\ndef f(): ...",
    ],
)
def test_whatever_a_file_does_the_others_are_imported(tmp_path: Path, text: str) -> None:
    project(tmp_path, nodes__a=text, nodes__b="value = 1")
    found, findings = loaded(tmp_path)

    assert [module.value for module in found] == [1]
    assert [one.file for one in findings] == ["here/nodes/a.py"]


def test_a_file_outside_the_project_is_not_executed(tmp_path: Path) -> None:
    project(tmp_path, outside="raise AssertionError")
    project(tmp_path / "p", nodes__a="value = 1")
    (tmp_path / "p" / "nodes" / "link.py").symlink_to(tmp_path / "outside.py")

    assert "outside the project" in finding(tmp_path / "p").message
