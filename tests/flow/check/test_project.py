"""F15: a whole project, its documents and its names, with the place of everything that is wrong."""

from __future__ import annotations

from pathlib import Path

from turnline.flow.check.project import check_project, check_settings
from turnline.flow.finding import Report
from turnline.flow.project import Project, load_files, load_project

LEAD = """\
kind: ModelDefinition
metadata: {name: Lead, version: v2}
spec: {fields: {score: integer}}
"""
NODES = """\
from turnline.flow.node import node

@node("save_lead")
def save_lead(ctx):
    return ctx
"""
FLOW = """\
metadata: {name: leads}
spec:
  trigger: {path: /leads, input: {email: string}}
  context: {models: [{name: Lead, version: v2}]}
  steps:
    - {id: find, model_op: {model: Lead, op: list, into: leads}}
    - {id: tell, response: {mapping: {score: leads, to: email}}}
"""


def checked(folder: Path, **files: str) -> Report:
    return check_project(load_project(_written(folder, files), environment={"HOST": "example.com"}))


def _written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        suffix = ".py" if name == "nodes" else ".yaml"
        path = folder / ("nodes" if name == "nodes" else "workflows") / f"{name}{suffix}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def told(report: Report) -> list[tuple[str, str, int, int]]:
    return [(one.code, Path(one.file).name, one.line, one.column) for one in report.findings]


def test_f15_a_project_without_problems_has_an_empty_report(tmp_path: Path) -> None:
    assert told(checked(tmp_path, flow=FLOW, lead=LEAD, nodes=NODES)) == []


def test_f15_what_a_lint_finds_has_its_line_and_column(tmp_path: Path) -> None:
    flow = FLOW.replace("to: email", "to: emial").replace("version: v2", "version: v1")
    report = checked(tmp_path, flow=flow, lead=LEAD)

    assert told(report) == [("TL308", "flow.yaml", 4, 44), ("TL201", "flow.yaml", 7, 57)]
    assert [one.severity for one in report.findings] == ["error", "warning"]


def test_f15_a_bare_list_of_steps_has_lines_too(tmp_path: Path) -> None:
    report = checked(
        tmp_path, flow="- {id: a, wait: {for: 1s}, routes: {default: END}}\n- {id: b, runner: x}\n"
    )

    assert told(report) == [("TL101", "flow.yaml", 2, 3), ("TL301", "flow.yaml", 2, 19)]


def test_f15_a_literal_secret_is_found_in_any_document_in_any_shape(tmp_path: Path) -> None:
    key = "sk-" + "0123456789abcdefghij"
    flow = f"- {{id: a, api_call: {{url: 'https://x.y', headers: {{X-Key: {key}}}}}}}\n"
    model = LEAD.replace("version: v2", f"version: v2, description: {key}")
    report = checked(tmp_path, flow=flow, lead=model)

    assert told(report) == [("TL401", "flow.yaml", 1, 59), ("TL401", "lead.yaml", 2, 50)]
    assert key not in str(report)


def test_f15_a_variable_that_holds_a_key_is_refused_and_told_as_it_was_written(
    tmp_path: Path,
) -> None:
    secret = "q7Zk2Lm9Xw4Rt8Vb1Nc6"
    call = "- {id: a, api_call: {url: 'https://x.y', headers: {X-Api-Key: '${VALUE}'}}}"
    flow = f"{call}\n- {{id: b, runner: '${{VALUE}}'}}\n"
    project = load_project(_written(tmp_path, {"flow": flow}), environment={"VALUE": secret})
    report = check_project(project)

    assert told(report) == [("TL023", "flow.yaml", 1, 63), ("TL301", "flow.yaml", 2, 19)]
    assert "${VALUE}" in str(report)
    assert secret not in str(report)


def test_one_import_error_is_one_finding(tmp_path: Path) -> None:
    code = "import nothing_like_this\n" + NODES
    flow = "- {id: a, runner: save_lead}\n- {id: b, agent: {name: ann, tools: [look]}}\n"
    report = checked(tmp_path, flow=flow, nodes=code)

    assert [code for code, *_ in told(report)] == ["TL031"]


