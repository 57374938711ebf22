"""What the verbs of `turnline runs` do. Imported when one is called, with what reads flows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import typer

from turnline.cli import person, steps, tables
from turnline.cli.bulk import FAILED, OPERATOR, do_and_tell, filter_for, gather_pages, tell_next
from turnline.cli.channel_verbs import last_turn
from turnline.cli.given import object_of, types_of
from turnline.cli.open_log import looking_at, usage_of
from turnline.cli.options import Asked
from turnline.cli.plain import count_of, moment, one_line, plain, print_json, public
from turnline.client.embedded import Hub
from turnline.core.envelope import JsonObject
from turnline.core.lifecycle import CANCELLED
from turnline.core.state import WorkflowState
from turnline.errors import UnknownParticipant, UnknownRun
from turnline.flow.driver import DRIVER, Driver
from turnline.flow.events import RunEvent, event_of
from turnline.flow.project import load_project
from turnline.flow.runs import ListedRun, Runs
from turnline.flow.task import Task
from turnline.flow.tasks import Tasks
from turnline.flow.testing.fixture import export_run
from turnline.flow.verdict import Verdict
from turnline.flow.work import Services
from turnline.server.runs import listed, summary
from turnline.server.runtime import Runtime, open_runtime

WAITS: Final = 3
"""Exit code of a run that waits for somebody, as of `turnline run`."""
_CHARACTERS: Final = 200
_HEAD: Final = ("id", "flow", "status", "step", "started", "ended", "error")
_TASK_HEAD: Final = ("id", "flow", "step", "group", "asks", "expires")


class Verbs:
    """The verbs, on one log."""

    def __init__(self, log: str | None, folder: Path, *, as_json: bool = False) -> None:
        self._log = log
        self._folder = folder
        self._as_json = as_json

    async def list_runs(self, asked: Asked) -> None:
        async with _reading(self._log, self._folder) as (hub, runs):
            found, next_ = await _find(hub, runs, asked)
        told = [_public(listed(one)) for one in found]
        if self._as_json:
            print_json({"runs": told, "next": next_})
            return
        tables.show(_HEAD, [_row(one) for one in told])
        tell_next(next_)
        if not told:
            typer.echo("no run is there.", err=True)

    async def cancel_all(self, asked: Asked, *, is_sure: bool) -> int:
        """Cancel the runs of a list; if not sure, only list them. Return the exit code, as `cancel` does."""
        async with _reading(self._log, self._folder) as (hub, runs):
            found = (await _find(hub, runs, asked))[0]
        if not is_sure:
            return self._list_only(found, "cancelled")
        return await self.cancel([one.row.channel_id for one in found])

    async def cancel(self, run_ids: list[str]) -> int:
        """Return the exit code: 0, 1 if a run could not be cancelled."""
        async with _reading(self._log, self._folder) as (_, runs):

            async def cancel_one(run_id: str) -> JsonObject:
                if runs is None:
                    raise UnknownRun(run_id)
                await runs.cancel(run_id, by=OPERATOR)
                return {"result": CANCELLED}

            return await do_and_tell(run_ids, cancel_one, as_json=self._as_json)

    async def retry_all(self, asked: Asked, user_id: str | None, *, is_sure: bool) -> int:
        """Retry the runs of a list that were not retried yet; if not sure, only list them.

        Return the exit code: 0, 1 if a run could not be retried, or failed again.
        """
        async with _reading(self._log, self._folder) as (hub, runs):
            found = (await _find(hub, runs, asked, is_to_retry=True))[0]
        if not is_sure:
            return self._list_only(found, "retried")
        async with self._runtime() as runtime:

            async def retry_one(run_id: str) -> JsonObject:
                new = await runtime.runs.retry(run_id, user_id=user_id)
                outcome = await runtime.runs.wait(new)
                done: JsonObject = {"run_id": new, "result": f"retried as {new}: {outcome.status}"}
                return (
                    done if outcome.error is None else {**done, "error": msgspec.to_builtins(outcome.error)}
                )

            return await do_and_tell([one.row.channel_id for one in found], retry_one, as_json=self._as_json)

    async def show(self, run_id: str) -> None:
        async with _reading(self._log, self._folder) as (hub, runs):
            state = await _state(runs, run_id)
            assert runs is not None  # `_state` has seen the run.
            found, events = await runs.verdict_of(state), await _events(hub, run_id, 0)
            usage, used = await usage_of(hub, run_id)
        told, data = _summary(state, found), public(found.data)
        if self._as_json:
            told |= {"usage": usage, "data": data}
            print_json({**told, "events": [msgspec.to_builtins(one) for one in events]})
            return
        tables.show(_HEAD, [_row(told)])
        typer.echo(f"used: {used}")
        for event in events:
            _say(event)
        print_json(data)

    async def tail(self, run_id: str, since: int) -> None:
        async with _reading(self._log, self._folder, follow=True) as (hub, runs):
            await _state(runs, run_id)
            seq = since
            while True:
                reached = (await hub.state(run_id)).seq
                for event in await _events(hub, run_id, seq):
                    if self._as_json:
                        typer.echo(msgspec.json.encode(event).decode())
                    else:
                        _say(event)
                seq = max(seq, reached)
                if not await hub.wait_beyond(run_id, seq):
                    return

    async def why(self, run_id: str, seq: int | None) -> None:
        async with _reading(self._log, self._folder) as (hub, runs):
            await _state(runs, run_id)
            told = await hub.why(run_id, seq or await last_turn(hub, run_id))
        print_json(public(msgspec.to_builtins(told))) if self._as_json else tables.paragraph(str(told))

    async def fork(self, run_id: str, at: int) -> None:
        async with _reading(self._log, self._folder) as (hub, runs):
            await _state(runs, run_id)
            fork_id = await hub.fork(run_id, at=at)
        print_json({"run_id": fork_id, "forked_from": run_id, "at": at}) if self._as_json else typer.echo(
            fork_id
        )

    async def retry(self, run_id: str, step: str | None, user_id: str | None) -> int:
        """Return the exit code: 0, 1 for a run that failed, 3 for one that waits."""
        async with self._runtime() as runtime:
            new = await runtime.runs.retry(run_id, step=step, user_id=user_id)
            origin = {} if new == run_id else {"retry_of": run_id}
            return self._ended({"run_id": new, **origin}, await runtime.runs.wait(new))

    async def answer(self, run_id: str, task_id: str | None, pairs: list[str], by: str) -> int:
        """Return the exit code, as `retry` does."""
        object_of(pairs, option="-i")  # What is no pair is told before anything is opened.
        async with self._runtime() as runtime:
            task = person.choose_task(run_id, await runtime.tasks.of_run(run_id), task_id)
            given = object_of(pairs, option="-i", types=types_of(task.form))
            await runtime.tasks.answer(task.task_id, given, by=by)
            return self._ended({"run_id": run_id}, await runtime.runs.wait(run_id))

    async def list_tasks(self, group: str | None) -> None:
        async with _reading(self._log, self._folder) as (_, runs):
            found = [] if runs is None else await Tasks(runs.driver).list()
        found = [one for one in found if group in (None, one.group)]
        if self._as_json:
            print_json([msgspec.to_builtins(one) for one in found])
            return
        tables.show(_TASK_HEAD, [_task_row(one) for one in found])
        if not found:
            typer.echo("nothing waits for a person.", err=True)

    def _runtime(self) -> AbstractAsyncContextManager[Runtime]:
        project = load_project(self._folder)
        project.report.raise_if_bad()
        return open_runtime(project, log_address=self._log)

    def _list_only(self, found: list[ListedRun], verb: str) -> int:
        told = [_public(listed(one)) for one in found]
        print_json({"runs": told}) if self._as_json else tables.show(_HEAD, [_row(one) for one in told])
        typer.echo(f"nothing was {verb}; with --yes {count_of(len(found), 'run')} would be.", err=True)
        return 0

    def _ended(self, run: JsonObject, found: Verdict) -> int:
        told: JsonObject = {**run, "status": found.status, "data": public(found.data)}
        if found.error is not None:
            told["error"] = msgspec.to_builtins(found.error)
        print_json(told) if self._as_json else _tell(told)
        return {"succeeded": 0, "waiting": WAITS}.get(found.status, FAILED)

    async def export(self, run_id: str, output: Path | None) -> None:
        async with _reading(self._log, self._folder) as (_, runs):
            await _state(runs, run_id)
            assert runs is not None  # `_state` has seen the run.
            fixture = await export_run(runs, run_id)
        print_json(fixture, output)


@asynccontextmanager
async def _reading(
    log: str | None, folder: Path, *, follow: bool = False
) -> AsyncIterator[tuple[Hub, Runs | None]]:
    """The runs on a log, to look at: nobody works on them here. None, where there never was one."""
    async with looking_at(log, folder, follow=follow) as hub:
        driver = Driver(hub, Services())
        try:
            driver.agent_id = hub.participant(DRIVER).agent_id
        except UnknownParticipant:
            yield hub, None
        else:
            yield hub, Runs(driver)


async def _find(
    hub: Hub, runs: Runs | None, asked: Asked, *, is_to_retry: bool = False
) -> tuple[list[ListedRun], str | None]:
    """Return the runs that were asked for, and what the next page comes after."""
    if runs is None:
        return [], None
    where = await filter_for(hub, asked)
    read_runs = runs.page_to_retry if is_to_retry else runs.page

    async def read(after: str, limit: int) -> tuple[list[ListedRun], str | None]:
        page = await read_runs(where, status=asked.status or "", after=after, limit=limit)
        return page.runs, page.next

    return await gather_pages(asked, read)


async def _state(runs: Runs | None, run_id: str) -> WorkflowState:
    if runs is None:
        raise UnknownRun(run_id)
    return await runs.state(run_id)


async def _events(hub: Hub, run_id: str, after: int) -> list[RunEvent]:
    return [event for event in map(event_of, await hub.read_wal(run_id, after)) if event is not None]


def _summary(state: WorkflowState, found: Verdict) -> JsonObject:
    return _public(summary(state, found))


def _public(told: JsonObject) -> JsonObject:
    shown = public(msgspec.to_builtins(told))
    assert isinstance(shown, dict)
    return shown


def _task_row(task: Task) -> tuple[str, ...]:
    expires = "" if task.expires_at is None else moment(task.expires_at.isoformat())
    texts = (
        task.task_id,
        task.flow,
        task.step,
        task.group or "",
        person.summarise(task),
        expires,
    )
    return tuple(one_line(text, _CHARACTERS) for text in texts)


def _row(told: JsonObject) -> tuple[str, ...]:
    error = told.get("error")
    because = f"{error['type']}: {error['message']}" if error else ""
    times = (moment(told["started_at"]), moment(told["ended_at"]))
    texts = (told["run_id"], told["flow"], told["status"], told.get("step") or "", *times, because)
    return tuple(one_line(str(text), _CHARACTERS) for text in texts)


def _say(event: RunEvent) -> None:
    text = steps.told(event)
    if event.type == "ended":
        text = f"ended: {plain(event.reason)}"
    if text:
        typer.echo(f"{event.seq:>5} {event.at:%H:%M:%S} {text}")


def _tell(told: JsonObject) -> None:
    error = told.get("error")
    typer.echo(f"{told['run_id']} {told['status']}")
    if error:
        typer.echo(plain(f"{error['type']}: {error['message']}"), err=True)
    else:
        print_json(told["data"])
