"""A run with a step of every kind, stopped while it waits for a person and taken up by the next process."""

from __future__ import annotations

from tests.logs import OpenLog
from turnline.agent.agent import Agent
from turnline.agent.scripted import ScriptedModel
from turnline.core.envelope import JsonObject
from turnline.flow.definition.steps import KINDS
from turnline.flow.work import Data, Services
from turnline.testing.manual_clock import ManualClock

from .data.stage import emails, opened
from .http_server import Answer, HttpServer
from .stage import Stage, flows_of, stage
from .steps.mcp_server import served

MAIN = """
context: {models: [{name: Lead}]}
steps:
  - {id: first, kind: functional, runner: first}
  - {id: rate, kind: agent, agent: {prompt: "How good is {{ email }}?", output: {map: {score: score}}}}
  - {id: fetch, kind: api_call, api_call: {url: HTTP/lead, allow_private: true}}
  - id: shout
    kind: mcp
    mcp: {server: MCP, tool: rate, arguments: {name: ann, score: 1}, output: {key: shouted}}
  - {id: save, kind: model_op, model_op: {model: Lead, op: add, values: {email: "{{ email }}"}, into: saved}}
  - id: talk
    kind: channel
    channel: {agents: [writer, editor], message: "About {{ email }}", into: words}
  - id: all
    kind: for_each
    for_each: {items: "[1, 2]", as: n, into: squares, steps: [{id: it, runner: square}]}
  - id: both
    kind: parallel
    parallel: {branches: {left: [{id: l, runner: left}], right: [{id: r, runner: right}]}}
  - {id: sub, kind: workflow, workflow: {name: other, input: {n: 4}, into: other}}
  - {id: ask, kind: human, human: {title: ok?, form: {ok: boolean}}}
  - {id: pause, kind: wait, wait: {for: 1d}}
  - id: choose
    kind: router
    router: {conditions: [{if: ok, signal: good}]}
    routes: {good: tell, default: FAIL}
  - id: tell
    kind: response
    response:
      mapping:
        {score: score, city: city, shouted: shouted, words: words, squares: squares, sides: left + right,
         other: other, ok: ok, saved: saved.email}
"""
OTHER = "{metadata: {name: other}, steps: [{id: it, runner: square}]}"
EXPECTED: JsonObject = {
    "score": 7,
    "city": "Ulm",
    "shouted": {"name": "ANN", "score": 2},
    "words": "a page",
    "squares": [{"square": 1}, {"square": 4}],
    "sides": 3,
    "other": {"n": 4, "square": 16},
    "ok": True,
    "saved": "ann@example.com",
}


def main(http: str, mcp: str) -> str:
    return MAIN.replace("HTTP", http).replace("MCP", mcp)


def services(http: str, mcp: str, data: Data) -> Services:
    return Services(
        flows=flows_of(main(http, mcp), OTHER),
        nodes={
            "first": lambda ctx: {"email": "ann@example.com"},
            "square": lambda ctx: {"square": ctx["n"] ** 2},
            "left": lambda ctx: {"left": 1},
            "right": lambda ctx: {"right": 2},
        },
        model=ScriptedModel('{"score": 7}'),
        data=data,
    )


async def joined(house: Stage) -> None:
    """The agents of the conversation take part, as a server lets them."""
    for name, text in (("writer", "a draft"), ("editor", "a page")):
        await house.hub.register(Agent(name, config=ScriptedModel(text)))


async def test_every_kind_of_step_is_taken_once_on_every_log(open_log: OpenLog) -> None:
    clock = ManualClock()
    answers = {"/lead": Answer(json={"city": "Ulm"})}
    async with opened() as data:
        with HttpServer(answers) as http, served() as mcp:
            given = services(http.url, mcp, data)
            async with stage(log=open_log(), services=given, clock=clock) as house:
                await joined(house)
                run_id = await house.runs.start("main", {})
                task = await house.task()
            async with stage(log=open_log(), services=given, clock=clock) as house:
                await house.tasks.answer(task.task_id, {"ok": True}, by="ann")
                await house.paused(run_id, "time")
                await house.pass_time(86_400)
                done = await house.ended(run_id)
                path = await house.path(run_id)
        kept = await emails(data)

    assert done.status == "succeeded", done.error
    assert done.data == EXPECTED
    assert path == [step.id for step in given.flows["main"].steps]
    assert (len(http.received), kept) == (1, ["ann@example.com"])


def test_the_run_has_every_kind_there_is() -> None:
    flow = flows_of(main("http://a", "http://b"))["main"]

    assert {step.kind for step in flow.steps} == set(KINDS)