def test_f15_a_data_model_with_mistakes_is_told_of_once_and_its_uses_are_not(tmp_path: Path) -> None:
    report = checked(tmp_path, flow=FLOW, lead=LEAD.replace("integer", "intger"))

    assert told(report) == [("TL014", "lead.yaml", 3, 24)]


def test_an_unknown_durability_is_an_error(tmp_path: Path) -> None:
    flow = "spec:\n  durability: never\n  steps: [{id: a, response: {}}]\n"

    assert told(checked(tmp_path, flow=flow)) == [("TL014", "flow.yaml", 2, 15)]


def test_f15_a_data_model_that_nobody_has_is_told_where_it_is_declared(tmp_path: Path) -> None:
    assert told(checked(tmp_path, flow=FLOW)) == [("TL304", "flow.yaml", 4, 29)]


def test_f12_data_models_that_do_not_fit_together_are_told_at_one_of_them(tmp_path: Path) -> None:
    other = LEAD.replace("spec: {", "spec: {relations: {owner: {model: Owner}}, ")
    report = checked(tmp_path, lead=other)

    assert told(report) == [("TL309", "lead.yaml", 2, 18)]
    assert report.findings[0].message == "Lead.owner leads to 'Owner', and there is no such model"


def test_f14_a_test_document_with_mistakes_is_found(tmp_path: Path) -> None:
    report = checked(tmp_path, flow=FLOW, lead=LEAD, case="kind: Test\nname: x\nflow: leads\nexpct: {}\n")

    assert [(code, file) for code, file, _, _ in told(report)] == [("TL011", "case.yaml")]


def test_only_what_is_asked_for_is_told(tmp_path: Path) -> None:
    model = "kind: ModelDefinition\ndescription: sk-" + "0123456789abcdefghij\n"
    files = {"flow": FLOW.replace("email}}", "emial}}"), "lead": model}
    project = load_project(_written(tmp_path, files))

    flows = check_project(project, lambda file: file.endswith("flow.yaml"))
    models = check_project(project, lambda file: file.endswith("lead.yaml"))
    assert {one.code for one in flows.findings} == {"TL201"}
    assert {one.code for one in models.findings} == {"TL011", "TL012", "TL401"}


def test_f15_of_a_file_without_a_project_no_data_models_are_known(tmp_path: Path) -> None:
    project = load_files([_written(tmp_path, {"flow": FLOW}) / "workflows" / "flow.yaml"])

    assert told(check_project(project)) == []


def test_f15_a_bare_word_is_told_in_a_file_without_a_project_too(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text("steps: [{id: end, response: {mapping: {status: shipped}}}]\n")
    alone = check_project(load_files([file]))
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "other.py").write_text("shipped = True\n")  # It belongs to something else.
    below = check_project(load_files([file]))
    (tmp_path / "nodes.py").write_text("shipped = True\n")
    named = check_project(load_files([file]))

    assert [len(told(one)) for one in (alone, below, named)] == [1, 1, 0]
    assert told(alone)[0][0] == "TL201"


def test_f15_a_literal_secret_in_the_settings_is_found_and_a_variable_is_not() -> None:
    def found(text: str) -> list[tuple[str, int]]:
        return [
            (one.code, one.line)
            for one in check_settings(Project(root=Path()), text.encode(), file="turnline.yaml")
        ]

    assert found("name: x\nlog: postgresql://me:hunter22@db/log\n") == [("TL401", 2)]
    assert found("log: postgresql://me:${PASSWORD}@db/log\n") == []


def test_a_circle_of_flows_is_found_in_the_file_of_each(tmp_path: Path) -> None:
    one = "metadata: {name: one}\nspec: {steps: [{id: go, workflow: {name: two}}]}\n"
    two = "metadata: {name: two}\nspec: {steps: [{id: back, workflow: {name: one}}]}\n"

    assert [(code, file) for code, file, _, _ in told(checked(tmp_path, one=one, two=two))] == [
        ("TL601", "one.yaml"),
        ("TL601", "two.yaml"),
    ]
