"""F14: a recorded run is played again, without a model, a person or a token."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from turnline.agent.agent import Agent
from turnline.agent.messages import ModelReply, Usage
from turnline.agent.scripted import ScriptedModel, call
from turnline.agent.tool import tool
from turnline.core.envelope import JsonObject
from turnline.errors import BadDocuments, RunConflict
from turnline.flow.testing.case import Surroundings
from turnline.flow.testing.fixture import export_run
from turnline.flow.testing.replay import Replayed, replay
from turnline.flow.work import Services

from ..stage import Stage, flows_of, stage
from .scene import no_data, status_of

FLOW = """
steps:
  - {id: save, runner: save}
  - {id: score, agent: {name: scorer, prompt: "Score {{ name }}", output: {map: {score: lead_score}}}}
  - {id: approve, human: {title: "{{ name }}?", form: {approved: boolean}}}
  - {id: finish, runner: finish}
"""


def nodes() -> dict[str, Callable[..., object]]:
    return {
        "save": lambda ctx: {"id": str(uuid4()), "_db_password": "hunter2"},
        "finish": lambda ctx: {"rank": "A" if ctx["lead_score"] > 80 else "B"},
    }


def scorer(*script: Any) -> Agent:
    lookups = list[str]()

    @tool
    def look_up(company: str) -> str:
        """Look a company up."""
        lookups.append(company)
        return f"{company} is large"

    model = ScriptedModel(*script)
    return Agent("scorer", config=model, tools=[look_up], variables={"lookups": lookups})


async def recorded(house: Stage, **body: Any) -> JsonObject:
    """Run the flow with a person who agrees, and export it."""
    run_id = await house.runs.start("main", body, user_id="alice")
    task = await house.task()
    await house.tasks.answer(task.task_id, {"approved": True}, by="bob")
    await house.ended(run_id)
    return json.loads(json.dumps(await export_run(house.runs, run_id)))  # type: ignore[no-any-return]


LOOKS_UP = ModelReply(
    calls=[call("look_up", company="Acme")], usage=Usage(requests=1), raw={"thinking": "signed"}
)


async def a_recording() -> JsonObject:
    agent = scorer(LOOKS_UP, '{"score": 91}')
    services = Services(flows=flows_of(FLOW), nodes=nodes(), agents={agent.name: agent})
    async with stage(services=services) as house:
        return await recorded(house, name="Jane")


def around(flow: str = FLOW, *, agent: Agent | None = None, **changed: Callable[..., object]) -> Surroundings:
    known = agent or Agent("scorer", config="nobody:has-this-model")
    services = Services(flows=flows_of(flow), nodes={**nodes(), **changed}, agents={"scorer": known})
    return Surroundings(services=services, open_data=no_data, status_of=status_of)


def told(replayed: Replayed) -> list[tuple[str, str, str]]:
    return [(one.what, one.found, one.expected) for one in replayed.problems]


async def test_f14_a_recorded_run_replays_with_no_tokens_and_no_tool_runs_again() -> None:
    silent = scorer()
    replayed = await replay(await a_recording(), around(agent=silent))

    assert told(replayed) == []
    assert (replayed.verdict.status, replayed.verdict.data["rank"]) == ("succeeded", "A")
    assert replayed.path == ("save", "score", "approve", "finish")
    assert silent.conversation().variables["lookups"] == []


async def test_f14_a_fixture_has_nothing_private_in_it() -> None:
    fixture = await a_recording()

    text = json.dumps(fixture)
    assert [one["path"] for one in fixture["steps"]] == ["save", "score", "approve", "finish"]
    for secret in ("hunter2", "_db_password", "alice", "signed", "_user_id", "bob"):
        assert secret not in text
    assert "Acme is large" in text


async def test_f14_the_first_step_that_goes_another_way_is_told_with_what_differs() -> None:
    changed = around(finish=lambda ctx: {"rank": "C", "extra": 1})
    replayed = await replay(await a_recording(), changed)

    assert told(replayed) == [
        ("step 4 (finish), updates.rank", '"C"', '"A"'),
        ("step 4 (finish), updates.extra", "1", "nothing"),
        ("data.rank", '"C"', '"A"'),
        ("data.extra", "1", "nothing"),
    ]
    assert replayed.problems[0].fix == "if it is right now, record the run anew"


async def test_f14_of_several_steps_that_differ_the_first_is_told() -> None:
    changed = around(save=lambda ctx: {"id": 1}, finish=lambda ctx: {"rank": "C"})
    steps = [one.what for one in (await replay(await a_recording(), changed)).problems if "step" in one.what]

    assert steps == ["step 1 (save), updates.id"]


async def test_f14_where_somebody_had_to_be_known_somebody_is() -> None:
    def asks(ctx: dict[str, Any]) -> dict[str, Any]:
        return {"rank": "A" if ctx.get("_user_id") else "Z"}

    assert told(await replay(await a_recording(), around(finish=asks))) == []


async def test_f14_of_several_attempts_the_last_is_recorded() -> None:
    agent = scorer(LOOKS_UP, "nonsense", "nonsense", '{"score": 91}')
    flow = FLOW.replace("score: lead_score}}}}", "score: lead_score}}}, retry: {attempts: 2, backoff: 1}}")
    services = Services(flows=flows_of(flow), nodes=nodes(), agents={agent.name: agent})
    async with stage(services=services) as house:
        run_id = await house.runs.start("main", {"name": "Jane"})
        await house.paused(run_id, "retry")
        await house.pass_time(1)
        await house.tasks.answer((await house.task()).task_id, {"approved": True}, by="bob")
        await house.ended(run_id)
        fixture = await export_run(house.runs, run_id)

    score = fixture["steps"][1]
    assert [one["text"] for one in score["replies"]] == ['{"score": 91}']
    assert told(await replay(fixture, around(flow))) == []


async def test_f14_what_a_changed_flow_makes_of_a_recorded_answer_is_performed() -> None:
    changed = around(FLOW.replace("score: lead_score", "score: points"))
    replayed = await replay(await a_recording(), changed)

    assert ("step 2 (score), updates.points", "91", "nothing") in told(replayed)
    assert replayed.problems[0].what == "step 2 (score), updates.lead_score"


async def test_f14_a_step_that_fails_now_is_told() -> None:
    def broken(ctx: dict[str, Any]) -> None:
        raise ValueError("no rank")

    replayed = await replay(await a_recording(), around(finish=broken))

    assert told(replayed)[0] == ("step 4 (finish), signal", '"error"', '"default"')
    assert ("the end", "failed: error at step finish (no rank)", "succeeded") in told(replayed)


async def test_f14_a_new_step_that_asks_somebody_stops_the_replay() -> None:
    new = "steps:\n  - {id: new, agent: {prompt: x}}" + FLOW.removeprefix("\nsteps:")
    replayed = await replay(await a_recording(), around(new))

    [problem] = replayed.problems
    assert (problem.what, problem.fix) == ("step new", "if it is right now, record the run anew")


async def test_f14_without_the_project_the_recorded_definition_is_played() -> None:
    alone = around()
    without = replace(alone, services=replace(alone.services, flows={}))

    assert told(await replay(await a_recording(), without)) == []


async def test_f14_keys_that_may_differ_are_named_in_the_fixture() -> None:
    fixture = {**await a_recording(), "ignore": ["rank"]}

    assert told(await replay(fixture, around(finish=lambda ctx: {"rank": "Z"}))) == []


@pytest.mark.parametrize("signal", ["error", "timeout", "parse_error"])
async def test_f14_a_round_that_failed_fails_again_as_it_did(signal: str) -> None:
    recording = await a_recording()
    flow = FLOW.replace("score: lead_score}}}}", f"score: lead_score}}}}}}, routes: {{{signal}: finish}}}}")
    assert flow != FLOW
    calls = recording["steps"][1]["replies"][:1]
    steps = [
        recording["steps"][0],
        {"path": "score", "signal": signal, "replies": calls},
        {"path": "finish", "updates": {"rank": "-"}},
    ]
    fixture = {**recording, "steps": steps, "ignore": ["id", "rank"], "data": {"name": "Jane"}}
    replayed = await replay(fixture, around(flow, finish=lambda ctx: {"rank": ctx["_last_error_type"]}))

    assert told(replayed) == []
    assert replayed.verdict.data["rank"] == signal


INNER = """
steps:
  - id: contacts
    for_each:
      items: people
      as: person
      steps:
        - {id: ask, human: {title: "{{ person }}?", form: {ok: boolean}}}
        - {id: note, runner: note}
  - id: both
    parallel: {branches: {left: [{id: a, runner: a}], right: [{id: b, runner: b}]}}
  - {id: sub, workflow: {name: other, into: sub}}
