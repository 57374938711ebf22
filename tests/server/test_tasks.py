"""F6: what a run asks of people, over HTTP: answered once, by whoever it is for."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.agent.agent import Agent
from turnline.agent.tool import tool
from turnline.testing import ScriptedModel, call

from .stage import Server, served

pytestmark = pytest.mark.four_logs

ASK = """
metadata: {name: ask}
spec:
  trigger: {path: /ask}
  steps:
    - id: approve
      kind: human
      human:
        title: "Approve {{ name }}?"
        show: [name]
        form: {approved: {type: boolean, required: true}, note: string}
        group: sales
        expires: 1h
      routes: {expired: END}
"""
OPEN = ASK.replace("        group: sales\n", "").replace("name: ask", "name: open").replace("/ask", "/open")


async def asked(server: Server, path: str = "/ask") -> str:
    answer = await server.post(path, {"name": "Ann", "hidden": "x"})
    task: str = answer.json()["data"]["links"]["task"]
    return task


async def test_f6_a_task_is_shown_with_what_the_step_shows_and_answered() -> None:
    async with served(ASK) as server:
        task = await asked(server)
        shown = (await server.get(task, token="seller")).json()["data"]
        answer = await server.post(
            f"{task}/answer", {"answer": {"approved": True, "note": "ok"}}, token="seller"
        )
        run = await server.ended(answer.headers["x-run-id"])

    assert (shown["title"], shown["show"], shown["group"]) == ("Approve Ann?", {"name": "Ann"}, "sales")
    assert shown["expires_at"] == "2030-01-01T13:00:00Z"
    assert answer.status_code == 200
    assert run["data"] == {"name": "Ann", "hidden": "x", "approved": True, "note": "ok"}


async def test_f6_the_second_answer_is_409_and_changes_nothing() -> None:
    async with served(ASK) as server:
        task = await asked(server)
        first = await server.post(f"{task}/answer", {"answer": {"approved": True}}, token="seller")
        second = await server.post(f"{task}/answer", {"answer": {"approved": False}}, token="seller")
        run = await server.ended(first.headers["x-run-id"])

    assert [first.status_code, second.status_code] == [200, 409]
    assert run["data"]["approved"] is True


async def test_f6_an_answer_after_its_time_is_410() -> None:
    async with served(ASK) as server:
        task = await asked(server)
        await server.pass_time(3601)
        answer = await server.post(f"{task}/answer", {"answer": {"approved": True}}, token="seller")
        shown = await server.get(task, token="seller")

    assert [answer.status_code, shown.status_code] == [410, 410]
    assert answer.json()["error"]["type"] == "expired"


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({"answer": {"approved": "yes"}}, ["body", "answer", "approved"]),
        ({"answer": {}}, ["body", "answer", "approved"]),
        ({"answer": {"approved": True, "more": 1}}, ["body", "answer", "more"]),
        ({"answer": True}, ["body", "answer"]),
        ({}, ["body", "answer"]),
        ({"answer": {"approved": True}, "by": "root"}, ["body", "by"]),
    ],
)
async def test_f6_an_answer_that_the_form_does_not_allow_is_422(body: Any, loc: list[str]) -> None:
    async with served(ASK) as server:
        task = await asked(server)
        answer = await server.post(f"{task}/answer", body, token="seller")
        still = await server.get(task, token="seller")

    assert answer.status_code == 422
    assert [one["loc"] for one in answer.json()["error"]["problems"]] == [loc]
    assert still.status_code == 200


async def test_f1_reserved_keys_of_an_answer_have_no_effect_and_are_audited() -> None:
    async with served(ASK) as server:
        task = await asked(server)
        given = {"approved": True, "_user_id": "root", "_response": {}}
        answer = await server.post(f"{task}/answer", {"answer": given}, token="seller")
        run = await server.ended(answer.headers["x-run-id"])
        audited = await server.audited("reserved_keys_dropped")

    assert run["data"] == {"name": "Ann", "hidden": "x", "approved": True}
    assert audited == [{"channel_id": run["run_id"], "source": "human", "keys": ["_response", "_user_id"]}]


async def test_f13_only_the_tasks_group_sees_and_answers_it() -> None:
    async with served(ASK, OPEN) as server:
        task, for_all = await asked(server), await asked(server, "/open")
        listed = {
            token: [one["flow"] for one in (await server.get("/tasks", token=token)).json()["data"]["tasks"]]
            for token in ("seller", "buyer")
        }
        filtered = (await server.get("/tasks?group=sales", token="seller")).json()["data"]["tasks"]
        read = await server.get(task, token="buyer")
        refused = await server.post(f"{task}/answer", {"answer": {"approved": True}}, token="buyer")
        taken = await server.post(f"{for_all}/answer", {"answer": {"approved": True}}, token="buyer")
        still = await server.get(task, token="seller")

    assert listed == {"seller": ["ask", "open"], "buyer": ["open"]}
    assert [one["flow"] for one in filtered] == ["ask"]
    assert [read.status_code, refused.status_code, taken.status_code, still.status_code] == [
        404,
        404,
        200,
        200,
    ]


@pytest.mark.parametrize("became", ["waiting", "answered", "expired"])
async def test_a_task_of_another_group_answers_like_a_missing_one(became: str) -> None:
    async with served(ASK) as server:
        task = await asked(server)
        if became == "answered":
            await server.post(f"{task}/answer", {"answer": {"approved": True}}, token="seller")
        elif became == "expired":
            await server.pass_time(3601)
        missing = task.replace("/tasks/", "/tasks/x")
        answers: list[list[object]] = [[], []]
        for path, found in zip((task, missing), answers, strict=True):
            tried = [await server.get(path, token="buyer")]
            for body in ({"answer": {"approved": True}}, {"answer": 3}, b"{"):
                tried.append(await server.post(f"{path}/answer", body, token="buyer"))
            for one in tried:
                found += [
                    one.status_code,
                    one.text.replace(path.removeprefix("/tasks/"), "ID"),
                    set(one.headers),
                ]
        for_its_group = (await server.get(task, token="seller")).status_code

    assert answers[0] == answers[1]
    assert answers[0][0] == 404
    assert for_its_group == {"waiting": 200, "answered": 409, "expired": 410}[became]


async def test_f13_a_task_needs_the_scope() -> None:
    async with served(OPEN) as server:
        task = await asked(server, "/open")
        answers = [
            await server.get(task, token="ann"),
            await server.get(task, token=""),
            await server.post(f"{task}/answer", {"answer": {"approved": True}}, token="reader"),
        ]

    assert [one.status_code for one in answers] == [403, 401, 403]


@pytest.mark.parametrize(
    "name", ["nothing", "nothing-1", "_audit-1", "-1", "a" * 200, "%00-1", "x-999999999999"]
)
async def test_f6_a_task_that_never_was_is_404(name: str) -> None:
    async with served(ASK) as server:
        run_id = (await server.post("/ask", {"name": "Ann"})).headers["x-run-id"]
        answers = [
            await server.get(f"/tasks/{name}"),
            await server.post(f"/tasks/{name}/answer", {"answer": {}}),
            await server.get(f"/tasks/{run_id}-7"),
        ]

    assert [one.status_code for one in answers] == [404, 404, 404]


# --- questions of an agent step (N7) ---

BUYS = """
metadata: {name: buys}
spec:
  trigger: {path: /buy}
  steps:
    - id: buy
      kind: agent
      agent: {name: ada, prompt: go, ask: {group: purchase, expires: 2h}}
