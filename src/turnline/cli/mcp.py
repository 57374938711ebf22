"""`turnline mcp`: a project's flows and agents as tools of an MCP client.

Standard output belongs to the protocol; whatever is told goes to standard error.
"""
# ruff: noqa: PLC0415  What is needed is installed on request, so it is imported when the verb is called.

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from turnline.cli.options import waited_for
from turnline.errors import MissingExtra

EPILOG: Final = "Example: claude mcp add leads -- turnline mcp examples/leads"


def mcp(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="The project's folder.")] = Path(),
    *,
    log: Annotated[
        str | None,
        typer.Option(help="The log's address. Without it, what turnline.yaml says, or DIR/.turnline/log.db."),
    ] = None,
) -> None:
    """Offer a project's flows and agents as MCP tools. On standard input and output."""
    try:
        import mcp as sdk
    except ImportError:
        raise MissingExtra("MCP servers", extra="mcp") from None
    del sdk
    from turnline.errors.flows import BadDocuments
    from turnline.flow.project import load_project
    from turnline.server.mcp import serve_stdio
    from turnline.server.runtime import open_runtime

    project = load_project(directory)

    async def serve() -> None:
        async with open_runtime(project, log_address=log) as runtime:
            typer.echo(f"Offering {len(runtime.flows)} flows to an MCP client.", err=True)
            await serve_stdio(runtime)

    try:
        waited_for(serve())
    except BadDocuments as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
