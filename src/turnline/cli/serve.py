"""`turnline serve`: a project's flows over HTTP.

What is needed to serve is installed on request, so it is imported when the verb is called.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import os
import secrets
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple
from urllib.parse import quote, urlencode

import typer

from turnline import tracing
from turnline.errors import BadKey, MissingExtra

if TYPE_CHECKING:
    import socket

    from turnline.flow.definition.flow import Flow
    from turnline.flow.project import Project
    from turnline.server.access import OpenAuthenticator
    from turnline.server.auth.keys import RootKey
    from turnline.server.runtime import Runtime

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
SocketNumber = Annotated[int | None, typer.Option("--socket", hidden=True, help="Of a worker.")]
Dev = Annotated[
    bool, typer.Option("--dev", help="Make a development key, print it, and serve this machine only.")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="A name this server is also known by, behind a proxy."),
]
AccessLog = Annotated[bool, typer.Option("--access-log", help="Tell every request.")]


def serve(
    directory: Directory = Path(),
    *,
    host: Host = "127.0.0.1",
    port: Port = 8484,
    log: LogAddress = None,
    dev: Dev = False,
    allow_host: AllowHost = None,
    access_log: AccessLog = False,
    workers: WorkerCount = 1,
    grace: Grace = 10.0,
    socket_number: SocketNumber = None,
) -> None:
    """Serve a project's flows, channels and studio over HTTP. Until SIGTERM or Ctrl-C."""
    try:
        import fastapi
        import uvicorn
    except ImportError:
        raise MissingExtra("servers", extra="server") from None
    del fastapi, uvicorn
    import asyncio

    from turnline.errors.flows import BadDocuments
    from turnline.flow.project import load_project
    from turnline.server.origin import known_names
    from turnline.server.runtime import runtime_of

    project = load_project(directory)
    try:
        runtime = runtime_of(project, log_address=log, grace_seconds=grace)
    except BadDocuments as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    project.check_database(log, is_dev=dev)
    if project.report and socket_number is None:
        typer.echo(str(project.report), err=True)
    if workers > 1:
        given = _given(directory, host=host, log=log, dev=dev, access_log=access_log, grace=grace)
        given[-1:-1] = [word for name in allow_host or [] for word in ("--allow-host", name)]
        address = log or project.log_address
        raise typer.Exit(asyncio.run(_supervise(given, workers, address, host=host, port=port, dev=dev)))
    place = _Place(host, port, socket_number, known_names(host, allow_host or []))
    provider = tracing.export(os.environ)
    try:
        asyncio.run(_serve(project, runtime, place, dev=dev, access_log=access_log, grace=grace))
    finally:
        if provider is not None:
            provider.shutdown()


class _Place(NamedTuple):
    """Where to listen."""

    host: str
    port: int
    number: int | None
    """Of the parent's socket, in a worker."""
    names: tuple[str, ...] | None
    """The names that requests may be for."""

    @property
    def is_worker(self) -> bool:
        return self.number is not None

    def listen(self) -> socket.socket:
        import socket

        from turnline.server.serving import bind

        return bind(self.host, self.port) if self.number is None else socket.socket(fileno=self.number)


def _given(
    directory: Path, *, log: str | None, access_log: bool, dev: bool, host: str, grace: float
) -> list[str]:
    """The command of a worker, but for the number of its socket."""
    words = [sys.executable, "-m", "turnline", "serve", str(directory), "--host", host, "--grace", str(grace)]
    words += ["--log", log] if log else []
    words += ["--dev"] if dev else []
    words += ["--access-log"] if access_log else []
    return [*words, "--socket"]


async def _supervise(
    command: list[str], count: int, log_address: str, *, host: str, port: int, dev: bool
) -> int:
    """Run several workers until a signal. They share the development key, if there is one."""
    from turnline.server.serving import bind
    from turnline.server.workers import Workers, check_shared

    check_shared(log_address)
    secret = f"development:{secrets.token_hex(32)}" if dev else ""
    with bind(host, port) as listening:
        code = await Workers(command, count, listening, secret=secret, tell=typer.echo).run()
    typer.echo("stopped.")
    return code


