"""An imported run gets no secrets, also where the project has its definition. The project's own runs do.

The attacker has exports of the log and writes files as they like (`tests.log.forging`). The flow sends a
secret to an address in its data: the attacker wants it to be theirs.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from tests.cli.projects import Called, call, turnline
from tests.flow.http_server import Answer, HttpServer
from tests.log.forging import Forgery
from tests.postgres import Postgres
from tests.server.test_projects import ended, project
from tests.server.test_serve import WITHIN_SECONDS, Served, serving
from turnline.core.channel import child_id
from turnline.flow.project import load_project
from turnline.flow.steps.workflow import PLACE
from turnline.flow.trust import KEY_FILE
from turnline.flow.verdict import Verdict
from turnline.log.origin import LOG_NAMES, list_of
from turnline.server.runtime import Runtime, runtime_of
from turnline.testing.lines import line

SECRET: Final = "canary-4711"
CALL: Final = """
      - id: call
        kind: api_call
        api_call: {url: "{{ URL }}", headers: {Authorization: "Bearer {{ secret.API }}"}, allow_private: true}
"""
ASK: Final = "{id: ask, human: {title: ok?, form: {ok: boolean}}}"
MAIN: Final = f"""
    steps:
      - {ASK}{CALL.replace("URL", "url")}
"""
FIND: Final = f"""
    steps:
      - {ASK}
      - {{id: say, kind: response, response: {{mapping: {{url: "{{{{ url }}}}"}}}}}}
"""
PARENT: Final = f"""
    steps:
      - {ASK}
      - {{id: find, workflow: {{name: find, into: found}}}}{CALL.replace("URL", "found.url")}
"""
SUB: Final = "{id: sub, workflow: {name: main}}"
HELLO: Final = (
    "{trigger: {path: /hello}, steps: [{id: hi, kind: response, response: {mapping: {hi: there}}}]}"
)
LATER: Final = "steps: [{id: other, kind: response, response: {mapping: {done: 'true'}}}]"


@pytest.fixture
def good() -> Iterator[HttpServer]:
    with HttpServer({"/": Answer(json={})}) as server:
        yield server


@pytest.fixture
def evil() -> Iterator[HttpServer]:
    with HttpServer({"/": Answer(json={})}) as server:
        yield server


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API", SECRET)


class Scene:
    """Two projects with the same flows: `ours`, and `theirs`, whose log is imported into ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("ours", "theirs"):
            project(
                folder / name,
                workflows__hello=HELLO,
                workflows__main=MAIN,
                workflows__find=FIND,
                workflows__parent=PARENT,
                workflows__nested=f"steps: [{SUB}]",
                workflows__then_nested=f"steps: [{ASK}, {SUB}]",
            )

    def opened(self, name: str = "ours", *, log: str = "") -> Runtime:
        return runtime_of(load_project(self.folder / name), log_address=log or self.log(name))

    def log(self, name: str = "ours") -> str:
        return str(self.folder / f"{name}.db")

    async def waiting(self, url: str, *, name: str = "ours", flow: str = "main") -> str:
        """Start a run and leave it waiting for a person."""
        async with self.opened(name) as runtime:
            run_id = await runtime.runs.start(flow, {"url": url + "/"})
            await runtime.runs.wait(run_id)
        return run_id

    async def exported(self, name: str = "ours") -> Forgery:
        file = self.folder / "export.jsonl"
        told = await asyncio.to_thread(call, "log", "export", self.log(name), "-o", str(file))
        assert told.code == 0
        return Forgery(file.read_bytes())

    async def forged(self, url: str, *, flow: str = "main", name: str = "forged", log: str = "") -> Forgery:
        """Return a file with one run of ours that waits, under another name, with data of the attacker.

        It says that it was opened on the log of this name.
        """
        run_id = await self.waiting("http://127.0.0.1:9", flow=flow)
        forgery = await self.exported()
        forgery.channels = {run_id: forgery.channels[run_id]}
        forgery.rename(run_id, name)
        forgery.change_context(name, url=url + "/")
        forgery.change_first(name, log=log)
        return forgery

    async def continued(self, run_id: str, url: str, *, name: str = "ours") -> Forgery:
        """Return a file in which a run goes on, and its first step has written another address."""
        shutil.copy(self.log(name), self.log("copy"))
        async with self.opened("theirs", log=self.log("copy")) as runtime:
            await answered(runtime, run_id)
        forgery = await self.exported("copy")
        lines = forgery.channels[run_id]
        [at] = [n for n, one in enumerate(lines) if "ok" in one.event_data.get("context_updates", {})]
        written = {**lines[at].event_data["context_updates"], "url": url + "/"}
        packet = replace(lines[at], event_data={**lines[at].event_data, "context_updates": written})
        forgery.channels = {**forgery.channels, run_id: [*lines[:at], packet]}
        return forgery

    async def log_name(self) -> str:
        """Return the name of our log, as every export shows it."""
        runs = (await self.exported()).channels.values()
        [name] = {run[0].event_data["log"] for run in runs if run[0].event_data.get("log")}
        return str(name)

    async def imported(self, forgery: Forgery, *, trust: bool = False, into: str = "") -> Called:
        file = self.folder / "import.jsonl"
        file.write_bytes(forgery.content())
        words = ["--trust", "--dir", str(self.folder / "ours")] if trust else []
        return await asyncio.to_thread(call, "log", "import", str(file), into or self.log(), *words)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def answer(runtime: Runtime, run_id: str) -> None:
    [task] = [one for one in await runtime.tasks.list() if one.run_id == run_id]
    await runtime.tasks.answer(task.task_id, {"ok": True}, by="ann")


