"""F15: texts that read a key which no path produces."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.study.finding import Path
from turnline.flow.check.keys import keys_never_written
from turnline.flow.check.names import Known
from turnline.flow.check.problem import Problem
from turnline.flow.data.definition import read_model
from turnline.flow.definition.flow import Flow

from .flows import Step, flow, node, told, wait

TRIGGER = {"path": "/leads/{region}", "input": {"email": "string", "name": "string"}}
LEAD = read_model(
    {
        "metadata": {"name": "Lead"},
        "spec": {"fields": {"score": "integer"}, "relations": {"company": {"model": "Company"}}},
    }
)
KNOWN = Known(models={"Lead": LEAD})
STEPS = ("spec", "steps")


def closed(*steps: Step, **spec: Any) -> Flow:
    """A flow that begins with `email`, `name` and `region`, and nothing else."""
    return flow(*steps, trigger=TRIGGER, **spec)


def say(step: str, text: str) -> Step:
    return {"id": step, "channel": {"agents": ["x"], "message": text}}


def reads(key: str) -> Step:
    return {"id": "reader", "when": key, "wait": {"for": "1s"}}


def missing(given: Flow) -> list[str]:
    return [problem.found for problem in keys_never_written(given, KNOWN)]


def output(**parts: Any) -> Step:
    return {"id": "w", "agent": {"prompt": "x", "output": parts}}


@pytest.mark.parametrize(
    ("step", "written"),
    [
        (output(map={"a.b": "out"}), {"out"}),
        (output(key="out"), {"out"}),
        (output(map={"a": "one"}, key="two"), {"one", "two"}),
        (output(schema={"one": "string", "two": "integer"}), {"one", "two"}),
        (output(format="text"), {"w"}),
        (output(format="signal"), set()),
        ({"id": "w", "api_call": {"url": "https://x.y", "output": {"map": {"a": "out"}}}}, {"out"}),
        ({"id": "w", "mcp": {"server": "s", "tool": "t", "output": {"key": "out"}}}, {"out"}),
        ({"id": "w", "model_op": {"model": "Lead", "op": "get", "into": "out"}}, {"out"}),
        ({"id": "w", "model_op": {"model": "Lead", "op": "list"}}, {"w"}),
        ({"id": "w", "model_op": {"model": "Unknown", "op": "remove"}}, set()),
        (
            {"id": "w", "model_op": {"model": "Lead", "op": "add"}},
            {"id", "score", "created_at", "company_id"},
        ),
        ({"id": "w", "human": {"title": "?", "form": {"ok": "boolean"}}}, {"ok"}),
        ({"id": "w", "for_each": {"items": "[]", "steps": [wait("i")]}}, {"results"}),
        ({"id": "w", "parallel": {"branches": {"l": [output(key="out")]}}}, {"out"}),
        ({"id": "w", "parallel": {"branches": {"l": [output(key="out")]}, "into": "both"}}, {"both"}),
        ({"id": "w", "parallel": {"branches": {"l": [wait("i")]}, "on_error": "collect"}}, {"l"}),
        (
            {
                "id": "w",
                "parallel": {"branches": {"l": [{"id": "r", "response": {"mapping": {"a": "name"}}}]}},
            },
            {"a"},
        ),
        ({"id": "w", "workflow": {"name": "x", "into": "out"}}, {"out"}),
        ({"id": "w", "wait": {"event": "x", "into": "out"}}, {"out"}),
        ({"id": "w", "wait": {"for": "1s"}}, set()),
        (say("w", "x"), {"w"}),
        (
            {"id": "w", "channel": {"agents": ["x"], "message": "m", "map": {"a": "b"}, "into": "out"}},
            {"b", "out"},
        ),
        ({"id": "w", "router": {}}, set()),
    ],
)
def test_f15_what_a_step_writes_can_be_read_behind_it_and_nothing_else(step: Step, written: set[str]) -> None:
    for key in written:
        assert missing(closed(step, reads(key))) == []
    assert missing(closed(step, reads("unheard_of"))) == ["unheard_of"]


@pytest.mark.parametrize(
    "step",
    [
        node("w"),
        {"id": "w", "agent": {"prompt": "x"}},
        {"id": "w", "agent": {"prompt": "x", "tools": ["t"], "output": {"key": "out"}}},
        {"id": "w", "agent": {"name": "x", "output": {"key": "out"}}},
        {"id": "w", "kind": "agent"},
        {"id": "w", "api_call": {"url": "https://x.y"}},
        {"id": "w", "model_op": {"model": "Unknown", "op": "get"}},
        {"id": "w", "workflow": {"name": "x"}},
        {"id": "w", "wait": {"event": "x"}},
        {"id": "w", "parallel": {"branches": {"l": [node("i")]}}},
    ],
)
def test_f15_behind_a_step_that_may_write_anything_nothing_is_said(step: Step) -> None:
    assert missing(closed(step, reads("unheard_of"))) == []
    assert missing(closed(reads("unheard_of"), {**step, "id": "after"})) == ["unheard_of"]


@pytest.mark.parametrize(
    "trigger",
    [None, {"path": "/x"}, {"path": "/x", "input": {"email": "string"}, "extra": True}],
)
def test_f15_a_run_that_may_begin_with_anything_is_not_warned_of(trigger: Step | None) -> None:
    assert missing(flow(reads("unheard_of"), trigger=trigger)) == []


def test_f15_input_defaults_and_the_parts_of_the_path_are_there() -> None:
    steps = [reads("email and region and priority and unheard_of")]

    assert missing(closed(*steps, context={"defaults": {"priority": 1}})) == ["unheard_of"]


READERS: list[tuple[Step, Path]] = [
    ({"when": "lost", "wait": {"for": "1s"}}, ("when",)),
    ({"agent": {"prompt": "{{ lost }}"}}, ("agent", "prompt")),
    ({"agent": {"prompt": "x", "system": "{{ lost }}"}}, ("agent", "system")),
    ({"router": {"conditions": [{"if": "lost > 1", "signal": "x"}]}}, ("router", "conditions", 0, "if")),
    ({"api_call": {"url": "https://x.y/{{ lost }}"}}, ("api_call", "url")),
    ({"api_call": {"url": "u", "headers": {"X": "{{ lost }}"}}}, ("api_call", "headers", "X")),
    ({"api_call": {"url": "u", "query": {"q": ["{{ lost }}"]}}}, ("api_call", "query", "q", 0)),
    ({"api_call": {"url": "u", "json": {"a": {"b": "{{ lost }}"}}}}, ("api_call", "json", "a", "b")),
    ({"api_call": {"url": "u", "body": "{{ lost }}"}}, ("api_call", "body")),
    ({"model_op": {"model": "Lead", "op": "get", "id": "{{ lost }}"}}, ("model_op", "id")),
    (
        {"model_op": {"model": "Lead", "op": "add", "values": {"v": "{{ lost }}"}}},
        ("model_op", "values", "v"),
    ),
    ({"model_op": {"model": "Lead", "op": "list", "where": {"v": "{{ lost }}"}}}, ("model_op", "where", "v")),
    ({"response": {"mapping": {"a": {"b": "lost"}}}}, ("response", "mapping", "a", "b")),
    ({"response": {"mapping": {"a": "{{ lost }}!"}}}, ("response", "mapping", "a")),
    ({"human": {"title": "{{ lost }}"}}, ("human", "title")),
    ({"human": {"title": "?", "description": "{{ lost }}"}}, ("human", "description")),
    ({"human": {"title": "?", "show": ["email", "lost"]}}, ("human", "show", 1)),
    ({"mcp": {"server": "s", "tool": "t", "arguments": {"a": "{{ lost }}"}}}, ("mcp", "arguments", "a")),
    ({"for_each": {"items": "lost", "steps": [wait("i")]}}, ("for_each", "items")),
    ({"workflow": {"name": "w", "input": {"a": "{{ lost }}"}}}, ("workflow", "input", "a")),
    ({"wait": {"until": "{{ lost }}"}}, ("wait", "until")),
    ({"channel": {"agents": ["x"], "message": "{{ lost }}"}}, ("channel", "message")),
    (
        {"channel": {"agents": ["x"], "message": "m", "context": {"a": "{{ lost }}"}}},
        ("channel", "context", "a"),
    ),
]


@pytest.mark.parametrize(("step", "where"), READERS)
def test_f15_every_text_that_reads_is_looked_at(step: Step, where: Path) -> None:
    found = list(keys_never_written(closed({"id": "s", **step}), KNOWN))

    assert told(found) == [("TL201", (*STEPS, 0, *where))]
    assert found[0].severity == "warning"


@pytest.mark.parametrize(("step", "where"), READERS)
def test_f15_and_nothing_is_said_where_the_key_is_there(step: Step, where: Path) -> None:
    given = flow({"id": "s", **step}, trigger={"path": "/x", "input": {"lost": "string", "email": "string"}})

    assert list(keys_never_written(given, KNOWN)) == []


def test_f15_a_text_without_an_expression_reads_nothing() -> None:
    assert missing(closed({"id": "s", "api_call": {"url": "https://x.y", "json": {"a": "lost"}}})) == []


def test_f15_a_secret_in_a_header_is_no_key() -> None:
    headers = {"Authorization": "Bearer {{ secret.KEY }}"}

    assert missing(closed({"id": "s", "api_call": {"url": "https://x.y", "headers": headers}})) == []


def test_f15_a_key_with_a_dash_in_it_is_a_key_where_there_is_one() -> None:
    answer = {"id": "answer", "response": {"mapping": {"a": "step-one"}}}

    assert missing(closed(say("step-one", "x"), answer)) == []
    assert missing(closed(answer)) == ["one", "step"]


def test_f15_a_key_counts_where_some_path_produces_it_and_only_behind_it() -> None:
    ask, read_it = output(key="out"), {"id": "r", "agent": {"prompt": "{{ out }}", "output": {"key": "x"}}}

    around = {"id": "a", "router": {"conditions": [{"if": "name", "signal": "x"}]}, "routes": {"x": "r"}}
    assert missing(closed(around, ask, read_it)) == []
    assert missing(closed(read_it, ask)) == ["out"]
    assert missing(closed(read_it, ask | {"routes": {"default": "r"}})) == []


def test_f15_what_two_paths_produce_is_there_where_they_meet() -> None:
    choose = {"id": "a", "router": {"conditions": [{"if": "name", "signal": "x"}]}, "routes": {"x": "two"}}
    one = output(key="from_one") | {"id": "one", "routes": {"default": "r"}}
    two = output(key="from_two") | {"id": "two"}
    meet = {"id": "r", "wait": {"until": "{{ from_one }}{{ from_two }}"}}

    assert missing(closed(choose, one, two, meet)) == []
    assert missing(closed(choose, one, meet, two)) == ["from_two"]


def test_f15_only_a_branch_that_is_collected_stands_under_its_name() -> None:
    both = {"id": "w", "parallel": {"branches": {"left": [wait("i")]}}}

    assert missing(closed(both, reads("left"))) == ["left"]


def test_f2_a_reserved_key_is_not_told_of_twice() -> None:
    assert missing(closed({"id": "s", "human": {"title": "?", "show": ["_user_id"]}})) == []


def test_f15_what_a_step_wrote_counts_where_its_error_leads() -> None:
    """It may have; whoever routes an error rarely wants to be told that it may not."""
    ask = output(key="out") | {"routes": {"error": "r"}}

    assert missing(closed(ask, wait("b", default="END"), {"id": "r", "wait": {"until": "{{ out }}"}})) == []


def test_f15_inner_steps_find_the_item_its_index_and_what_was_there_before() -> None:
    def inner(*names: str) -> Step:
        steps = [{"id": "i", "response": {"mapping": {name: name for name in names}}}]
        each = {"items": "[1]", "as": "line", "index": "n", "steps": steps}
        return {"id": "each", "for_each": each}

    assert missing(closed(say("before", "x"), inner("line", "n", "email", "before"))) == []
    assert missing(closed(inner("item", "after"), say("after", "x"))) == ["item", "after"]


def test_f15_branches_do_not_see_what_the_others_write() -> None:
    branches = {"left": [output(key="out")], "right": [{"id": "r", "wait": {"until": "{{ out }}"}}]}

    assert missing(closed({"id": "both", "parallel": {"branches": branches}})) == ["out"]


def test_f15_nothing_is_said_of_a_step_that_no_path_leads_to() -> None:
    assert missing(closed(wait("a", default="END"), reads("unheard_of"))) == []


def test_the_nearest_key_is_the_fix_and_all_known_ones_are_told() -> None:
    found: list[Problem] = list(keys_never_written(closed(reads("emial")), KNOWN))

    assert found[0].message == "'emial' is read here, and no path to this step produces it"
    assert found[0].expected == "email, name, region"
    assert found[0].fix == "did you mean 'email'?"


def test_f15_a_bare_word_in_a_mapping_that_no_python_file_has_is_told_with_its_quotes() -> None:
    save = {"id": "save", "runner": "save"}
    given = flow(save, {"id": "end", "response": {"mapping": {"status": "shipped"}}}, trigger=TRIGGER)
    [problem] = keys_never_written(given, Known(words={"save", "id"}))

    assert (problem.code, problem.severity, problem.found) == ("TL201", "warning", "shipped")
    assert problem.fix.startswith("""write "'shipped'" if you mean the text""")
    assert list(keys_never_written(given, Known(words={"save", "shipped"}))) == []  # A node may write it.
    assert list(keys_never_written(given, Known())) == []  # Nothing is known, nothing is said.


def status(*before: Step, **mapping: str) -> Flow:
    """A flow that does not declare its input."""
    return flow(*before, {"id": "end", "response": {"mapping": mapping}}, trigger={"path": "/s/{order}"})


def test_f15_a_bare_word_is_told_where_the_flow_declares_no_input_too() -> None:
    known = Known(words=set())
    [problem] = keys_never_written(status(status="shipped"), known)

    assert problem.message == "'shipped' is read here, and no path to this step produces it"
    assert problem.fix.startswith("""write "'shipped'" if you mean the text; or add 'shipped' to trigger""")
    assert list(keys_never_written(status(status="shipped"), Known())) == []


def test_f15_a_bare_word_that_the_project_names_as_a_key_is_one_where_no_input_is_declared() -> None:
    known = Known(words={"shipped"})
    read_before = status({"id": "w", "wait": {"until": "{{ shipped }}"}}, status="shipped")
    calls = flow({"id": "call", "workflow": {"name": "small", "input": {"shipped": True}}})
    gives_all = flow({"id": "call", "workflow": {"name": "small"}})

    assert list(keys_never_written(status(status="shipped"), known)) == []
    assert list(keys_never_written(status(shipped="shipped"), Known(words=set()))) == []
    assert list(keys_never_written(read_before, Known(words=set()))) == []
    assert list(keys_never_written(status(number="order"), Known(words=set()))) == []
    for caller in (calls, gives_all):
        named = Known(words=set(), definitions={"caller": caller})
        assert list(keys_never_written(status(status="shipped"), named)) == []


def test_f15_other_texts_behind_a_node_may_read_anything() -> None:
    steps: list[Step] = [{"id": "save", "runner": "save"}, {"id": "w", "wait": {"until": "{{ lost }}"}}]
    end = {"id": "end", "response": {"mapping": {"n": "lost + 1", "word": "'shipped'"}}}

    assert list(keys_never_written(flow(*steps, end, trigger=TRIGGER), Known(words=set()))) == []
