"""`turnline serve`: a project's flows over HTTP.

What is needed to serve is installed on request, so it is imported when the verb is called.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple
from urllib.parse import quote, urlencode

import typer

from turnline import tracing
from turnline.cli.options import read_age
from turnline.errors import BadKey, LogUnavailable, MissingExtra, TurnlineError

if TYPE_CHECKING:
    import socket

    from starlette.applications import Starlette

    from turnline.flow.definition.flow import Flow
    from turnline.flow.project import Project
    from turnline.server.access import OpenAuthenticator
    from turnline.server.live import Fingerprint, LiveApp
    from turnline.server.retention import Retain
    from turnline.server.runtime import Runtime
    from turnline.server.settings import ServerSettings

EPILOG: Final = (
    "Example: turnline serve examples/leads --dev\n\n"
    "Several processes: turnline serve --log postgresql://db/turnline --workers 4"
)

Directory = Annotated[Path, typer.Argument(metavar="[DIR]", help="The project's folder.")]
Host = Annotated[str, typer.Option(help="The address to listen on.")]
Port = Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.", min=0, max=65535)]
LogAddress = Annotated[
    str | None,
    typer.Option(
        "--log",
        help="The log: sqlite:///path, postgresql://host/name, nats://host/name or memory:. Without it, what "
        "turnline.yaml says, or DIR/.turnline/log.db.",
    ),
]
WorkerCount = Annotated[
    int, typer.Option("--workers", help="Processes that serve, on one port and one log.", min=1, max=256)
]
Grace = Annotated[
    float,
    typer.Option(
        help="Seconds that requests, and then steps and turns, may take to end after SIGTERM. What is left "
        "is released, and goes on in another process.",
        min=0,
    ),
]
RetainFor = Annotated[
    str,
    typer.Option(
        "--retain",
        metavar="AGE",
        help="Prune runs and channels that closed longer ago, such as 90d. Their ids stay taken.",
    ),
]
RetainArchive = Annotated[
    Path | None,
    typer.Option(
        "--retain-archive", metavar="FOLDER", help="With --retain: export them into this folder first."
    ),
]
SocketNumber = Annotated[int | None, typer.Option("--socket", hidden=True, help="Of a worker.")]
Dev = Annotated[
    bool,
    typer.Option(
        "--dev",
        help="Make a development key, print it, serve this machine only, and reload files that change.",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="A name this server is also known by, behind a proxy."),
]
TrustedProxy = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        metavar="ADDRESS",
        help="An address or network (10.0.0.0/8) of a proxy. Its X-Forwarded-For header says who is asking.",
    ),
]
AccessLog = Annotated[
    bool, typer.Option("--access-log", help="Print a line for every request: who, what, the status.")
]
NoReload = Annotated[
    bool, typer.Option("--no-reload", help="With --dev: keep serving the files as they were at the start.")
]


def serve(
    directory: Directory = Path(),
    *,
    host: Host = "127.0.0.1",
    port: Port = 8484,
    log: LogAddress = None,
    dev: Dev = False,
    no_reload: NoReload = False,
    allow_host: AllowHost = None,
    trusted_proxy: TrustedProxy = None,
    access_log: AccessLog = False,
    workers: WorkerCount = 1,
    grace: Grace = 10.0,
    retain: RetainFor = "",
    retain_archive: RetainArchive = None,
    socket_number: SocketNumber = None,
) -> None:
    """Serve a project's flows, channels and studio over HTTP. Until SIGTERM or Ctrl-C."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise MissingExtra("servers", extra="server")
    import asyncio

    from turnline.errors.flows import BadDocuments
    from turnline.flow.project import load_project
    from turnline.server.connections import trusted_proxies
    from turnline.server.live import fingerprint
    from turnline.server.origin import known_names
    from turnline.server.runtime import runtime_of
    from turnline.server.serving import run_loop

    retained = _check_retain(retain, retain_archive)
    files = fingerprint(directory.resolve())
    project = load_project(directory)
    try:
        runtime_of(project, log_address=log)
    except BadDocuments as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    project.check_database(log, is_dev=dev)
    if project.report and socket_number is None:
        typer.echo(str(project.report), err=True)
    if dev and socket_number is None:
        _check_tokens(project.root, os.environ)
    if workers > 1:
        words = [*(["--log", log] if log else []), *(["--dev"] if dev else [])]
        words += [*(["--no-reload"] if no_reload else []), *(["--access-log"] if access_log else [])]
        words += [word for name in allow_host or [] for word in ("--allow-host", name)]
        words += [word for one in trusted_proxy or [] for word in ("--trusted-proxy", one)]
        words += ["--retain", retain] if retain else []
        words += ["--retain-archive", str(retain_archive)] if retain_archive else []
        command = [sys.executable, "-m", "turnline", "serve", str(directory), "--host", host]
        command += ["--grace", str(grace), *words, "--socket"]
        address = log or project.log_address
        raise typer.Exit(asyncio.run(_supervise(command, workers, address, host=host, port=port, dev=dev)))
    names = known_names(host, allow_host or [])
    place = _Place(host, port, socket_number, names, trusted_proxies(trusted_proxy or []))
    provider = tracing.export(os.environ)
    if access_log:
        _print_requests()
    site = _Site(directory, project, place, files=files, log=log, grace=grace, retain=retained)
    try:
        run_loop(site.serve(dev=dev, is_live=dev and not no_reload, access_log=access_log))
    finally:
        if provider is not None:
            provider.shutdown()


