"""`turnline test`: a project's cases and recorded runs, without a model and without a server (F14)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import typer

from turnline.client.fixture import SUFFIX as CHANNEL_SUFFIX, play_channel
from turnline.errors import TurnlineError
from turnline.flow.data.definition import ModelDefinition, read_models
from turnline.flow.finding import Report
from turnline.flow.project import Project, load_files, load_project
from turnline.flow.testing.case import Surroundings
from turnline.flow.testing.data import in_memory
from turnline.flow.testing.documents import WrittenCase, cases_in
from turnline.flow.testing.fixture import SUFFIX
from turnline.flow.testing.problem import Problem
from turnline.flow.testing.suite import Result, SuiteReport, WrittenFixture, chosen, run_suite, told
from turnline.flow.work import Services
from turnline.server.problems import status_of

FAILED: Final = 1
FIXTURES: Final = f"tests/*{SUFFIX}"


def run(folder: Path, *, only: str = "", as_json: bool = False) -> None:
    """Play them, tell how they ended, and exit with 1 if one failed or there is none.

    `folder` may be one file of test documents. One with mistakes counts as failed; the others are played.
    """
    is_file = folder.is_file()
    project = load_files([folder]) if is_file else load_project(folder)
    project.report.raise_if_bad()
    cases, report = _cases(project)
    if is_file:
        cases = [one for one in cases if Path(one.file).resolve() == folder.resolve()]
    models = _models(project, report)
    cases, fixtures = chosen(cases, () if is_file else _fixtures(project, folder), only)
    around = Surroundings(services=_services(project), open_data=in_memory(models), status_of=status_of)
    played = asyncio.run(run_suite(cases, fixtures, around))
    if not is_file:
        played = SuiteReport((*played.results, *_channels(project, folder, only)))
    _tell(played, report, as_json=as_json)
    if report.errors or not played.passed or not played.results:
        raise typer.Exit(FAILED)


def _cases(project: Project) -> tuple[list[WrittenCase], Report]:
    read = [cases_in(document) for document in project.tests]
    findings = [finding for one in read for finding in one.findings]
    return [case for one in read for case in one.cases], Report(findings)


def _models(project: Project, report: Report) -> list[ModelDefinition]:
    models, findings = read_models(project.models)
    report.add(*findings)
    return models


def _fixtures(project: Project, folder: Path) -> Sequence[WrittenFixture]:
    return [
        WrittenFixture(file=str(folder / path.relative_to(project.root)), content=path.read_bytes())
        for path in sorted(project.root.glob(FIXTURES))
    ]


def _channels(project: Project, folder: Path, only: str) -> Iterator[Result]:
    """The recorded conversations, decided anew."""
    for path in sorted(project.root.glob(f"tests/*{CHANNEL_SUFFIX}")):
        file = str(folder / path.relative_to(project.root))
        if only.lower() in file.lower():
            yield Result(name="recorded channel", file=file, line=1, path=(), problems=tuple(_parted(path)))


def _parted(path: Path) -> Iterator[Problem]:
    try:
        parted = play_channel(msgspec.json.decode(path.read_bytes()))
    except (TurnlineError, msgspec.DecodeError) as error:
        yield Problem(what="the file", found=str(error), expected="what `turnline channels export` wrote")
        return
    if parted is not None:
        fix = "if it is right now, export the channel anew"
        yield Problem(what=f"line {parted.seq}", found=parted.found, expected=parted.expected, fix=fix)


def _services(project: Project) -> Services:
    return Services(
        flows=project.definitions, nodes=project.nodes, agents=project.agents, tools=project.tools
    )


def _tell(played: SuiteReport, report: Report, *, as_json: bool) -> None:
    if as_json:
        ok = played.passed and not report.errors
        data = {**played.to_dict(), "ok": ok, "findings": report.to_dict()["findings"]}
        typer.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
        return
    if report:
        typer.echo(report)
    for line in told(played):
        typer.echo(line)
    if not played.results:
        typer.echo(
            "no test was found; write one with `kind: Test`, in a file such as tests/it.yaml.", err=True
        )