async def answered(runtime: Runtime, run_id: str, *, below: str = "") -> Verdict:
    """Answer the person's question of a run, or of one below it, and return how the run ended."""
    await answer(runtime, below or run_id)
    return await ended(runtime, run_id)


def sent(server: HttpServer) -> list[str]:
    return [one.headers["authorization"] for one in server.received]


def is_refused(verdict: Verdict) -> bool:
    return verdict.error is not None and "The secret 'API' is refused." in verdict.error.message


# What gets no secrets.


async def test_an_imported_run_gets_no_secrets_although_the_project_has_its_definition(
    scene: Scene, evil: HttpServer
) -> None:
    run_id = await scene.waiting(evil.url, name="theirs")
    told = await scene.imported(await scene.exported("theirs"))
    async with scene.opened() as runtime:
        verdict = await answered(runtime, run_id)

    assert (told.code, sent(evil)) == (0, [])
    assert is_refused(verdict)
    assert verdict.error is not None
    assert run_id in verdict.error.message
    assert "import it again with --trust" in verdict.error.message
    assert SECRET not in verdict.error.message


async def test_a_run_that_an_import_adds_to_our_log_gets_no_secrets(scene: Scene, evil: HttpServer) -> None:
    told = await scene.imported(await scene.forged(evil.url))
    async with scene.opened() as runtime:
        verdict = await answered(runtime, "forged")

    assert (told.code, is_refused(verdict), sent(evil)) == (0, True, [])


async def test_an_export_of_the_same_project_gets_no_secrets_on_another_log(
    scene: Scene, evil: HttpServer
) -> None:
    run_id = await scene.waiting("http://127.0.0.1:9")
    forgery = await scene.exported()
    forgery.change_context(run_id, url=evil.url + "/")
    log = scene.log("restored")
    await scene.imported(forgery, into=log)
    async with scene.opened(log=log) as runtime:
        verdict = await answered(runtime, run_id)

    assert (is_refused(verdict), sent(evil)) == (True, [])


async def test_a_log_of_other_people_gets_no_secrets_as_a_database_file(
    scene: Scene, evil: HttpServer
) -> None:
    """Nothing is imported: their file is opened by our server."""
    run_id = await scene.waiting(evil.url, name="theirs")
    async with scene.opened(log=scene.log("theirs")) as runtime:
        verdict = await answered(runtime, run_id)

    assert (is_refused(verdict), sent(evil)) == (True, [])


async def test_runs_below_an_imported_run_get_no_secrets(scene: Scene, evil: HttpServer) -> None:
    """One child is imported, another one is opened by our server."""
    imported = await scene.waiting(evil.url, name="theirs", flow="nested")
    opening = await scene.waiting(evil.url, name="theirs", flow="then_nested")
    await scene.imported(await scene.exported("theirs"))
    async with scene.opened() as runtime:
        first = await answered(runtime, imported, below=child_id(imported, 1, PLACE))
        await answer(runtime, opening)
        await runtime.runs.wait(opening)
        second = await answered(runtime, opening, below=child_id(opening, 2, PLACE))

    assert (is_refused(first), is_refused(second), sent(evil)) == (True, True, [])


