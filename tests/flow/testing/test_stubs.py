"""F14: what a step gives instead of being performed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .scene import house, played, set_keys, told

CALL = {
    "agent": "agent: {prompt: hello}",
    "api_call": "api_call: {url: 'https://example.com'}",
    "mcp": "mcp: {server: files, tool: read}",
    "channel": "channel: {agents: [ann], message: hello}",
}


@pytest.mark.parametrize("kind", CALL)
async def test_f14_a_step_that_leaves_the_process_has_to_be_stubbed(kind: str) -> None:
    around = house(f"steps: [{{id: ask, {CALL[kind]}}}, {{id: after, runner: never}}]")
    result = await played(around, "{flow: main}")

    [problem] = result.problems
    assert problem.what == "step ask"
    assert problem.found == f"a step of kind {kind}, which a test does not perform"
    assert problem.fix == "stub it: ask: {updates: {...}}"
    assert result.path == (), "nothing behind it happens"


async def test_f14_a_human_step_and_a_wait_for_an_event_have_to_be_stubbed_too() -> None:
    human = house("steps: [{id: ask, human: {title: ok?, form: {yes: boolean}, expires: 1h}}]")
    event = house("steps: [{id: paid, wait: {event: paid, expires: 1h}}]")

    assert [one.fix for one in (await played(human, "{flow: main}")).problems] == [
        "stub it: ask: {answer: {yes: ...}}"
    ]
    assert [one.fix for one in (await played(event, "{flow: main}")).problems] == [
        "stub it: paid: {event: {...}}"
    ]


async def test_f14_a_stub_sets_and_deletes_keys_and_says_the_signal() -> None:
    around = house(
        "steps: [{id: a, runner: never, routes: {odd: c}}, {id: b, runner: never}, {id: c, runner: look}]",
        look=lambda ctx: {"seen": ctx["_api_status_code"], "kept": "_user_id" in ctx},
    )
    result = await played(
        around,
        """{flow: main, given: {old: 1}, user: alice,
            stub: {a: {updates: {x: 1, _api_status_code: 404}, deletes: [old, _user_id], signal: odd}},
            expect: {path: [a, c], data_exactly: {x: 1, seen: 404, kept: false}}}""",
    )

    assert told(result) == []


@pytest.mark.parametrize(
    ("stub", "signal"),
    [("{error: no}", "error"), ("{timeout: true}", "timeout"), ("{parse_error: no}", "parse_error")],
)
async def test_f5_a_stub_fails_as_a_step_does(stub: str, signal: str) -> None:
    around = house(
        f"steps: [{{id: a, agent: {{prompt: x}}, routes: {{{signal}: b}}}}, {{id: b, runner: look}}]",
        look=lambda ctx: {"kind": ctx["_last_error_type"], "told": bool(ctx["_last_error"])},
    )
    result = await played(
        around, f"{{flow: main, stub: {{a: {stub}}}, expect: {{data: {{kind: {signal}, told: true}}}}}}"
    )

    assert told(result) == []


async def test_f14_a_list_has_a_stub_for_each_attempt_and_nobody_waits_for_the_pauses() -> None:
    around = house(
        "steps: [{id: ask, agent: {prompt: x}, retry: {attempts: 3, backoff: 1d, max_backoff: 9d}}]"
    )
    result = await played(
        around,
        """{flow: main, stub: {ask: [{error: no}, {timeout: true}, {updates: {n: 3}}]},
            expect: {path: [ask], data_exactly: {n: 3}}}""",
    )

    assert told(result) == []


async def test_f14_a_list_that_is_too_short_is_a_problem() -> None:
    around = house("steps: [{id: ask, agent: {prompt: x}, retry: {attempts: 3}}]")
    result = await played(around, "{flow: main, stub: {ask: [{error: a}, {error: b}]}}")

    assert told(result) == [("step ask", "attempt 3, and only 2 stubs", "")]


async def test_f14_a_single_stub_is_for_every_attempt() -> None:
    around = house("steps: [{id: ask, agent: {prompt: x}, retry: {attempts: 3}}]")

    assert (
        told(await played(around, "{flow: main, stub: {ask: {error: no}}, expect: {error: {step: ask}}}"))
        == []
    )


async def test_f14_a_loop_takes_one_stub_after_the_other() -> None:
    around = house("steps: [{id: ask, agent: {prompt: x}, routes: {again: ask}}]")
    result = await played(
        around, "{flow: main, stub: {ask: [{signal: again}, {updates: {n: 1}}]}, expect: {path: [ask, ask]}}"
    )

    assert told(result) == []


async def test_f14_an_answer_is_checked_against_the_form() -> None:
    around = house("steps: [{id: ask, human: {title: ok?, form: {yes: {type: boolean, required: true}}}}]")
    result = await played(around, "{flow: main, stub: {ask: {answer: {yes: maybe, why: not}}}}")

    assert {one.what for one in result.problems} == {"the answer to step ask"}
    assert len(result.problems) == 2


async def test_f14_nobody_answers_and_the_time_is_up() -> None:
    around = house(
        "steps: [{id: ask, human: {title: ok?, expires: 30d}, routes: {expired: late, default: END}},"
        " {id: late, runner: late}]",
        late=set_keys(late=True),
    )
    result = await played(around, "{flow: main, stub: {ask: {expired: true}}, expect: {path: [ask, late]}}")

    assert told(result) == []


async def test_f14_an_event_comes_with_its_data() -> None:
    around = house("steps: [{id: paid, wait: {event: paid, into: payment}}]")
    result = await played(
        around, "{flow: main, stub: {paid: {event: {sum: 3}}}, expect: {data: {payment: {sum: 3}}}}"
    )

    assert told(result) == []


async def test_f14_a_wait_for_a_time_is_over_at_once() -> None:
    around = house("steps: [{id: rest, wait: {for: 365d}}, {id: a, runner: a}]", a=set_keys(a=1))

    assert told(await played(around, "{flow: main, expect: {path: [rest, a]}}")) == []


async def test_f14_a_stub_that_its_step_cannot_have_is_a_problem() -> None:
    around = house(
        "steps: [{id: a, runner: a}, {id: ask, human: {title: ok?}}, {id: rest, wait: {for: 1s}}]",
    )
    result = await played(
        around, "{flow: main, stub: {a: {answer: {}}, ask: {expired: true}, rest: {event: {}}}}"
    )

    assert told(result) == [
        ("stub a", "an answer to a step of kind functional", "a human step"),
        ("stub ask", "expired", "a step that has `expires`; it waits for ever"),
        ("stub rest", "an event for a step of kind wait", "a wait for one"),
    ]


CONTACTS = """
steps:
  - id: contacts
    for_each:
      items: people
      as: person
      into: results
      steps:
        - {id: write, agent: {prompt: "Dear {{ person }}"}}
        - {id: approve, human: {title: "{{ person }}?", form: {ok: boolean}}}
