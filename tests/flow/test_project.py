"""A folder -> a project; whatever is wrong with it is in one report."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from turnline.errors import BadDocuments
from turnline.flow.check import check_flow
from turnline.flow.finding import Finding
from turnline.flow.project import Project, load_files, load_project

from .lead import LEAD

NODES = """\
from turnline.flow.node import node

@node("save_lead")
async def save_lead(ctx):
    return ctx

@node("flag_for_review")
def flag(ctx):
    return ctx
"""
AGENTS = """\
from turnline import Agent, tool

@tool
def search(query: str) -> str:
    return query

ada = Agent("ada", tools=[search])
"""
STEP = "- {{id: a, {}}}\n"


def made(root: Path, **files: str) -> Path:
    """Files by their path: `__` for a slash, YAML unless it lies in a folder for code."""
    for name, text in files.items():
        is_code = name.startswith(("nodes__", "agents__")) or name.endswith("_py")
        path = root / (name.replace("__", "/").removesuffix("_py") + (".py" if is_code else ".yaml"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def load(root: Path, **environment: str) -> Project:
    return load_project(root, environment=environment)


def good(project: Project) -> Project:
    assert str(project.report) == ""
    return project


def found(project: Project) -> list[tuple[str, str]]:
    root = project.root
    return [(one.code, str(Path(one.file).relative_to(root))) for one in project.report.findings]


def only(project: Project) -> Finding:
    (finding,) = project.report.findings
    return finding


def test_a_project_has_what_its_folder_holds(tmp_path: Path) -> None:
    made(tmp_path, turnline="name: leads\nmodel: openai:gpt-5-mini\n", workflows__lead=LEAD)
    made(
        tmp_path,
        models__lead="kind: ModelDefinition\nmetadata: {name: Lead}\n",
        tests__lead="- {flow: lead}\n",
    )
    made(tmp_path, nodes__leads=NODES, agents__ada=AGENTS)
    project = good(load(tmp_path))

    assert (project.root, project.settings.name) == (tmp_path, "leads")
    assert list(project.flows) == list(project.definitions) == list(project.chosen) == ["lead_processing"]
    assert [one.data["kind"] for one in project.models] == ["ModelDefinition"]
    assert [one.data for one in project.tests] == [[{"flow": "lead"}]]
    assert sorted(project.nodes) == ["flag_for_review", "save_lead"]
    assert (list(project.agents), list(project.tools)) == (["ada"], ["search"])


def test_an_empty_folder_is_an_empty_project(tmp_path: Path) -> None:
    project = good(load(tmp_path))

    assert (dict(project.flows), dict(project.nodes), project.settings.model) == ({}, {}, None)


def test_the_log_is_in_the_folder_unless_the_settings_say_otherwise(tmp_path: Path) -> None:
    assert load(tmp_path).log_address == f"sqlite:///{tmp_path}/.turnline/log.db"
    made(tmp_path, turnline="log: 'memory:'")
    assert load(tmp_path).log_address == "memory:"


def test_the_errors_of_all_files_are_in_one_report(tmp_path: Path) -> None:
    made(
        tmp_path,
        turnline="modle: x",
        a="- {id: a, kind: agnet}",
        b__c="steps: [",
        nodes__n="raise ValueError",
    )
    project = load(tmp_path)

    assert found(project) == [
        ("TL013", "a.yaml"),
        ("TL001", "b/c.yaml"),
        ("TL031", "nodes/n.py"),
        ("TL011", "turnline.yaml"),
    ]
    with pytest.raises(BadDocuments, match="4 errors in 4 files"):
        project.report.raise_if_bad()


def test_two_flows_of_one_name_in_two_files_are_told(tmp_path: Path) -> None:
    made(tmp_path, a__x=STEP.format("kind: agent"), b__x=STEP.format("kind: agent"))

    assert found(load(tmp_path)) == [("TL018", "b/x.yaml")]


@pytest.mark.parametrize(
    ("step", "code", "fix"),
    [
        ("runner: save_led", "TL301", "did you mean 'save_lead'?"),
        ("agent: {name: adda}", "TL302", "did you mean 'ada'?"),
        ("channel: {agents: [adda], message: hi}", "TL302", "did you mean 'ada'?"),
        ("agent: {tools: [serch]}", "TL303", "did you mean 'search'?"),
        ("workflow: {name: fllow}", "TL305", "did you mean 'flow'?"),
        ("mcp: {server: searching, tool: t}", "TL306", "did you mean 'searcher'?"),
    ],
)
def test_a_name_that_nobody_has_is_told_with_the_nearest_one(
    tmp_path: Path, step: str, code: str, fix: str
) -> None:
    made(tmp_path, turnline="mcp_servers: {searcher: {url: x}}", flow=STEP.format(step))
    made(tmp_path, nodes__leads=NODES, agents__ada=AGENTS)
    finding = only(load(tmp_path))

    assert (finding.code, finding.fix, finding.line) == (code, fix, 1)


def test_a_flow_with_mistakes_is_not_missing(tmp_path: Path) -> None:
    made(tmp_path, good=STEP.format("workflow: {name: bad}"), bad=STEP.format("kind: agnet"))

    assert found(load(tmp_path)) == [("TL013", "bad.yaml")]


def test_f9_templates_inside_data_are_read_too(tmp_path: Path) -> None:
    made(tmp_path, a=STEP.format("mcp: {server: 'https://x', tool: t, arguments: {q: [1, '{{ x']}}"))
    finding = only(load(tmp_path))

    assert (finding.code, finding.line, finding.column) == ("TL204", 1, 66)


def test_a_document_of_somebody_elses_is_a_warning(tmp_path: Path) -> None:
    made(tmp_path, compose="services: {}")
    project = load(tmp_path)
    project.report.raise_if_bad()

    assert [one.severity for one in project.report.findings] == ["warning"]


def test_variables_are_filled_in_from_the_environment(tmp_path: Path) -> None:
    made(tmp_path, turnline="model: ${MODEL}", a=STEP.format("agent: {model: '${MODEL}'}"))

    project = good(load(tmp_path, MODEL="openai:x"))
    assert project.settings.model == "openai:x"
    assert {one.code for one in load(tmp_path).report.findings} == {"TL021"}


def test_the_environment_is_the_processs_own_if_none_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, turnline="model: ${TURNLINE_TEST_MODEL}")
    monkeypatch.setenv("TURNLINE_TEST_MODEL", "openai:y")

    assert load_project(tmp_path).settings.model == "openai:y"
    assert load_files([tmp_path / "turnline.yaml"]).settings.model == "openai:y"


def test_nothing_of_the_environment_is_shown(tmp_path: Path) -> None:
    made(
        tmp_path,
        turnline="log: ${A}\nmodel: [x]",
        a=STEP.format("runner: '${A}'"),
        b="- {id: '${A} ', kind: agent}",
    )
    project = load(tmp_path, A="canary")

    assert len(project.report.errors) == 3
    assert "canary" not in str(project.report) + repr(project.settings) + repr(project.models)


def test_paths_are_shown_as_whoever_asked_would_write_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, p__a="steps: [", p__turnline="")
    monkeypatch.chdir(tmp_path)

    assert only(load_project("p")).file == "p/a.yaml"
    assert only(load_project(tmp_path / "p")).file == str(tmp_path / "p" / "a.yaml")
    assert only(load_files(["p/a.yaml"])).file == "p/a.yaml"
    monkeypatch.chdir(tmp_path / "p")
    assert only(load_project(".")).file == "a.yaml"
    assert only(load_files(["a.yaml"])).file == "a.yaml"


def test_what_is_outside_is_told_and_not_read(tmp_path: Path) -> None:
    made(tmp_path, secret="name: canary", p__a="- {id: a, wait: {for: 1}}")
    (tmp_path / "p" / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    (tmp_path / "p" / "turnline.yaml").symlink_to(tmp_path / "secret.yaml")
    project = load(tmp_path / "p")

    assert found(project) == [("TL008", "link.yaml"), ("TL008", "turnline.yaml")]
    assert project.settings.name is None


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert only(load(tmp_path / "absent")).message == "there is no such folder"


def test_what_the_project_knows_is_what_check_needs(tmp_path: Path) -> None:
    made(tmp_path, flow=STEP.format("runner: save_lead"), nodes__leads=NODES)
    project = good(load(tmp_path))

    assert check_flow(project.flows["flow"].flow, project.known) == []
    assert project.known.runners is not None
    assert set(project.known.runners) == {"save_lead", "flag_for_review"}


def test_a_file_is_loaded_with_its_project(tmp_path: Path) -> None:
    made(
        tmp_path, turnline="name: leads", workflows__a=STEP.format("workflow: {name: b}"), nodes__leads=NODES
    )
    made(tmp_path, workflows__b=STEP.format("runner: save_lead"), models__m="kind: ModelDefinition")
    project = good(load_files([tmp_path / "workflows" / "a.yaml"]))

    assert (project.root, project.settings.name, list(project.chosen)) == (tmp_path, "leads", ["a"])
    assert sorted(project.flows) == ["a", "b"]
    assert len(project.models) == 1
    assert "save_lead" in project.nodes


def test_the_mistakes_of_other_files_are_not_told(tmp_path: Path) -> None:
    made(tmp_path, turnline="", a=STEP.format("kind: agent"), bad="- {id: a, kind: agnet}", worse="steps: [")
    made(tmp_path, halfgood="steps: [{id: a, kind: agent}]\nsteps: []")
    project = good(load_files([tmp_path / "a.yaml"]))

    assert list(project.flows) == ["a"]


def test_its_own_mistakes_are_told_and_so_are_missing_names(tmp_path: Path) -> None:
    made(tmp_path, turnline="", a=STEP.format("runner: nobody"), b="services: {}")

    assert found(load_files([tmp_path / "a.yaml"])) == [("TL301", "a.yaml")]
    assert [one.severity for one in load_files([tmp_path / "b.yaml"]).report.findings] == ["error"]


def test_a_name_that_another_file_has_is_told_of_the_file(tmp_path: Path) -> None:
    made(tmp_path, turnline="", a__x=STEP.format("kind: agent"), z__x=STEP.format("kind: agent"))

    assert found(load_files([tmp_path / "a" / "x.yaml"])) == [("TL018", "a/x.yaml")]


def test_beside_a_lone_file_its_python_is_found(tmp_path: Path) -> None:
    made(tmp_path, flow=STEP.format("runner: save_lead"), leads_py=NODES, script_py="raise AssertionError")
    project = good(load_files([tmp_path / "flow.yaml"]))

    assert (list(project.chosen), "save_lead" in project.nodes) == (["flow"], True)


def test_of_a_lone_file_names_are_not_looked_for(tmp_path: Path) -> None:
    made(tmp_path, flow=STEP.format("runner: somebody"))
    project = good(load_files([tmp_path / "flow.yaml"]))

    assert project.known.runners is None


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    finding = only(load_files([tmp_path / "absent.yaml"]))

    assert (finding.code, finding.message) == ("TL008", "there is no such file")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="replace")))
def test_whatever_a_file_holds_loading_raises_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "turnline.yaml").write_bytes(content)
    (tmp_path / "a.yaml").write_bytes(content)

    assert isinstance(load(tmp_path).report.to_dict(), dict)
