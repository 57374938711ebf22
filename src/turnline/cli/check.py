"""`turnline check`: what is wrong with a project, before anything runs (F15).

Findings go to standard output, one after the other, with file, line, column, code and what
to do; `--json` prints the same for scripts. The exit code is 1 if there is an error, or with
`--strict` a warning, or nothing to check at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnline.cli.nothing import PYTHON, no_document
from turnline.cli.plain import count_of

if TYPE_CHECKING:
    from turnline.flow.finding import Report
    from turnline.flow.project import Project

FAILED: Final = 1
EXAMPLE: Final = "Example: turnline check workflows/lead_processing.yaml --strict"

Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATHS",
        help="Files, or folders of projects; without any, this folder. "
        "A Python file that is named is run, and its graphs are checked.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Strict = Annotated[bool, typer.Option("--strict", help="Take warnings for errors.")]


def check(paths: Paths = None, as_json: AsJson = False, strict: Strict = False) -> None:
    """Find what is wrong with flows and graphs before they run. Mistakes, missing names, traps, secrets."""
    given = paths or [Path()]
    found = _checked(given)
    is_bad = bool(found.report.errors or (strict and found.report.warnings))
    if as_json:
        _tell_scripts(found, is_ok=not is_bad)
    elif found.report:
        typer.echo(found.report)
    elif found.documents:
        typer.echo(f"{found.counted}, no problems.")
    if not found.documents and not found.report:
        for path in given:
            typer.echo(f"turnline: {no_document(path)}", err=True)
    if is_bad or not found.documents:
        raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class _Checked:
    """What was looked at, and what was found."""

    report: Report
    flows: int = 0
    graphs: int = 0
    documents: int = 0
    """Of all kinds, as far as they could be read."""

    @property
    def counted(self) -> str:
        flows = count_of(self.flows, "flow")
        graphs = count_of(self.graphs, "graph")
        return graphs if self.graphs and not self.flows else f"{flows}, {graphs}" if self.graphs else flows


def _checked(paths: Sequence[Path]) -> _Checked:
    from turnline.flow.finding import Report  # noqa: PLC0415  A verb costs its imports only when it is called.

    each = [*map(_folder, dict.fromkeys(path for path in paths if path.is_dir()))]
    each += map(_python, dict.fromkeys(path for path in paths if path.suffix == PYTHON))
    files = [path for path in paths if path.suffix != PYTHON and not path.is_dir()]
    each += map(_files, _by_project(files))
    return _Checked(
        Report(finding for one in each for finding in one.report.findings),
        flows=sum(one.flows for one in each),
        graphs=sum(one.graphs for one in each),
        documents=sum(one.documents for one in each),
    )


def _folder(folder: Path) -> _Checked:
    """A project, with everything in it."""
    from turnline.flow.project import load_project  # noqa: PLC0415
    from turnline.flow.settings import SETTINGS_FILE  # noqa: PLC0415

    return _project(load_project(folder), lambda file: True, folder / SETTINGS_FILE)


def _files(files: Sequence[Path]) -> _Checked:
    """Some files, with the project they belong to; of its other files, nothing is told."""
    from turnline.flow.project import load_files  # noqa: PLC0415
    from turnline.flow.settings import SETTINGS_FILE  # noqa: PLC0415

    asked = {path.resolve() for path in files}
    settings = next((path for path in files if path.name == SETTINGS_FILE), None)
    return _project(load_files(files), lambda file: Path(file).resolve() in asked, settings)


def _project(project: Project, asked: Callable[[str], bool], settings: Path | None) -> _Checked:
    from turnline.flow.check.project import check_project, check_settings  # noqa: PLC0415

    report = check_project(project, asked)
    has_settings = settings is not None and settings.is_file()
    if settings is not None and has_settings:
        report.add(*check_settings(project, settings.read_bytes(), file=str(settings)))
    documents = (*project.models, *project.tests, *project.graphs)
    others = [document for document in documents if asked(document.file)]
    flows = len(project.chosen)
    graphs = sum(asked(document.file) for document in project.graphs)
    return _Checked(report, flows, graphs, flows + len(others) + has_settings)


def _python(file: Path) -> _Checked:
    """The graphs of a Python file, which is executed: somebody named it."""
    from turnline.flow.finding import Report  # noqa: PLC0415
    from turnline.flow.graph_module import graphs_of  # noqa: PLC0415

    graphs, findings = graphs_of(file)
    report = Report([*findings, *(finding for one in graphs for finding in one.findings)])
    return _Checked(report, graphs=len(graphs), documents=len(graphs))


def _by_project(files: Iterable[Path]) -> list[list[Path]]:
    from turnline.flow.folder import project_root  # noqa: PLC0415

    found = dict[Path, list[Path]]()
    for path in dict.fromkeys(files):
        root, _ = project_root([path.resolve()])
        found.setdefault(root, []).append(path)
    return list(found.values())


def _tell_scripts(found: _Checked, *, is_ok: bool) -> None:
    data = {"flows": found.flows, "graphs": found.graphs, **found.report.to_dict(), "ok": is_ok}
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
