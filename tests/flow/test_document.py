"""Documents, recognised by `kind`, in every shape; everything that is wrong with them, at its place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, strategies as st

from turnline.core.study.finding import Severity
from turnline.flow.check.problem import Problem
from turnline.flow.document import (
    EMPTY,
    NOWHERE,
    SAME_NAME,
    SAME_TRIGGER,
    TWO_KINDS,
    UNKNOWN_DOCUMENT,
    UNNAMED_FLOW,
    Contents,
    LoadedFlow,
    clashes,
    document_kind,
    read_file,
)
from turnline.flow.environment import SECRET, UNSET
from turnline.flow.finding import Finding
from turnline.flow.mistake import BAD_STEPS, BAD_TEXT, UNKNOWN_KEY, UNKNOWN_KIND
from turnline.flow.yaml_document import TWICE

from .lead import LEAD

SHARED: Final = Path(__file__).parents[3] / "shared"


def contents(
    text: str, *, file: str = "leads.yaml", stray: Severity = "error", **environment: str
) -> Contents:
    return read_file(text, file=file, environment=environment, stray=stray)


def flow(text: str, *, file: str = "leads.yaml") -> LoadedFlow:
    read = contents(text, file=file)
    assert read.findings == []
    (only,) = read.flows
    return only


def wrong(text: str, *, file: str = "leads.yaml", stray: Severity = "error") -> Finding:
    (only,) = contents(text, file=file, stray=stray).findings
    return only


def place(finding: Finding) -> tuple[str, int, int]:
    return finding.code, finding.line, finding.column


def test_the_example_is_a_flow() -> None:
    loaded = flow(LEAD)

    assert loaded.name == "lead_processing"
    assert [step.id for step in loaded.flow.steps] == [
        "save",
        "classify",
        "route",
        "approve",
        "respond",
        "manual",
    ]
    assert loaded.flow.spec.limits.timeout == 3600


@pytest.mark.skipif(not SHARED.is_dir(), reason="the design is not beside the project")
def test_the_designs_own_example_lacks_nothing_but_two_quotes() -> None:
    page = (SHARED / "design" / "04-flows.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    finding = wrong(example)

    assert (finding.code, finding.found) == (UNKNOWN_KEY, "score and route a lead")
    assert finding.fix == "put a text with a comma in it in quotes"


def fragments() -> list[str]:
    """The YAML in the seed: from a line that begins a list of steps, or `steps:`, to the next prose."""
    found = list[list[str]]()
    is_inside = False
    (seed,) = (SHARED / "seeds").glob("003_*.txt")
    for line in seed.read_text().splitlines():
        begins = line == "steps:" or (line.startswith("- id:") and not is_inside)
        if begins:
            found.append([])
        is_inside = begins or (is_inside and (not line or line[0] in " -#"))
        if is_inside:
            found[-1].append(line)
    return ["\n".join(lines) for lines in found]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the seeds are not beside the project")
def test_the_seeds_yaml_is_valid_as_it_stands() -> None:
    flows = [flow(text, file="lead_processing.yaml").flow for text in fragments()]

    assert [[(step.id, step.kind) for step in one.steps] for one in flows] == [
        [("classify", "agent")],
        [("save", "functional"), ("classify", "agent"), ("route", "router")],
        [("check_priority", "router")],
    ]
    assert {one.name for one in flows} == {"lead_processing"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("- {id: a, runner: x}", "leads"),
        ("steps: [{id: a, runner: x}]", "leads"),
        ("steps: [{id: a, runner: x}]\nname: other", "other"),
        ("steps: [{id: a, runner: x}]\nmetadata: {name: other}", "other"),
        ("kind: Workflow\nspec: {steps: [{id: a, runner: x}]}", "leads"),
        ("spec: {steps: [{id: a, runner: x}]}\nmetadata: {name: other}", "other"),
        ("kind: work-flow\nsteps: [{id: a, runner: x}]", "leads"),
    ],
)
def test_a_workflow_has_many_shapes_and_is_named_after_its_file(text: str, name: str) -> None:
    loaded = flow(text)

    assert loaded.name == name
    assert [step.id for step in loaded.flow.steps] == ["a"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("{id: a, runner: x}", "functional"),
        ("{id: a, kind: Functional, runner: x}", "functional"),
        ("{id: a, kind: agent}", "agent"),
        ("{id: a, agent: {}}", "agent"),
        ("{id: a, kind: router}", "router"),
        ("{id: a, kind: ROUTER, router: {conditions: [{else: true, signal: b}]}}", "router"),
        ("{id: a, kind: Api-Call, api_call: {url: x}}", "api_call"),
        ("{id: a, kind: forEach, for_each: {items: x, steps: [{id: b, runner: x}]}}", "for_each"),
        ("{id: a, kind: MODEL_OP, model_op: {model: M, op: list}}", "model_op"),
    ],
)
def test_a_step_may_lack_its_kind_or_its_block_and_kinds_are_compared_without_case(
    text: str, kind: str
) -> None:
    assert flow(f"- {text}").flow.steps[0].kind == kind


def test_a_file_whose_name_cannot_be_one_needs_a_name_inside() -> None:
    finding = wrong("- {id: a, runner: x}", file="w/01 leads.yaml")

    assert finding.code == UNNAMED_FLOW
    assert flow("steps: [{id: a, runner: x}]\nname: leads", file="01 leads.yaml").name == "leads"


def test_data_models_and_tests_are_handed_on_as_they_are() -> None:
    model, test, cases = (
        "kind: model_definition\nmetadata: {name: Lead}\n",
        "kind: Test\nspec: {}\n",
        "- {flow: f}\n",
    )
    read = contents("---\n".join([model, test, cases]))

    assert [one.data for one in read.models] == [{"kind": "ModelDefinition", "metadata": {"name": "Lead"}}]
    assert [one.data for one in read.tests] == [{"kind": "Test", "spec": {}}, [{"flow": "f"}]]
    assert read.models[0].position(("metadata", "name")) == (2, 18)
    assert read.findings == []


def test_an_unknown_kind_has_the_nearest_name() -> None:
    finding = wrong("metadata: {}\nkind: Worklow\n", stray="warning")

    assert place(finding) == (UNKNOWN_DOCUMENT, 2, 7)
    assert (finding.fix, finding.severity) == ("did you mean 'Workflow'?", "error")


@pytest.mark.parametrize(
    "text", ["services: {web: {}}", "just text", "[1, 2]", "kind: Deployment\napiVersion: apps/v1"]
)
@pytest.mark.parametrize("stray", ["warning", "error"])
def test_somebody_elses_document_is_as_bad_as_whoever_reads_says(text: str, stray: Severity) -> None:
    finding = wrong(text, stray=stray)

    assert (finding.code, finding.severity) == (UNKNOWN_DOCUMENT, stray)


def test_a_kind_that_is_no_text_is_told() -> None:
    assert place(wrong("kind: [Workflow]")) == (UNKNOWN_DOCUMENT, 1, 7)
    assert document_kind({"kind": 3, "steps": []}) is None


@pytest.mark.parametrize(
    ("text", "what"),
    [("", "is empty"), ("# nothing\n", "has no document"), ("---\n---\n# nothing\n", "has no document")],
)
def test_an_empty_file_is_told_with_what_to_write(text: str, what: str) -> None:
    finding = wrong(text)

    assert (finding.code, finding.message) == (EMPTY, f"the file {what}")
    assert "steps:" in finding.fix


def test_an_empty_document_beside_others_is_nothing() -> None:
    assert [one.name for one in contents("---\n- {id: a, runner: x}\n---\n# nothing\n").flows] == ["leads"]


@pytest.mark.parametrize(
    ("step", "message", "fix"),
    [
        ("runner: x, agent: {prompt: p}", "this one has `runner:` and `agent:`", "make a step of each"),
        ("kind: agent, agent: {prompt: p}, human: {title: t}", "has `agent:` and `human:`", "make a step"),
        ("kind: human, api_call: {url: u}", "of kind human, and its block is `api_call:`", "kind: api_call"),
        ("kind: Functional, wait: {for: 1}", "of kind functional, and its block is `wait:`", "`runner:`"),
        ("kind: agent, runner: x", "of kind agent, and its block is `runner:`", "write kind: functional"),
    ],
)
def test_two_kinds_in_one_step_are_one_finding(step: str, message: str, fix: str) -> None:
    finding = wrong(f"- {{id: a, {step}}}")

    assert finding.code == TWO_KINDS
    assert message in finding.message
    assert fix in finding.fix


def test_two_steps_of_one_id_are_told_at_the_second() -> None:
    finding = wrong("- {id: a, runner: x}\n- {id: b, runner: x}\n- {id: a, runner: x}\n")

    assert place(finding) == (BAD_STEPS, 3, 8)
    assert "the first is at 1:8" in finding.message


def test_the_same_id_in_another_list_is_another_step() -> None:
    text = "- {id: a, parallel: {branches: {x: [{id: a, runner: x}], y: [{id: a, runner: x}]}}}"

    assert flow(text).flow.steps[0].id == "a"


@pytest.mark.parametrize("name", ["END", "FAIL"])
def test_no_step_is_called_as_an_end_is(name: str) -> None:
    assert place(wrong(f"- {{id: {name}, runner: x}}")) == (BAD_STEPS, 1, 8)


def test_f4_a_route_to_nowhere_is_told_at_its_target_with_the_nearest_step() -> None:
    finding = wrong("- id: save\n  runner: x\n  routes: {ok: sav, bad: END, worse: FAIL}\n")

    assert place(finding) == (NOWHERE, 3, 16)
    assert (finding.found, finding.fix) == ("sav", "did you mean 'save'?")


@pytest.mark.parametrize(
    "text",
    [
        "{id: a, for_each: {items: x, steps: [{id: b, runner: x, routes: {ok: a}}]}}",
        "{id: a, parallel: {branches: {l: [{id: b, runner: x, routes: {ok: c}}], r: [{id: c, runner: x}]}}}",
    ],
)
def test_f4_a_route_out_of_its_list_leads_nowhere(text: str) -> None:
    assert wrong(f"- {text}").code == NOWHERE


def test_every_mistake_of_every_document_is_told_at_once() -> None:
    text = (
        "- {id: a, runner: x, routes: {ok: nowhere}}\n- {id: a, kind: nobody}\n"
        "---\nsteps: [{id: b, agent: {prompt: '{{'}}]\nsteps: []\n"
        "---\nspec: {steps: [{id: c, runner: '${NOBODY}'}], stepps: []}\n"
    )
    codes = [one.code for one in contents(text).findings]

    assert sorted(codes) == sorted([NOWHERE, BAD_STEPS, UNKNOWN_KIND, BAD_TEXT, TWICE, UNKNOWN_KEY, UNSET])


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("- {id: a, runner: x}", (1, 19)),
        ("steps:\n  - {id: a, runner: x}", (2, 21)),
        ("kind: Workflow\nspec:\n  steps:\n    - {id: a, runner: x}", (4, 23)),
    ],
)
def test_a_path_in_the_definition_leads_to_a_line_in_every_shape(
    text: str, position: tuple[int, int]
) -> None:
    loaded = flow(text)

    assert loaded.position("spec", "steps", 0, "runner") == position
    assert loaded.position("spec", "steps", 0, "agent", "prompt") == (position[0], position[1] - 16)
    assert loaded.position("metadata", "name") == (1, 1)


def test_a_problem_of_the_definition_becomes_a_finding_with_its_place() -> None:
    loaded = flow("- {id: a, runner: x, routes: {ok: END}}")
    path = ("spec", "steps", 0, "routes", "ok")
    of_value = loaded.finding(Problem(code="TL1", path=path, message="m", fix="f", severity="warning"))
    of_key = loaded.finding(Problem(code="TL1", path=path, message="m", fix="f", of_key=True))

    assert (place(of_value), of_value.severity, of_value.fix) == (("TL1", 1, 35), "warning", "f")
    assert place(of_key) == ("TL1", 1, 31)


def test_a_problem_never_shows_what_a_variable_stands_for() -> None:
    (loaded,) = contents("- {id: a, runner: '${X}'}", X="canary").flows
    path = ("spec", "steps", 0, "runner")
    finding = loaded.finding(
        Problem(code="TL301", path=path, message="no 'canary'", found="canary", fix="@canary")
    )

    assert loaded.flow.steps[0].model_dump()["runner"] == "canary"
    assert (finding.message, finding.found, finding.fix) == ("no '${X}'", "${X}", "@${X}")


def test_neither_do_ids_and_routes() -> None:
    text = "- {id: '${X}', runner: x, routes: {ok: '${Y}'}}\n- {id: '${X}', runner: y}\n"
    findings = contents(text, X="canary", Y="canary-2").findings

    assert {one.code for one in findings} == {BAD_STEPS, NOWHERE}
    assert "canary" not in str([str(one) for one in findings])


def test_a_secret_is_not_filled_into_a_workflow() -> None:
    text = "- {id: a, api_call: {url: x, headers: {X-Key: '${API_KEY}'}}}"

    assert [one.code for one in contents(text, API_KEY="canary").findings] == [SECRET]


def test_two_workflows_of_one_name_are_told_at_the_second() -> None:
    first, second = (
        flow("- {id: a, runner: x}", file="w/leads.yaml"),
        flow("metadata: {name: leads}\n" + BODY),
    )
    (finding,) = clashes([first, second])

    assert (place(finding), finding.file) == ((SAME_NAME, 1, 18), "leads.yaml")
    assert "w/leads.yaml:1:1" in finding.message


BODY: Final = "spec: {trigger: {path: '/leads/{id}'}, steps: [{id: a, runner: x}]}\n"


def test_two_workflows_for_one_request_are_told_at_the_second() -> None:
    other = BODY.replace("{id}", "{lead}")
    (finding,) = clashes([flow(BODY, file="a.yaml"), flow(other, file="b.yaml")])

    assert (place(finding), finding.file) == ((SAME_TRIGGER, 1, 24), "b.yaml")
    assert "a.yaml:1:17" in finding.message


@pytest.mark.parametrize(
    "other", ["path: '/leads/{id}', method: GET", "path: '/leads/{id}/more'", "path: /leads/id"]
)
def test_another_method_or_another_path_is_another_request(other: str) -> None:
    text = BODY.replace("path: '/leads/{id}'", other)

    assert list(clashes([flow(BODY, file="a.yaml"), flow(text, file="b.yaml")])) == []


def test_a_flow_with_mistakes_still_has_its_name() -> None:
    read = contents("metadata: {name: leads}\nspec: {steps: []}\n")

    assert (read.flows, read.names) == ([], {"leads"})


WORDS = st.sampled_from(
    ["kind", "Workflow", "metadata", "name", "spec", "steps", "id", "agent", "router", "routes", "for_each",
     "parallel", "branches", "trigger", "input", "if", "${X}", "{{ x }}", "END", "3s", "Test", "flow"]
)  # fmt: skip
TREES = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


@given(st.text() | st.binary() | TREES.map(json.dumps))
def test_whatever_is_read_comes_to_findings_and_nothing_else(content: str | bytes) -> None:
    read = read_file(content, file="f.yaml", environment={})

    assert all(one.code.startswith("TL") and one.line >= 1 and one.column >= 1 for one in read.findings)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("trigger: {path: /a, input: {f: {type: file, default: x}}}", "a file has no default"),
        ("trigger: {path: /a, input: {f: {type: file, pattern: x}}}", "a file has no pattern"),
        ("trigger: {path: /a, method: GET, input: {f: file}}", "a GET request has no files"),
        ("trigger: {path: '/a/{f}', input: {f: file}}", "'f' is a file and cannot stand in the path"),
        (
            "trigger: {path: /a, input: {o: {type: object, properties: {f: file}}}}",
            "'o' has a file inside; a file is a field of its own, or the items of a list",
        ),
        ("trigger: {path: /a, input: {t: {type: string, media_types: [a/b]}}}", "only a field of type file"),
        ("trigger: {path: /a, input: {f: {type: file, media_types: [PDF]}}}", "'media_types' cannot be this"),
        ("more: human, human: {title: Hi, form: {f: file}}", "'f' is a file; only trigger.input has files"),
        ("more: agent, agent: {output: {schema: {f: file}}}", "'f' is a file; only trigger.input has files"),
    ],
    ids=range(9),
)
def test_a_file_is_a_field_of_the_input_only(spec: str, said: str) -> None:
    trigger, step = (spec, "{id: a, runner: a}")
    if spec.startswith("more: "):
        kind, _, block = spec.removeprefix("more: ").partition(", ")
        trigger, step = "context: {}", f"{{id: a, kind: {kind}, {block}}}"
    found = contents(f"kind: Workflow\nmetadata: {{name: it}}\nspec:\n  {trigger}\n  steps: [{step}]\n")

    assert said in " ".join(one.message for one in found.findings)


def test_an_input_has_files_and_lists_of_files() -> None:
    files = "f: file, g: {type: array, items: {type: file, media_types: ['image/*']}}"
    found = contents(f"{{trigger: {{path: /a, input: {{{files}}}}}, steps: [{{id: a, runner: a}}]}}\n")

    assert not found.findings