async def test_a_retry_of_an_imported_run_gets_no_secrets(scene: Scene, evil: HttpServer) -> None:
    run_id = await scene.waiting(evil.url, name="theirs")
    await scene.imported(await scene.exported("theirs"))
    async with scene.opened() as runtime:
        await answered(runtime, run_id)
        again = await runtime.runs.retry(run_id)
        verdict = await ended(runtime, again)
        twice = await ended(runtime, await runtime.runs.retry(again))

    assert (is_refused(verdict), is_refused(twice), sent(evil)) == (True, True, [])


async def test_a_fork_of_an_imported_run_gets_no_secrets(scene: Scene, evil: HttpServer) -> None:
    run_id = await scene.waiting(evil.url, name="theirs")
    await scene.imported(await scene.exported("theirs"))
    async with scene.opened() as runtime:
        fork_id = await runtime.hub.fork(run_id, at=(await runtime.hub.state(run_id)).seq)
        await runtime.runs.wait(fork_id)
        verdict = await answered(runtime, fork_id)

    assert (is_refused(verdict), sent(evil)) == (True, [])


async def test_the_headers_of_an_mcp_server_get_no_secrets_from_an_imported_run(
    scene: Scene, evil: HttpServer
) -> None:
    """The address is in turnline.yaml of both projects; our server asks it nothing for the run."""
    headers = "{Authorization: 'Bearer {{ secret.API }}', X-To: '{{ url }}'}"
    for name in ("ours", "theirs"):
        (scene.folder / name / "turnline.yaml").write_text(
            f"{{name: it, mcp_servers: {{desk: {{url: {evil.url}/mcp, headers: {headers}}}}}}}"
        )
        step = "{id: tell, kind: mcp, mcp: {server: desk, tool: tell}}"
        project(scene.folder / name, workflows__mcp=f"steps: [{ASK}, {step}]")
    run_id = await scene.waiting(evil.url, name="theirs", flow="mcp")
    await scene.imported(await scene.exported("theirs"))
    async with scene.opened() as runtime:
        verdict = await answered(runtime, run_id)

    assert (is_refused(verdict), evil.received) == (True, [])


# What a file claims.


async def test_an_import_takes_no_run_that_claims_to_be_of_this_log(scene: Scene, evil: HttpServer) -> None:
    await scene.waiting("http://127.0.0.1:9")
    name = await scene.log_name()
    claims = await scene.forged(evil.url, log=name)
    as_fork = await scene.forged(evil.url, name="forged-2")
    as_fork.change_first("forged-2", forked_from={"channel": "forged", "seq": 1, "log": name})
    told = [await scene.imported(one) for one in (claims, as_fork)]
    async with scene.opened() as runtime:
        known = {one.run_id for one in await runtime.tasks.list()}

    assert [one.code for one in told] == [1, 1]
    assert all("belongs to this log" in one.err for one in told)
    assert not {"forged", "forged-2"} & known


async def test_an_import_does_not_continue_a_run_of_this_log(
    scene: Scene, good: HttpServer, evil: HttpServer
) -> None:
    run_id = await scene.waiting(good.url)
    told = await scene.imported(await scene.continued(run_id, evil.url))
    async with scene.opened() as runtime:
        verdict = await answered(runtime, run_id)

    assert told.code == 1
    assert run_id in told.err
    assert (verdict.status, sent(good), sent(evil)) == ("succeeded", [f"Bearer {SECRET}"], [])


async def test_an_imported_fork_of_a_run_of_this_log_gets_no_secrets(
    scene: Scene, good: HttpServer, evil: HttpServer
) -> None:
    """The fork has the past of our run, and then lines of the attacker."""
    run_id = await scene.waiting(good.url)
    name = await scene.log_name()
    async with scene.opened() as runtime:
        at = (await runtime.hub.state(run_id)).seq
        fork_id = await runtime.hub.fork(run_id, at=at)
        await runtime.runs.wait(fork_id)
    forgery = await scene.exported()
    forgery.channels = {
        "evil-fork": [replace(one, channel_id="evil-fork") for one in forgery.channels[fork_id]]
    }
    origin = {"channel": run_id, "seq": at}
    forgery.change_first("evil-fork", forked_from={**origin, "log": name})
    refused = await scene.imported(forgery)
    forgery.change_first("evil-fork", forked_from=origin)
    taken = await scene.imported(forgery)
    async with scene.opened() as runtime:
        verdict = await answered(runtime, "evil-fork")

    assert (refused.code, taken.code) == (1, 0)
    assert (is_refused(verdict), sent(good)) == (True, [])


