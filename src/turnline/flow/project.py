"""A project: a folder with documents and the Python they name.

    project = load_project("leads")
    project.report.raise_if_bad()

    turnline.yaml                 optional
    workflows/*.yaml, ...         documents, recognised by `kind`, wherever they lie
    nodes/*.py, agents/*.py       imported: `@node` functions, `Agent` and `Tool` objects

Rule 1: loading raises nothing. Whatever is wrong, in any file, is in the report.

Rule 2: a project is loaded as it is now. What is known of it never changes; loading it
again gives another one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from turnline.agent.agent import Agent
from turnline.agent.network_tools import NETWORK_TOOLS, tool_names
from turnline.agent.tool import Tool
from turnline.core.study.finding import Severity
from turnline.errors import NoDatabase
from turnline.flow.check.names import Known, missing_names
from turnline.flow.check.texts import bad_texts
from turnline.flow.code import Code, code_of, unclear_tools
from turnline.flow.definition.flow import Flow
from turnline.flow.document import Contents, LoadedFlow, clashes, read_file
from turnline.flow.finding import Report
from turnline.flow.folder import Folder, Unreadable, project_root
from turnline.flow.modules import NOT_IMPORTED, Modules
from turnline.flow.settings import SETTINGS_FILE, Settings, read_settings
from turnline.flow.work import Node
from turnline.flow.yaml_document import YamlDocument
from turnline.log.address import MEMORY, has_database, scheme_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What a folder holds."""

    root: Path
    settings: Settings = field(default_factory=Settings)
    flows: Mapping[str, LoadedFlow] = field(default_factory=dict)
    """By name. One with mistakes is not among them."""
    models: Sequence[YamlDocument] = ()
    """Documents of kind ModelDefinition, as they were read."""
    tests: Sequence[YamlDocument] = ()
    """Documents of kind Test, and lists of cases, as they were read."""
    graphs: Sequence[YamlDocument] = ()
    """Documents that are graphs of channels (`TransitionGraph.to_dict()`), as they were read."""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    agents: Mapping[str, Agent] = field(default_factory=dict)
    tools: Mapping[str, Tool[..., Any]] = field(default_factory=dict)
    chosen: Sequence[str] = ()
    """The flows of the files it was loaded for, in their order; of a folder, all of them."""
    known: Known = field(default_factory=Known)
    """The names its flows may use, for `check_flow`; nothing is known of files without a project."""
    report: Report = field(default_factory=Report)

    @property
    def definitions(self) -> dict[str, Flow]:
        """The flows alone, by name."""
        return {name: loaded.flow for name, loaded in self.flows.items()}

    @property
    def log_address(self) -> str:
        """Where its log is: as turnline.yaml says, or in the folder itself."""
        return self.settings.log or f"sqlite:///{self.root / '.turnline' / 'log.db'}"

    def check_database(self, log_address: str | None = None, *, is_dev: bool = False) -> None:
        """Raise `NoDatabase` if there are data models and nothing that keeps their rows.

        With `is_dev`, a log in memory may keep them: they end with the process.
        """
        address = log_address or self.log_address
        is_memory = is_dev and address == MEMORY
        if self.models and self.settings.database is None and not (has_database(address) or is_memory):
            raise NoDatabase("the data models of this project", log=scheme_of(address))


def load_project(folder: str | os.PathLike[str], *, environment: Mapping[str, str] | None = None) -> Project:
    """Load everything below a folder. `environment` is the process's own, if not given."""
    given = Path(folder)
    files = Folder(given, shown_as=given)
    loading = _Loading(files, os.environ if environment is None else environment)
    for path in loading.documents():
        loading.read(path, stray="warning")
    return loading.project(files.code(), is_whole=True)


def models_in(folder: str | os.PathLike[str]) -> Sequence[YamlDocument]:
    """Return the data models below a folder, as they were read. No Python file is imported.

    Raises `BadDocuments` if a document has mistakes: it might be a model.
    """
    loading = _Loading(Folder(Path(folder), shown_as=Path(folder)), os.environ)
    for path in loading.documents():
        loading.read(path, stray="warning")
    loading.report.raise_if_bad()
    return loading.models