async def _serve(
    project: Project, runtime: Runtime, place: _Place, *, dev: bool, access_log: bool, grace: float
) -> None:
    from turnline.server.app import TITLE, create_app
    from turnline.server.auth.keys import RootKey, development_key
    from turnline.server.serving import DrainingServer
    from turnline.server.settings import ServerSettings
    from turnline.server.workers import secret_of_parent, tell_ready

    host = place.host
    secret = secret_of_parent() if place.is_worker else ""
    shared = RootKey.from_text(secret, where="--dev") if secret else None
    key = (shared or development_key()) if dev else None
    opened = _authenticator(project.root, os.environ, host=host, key=key)
    settings = ServerSettings(
        body_bytes=project.settings.limits.body_bytes,
        drain_seconds=grace,
        hosts=place.names,
        same_origin=True,
    )
    with place.listen() as listening:
        address = _address(host, listening)
        async with runtime, opened(runtime) as authenticator:
            title = project.settings.name or TITLE
            app = create_app(runtime, authenticator=authenticator, settings=settings, title=title)
            typer.echo("\n".join(_told(runtime, address, key)))
            server = DrainingServer(app, runtime, settings, access_log=access_log)
            if place.is_worker:
                server.tell_started = tell_ready
            await server.serve([listening])
    if not place.is_worker:
        typer.echo("stopped.")


def _authenticator(
    folder: Path, environ: Mapping[str, str], *, host: str, key: RootKey | None
) -> OpenAuthenticator:
    """Whom the server lets in: with --dev this machine; else whoever has a token the project has signed."""
    from turnline.server.access import development, only_api_keys, production
    from turnline.server.auth.keys import KEY_FILE, KEY_VARIABLE, PUBLIC_KEY_VARIABLE, production_key
    from turnline.server.serving import is_this_machine

    if key is not None:
        if not is_this_machine(host):
            because = f"a development key is good on this machine only, and others can reach {host!r}"
            raise BadKey(
                "--dev", because=because, do="Take --dev away, and make a key with `turnline token key`."
            )
        return development(key)
    has_key = environ.get(KEY_VARIABLE) or environ.get(PUBLIC_KEY_VARIABLE) or (folder / KEY_FILE).exists()
    if is_this_machine(host) and not has_key:
        typer.echo("There is no key, so only public triggers can be called; --dev makes one.", err=True)
        return only_api_keys(environ)
    production_key(environ, folder)  # What is wrong with it is told before anything is opened.
    return production(folder, environ)


# What is printed.


def _told(runtime: Runtime, address: str, key: RootKey | None) -> Iterator[str]:
    health = runtime.hub.health()
    count = len(runtime.flows)
    flows = "1 flow" if count == 1 else f"{count or 'no'} flows"
    yield f"Serving {flows} on {address}; the log is {health.log} (durability: {health.durability})."
    rows = [_row(flow) for flow in runtime.flows.values()]
    width = max((len(row[0]) for row in rows), default=0)
    yield from (f"  {first:{width}}  {second}" for first, second in rows)
    if key is None:
        yield f"Studio: {address}/studio"
        return
    token = _development_token(runtime, key)
    yield f"Development key, good on this machine for half a day, or until the server stops:\n  {token}"
    yield f"Studio, signed in:\n  {address}/studio#token={token}"
    curl = next(filter(None, (_curl(address, flow, token) for flow in runtime.flows.values())), None)
    if curl is not None:
        yield f"Try:\n  {curl}"


def _row(flow: Flow) -> tuple[str, str]:
    trigger = flow.spec.trigger
    if trigger is None:
        return f"POST /flows/{flow.name}/runs", f"{flow.name} (no trigger)"
    return f"{trigger.method} {trigger.path}", f"{flow.name}{' (public)' if trigger.public else ''}"


def _development_token(runtime: Runtime, key: RootKey) -> str:
    """A token that may do everything, also answer the tasks of every group that a flow names."""
    from turnline.flow.definition.flow import nested_steps
    from turnline.flow.definition.steps import HumanStep
    from turnline.server.auth.assembly import DEVELOPER, DEVELOPMENT_LIFETIME
    from turnline.server.auth.biscuit import mint

    every = [step for flow in runtime.flows.values() for steps in nested_steps(flow.steps) for step in steps]
    groups = {step.human.group for step in every if isinstance(step, HumanStep) and step.human.group}
    now = runtime.clock.now()
    return mint(
        key,
        user_id=DEVELOPER,
        groups=sorted(groups),
        scopes=["*"],
        expires_at=now + DEVELOPMENT_LIFETIME,
        now=now,
    )


def _curl(address: str, flow: Flow, token: str) -> str | None:
    """Return a command that starts the flow with input that it takes; None if no example is known."""
    from turnline.flow.example import PARAMETER, example_input

    trigger, given = flow.spec.trigger, example_input(flow)
    if trigger is None or given is None:
        return None
    in_path = {name: given.pop(name) for name in dict.fromkeys(PARAMETER.findall(trigger.path))}
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