async def test_marks_in_a_file_are_not_taken(scene: Scene, evil: HttpServer) -> None:
    forgery = await scene.forged(evil.url, log="attacker")
    lists = list_of("forged")
    forgery.channels[LOG_NAMES] = [line(LOG_NAMES, 1, data={"log": "attacker"})]
    forgery.channels[lists] = [line(lists, 1, data={"channels": ["forged"]})]
    await scene.imported(forgery)
    async with scene.opened() as runtime:
        verdict = await answered(runtime, "forged")

    assert (is_refused(verdict), sent(evil)) == (True, [])


async def test_an_imported_child_does_not_answer_a_run_of_this_log(scene: Scene, evil: HttpServer) -> None:
    """The attacker knows the id that a child of our run will have, and brings it beforehand."""
    run_id = await scene.waiting("http://127.0.0.1:9", flow="parent")
    child = child_id(run_id, 2, PLACE)
    forgery = await scene.forged(evil.url, flow="find", name=child)
    forgery.change_first(child, parent_id=run_id, depth=1)
    told = await scene.imported(forgery)
    async with scene.opened() as runtime:
        await answer(runtime, child)
        await ended(runtime, child)
        verdict = await answered(runtime, run_id)

    assert (told.code, sent(evil)) == (0, [])
    assert verdict.error is not None
    assert verdict.error.step == "find"
    assert "came with an import" in verdict.error.message


async def test_a_run_id_that_an_import_brought_beforehand_gets_no_secrets(
    scene: Scene, evil: HttpServer
) -> None:
    forgery = await scene.forged(evil.url, name="order-7")
    await scene.imported(forgery)
    async with scene.opened() as runtime:
        run_id = await runtime.runs.start("main", {"url": "http://127.0.0.1:9/"}, run_id="order-7")
        verdict = await answered(runtime, run_id)

    assert (run_id, is_refused(verdict), sent(evil)) == ("order-7", True, [])


# `--trust`.


async def test_an_import_with_trust_gives_runs_their_secrets_with_children_forks_and_retries(
    scene: Scene, good: HttpServer
) -> None:
    run_id = await scene.waiting(good.url, name="theirs")
    nested = await scene.waiting(good.url, name="theirs", flow="nested")
    forgery = await scene.exported("theirs")
    await scene.imported(forgery)
    told = await scene.imported(forgery, trust=True)
    async with scene.opened() as runtime:
        fork_id = await runtime.hub.fork(run_id, at=(await runtime.hub.state(run_id)).seq)
        await runtime.runs.wait(fork_id)
        verdicts = [
            await answered(runtime, run_id),
            await answered(runtime, fork_id),
            await answered(runtime, nested, below=child_id(nested, 1, PLACE)),
            await ended(runtime, await runtime.runs.retry(run_id)),
        ]

    assert "trusted: 3 channels of runs" in told.err
    assert [one.status for one in verdicts] == ["succeeded"] * 4
    assert sent(good) == [f"Bearer {SECRET}"] * 4


async def test_a_file_that_is_not_trusted_does_not_continue_a_run_that_is(
    scene: Scene, good: HttpServer, evil: HttpServer
) -> None:
    run_id = await scene.waiting(good.url, name="theirs")
    forgery = await scene.exported("theirs")
    await scene.imported(forgery, trust=True)
    told = await scene.imported(await scene.continued(run_id, evil.url, name="theirs"))
    async with scene.opened() as runtime:
        verdict = await answered(runtime, run_id)

    assert (told.code, verdict.status, sent(evil)) == (1, "succeeded", [])


