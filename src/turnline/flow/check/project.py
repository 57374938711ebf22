"""A project, checked as a whole: what reading it found, and what the lints find in its documents (F15).

    report = check_project(load_project("leads"))

Flows with mistakes are not among a project's: they are told of by the reading alone, and
linted once they can be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from turnline.errors import NoDatabase
from turnline.flow.check import check_flow
from turnline.flow.check.calls import Calls, nested_calls
from turnline.flow.check.graphs import traps_in
from turnline.flow.check.names import Known
from turnline.flow.check.secrets import literal_secrets
from turnline.flow.data.definition import ModelDefinition
from turnline.flow.data.versions import newest, problems_of
from turnline.flow.finding import Finding, Report
from turnline.flow.folder import Folder
from turnline.flow.mistake import parsed
from turnline.flow.project import Project
from turnline.flow.testing.documents import cases_in
from turnline.flow.yaml_document import YamlDocument, read_yaml

MISFIT: Final = "TL309"
NO_DATABASE: Final = "TL310"

Asked = Callable[[str], bool]
"""Whether somebody asked for what is in a file."""
Models = Sequence[tuple[YamlDocument, ModelDefinition]]


def check_project(project: Project, asked: Asked = lambda file: True) -> Report:
    """Return everything that is wrong with a project, in the files that are `asked` for."""
    report = Report(project.report.findings)
    models, mistakes = _models(project)
    known = project.known
    if not mistakes:  # Nobody knows what a data model with mistakes would be.
        report.add(*_asked_for(asked, _misfits(models)))
        known = known if known.flows is None else replace(known, models=newest(one for _, one in models))
    folder = Folder(project.root, shown_as=project.root)
    known = replace(known, words=folder.words(is_project=known.flows is not None))
    report.add(*_asked_for(asked, mistakes))
    report.add(*_asked_for(asked, _of_flows(project, known)))
    report.add(*_asked_for(asked, (one for test in project.tests for one in cases_in(test).findings)))
    report.add(
        *_asked_for(asked, (one for graph in project.graphs for one in traps_in(graph, known.agent_tools)))
    )
    report.add(*_asked_for(asked, _of_secrets(project)))
    return report


def check_settings(project: Project, content: bytes, *, file: str) -> list[Finding]:
    """Return the secrets that are written into turnline.yaml, and a `database:` that is missing.

    Reading the file says what else is wrong with it.
    """
    documents = read_yaml(content, file=file).documents
    found = [one for document in documents for one in _secrets_in(document)]
    try:
        project.check_database()
    except NoDatabase as error:
        fix = "set database:, for example database: sqlite:///data.db"
        found += [
            document.finding(
                NO_DATABASE, str(error).partition(". ")[0], ("log",), expected="database:", fix=fix
            )
            for document in documents[:1]
        ]
    return found


def _asked_for(asked: Asked, findings: Iterable[Finding]) -> list[Finding]:
    return [one for one in findings if asked(one.file)]


def _of_flows(project: Project, known: Known) -> Iterator[Finding]:
    calls = Calls(project.definitions)
    for loaded in project.flows.values():
        yield from map(loaded.finding, check_flow(loaded.flow, known))
        yield from map(loaded.finding, nested_calls(loaded.flow, calls))


def _of_secrets(project: Project) -> Iterator[Finding]:
    flows = [loaded.document for loaded in project.flows.values()]
    for document in (*flows, *project.models, *project.tests):
        yield from _secrets_in(document)


def _secrets_in(document: YamlDocument) -> Iterator[Finding]:
    # Where the problem is, is where it stands in the document: whatever shape that has.
    for problem in literal_secrets(document.data, document.written):
        yield document.finding(
            problem.code,
            problem.message,
            problem.path,
            found=problem.found,
            expected=problem.expected,
            fix=problem.fix,
        )


def _models(project: Project) -> tuple[Models, list[Finding]]:
    """The data models that can be read, and what is wrong with the others."""
    read = [(document, *parsed(ModelDefinition, document)) for document in project.models]
    findings = [finding for _, _, mistakes in read for finding in mistakes]
    return [(document, model) for document, model, _ in read if model is not None], findings


def _misfits(models: Models) -> Iterator[Finding]:
    """Data models that do not fit together, each told at the first model that it names."""
    documents = {model.name: document for document, model in models}
    for text in problems_of(model for _, model in models):
        named = next(word for word in re.findall(r"\w+", text) if word in documents)
        fix = "change one of the documents, so that they fit together"
        yield documents[named].finding(MISFIT, text.rstrip("."), ("metadata", "name"), fix=fix)
