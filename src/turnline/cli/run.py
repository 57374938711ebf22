"""`turnline run`: one run of a flow, without a server.

    save         default    id=..., domain="example.com"
    classify     default    lead_score=91
    succeeded
    {"id": "...", "score": 91}

On a log that is kept, `--run ID` goes on with a run that waited, or that was killed.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import typer
from msgspec.structs import replace as replace_part

from turnline.agent.files import File
from turnline.cli import given, person
from turnline.cli.nothing import PYTHON, no_flow
from turnline.cli.plain import open_private, plain
from turnline.cli.steps import StepPrinter
from turnline.core.envelope import JsonObject
from turnline.core.parts import FilePart
from turnline.core.state import STUCK
from turnline.errors import BadAnswer, UnknownName, UnknownRun
from turnline.flow.body import INVALID_INPUT, checked_body
from turnline.flow.definition.flow import Flow
from turnline.flow.project import Project, load_files, load_project
from turnline.flow.task import Task
from turnline.flow.testing.fixture import export_run
from turnline.flow.verdict import RunError, Verdict
from turnline.log.address import mask
from turnline.server.runtime import Runtime, open_runtime
from turnline.turns.files import describe

FAILED: Final = 1
WAITS: Final = 3
"""Exit code of a run that waits for somebody."""
INTERRUPTED: Final = 130
MEMORY: Final = "memory:"
_WHO: Final = "terminal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    file: Path
    pairs: Sequence[str] = ()
    input: Path | None = None
    flow: str | None = None
    log: str | None = None
    run_id: str | None = None
    answers: Sequence[str] = ()
    task_id: str | None = None
    record: Path | None = None
    as_json: bool = False

    @property
    def is_kept(self) -> bool:
        return self.log not in (None, MEMORY)

    @property
    def has_input(self) -> bool:
        return bool(self.pairs) or self.input is not None

    def again(self, run_id: str) -> str:
        """The command that goes on with the run."""
        flow = ["--flow", self.flow] if self.flow else []
        words = ["turnline", "run", str(self.file), *flow, "--log", mask(self.log or MEMORY), "--run", run_id]
        return shlex.join(words)

    def retry(self, run_id: str, folder: Path) -> str:
        """The command that retries the run."""
        words = ["turnline", "runs", "retry", run_id, "--log", mask(self.log or MEMORY), "--dir", str(folder)]
        return shlex.join(words)


def run(options: Options) -> None:
    """Run a flow to its end, or to where it waits; the exit code says which: 0, 1 or 3."""
    if options.file.suffix == PYTHON:
        raise typer.BadParameter(no_flow(options.file), param_hint="FILE")
    is_folder = options.file.is_dir()
    project = load_project(options.file) if is_folder else load_files([options.file])
    project.report.raise_if_bad()
    flow = _flow(project, options)
    body = _body(flow, options)
    given.object_of(options.answers, option="--answer")  # What is no pair is told before anything runs.
    if not options.is_kept:  # Nothing is to be kept, so no database is touched either.
        project = replace(project, settings=project.settings.model_copy(update={"database": None}))
    call = _Call(options, flow, body, project.root)
    # A person types while no loop runs, so that Ctrl-C means what it always does.
    with asyncio.Runner() as runner:
        try:
            code = call.play(runner, project)
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
            _note(f"stopped; go on with {options.again(call.run_id)}" if options.is_kept else "stopped.")
        finally:
            runner.run(call.close())
    if code:
        raise typer.Exit(code)


class _Call:
    """One call of the command."""

    def __init__(self, options: Options, flow: Flow, body: JsonObject, folder: Path) -> None:
        self.run_id = options.run_id or ""
        self._options = options
        self._flow = flow
        self._body = body
        self._files = _files_of(flow, body)
        self._folder = folder
        self._answers = options.answers
        self._open = AsyncExitStack()

    def play(self, runner: asyncio.Runner, project: Project) -> int:
        """Run, ask whoever is here, and tell; return the exit code."""
        runtime = runner.run(self._opened(project))
        wrong = runner.run(self._begin(runtime))
        if wrong is not None:
            return self._tell(Verdict(status="failed", data={}, error=wrong))
        verdict = runner.run(self._to_rest(runtime))
        while verdict.status == "waiting" and self._is_somebody_here:
            tasks = runner.run(self._tasks(runtime))
            if not tasks:
                break
            _ask(runner, runtime, tasks[0])
            verdict = runner.run(self._to_rest(runtime))
        if verdict.status == "waiting":
            return self._tell_waiting(verdict, runner.run(self._tasks(runtime)))
        if self._options.record is not None:
            fixture = msgspec.json.encode(runner.run(export_run(runtime.runs, self.run_id)))
            with open_private(self._options.record) as file:
                file.write(msgspec.json.format(fixture, indent=2) + b"\n")
        return self._tell(verdict)

    async def close(self) -> None:
        await self._open.aclose()

    async def _opened(self, project: Project) -> Runtime:
        opening = open_runtime(project, log_address=self._options.log or MEMORY)
        runtime = await self._open.enter_async_context(opening)
        self.run_id = self.run_id or runtime.hub.new_id()
        if not self._options.as_json:
            runtime.hub.add_listener(StepPrinter(self.run_id, _say))
        return runtime

    async def _begin(self, runtime: Runtime) -> RunError | None:
        """Start the run, unless it is there already; return why it cannot be."""
        if self._options.run_id is not None and not self._options.has_input:
            with suppress(UnknownRun):
                await runtime.runs.state(self.run_id)
                return None
        body, problems = checked_body(self._flow, {**self._body, **_described(self._files)})
        if problems:
            return RunError(type=INVALID_INPUT, message="; ".join(map(str, problems)))
        await runtime.runs.start(self._flow.name, {**body, **self._files}, run_id=self.run_id)
        return None

    async def _to_rest(self, runtime: Runtime) -> Verdict:
        """Wait until the run is over, or waits for what the command line does not answer."""
        verdict = await runtime.runs.wait(self.run_id)
        pairs, tasks = self._answers, await self._tasks(runtime)
        if not pairs or not tasks:
            return verdict
        self._answers = ()
        task = person.choose_task(self.run_id, tasks, self._options.task_id)
        answer = given.object_of(pairs, option="--answer", types=given.types_of(task.form))
        await runtime.tasks.answer(task.task_id, answer, by=_WHO)
        return await runtime.runs.wait(self.run_id)

    @property
    def _is_somebody_here(self) -> bool:
        return sys.stdin.isatty() and not self._options.as_json

    async def _tasks(self, runtime: Runtime) -> list[Task]:
        """The tasks of the run, and of the runs below it."""
        found = await runtime.tasks.list()
        return [task for task in found if await _root(runtime, task.run_id) == self.run_id]

    def _tell_waiting(self, verdict: Verdict, tasks: Sequence[Task]) -> int:
        if self._options.as_json:
            waiting = [msgspec.to_builtins(task) for task in tasks]
            _print({"run_id": self.run_id, "status": verdict.status, "data": verdict.data, "tasks": waiting})
            return WAITS
        for task in tasks:
            _say(f"run {self.run_id} waits for a person: {next(person.shown(task))}")
            for line in list(person.shown(task))[1:]:
                _say(line)
            if self._options.is_kept:
                which = f" --task {task.task_id}" if len(tasks) > 1 else ""
                _say(f"    answer with {self._options.again(self.run_id)}{which} {person.example(task)}")
        if not tasks:
            _say(f"run {self.run_id} waits for an event.")
        if not self._options.is_kept:
            _note("nothing of it is kept; give --log FILE.db, or answer at a terminal.")
        return WAITS

    def _tell(self, verdict: Verdict) -> int:
        error = verdict.error
        if self._options.as_json:
            told: JsonObject = {"run_id": self.run_id, "status": verdict.status, "data": verdict.data}
            _print(told if error is None else {**told, "error": msgspec.to_builtins(error)})
        elif error is None:
            _say(verdict.status)
            _print(verdict.data)
        else:
            at = f" at step {error.step}" if error.step else ""
            _note(f"{verdict.status}{at}: {error.type}: {plain(error.message)}")
            if verdict.status == STUCK:
                _note(f"    retry with {self._options.retry(self.run_id, self._folder)}")
        return 0 if error is None else FAILED


def _ask(runner: asyncio.Runner, runtime: Runtime, task: Task) -> None:
    """Ask at the terminal until the form takes the answer."""
    for line in person.shown(task):
        _say(line)
    while True:
        answer = person.ask(task)
        try:
            runner.run(runtime.tasks.answer(task.task_id, answer, by=_WHO))
        except BadAnswer as bad:
            _say("\n".join(f"  {problem}" for problem in bad.problems))
        else:
            return


async def _root(runtime: Runtime, run_id: str) -> str:
    """The run that a run is part of."""
    while True:
        parent = (await runtime.hub.state(run_id)).spec.parent_id
        if parent is None:
            return run_id
        run_id = parent


def _flow(project: Project, options: Options) -> Flow:
    names = project.chosen
    if options.flow is not None:
        if options.flow not in names:
            raise UnknownName("flow", options.flow, names)
        return project.definitions[options.flow]
    if len(names) != 1:
        several = f"{options.file} holds several flows: {', '.join(names)}; say which with --flow."
        raise typer.BadParameter(several if names else no_flow(options.file), param_hint="FILE")
    return project.definitions[names[0]]


def _body(flow: Flow, options: Options) -> JsonObject:
    trigger = flow.spec.trigger
    fields = {} if trigger is None or trigger.input is None else trigger.input
    body = {} if options.input is None else given.object_in(options.input, option="--input")
    types = {name: field.type for name, field in fields.items()}
    return {**body, **given.object_of(options.pairs, option="-i", types=types)}


def _files_of(flow: Flow, body: JsonObject) -> dict[str, File | list[File]]:
    """Return the files whose paths the input names; for a list of files, one path or a list."""
    found = dict[str, File | list[File]]()
    for name, spec in ({} if flow.spec.trigger is None else flow.spec.trigger.files).items():
        paths = body.get(name)
        if spec.type == "array":
            several = [one for one in (paths if isinstance(paths, list) else [paths]) if isinstance(one, str)]
            if several and several in (paths, [paths]):  # All of them are paths.
                found[name] = [_file(one, name) for one in several]
        elif isinstance(paths, str):
            found[name] = _file(paths, name)
    return found


def _file(path: str, name: str) -> File:
    try:
        with Path(path).open("rb"):
            return File(Path(path))
    except OSError as error:
        message = f"{path!r} cannot be read for {name!r}: {error.strerror}"
        raise typer.BadParameter(message, param_hint="-i") from None


def _described(files: Mapping[str, File | list[File]]) -> dict[str, FilePart | list[FilePart]]:
    """Return what is known of files before they are read: the check takes it."""
    return {
        name: [_part(each) for each in one] if isinstance(one, list) else _part(one)
        for name, one in files.items()
    }


def _part(file: File) -> FilePart:
    assert not isinstance(file.data, bytes)  # `_file` made it of a path.
    return replace_part(describe(file), size=Path(file.data).stat().st_size)


def _say(text: str) -> None:
    typer.echo(text)


def _note(text: str) -> None:
    typer.echo(text, err=True)


def _print(data: JsonObject) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