async def test_trust_does_not_cover_lines_that_are_not_in_the_file(
    scene: Scene, good: HttpServer, evil: HttpServer
) -> None:
    """Another file brought a longer version of the run before."""
    run_id = await scene.waiting(good.url, name="theirs")
    genuine = await scene.exported("theirs")
    await scene.imported(await scene.continued(run_id, evil.url, name="theirs"))
    told = await scene.imported(genuine, trust=True)
    async with scene.opened() as runtime:
        verdict = await ended(runtime, run_id)

    assert f"not trusted: {run_id!r} has lines on this log that are not in the file" in told.err
    assert (is_refused(verdict), sent(evil)) == (True, [])


async def test_a_run_that_failed_for_its_secret_is_retried_after_its_log_is_trusted(
    scene: Scene, good: HttpServer
) -> None:
    run_id = await scene.waiting(good.url, name="theirs")
    await scene.imported(await scene.exported("theirs"))
    async with scene.opened() as runtime:
        refused = await answered(runtime, run_id)
        retried = await runtime.runs.retry(run_id)
        await ended(runtime, retried)
    again = await scene.imported(await scene.exported("theirs"), trust=True)
    whole = await scene.imported(await scene.exported(), trust=True)  # As the first one says.
    async with scene.opened() as runtime:
        verdicts = [await ended(runtime, await runtime.runs.retry(one)) for one in (run_id, retried)]

    assert is_refused(refused)
    assert "export this log, and import that file with --trust" in again.err
    assert "not trusted" not in whole.err
    assert [one.status for one in verdicts] == ["succeeded", "succeeded"]
    assert sent(good) == [f"Bearer {SECRET}"] * 2


async def test_a_log_moves_to_another_backend_with_its_secrets(
    scene: Scene, good: HttpServer, postgres: Postgres
) -> None:
    run_id = await scene.waiting(good.url)
    address = postgres.fresh()
    await scene.imported(await scene.exported(), trust=True, into=address)
    async with scene.opened(log=address) as runtime:
        verdict = await answered(runtime, run_id)

    assert (verdict.status, sent(good)) == ("succeeded", [f"Bearer {SECRET}"])


# Real servers and commands.


async def start_over_http(served: Served, url: str) -> str:
    """Start a run, and wait until it asks its question."""
    async with served.client(Authorization=f"Bearer {served.key}") as client:
        started = await client.post("/flows/main/runs", json={"input": {"url": url + "/"}})
        async with asyncio.timeout(WITHIN_SECONDS):
            while not (await client.get("/tasks")).json()["data"]["tasks"]:
                pass
    return started.headers["x-run-id"]


async def answer_over_http(served: Served, run_id: str) -> None:
    """Answer the question of a run, and wait for its end."""
    async with served.client(Authorization=f"Bearer {served.key}") as client:
        tasks = (await client.get("/tasks")).json()["data"]["tasks"]
        [task] = [one["task_id"] for one in tasks if one["run_id"] == run_id]
        told = await client.post(f"/tasks/{task}/answer", json={"answer": {"ok": True}})
        assert told.status_code == 200
        async with client.stream("GET", f"/runs/{run_id}/events") as events:
            async for text in events.aiter_lines():
                if '"ended"' in text:
                    return


async def command(*words: str) -> Called:
    return await asyncio.to_thread(turnline, *words, cwd=Path.cwd())


@pytest.mark.parametrize("trust", [False, True])
async def test_servers_and_commands_keep_secrets_from_an_imported_run_until_it_is_trusted(
    scene: Scene, good: HttpServer, trust: bool
) -> None:
    theirs, ours, file = (scene.folder / name for name in ("theirs", "ours", "moved.jsonl"))
    environ = {"API": SECRET}
    async with serving(theirs, "--dev", environ=environ) as served:
        run_id = await start_over_http(served, good.url)
        served.process.send_signal(signal.SIGTERM)
        await served.ended()
    export = await command("log", "export", str(theirs / ".turnline/log.db"), "-o", str(file))
    words = ["--trust", "--dir", str(ours)] if trust else []
    moved = await command("log", "import", str(file), str(ours / ".turnline/log.db"), *words)
    async with serving(ours, "--dev", environ=environ) as served:
        await answer_over_http(served, run_id)

    assert (export.code, moved.code) == (0, 0)
    assert sent(good) == ([f"Bearer {SECRET}"] if trust else [])


