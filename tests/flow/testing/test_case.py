"""F14: a case is played on the real engine, and everything that is wrong with it is told."""

from __future__ import annotations

import asyncio
from typing import Any

from .scene import house, played, set_keys, told

LEADS = """
spec:
  trigger: {path: /leads, input: {email: {type: string, required: true}, name: string}}
  context: {defaults: {priority: normal}}
  steps:
    - {id: save, runner: save}
    - {id: classify, kind: agent, agent: {prompt: "Score {{ name }}"}, routes: {error: manual}}
    - id: route
      kind: router
      router: {conditions: [{if: lead_score > 80, signal: hot}]}
      routes: {hot: approve, default: respond}
    - id: approve
      kind: human
      human: {title: "{{ name }}?", form: {approved: {type: boolean, required: true}}, expires: 2d}
      routes: {expired: manual}
    - {id: respond, kind: response, response: {mapping: {id: id, score: lead_score}, status: 201}}
    - {id: manual, runner: flag}
"""
HOT = "classify: {updates: {lead_score: 91}}"


def leads() -> Any:
    return house(LEADS, save=set_keys(id=7), flag=set_keys(needs_review=True))


async def test_f14_a_case_runs_nodes_routers_people_and_responses_without_a_model() -> None:
    result = await played(
        leads(),
        """{flow: main, given: {email: jane@example.com, name: Jane},
            stub: {classify: {updates: {lead_score: 91}}, approve: {answer: {approved: true}}},
            expect: {status: succeeded, path: [save, classify, route, approve, respond],
                     data_exactly: {id: 7, score: 91}, context: {approved: true, priority: normal},
                     http_status: 201}}""",
    )

    assert told(result) == []
    assert result.path == ("save", "classify", "route", "approve", "respond")


async def test_f14_every_difference_is_told_not_only_the_first() -> None:
    result = await played(
        leads(),
        """{flow: main, given: {email: a@b.c, name: Jane},
            stub: {classify: {updates: {lead_score: 10}}},
            expect: {status: failed, path: [save, classify, manual], data: {score: 91, rank: A},
                     context: {needs_review: true}, error: {type: error}, http_status: 200}}""",
    )

    assert told(result) == [
        ("status", "succeeded", "failed"),
        ("path", '["save","classify","route","respond"]', '["save","classify","manual"]'),
        ("data.score", "10", "91"),
        ("data.rank", "nothing", '"A"'),
        ("context.needs_review", "nothing", "true"),
        ("error", "nothing", '{"type":"error"}'),
        ("http_status", "201", "200"),
    ]


async def test_f14_a_run_that_fails_says_why_where_success_was_expected() -> None:
    around = house("steps: [{id: save, runner: save}]", save=lambda ctx: dict[str, str]()["email"])
    result = await played(around, "{flow: main}")

    assert told(result) == [("status", "failed: error at step save: KeyError: 'email'", "succeeded")]


async def test_f14_an_error_is_compared_by_type_step_and_a_part_of_its_message() -> None:
    around = house("steps: [{id: save, runner: save}]", save=lambda ctx: dict[str, str]()["email"])
    right = "{flow: main, expect: {error: {type: error, step: save, message: email}, http_status: 422}}"
    wrong = "{flow: main, expect: {error: {type: timeout, step: send, message: phone}}}"

    assert told(await played(around, right)) == []
    assert told(await played(around, wrong)) == [
        ("error.type", '"error"', '"timeout"'),
        ("error.step", '"save"', '"send"'),
        ("error.message", "\"KeyError: 'email'\"", 'a text with "phone"'),
    ]


async def test_f14_data_exactly_is_all_of_it() -> None:
    around = house("steps: [{id: save, runner: save}]", save=set_keys(id=7, _secret="x"))
    result = await played(around, "{flow: main, given: {a: 1}, expect: {data_exactly: {id: 7, b: 2}}}")

    assert told(result) == [("data.b", "nothing", "2"), ("data.a", "1", "nothing")]


async def test_f1_the_body_is_checked_as_the_server_checks_it() -> None:
    result = await played(
        leads(), "{flow: main, given: {name: Jane}, expect: {error: {type: invalid_input}, http_status: 422}}"
    )

    assert told(result) == []
    assert result.path == ()


async def test_f14_the_user_is_known_to_nodes_and_nobody_else_is() -> None:
    around = house(
        "steps: [{id: who, runner: who}]", who=lambda ctx: {"is_alice": ctx.get("_user_id") == "alice"}
    )

    assert told(await played(around, "{flow: main, user: alice, expect: {data: {is_alice: true}}}")) == []
    mallory = "{flow: main, given: {_user_id: alice}, expect: {data: {is_alice: false}}}"
    assert told(await played(around, mallory)) == []


async def test_f14_an_unknown_flow_or_step_is_told_with_the_nearest_name() -> None:
    unknown = await played(leads(), "{flow: mian}")
    result = await played(
        leads(), "{flow: main, stub: {clasify: {updates: {}}, route/x/y: {}}, expect: {path: [save, rout]}}"
    )

    assert [one.fix for one in unknown.problems] == ["did you mean 'main'?"]
    assert [(one.what, one.found) for one in result.problems] == [
        ("stub", "'clasify', which is no step"),
        ("stub", "'route/x/y', which is no step"),
        ("expect.path", "'rout', which is no step"),
    ]
    assert [one.fix for one in result.problems][::2] == ["did you mean 'classify'?", "did you mean 'route'?"]


async def test_f14_a_node_that_never_ends_is_a_problem_of_its_case(monkeypatch: Any) -> None:
    monkeypatch.setattr("turnline.flow.testing.stage.PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr("turnline.flow.testing.stage.GRACE_SECONDS", 0.01)

    async def hangs(ctx: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    result = await played(house("steps: [{id: hang, runner: hangs}]", hangs=hangs), "{flow: main}")

    assert told(result) == [("the case", "0.01 s of real time, and no end", "")]


async def test_f14_cases_do_not_see_each_other() -> None:
    around = house("steps: [{id: count, runner: count}]", count=lambda ctx: {"n": ctx.get("n", 0) + 1})

    for _ in range(2):
        assert told(await played(around, "{flow: main, expect: {data_exactly: {n: 1}}}")) == []
