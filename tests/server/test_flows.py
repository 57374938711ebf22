"""A flow as a resource: its picture for everybody who may read flows, its source for operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnline.errors import NameTaken
from turnline.flow.project import load_project
from turnline.server.app import create_app
from turnline.server.runtime import runtime_of

from .stage import KnownTokens, runtime_with, served

FLOW = """
metadata: {name: lead}
spec:
  trigger: {path: /lead}
  steps:
    - id: choose
      kind: router
      router: {conditions: [{if: "urgent", signal: now}, {else: true, signal: later}]}
      routes: {now: call, later: END}
    - {id: call, runner: call, routes: {error: FAIL}}
    - id: each
      kind: for_each
      for_each: {items: "[1]", as: one, steps: [{id: inner, runner: call}]}
"""


async def test_a_flow_is_drawn_with_its_steps_and_where_each_signal_leads() -> None:
    async with served(FLOW, call=lambda ctx: None) as server:
        found = (await server.get("/flows/lead", token="reader")).json()["data"]
        missing = await server.get("/flows/nothing", token="reader")
        forbidden = await server.get("/flows/lead", token="seller")

    labels = {one["id"]: one["label"] for one in found["picture"]["nodes"]}
    assert [
        (labels[one["source"]], one["label"], labels[one["target"]]) for one in found["picture"]["edges"]
    ] == [
        ("choose", "now", "call"),
        ("choose", "later", "completed"),
        ("call", "error", "failed"),
        ("call", "", "each"),
        ("each", "", "completed"),
    ]
    nodes = {one["label"]: one for one in found["picture"]["nodes"]}
    assert (nodes["choose"]["is_first"], nodes["choose"]["detail"]) == (True, "router")
    assert nodes["each"]["detail"] == "for_each (inner)"
    assert (missing.status_code, forbidden.status_code) == (404, 403)


async def test_the_source_is_shown_to_operators_with_variables_as_their_author_named_them(
    tmp_path: Path,
) -> None:
    text = FLOW.replace("path: /lead", "path: '/lead/${PLACE}'")
    (tmp_path / "flow.yaml").write_text("kind: Workflow" + text)
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "work.py").write_text(
        "from turnline import node\n\n\n@node\ndef call(ctx):\n    pass\n"
    )
    project = load_project(tmp_path, environment={"PLACE": "secret-place"})
    runtime = runtime_of(project, log_address="memory:")

    assert runtime.sources["lead"] == "kind: Workflow" + text
    async with served(FLOW, call=lambda ctx: None) as server:
        server.runtime.sources = runtime.sources
        operator = (await server.get("/flows/lead")).json()["data"]
        reader = (await server.get("/flows/lead", token="reader")).json()["data"]

    assert "${PLACE}" in operator["source"]
    assert reader["source"] is None


@pytest.mark.parametrize("path", ["/studio", "/studio/main.js", "/channels", "/channels/{id}"])
def test_a_trigger_cannot_stand_where_the_studio_and_the_channels_are(path: str) -> None:
    flow = f"{{trigger: {{path: '{path}', method: GET}}, steps: [{{id: a, runner: call}}]}}"

    with pytest.raises(NameTaken, match="The server itself answers it"):
        create_app(
            runtime_with(f"metadata: {{name: work}}\nspec: {flow}", call=lambda ctx: None),
            authenticator=KnownTokens(),
        )