async def test_a_server_that_was_killed_leaves_its_runs_their_secrets(scene: Scene, good: HttpServer) -> None:
    """Another process of the project answers, after a deploy."""
    ours, environ = scene.folder / "ours", {"API": SECRET}
    async with serving(ours, "--dev", environ=environ) as served:
        run_id = await start_over_http(served, good.url)
        served.process.kill()
        await served.process.wait()
    project(ours, workflows__main=LATER)
    async with serving(ours, "--dev", environ=environ) as served:
        await answer_over_http(served, run_id)

    assert sent(good) == [f"Bearer {SECRET}"]


async def test_an_imported_circle_of_runs_does_not_stop_the_server(scene: Scene, good: HttpServer) -> None:
    """Each of two runs says that the other one is its parent."""
    run_id = await scene.waiting(good.url)
    forgery = await scene.forged(good.url, name="one")
    forgery.channels["two"] = forgery.channels["one"]
    forgery.rename("two", "two")
    forgery.change_first("one", parent_id="two", depth=1)
    forgery.change_first("two", parent_id="one", depth=1)
    told = await scene.imported(forgery)
    ours = scene.folder / "ours"
    async with serving(ours, "--dev", "--log", scene.log(), environ={"API": SECRET}) as served:
        await answer_over_http(served, run_id)

    assert (told.code, sent(good)) == (0, [f"Bearer {SECRET}"])


# The project's own runs.


async def test_a_run_of_this_project_keeps_its_secrets_in_a_copy_of_the_database_file(
    scene: Scene, good: HttpServer
) -> None:
    run_id = await scene.waiting(good.url)
    copy = scene.log("copy")
    shutil.copy(scene.log(), copy)
    project(scene.folder / "ours", workflows__main=LATER)
    async with scene.opened(log=copy) as runtime:
        verdict = await answered(runtime, run_id)

    assert (verdict.status, sent(good)) == ("succeeded", [f"Bearer {SECRET}"])


async def test_forks_retries_and_runs_below_keep_the_secrets_of_a_run_of_this_project(
    scene: Scene, good: HttpServer
) -> None:
    run_id = await scene.waiting(good.url)
    nested = await scene.waiting(good.url, flow="then_nested")
    seq = str((await scene.exported()).channels[run_id][-1].seq)
    forked = await asyncio.to_thread(
        call, "runs", "fork", run_id, "--at", seq, "--log", scene.log(), "--dir", str(scene.folder / "ours")
    )
    fork_id = forked.out.strip()
    async with scene.opened() as runtime:
        await runtime.runs.wait(fork_id)
        fork_of_fork = await runtime.hub.fork(fork_id, at=(await runtime.hub.state(fork_id)).seq)
        await runtime.runs.wait(fork_of_fork)
        verdicts = [await answered(runtime, one) for one in (run_id, fork_id, fork_of_fork)]
        verdicts.append(await ended(runtime, await runtime.runs.retry(run_id)))
        await answer(runtime, nested)
        await runtime.runs.wait(nested)
        verdicts.append(await answered(runtime, nested, below=child_id(nested, 2, PLACE)))

    assert [one.status for one in verdicts] == ["succeeded"] * 5
    assert sent(good) == [f"Bearer {SECRET}"] * 5


async def test_importing_an_export_of_this_log_again_changes_nothing(scene: Scene, good: HttpServer) -> None:
    run_id = await scene.waiting(good.url)
    told = await scene.imported(await scene.exported())
    async with scene.opened() as runtime:
        verdict = await answered(runtime, run_id)

    assert (told.code, told.err) == (0, "")
    assert (verdict.status, sent(good)) == ("succeeded", [f"Bearer {SECRET}"])


async def test_without_the_key_that_marked_its_name_the_log_counts_as_one_of_other_people(
    scene: Scene, good: HttpServer
) -> None:
    """The operator exports the log and imports it again with trust."""
    run_id, other = await scene.waiting(good.url), await scene.waiting(good.url)
    (scene.folder / "ours" / KEY_FILE).unlink()
    async with scene.opened() as runtime:
        refused = await answered(runtime, run_id)
    await scene.imported(await scene.exported(), trust=True)
    async with scene.opened() as runtime:
        verdict = await answered(runtime, other)

    assert is_refused(refused)
    assert (verdict.status, sent(good)) == ("succeeded", [f"Bearer {SECRET}"])