"""


def ada(paid: list[int]) -> Agent:
    """An agent that wants to pay twice."""

    @tool(approval=True)
    async def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    return Agent(
        "ada", config=ScriptedModel([call("pay", amount=5), call("pay", amount=7)], "done"), tools=[pay]
    )


async def test_the_questions_of_an_agent_step_are_tasks_of_its_group() -> None:
    paid: list[int] = []
    async with served(BUYS, agents=[ada(paid)]) as server:
        begun = await server.post("/buy", {})
        await server.waiting(begun.headers["x-run-id"])
        first, second = (await server.get("/tasks", token="buyer")).json()["data"]["tasks"]
        others = (await server.get("/tasks", token="seller")).json()["data"]["tasks"]
        address = f"/tasks/{first['task_id']}"
        hidden = [await server.get(address, token="seller"), await server.get(address, token="ann")]
        forged = await server.post(f"{address}/answer", {"answer": {"answer": True}}, token="seller")
        wrong = await server.post(f"{address}/answer", {"answer": {"answer": "yes"}}, token="buyer")
        yes = await server.post(f"{address}/answer", {"answer": {"answer": True}}, token="buyer")
        again = await server.post(f"{address}/answer", {"answer": {"answer": False}}, token="buyer")
        no = await server.post(
            f"/tasks/{second['task_id']}/answer", {"answer": {"answer": False}}, token="buyer"
        )
        run = await server.ended(begun.headers["x-run-id"])

    assert begun.status_code == 202
    assert begun.json()["data"]["links"]["task"] == address
    assert others == []
    assert (first["title"], first["show"]) == ("Allow pay?", {"tool": "pay", "arguments": {"amount": 5}})
    assert first["expires_at"] == "2030-01-01T14:00:00Z"
    assert [one.status_code for one in (*hidden, forged)] == [404, 403, 404]
    assert [one.status_code for one in (wrong, yes, again, no)] == [422, 200, 409, 200]
    assert wrong.json()["error"]["problems"][0]["loc"] == ["body", "answer", "answer"]
    assert (paid, run["status"]) == ([5], "succeeded")


async def test_an_expired_question_of_an_agent_step_is_410() -> None:
    paid: list[int] = []
    async with served(BUYS, agents=[ada(paid)]) as server:
        begun = await server.post("/buy", {})
        await server.waiting(begun.headers["x-run-id"])
        task = begun.json()["data"]["links"]["task"]
        await server.pass_time(7200)
        answer = await server.post(f"{task}/answer", {"answer": {"answer": True}}, token="buyer")
        await server.ended(begun.headers["x-run-id"])

    assert answer.status_code == 410
    assert paid == []


async def test_an_operator_of_channels_answers_a_question_of_a_step_as_a_task_only() -> None:
    async with served(BUYS, agents=[ada([])]) as server:
        run_id = (await server.post("/buy", {})).headers["x-run-id"]
        await server.waiting(run_id)
        shown = (await server.get(f"/channels/{run_id}")).json()["data"]
        body = {"request_id": shown["questions"][0]["request_id"], "answer": "yes"}
        refused = await server.post(f"/channels/{run_id}/answers", body)

    assert shown["questions"][0]["group"] == "purchase"
    assert refused.status_code == 409
    assert "/tasks/" in refused.json()["error"]["message"]
