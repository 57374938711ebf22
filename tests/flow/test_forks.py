"""Forks of runs: the same definition goes on from any line; a step in progress begins anew."""

from __future__ import annotations

from typing import Any

from .stage import stage

Ctx = dict[str, Any]

TWO = "steps: [{id: one, runner: one, routes: {default: two}}, {id: two, runner: two}]"
ASK = """
steps:
- {id: one, runner: one, routes: {default: ask}}
- id: ask
  kind: human
  human: {title: Approve?, form: {ok: {type: boolean, required: true}}}
"""


async def test_a_fork_of_a_run_goes_on_from_any_line_with_what_the_run_had_then() -> None:
    taken = list[str]()

    def one(ctx: Ctx) -> Ctx:
        taken.append("one")
        return {"n": ctx["n"] + 1}

    def two(ctx: Ctx) -> Ctx:
        taken.append("two")
        return {"n": ctx["n"] * 10}

    async with stage(TWO, one=one, two=two) as house:
        run_id = await house.runs.start("main", {"n": 1})
        assert (await house.ended(run_id)).data == {"n": 20}
        for line in await house.wal(run_id):
            then = await house.hub.state_at(run_id, line.seq)
            taken.clear()
            fork_id = await house.hub.fork(run_id, at=line.seq)

            assert (await house.ended(fork_id)).data == {"n": 20}
            assert taken == ["one", "two"][then.turn_count :]
            assert await house.path(fork_id) == ["one", "two"]


async def test_f7_a_fork_of_a_run_that_waits_for_a_person_has_a_task_of_its_own() -> None:
    async with stage(ASK, one=lambda ctx: {"n": 1}) as house:
        run_id = await house.runs.start("main", {})
        await house.paused(run_id)
        first = await house.task()
        fork_id = await house.hub.fork(run_id, at=(await house.hub.state(run_id)).seq)
        await house.paused(fork_id)
        mine = {task.run_id: task.task_id for task in await house.tasks.list()}

        assert mine.keys() == {run_id, fork_id}
        pause = (await house.hub.state(fork_id)).pause
        assert pause is not None
        assert pause.key == mine[fork_id]  # Asked anew, not as the origin asked.
        await house.tasks.answer(mine[fork_id], {"ok": True}, by="ann")
        assert (await house.ended(fork_id)).data == {"n": 1, "ok": True}
        assert (await house.task()).task_id == first.task_id
        await house.tasks.answer(first.task_id, {"ok": False}, by="ann")
        assert (await house.ended(run_id)).data == {"n": 1, "ok": False}