def load_files(
    paths: Iterable[str | os.PathLike[str]], *, environment: Mapping[str, str] | None = None
) -> Project:
    """Load some files, at least one, with the project they belong to.

    The project is the nearest folder above them that has turnline.yaml, or code in
    nodes/; its other documents are known, and their mistakes are not told. Where there
    is no project, the Python files beside the documents stand for one.
    """
    given = [Path(path) for path in paths]
    chosen = [path.resolve() for path in given if path.name != SETTINGS_FILE]
    root, is_project = project_root([path.resolve() for path in given])
    is_relative = not any(path.is_absolute() for path in given)
    files = Folder(root, shown_as=Path(os.path.relpath(root)) if is_relative else root)
    loading = _Loading(files, os.environ if environment is None else environment)
    for path in loading.documents() if is_project else ():
        if path.resolve() not in chosen:
            loading.read_beside(path)
    for path in chosen:
        loading.read(path, stray="error")
    return loading.project(files.code() if is_project else files.code_beside(chosen), is_whole=is_project)


class _Loading:
    """Puts a project together, once."""

    def __init__(self, folder: Folder, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self.report = Report()
        self._beside = list[Contents]()
        self._contents = list[Contents]()

    def documents(self) -> list[Path]:
        """The documents of the whole folder."""
        try:
            return self._folder.documents()
        except Unreadable as error:
            self.report.add(error.finding)
            return []

    def read(self, path: Path, *, stray: Severity) -> None:
        """Read a document file, and tell of everything in it."""
        contents = self._read(path, stray)
        self.report.add(*contents.findings)
        self._contents.append(contents)

    def read_beside(self, path: Path) -> None:
        """Read a document file for what it has; with mistakes, it has nothing but names."""
        contents = self._read(path, "warning")
        is_good = all(one.severity == "warning" for one in contents.findings)
        self._beside.append(contents if is_good else Contents(names=contents.names))

    @property
    def models(self) -> list[YamlDocument]:
        return [document for one in (*self._beside, *self._contents) for document in one.models]

    def project(self, code: Sequence[Path], *, is_whole: bool) -> Project:
        settings, python = self._settings(), self._python(code)
        every = [*self._beside, *self._contents]
        flows = [flow for one in every for flow in one.flows]
        chosen = [flow for one in self._contents for flow in one.flows]
        known = _known(settings, python, every) if is_whole else Known()
        if any(one.code == NOT_IMPORTED for one in self.report.findings):
            # The file may have any of them: its own finding is enough.
            known = replace(known, runners=None, agents=None, tools=None)
        self.report.add(*clashes(flows))
        for loaded in chosen:
            problems = [*bad_texts(loaded.flow), *missing_names(loaded.flow, known)]
            self.report.add(*map(loaded.finding, problems), *unclear_tools(loaded, python))
        return Project(
            root=self._folder.root,
            settings=settings,
            flows={flow.name: flow for flow in flows},
            models=self.models,
            tests=[document for one in every for document in one.tests],
            graphs=[document for one in every for document in one.graphs],
            nodes=python.nodes,
            agents=python.agents,
            tools=python.tools,
            chosen=list(dict.fromkeys(flow.name for flow in chosen)),
            known=known,
            report=self.report,
        )

    def _read(self, path: Path, stray: Severity) -> Contents:
        try:
            content = self._folder.read(path)
        except Unreadable as error:
            return Contents(findings=[error.finding])
        file = self._folder.shown(path)
        return read_file(content, file=file, environment=self._environment, stray=stray)

    def _settings(self) -> Settings:
        path = self._folder.settings
        if not path.exists():
            return Settings()
        try:
            content = self._folder.read(path)
        except Unreadable as error:
            self.report.add(error.finding)
            return Settings()
        file = self._folder.shown(path)
        settings, findings = read_settings(content, file=file, environment=self._environment)
        self.report.add(*findings)
        return settings

    def _python(self, files: Sequence[Path]) -> Code:
        modules, findings = Modules(self._folder).load(files)
        code = code_of(modules, self._folder)
        self.report.add(*findings, *code.findings)
        return code


def _known(settings: Settings, code: Code, contents: Sequence[Contents]) -> Known:
    return Known(
        runners=code.nodes.keys(),
        agents=code.agents.keys(),
        agent_tools={name: tool_names(agent, *NETWORK_TOOLS) for name, agent in code.agents.items()},
        tools=code.tools.keys(),
        asking_tools=[name for name, one in code.tools.items() if one.asks],
        asking_agents={name: _asking_tools(agent) for name, agent in code.agents.items()},
        flows={name for one in contents for name in one.names},
        servers=settings.mcp_servers.keys(),
        definitions={flow.name: flow.flow for one in contents for flow in one.flows},
    )


def _asking_tools(agent: Agent) -> list[str] | None:
    """Return the tools of an agent that ask a person; None if its own hook asks."""
    return None if agent.hitl_hook is not None else [one.name for one in agent.tools if one.asks]