def _check_retain(age: str, archive: Path | None) -> tuple[timedelta, Path | None] | None:
    """Return what is pruned, and the folder that gets it first. Raises `BadParameter`."""
    if archive is not None and not (age and archive.is_dir()):
        found = f"{archive} is not a folder" if age else "there is no --retain"
        raise typer.BadParameter(
            f"{found}; expected --retain AGE and a folder", param_hint="--retain-archive"
        )
    return (read_age(age, "--retain"), archive) if age else None


class _Place(NamedTuple):
    """Where to listen."""

    host: str
    port: int
    number: int | None
    """Of the parent's socket, in a worker."""
    names: tuple[str, ...] | None
    """The names that requests may be for."""
    trusted_proxies: tuple[str, ...]

    @property
    def is_worker(self) -> bool:
        return self.number is not None

    def listen(self) -> socket.socket:
        import socket

        from turnline.server.serving import bind

        return bind(self.host, self.port) if self.number is None else socket.socket(fileno=self.number)


async def _supervise(
    command: list[str], count: int, log_address: str, *, host: str, port: int, dev: bool
) -> int:
    """Run several workers until a signal. They share the development key, if there is one."""
    from turnline.server.auth.api_keys import new_api_key
    from turnline.server.serving import bind
    from turnline.server.workers import Workers, check_shared

    check_shared(log_address)
    secret = new_api_key() if dev else ""
    with bind(host, port) as listening:
        code = await Workers(command, count, listening, secret=secret, tell=typer.echo).run()
    typer.echo("stopped.")
    return code