"""
OTHER = "{metadata: {name: other}, spec: {steps: [{id: c, runner: c}]}}"


async def test_f14_runs_below_a_run_are_recorded_and_replayed_item_by_item() -> None:
    inner: dict[str, Callable[..., object]] = {
        "note": lambda ctx: {"noted": f"{ctx['person']} {ctx['ok']}"},
        "a": lambda ctx: {"a": 1},
        "b": lambda ctx: {"b": 2},
        "c": lambda ctx: {"c": 3},
    }
    async with stage(services=Services(flows=flows_of(INNER, OTHER), nodes=inner)) as house:
        run_id = await house.runs.start("main", {"people": ["ann", "bob"]})
        while (await house.runs.wait(run_id)).status != "succeeded":
            for task in await house.tasks.list():
                await house.tasks.answer(task.task_id, {"ok": task.title == "ann?"}, by="eve")
        fixture = await export_run(house.runs, run_id)

    assert [one["path"] for one in fixture["steps"]] == [
        "contacts/0/ask",
        "contacts/0/note",
        "contacts/1/ask",
        "contacts/1/note",
        "contacts",
        "both/left/a",
        "both/right/b",
        "both",
        "sub/other/c",
        "sub",
    ]
    services = Services(nodes=inner)
    replayed = await replay(fixture, Surroundings(services=services, open_data=no_data, status_of=status_of))
    assert told(replayed) == []
    assert replayed.verdict.data["results"] == [
        {"ok": True, "noted": "ann True"},
        {"ok": False, "noted": "bob False"},
    ]


async def test_f14_a_run_that_is_not_over_is_no_fixture() -> None:
    async with stage("steps: [{id: ask, human: {title: ok?}}]") as house:
        run_id = await house.runs.start("main", {})
        await house.runs.wait(run_id)

        with pytest.raises(RunConflict, match="is not over"):
            await export_run(house.runs, run_id)


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"steps": 3}, {"surprise": 1}, {"flow": {"kind": "Workflow"}}]
)
async def test_f14_a_file_that_is_no_fixture_is_refused(change: JsonObject) -> None:
    fixture = {**await a_recording(), **change}

    with pytest.raises(BadDocuments, match="no recorded run"):
        await replay(fixture, around())
