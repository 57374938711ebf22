"""The command line: one module a verb. Verbs are imported when they are called."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from turnline import __version__
from turnline.cli import (
    agents,
    channels,
    check,
    db,
    doctor,
    graph,
    log as log_verbs,
    mcp,
    people,
    runs,
    serve,
    token,
)
from turnline.cli.options import FIELD
from turnline.cli.told import told
from turnline.errors import MissingExtra, TurnlineError

app = typer.Typer(
    name="turnline",
    help="Multi-agent workflows that survive anything: every turn is a line on one log.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"turnline {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
]


@app.callback()
def _root(version: Version = False) -> None:
    """Options that go before the verb."""


@app.command(epilog="Example: turnline demo --log /tmp/demo.db")
def demo(
    log: Annotated[
        Path | None,
        typer.Option(
            help="The SQLite file to play on; without it, a new one: .turnline/demo.db, demo-2.db, ..."
        ),
    ] = None,
    live: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Ask a real model: openai:gpt-5-mini, say.")
    ] = None,
) -> None:
    """Play two conversations and a flow. Two of the three are killed with SIGKILL and taken up again."""
    from turnline.cli.demo import run  # noqa: PLC0415  A verb costs its imports only when it is called.

    run(log, live)


@app.command(epilog="Example: turnline new leads && turnline serve leads --dev")
def new(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make.")],
) -> None:
    """Make a project that runs at once. It has a flow, two nodes, a data model, an agent, a test."""
    from turnline.cli.new import run  # noqa: PLC0415

    run(directory)


@app.command(epilog="Example: turnline run workflows/ticket.yaml -i email=ann@example.com -i text=Help")
def run(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A workflow: a YAML file with steps; or a project's folder."),
    ],
    *,
    pairs: Annotated[
        list[str] | None,
        typer.Option("-i", "--set", metavar="KEY=VALUE", help=FIELD.format("input")),
    ] = None,
    input_file: Annotated[
        Path | None, typer.Option("--input", help="A JSON file with the input; `-` is standard input.")
    ] = None,
    flow: Annotated[str | None, typer.Option(help="Which flow, if the file or folder holds several.")] = None,
    log: Annotated[
        str | None, typer.Option(help="A log to keep the run on, such as run.db. Without it nothing is kept.")
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option("--run", metavar="ID", help="Go on with this run of the log; a new one has this id."),
    ] = None,
    answers: Annotated[
        list[str] | None,
        typer.Option("--answer", metavar="KEY=VALUE", help="Answer what the run asks a person, as -i does."),
    ] = None,
    task_id: Annotated[
        str | None, typer.Option("--task", metavar="ID", help="Which task --answer answers, if several wait.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Write the run to this file, for `turnline test`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Run a flow without a server, and print its steps as they happen.

    Exits with 0, with 1 if the run failed, with 3 if it waits for somebody.
    """
    with _extra("flow"):
        from turnline.cli.run import Options, run as run_flow  # noqa: PLC0415

    run_flow(
        Options(
            file=file,
            pairs=pairs or [],
            input=input_file,
            flow=flow,
            log=log,
            run_id=run_id,
            answers=answers or [],
            task_id=task_id,
            record=record,
            as_json=as_json,
        )
    )


@app.command("test", epilog="Example: turnline test leads -k urgent")
def play(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="The project's folder.")] = Path(),
    only: Annotated[str, typer.Option("-k", help="Only cases whose name has this in it.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Play a project's test cases and recorded runs. Without a model and without a server."""
    with _extra("flow"):
        from turnline.cli.test import run  # noqa: PLC0415

    run(directory, only=only, as_json=as_json)


@app.command(epilog="Example: turnline schema > workflow.schema.json")
def schema() -> None:
    """Print the JSON Schema of workflow documents, for editors."""
    with _extra("flow"):
        from turnline.flow.json_schema import workflow_schema  # noqa: PLC0415

    typer.echo(json.dumps(workflow_schema(), indent=2))


app.command(epilog=check.EXAMPLE)(check.check)
app.command(epilog=graph.EXAMPLE)(graph.graph)
app.command(epilog=serve.EPILOG)(serve.serve)
app.command(epilog=mcp.EPILOG)(mcp.mcp)
app.command(epilog=agents.EXAMPLE)(agents.agents)
app.command(epilog=doctor.EXAMPLE)(doctor.doctor)
app.add_typer(channels.app, name="channels")
app.add_typer(runs.app, name="runs")
app.add_typer(token.app, name="token")
app.add_typer(log_verbs.app, name="log")
app.add_typer(db.app, name="db")
app.add_typer(people.app, name="people")


@contextmanager
def _extra(name: str) -> Iterator[None]:
    """A verb whose libraries are not installed says which to install."""
    try:
        yield
    except (ModuleNotFoundError, MissingExtra) as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("turnline"):
            raise
        raise MissingExtra("flows", extra=name) from None


def main() -> None:
    """Run the command line. What Turnline raises on purpose is told in one line, with exit code 1."""
    try:
        app(prog_name="turnline")
    except TurnlineError as error:
        typer.echo(f"turnline: {told(error)}", err=True)
        raise SystemExit(1) from None