class _Site:
    """A project as it is served, and again when its files have changed."""

    def __init__(
        self,
        directory: Path,
        project: Project,
        place: _Place,
        *,
        files: Fingerprint,
        log: str | None,
        grace: float,
        retain: tuple[timedelta, Path | None] | None = None,
    ) -> None:
        from turnline.log.memory import MemoryLog

        self._directory = directory
        self._files = files
        self._project = project
        self._place = place
        self._log_address = log or project.log_address
        self._grace = grace
        self._retain = retain

        self._memory = MemoryLog()
        """The log of a project that has none on a disk: it stays when the project is reloaded."""

    async def serve(self, *, dev: bool, is_live: bool, access_log: bool) -> None:
        """Serve until a signal. A key that cannot be used raises before anything is opened."""
        import asyncio

        from turnline.server.auth.api_keys import new_api_key
        from turnline.server.live import LiveApp, watch
        from turnline.server.serving import DrainingServer, settle_memory
        from turnline.server.workers import secret_of_parent, tell_ready

        place, root = self._place, self._project.root
        secret = secret_of_parent() if place.is_worker else ""
        key = (secret or new_api_key()) if dev else None
        self._opened = _authenticator(root, os.environ, host=place.host, key=key)
        async with AsyncExitStack() as stack:
            listening = stack.enter_context(place.listen())
            live = await stack.enter_async_context(LiveApp(drain_seconds=self._grace))
            runtime, app, settings = self._made(self._project)
            await live.switch(runtime, app)
            typer.echo("\n".join(_told(runtime, _address(place.host, listening), key)))
            settle_memory()
            server = DrainingServer(live, live, settings, access_log=access_log)
            if place.is_worker:
                server.tell_started = tell_ready
            if is_live:
                watching = asyncio.ensure_future(watch(root, self._files, partial(self._reload, live)))
                stack.callback(watching.cancel)
            await server.serve([listening])
        if not place.is_worker:
            typer.echo("stopped.")

    async def _reload(self, live: LiveApp) -> None:
        """Serve the files as they are now; what is wrong with them is told, and the state before stays."""
        import asyncio

        from turnline.flow.project import load_project

        try:
            project = await asyncio.to_thread(load_project, self._directory)
            self._check_reload(project)
            runtime, app, _ = self._made(project)
            await live.switch(runtime, app)
        except Exception as error:  # Code of the project may raise anything when it is opened.
            said = error if isinstance(error, TurnlineError) else f"{type(error).__name__}: {error}"
            typer.echo(f"{said}\nNot reloaded: the server goes on with the files as they were.", err=True)
        else:
            typer.echo(f"Reloaded: {_count(runtime)}.")

    def _made(self, project: Project) -> tuple[Runtime, Starlette, ServerSettings]:
        """Return a project as it would be served. Nothing is opened. Raises `BadDocuments`."""
        from turnline.server.app import TITLE, create_app
        from turnline.server.runtime import runtime_of
        from turnline.server.settings import ServerSettings
        from turnline.server.ws_settings import PRESENCES_PER_USER, WsSettings

        runtime = runtime_of(
            project, log_address=self._log_address, grace_seconds=self._grace, retain=self._retention()
        )
        if self._log_address == self._memory.address:
            runtime.open_log = lambda: self._memory
        limits = project.settings.limits
        settings = ServerSettings(
            drain_seconds=self._grace,
            hosts=self._place.names,
            same_origin=True,
            trusted_proxies=self._place.trusted_proxies,
            ws=WsSettings(presences_per_user=limits.presences_per_user or PRESENCES_PER_USER),
            **limits.of_server(),
        )
        title = project.settings.name or TITLE
        app = create_app(runtime, authenticator=self._opened, settings=settings, title=title)
        return runtime, app, settings

    def _retention(self) -> Retain | None:
        from turnline.log.records import looking_at_log
        from turnline.server.retention import Retain

        if self._retain is None:
            return None
        age, archive = self._retain
        open_records = partial(looking_at_log, self._log_address)
        return Retain(age=age, archive=archive, open_records=open_records, tell=typer.echo)

    def _check_reload(self, project: Project) -> None:
        """Refuse another log, and what would lose rows that are only in memory."""
        if project.log_address != self._project.log_address:
            because = "the server keeps the log that it was started with; restart it"
            raise LogUnavailable("turnline.yaml: log", because=because)
        is_in_memory = self._log_address == self._memory.address and project.settings.database is None
        if is_in_memory and project.models:
            because = "the rows of the data models are in memory and would be lost; restart the server"
            raise LogUnavailable(self._log_address, because=because)


def _print_requests() -> None:
    """Print uvicorn's line for each request, without its query: that may hold anything."""
    import logging

    class Line(logging.Formatter):
        """One request in one line."""

        def format(self, record: logging.LogRecord) -> str:
            peer, method, path, _, status = record.args  # type: ignore[misc]
            return f"{self.formatTime(record)} {peer} {method} {str(path).partition('?')[0]} {status}"

    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(Line())
    logger = logging.getLogger("uvicorn.access")
    logger.handlers, logger.propagate = [handler], False