"""


async def test_f14_inner_steps_are_stubbed_by_their_path_for_all_items_or_for_one() -> None:
    result = await played(
        house(CONTACTS),
        """{flow: main, given: {people: [ann, bob]},
            stub: {contacts/each/write: {updates: {text: hi}}, contacts/1/write: {updates: {text: yo}},
                   contacts/each/approve: {answer: {ok: true}}},
            expect: {path: [contacts], data: {results: [{text: hi, ok: true}, {text: yo, ok: true}]}}}""",
    )

    assert told(result) == []


async def test_f14_of_inner_steps_that_miss_their_stub_each_is_told() -> None:
    result = await played(
        house(CONTACTS),
        """{flow: main, given: {people: [ann, bob]}, stub: {contacts/0/write: {updates: {}}}}""",
    )

    assert sorted(one.what for one in result.problems) == ["step contacts/0/approve", "step contacts/1/write"]


async def test_f14_each_item_begins_with_the_first_of_its_stubs() -> None:
    around = house(
        "steps: [{id: all, for_each: {items: xs, steps:"
        " [{id: ask, agent: {prompt: x}, retry: {attempts: 2}}]}}]"
    )
    result = await played(
        around,
        """{flow: main, given: {xs: [1, 2]}, stub: {all/each/ask: [{error: no}, {updates: {ok: true}}]},
            expect: {data: {results: [{ok: true}, {ok: true}]}}}""",
    )

    assert told(result) == []


async def test_f14_nothing_is_told_before_everybody_has_come_to_rest() -> None:
    async def slow(ctx: dict[str, Any]) -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    around = house(
        "steps: [{id: both, parallel: {branches: {left: [{id: ask, agent: {prompt: x}}],"
        " right: [{id: slow, runner: slow}, {id: ask, agent: {prompt: x}}]}}}]",
        slow=slow,
    )
    result = await played(around, "{flow: main}")

    assert sorted(one.what for one in result.problems) == ["step both/left/ask", "step both/right/ask"]


async def test_f14_branches_and_other_flows_are_stubbed_by_their_path() -> None:
    around = house(
        """
        steps:
          - id: both
            parallel: {branches: {left: [{id: ask, agent: {prompt: x}}], right: [{id: b, runner: b}]}}
          - {id: sub, workflow: {name: other, input: {n: 1}, into: sub}}
        """,
        "{kind: Workflow, metadata: {name: other}, spec: {steps: [{id: ask, agent: {prompt: x}}]}}",
        b=set_keys(b=2),
    )
    result = await played(
        around,
        """{flow: main, stub: {both/left/ask: {updates: {a: 1}}, sub/other/ask: {updates: {c: 3}}},
            expect: {data_exactly: {a: 1, b: 2, sub: {n: 1, c: 3}}}}""",
    )

    assert told(result) == []


async def test_f14_a_step_that_is_passed_over_needs_no_stub() -> None:
    around = house("steps: [{id: ask, when: n > 1, agent: {prompt: x}}]")

    assert told(await played(around, "{flow: main, given: {n: 1}, expect: {path: [ask]}}")) == []
