"""`turnwise check`: what is wrong with a project, before anything runs (F15).

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

if TYPE_CHECKING:
    from turnwise.flow.finding import Report
    from turnwise.flow.project import Project

FAILED: Final = 1
EXAMPLE: Final = "Example: turnwise check workflows/lead_processing.yaml --strict"

Paths = Annotated[
    list[Path] | None,
    typer.Argument(metavar="PATHS", help="Files, or folders of projects; without any, this folder."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Strict = Annotated[bool, typer.Option("--strict", help="Take warnings for errors.")]


def check(paths: Paths = None, as_json: AsJson = False, strict: Strict = False) -> None:
    """Find what is wrong with flows before they run: mistakes, missing names, lost steps, secrets."""
    given = paths or [Path()]
    found = _checked(given)
    is_bad = bool(found.report.errors or (strict and found.report.warnings))
    if as_json:
        _tell_scripts(found, is_ok=not is_bad)
    elif found.report:
        typer.echo(found.report)
    elif found.documents:
        typer.echo(f"{found.flows} {'flow' if found.flows == 1 else 'flows'}, no problems.")
    if not found.documents and not found.report:
        named = ", ".join(map(str, given))
        typer.echo(
            f"turnwise: there is no document in {named}; name a file, or a project's folder.", err=True
        )
    if is_bad or not found.documents:
        raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class _Checked:
    """What was looked at, and what was found."""

    report: Report
    flows: int = 0
    documents: int = 0
    """Of all kinds, as far as they could be read."""


def _checked(paths: Sequence[Path]) -> _Checked:
    from turnwise.flow.finding import Report  # noqa: PLC0415  A verb costs its imports only when it is called.

    each = [*map(_folder, dict.fromkeys(path for path in paths if path.is_dir()))]
    each += map(_files, _by_project([path for path in paths if not path.is_dir()]))
    return _Checked(
        Report(finding for one in each for finding in one.report.findings),
        flows=sum(one.flows for one in each),
        documents=sum(one.documents for one in each),
    )


def _folder(folder: Path) -> _Checked:
    """A project, with everything in it."""
    from turnwise.flow.project import load_project  # noqa: PLC0415
    from turnwise.flow.settings import SETTINGS_FILE  # noqa: PLC0415

    return _project(load_project(folder), lambda file: True, folder / SETTINGS_FILE)


def _files(files: Sequence[Path]) -> _Checked:
    """Some files, with the project they belong to; of its other files, nothing is told."""
    from turnwise.flow.project import load_files  # noqa: PLC0415
    from turnwise.flow.settings import SETTINGS_FILE  # noqa: PLC0415

    asked = {path.resolve() for path in files}
    settings = next((path for path in files if path.name == SETTINGS_FILE), None)
    return _project(load_files(files), lambda file: Path(file).resolve() in asked, settings)


def _project(project: Project, asked: Callable[[str], bool], settings: Path | None) -> _Checked:
    from turnwise.flow.check.project import check_project, settings_secrets  # noqa: PLC0415

    report = check_project(project, asked)
    has_settings = settings is not None and settings.is_file()
    if settings is not None and has_settings:
        report.add(*settings_secrets(settings.read_bytes(), file=str(settings)))
    others = [document for document in (*project.models, *project.tests) if asked(document.file)]
    flows = len(project.chosen)
    return _Checked(report, flows, flows + len(others) + has_settings)


def _by_project(files: Iterable[Path]) -> list[list[Path]]:
    from turnwise.flow.folder import project_root  # noqa: PLC0415

    found = dict[Path, list[Path]]()
    for path in dict.fromkeys(files):
        root, _ = project_root([path.resolve()])
        found.setdefault(root, []).append(path)
    return list(found.values())


def _tell_scripts(found: _Checked, *, is_ok: bool) -> None:
    data = {"flows": found.flows, **found.report.to_dict(), "ok": is_ok}
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