def _check_tokens(folder: Path, environ: Mapping[str, str]) -> None:
    """Say that the tokens of the project's key are refused, if the library that reads them is missing."""
    from turnline.server.auth.keys import has_key

    if not has_key(environ, folder):
        return
    try:
        import_module("turnline.server.auth.library")
    except MissingExtra as error:
        typer.echo(f"The project has a key for tokens, but this server refuses tokens: {error}", err=True)


def _authenticator(
    folder: Path, environ: Mapping[str, str], *, host: str, key: str | None
) -> OpenAuthenticator:
    """Choose who is let in: with --dev this machine; else the project's tokens and API keys."""
    from turnline.server.access import development, only_api_keys, production
    from turnline.server.auth.api_keys import API_KEYS_VARIABLE
    from turnline.server.auth.keys import has_key, verifying_key
    from turnline.server.serving import is_this_machine

    if key is not None:
        if not is_this_machine(host):
            because = f"a development key is good on this machine only, and others can reach {host!r}"
            raise BadKey(
                "--dev", because=because, do="Take --dev away, and make a key with `turnline token key`."
            )
        return development(key, folder, environ)
    if not has_key(environ, folder):
        if environ.get(API_KEYS_VARIABLE):
            return only_api_keys(environ)
        if is_this_machine(host):
            typer.echo("There is no key, so only public triggers can be called; --dev makes one.", err=True)
            return only_api_keys(environ)
    verifying_key(environ, folder)  # What is wrong with the key is an error before anything is opened,
    import_module("turnline.server.auth.library")  # and so is a library that is missing.
    return production(folder, environ)


# What is printed.


def _told(runtime: Runtime, address: str, key: str | None) -> Iterator[str]:
    health = runtime.hub.health()
    log = f"the log is {health.log} (durability: {health.durability})"
    yield f"Serving {_count(runtime)} on {address}; {log}."
    rows = [_row(flow) for flow in runtime.flows.values()]
    width = max((len(row[0]) for row in rows), default=0)
    yield from (f"  {first:{width}}  {second}" for first, second in rows)
    if key is None:
        yield f"Studio: {address}/studio"
        return
    yield f"Development key, good on this machine until the server stops:\n  {key}"
    yield f"Studio, signed in:\n  {address}/studio#token={key}"
    curl = next(filter(None, (_curl(address, flow, key) for flow in runtime.flows.values())), None)
    if curl is not None:
        yield f"Try:\n  {curl}"


def _count(runtime: Runtime) -> str:
    count = len(runtime.flows)
    return "1 flow" if count == 1 else f"{count or 'no'} flows"


def _row(flow: Flow) -> tuple[str, str]:
    trigger = flow.spec.trigger
    if trigger is None:
        return f"POST /flows/{flow.name}/runs", f"{flow.name} (no trigger)"
    return f"{trigger.method} {trigger.path}", f"{flow.name}{' (public)' if trigger.public else ''}"


def _curl(address: str, flow: Flow, token: str) -> str | None:
    """Return a command that starts the flow with input that it takes; None if no example is known."""
    from turnline.flow.definition.flow import PARAMETER
    from turnline.flow.example import example_input

    trigger, given = flow.spec.trigger, example_input(flow)
    if trigger is None or given is None:
        return None
    in_path = {name: given.pop(name) for name in trigger.parameters}
    url = address + PARAMETER.sub(lambda found: quote(_word(in_path[found[1]]), safe=""), trigger.path)
    query = [(name, _word(one)) for name, value in given.items() for one in _several(value)]
    if trigger.method == "GET" and query:
        url += f"?{urlencode(query)}"
    words = ["curl", "-i", "-X", trigger.method, url, "-H", f"Authorization: Bearer {token}"]
    if trigger.method != "GET":
        words += ["-H", "Content-Type: application/json", "-d", json.dumps(given)]
    return shlex.join(words)


def _several(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _word(value: object) -> str:
    """Return a value as a path or a query spells it."""
    return value if isinstance(value, str) else json.dumps(value)


def _address(host: str, listening: socket.socket) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}"
