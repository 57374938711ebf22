"""`turnline graph`: the picture of a flow or a graph, in the terminal or as text for other programs.

    +---------+
    | drafter |  first
    +---------+
      '--> reviewer

A file holds flows, a graph (`TransitionGraph.to_dict()` as JSON or YAML), or Python with
graphs in it, which is run because somebody named it.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnline.cli.nothing import PYTHON, no_document

if TYPE_CHECKING:
    from turnline.core.study.picture import Picture

EXAMPLE: Final = "Example: turnline graph workflows/lead_processing.yaml --format mermaid > lead.mmd"


class Format(StrEnum):
    """What a picture is printed as."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"
    JSON = "json"


File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A workflow; a graph as JSON or YAML (`to_dict()`); or a Python file with graphs, which is run.",
    ),
]
As = Annotated[
    Format, typer.Option("--format", help="text: boxes for the terminal. The others are for programs.")
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name", help="Which flow or graph, if the file holds several; of a Python file, the variable."
    ),
]


def graph(file: File, as_: As = Format.TEXT, name: Name = None) -> None:
    """Draw a flow or a graph: who comes after whom, and when. The studio shows the same picture."""
    pictures = _pictures(file)
    if name is not None:
        pictures = {one: picture for one, picture in pictures.items() if one == name} or _refuse(
            file, pictures
        )
    if not pictures or (len(pictures) > 1 and as_ is not Format.TEXT):
        _refuse(file, pictures)
    for title, picture in pictures.items():
        if len(pictures) > 1:
            typer.echo(f"{title}\n{'=' * len(title)}\n")
        typer.echo(_drawn(picture, as_))


def _drawn(picture: Picture, as_: Format) -> str:
    from turnline.core.study.boxes import boxes  # noqa: PLC0415  A verb costs its imports only when it is called.
    from turnline.core.study.dot import dot  # noqa: PLC0415
    from turnline.core.study.mermaid import mermaid  # noqa: PLC0415

    if as_ is Format.JSON:
        return json.dumps(picture.to_dict(), indent=2, ensure_ascii=False)
    draw = {Format.TEXT: boxes, Format.MERMAID: mermaid, Format.DOT: dot}[as_]
    return draw(picture).rstrip("\n")


def _pictures(file: Path) -> dict[str, Picture]:
    """Name -> picture, of everything in the file that has one."""
    from turnline.core.study.drawing import graph_picture  # noqa: PLC0415
    from turnline.flow.check.graphs import graph_in  # noqa: PLC0415
    from turnline.flow.finding import Report  # noqa: PLC0415
    from turnline.flow.graph_module import graphs_of  # noqa: PLC0415
    from turnline.flow.picture import flow_picture  # noqa: PLC0415
    from turnline.flow.project import load_files  # noqa: PLC0415

    if file.suffix == PYTHON:
        graphs, findings = graphs_of(file)
        Report(findings).raise_if_bad()
        return {one.name: graph_picture(one.graph) for one in graphs}
    project = load_files([file])
    project.report.raise_if_bad()
    found = {name: flow_picture(project.definitions[name]) for name in project.chosen}
    for document in project.graphs:
        if Path(document.file).resolve() == file.resolve():
            read, findings = graph_in(document)
            Report(findings).raise_if_bad()
            if read is not None:
                found[file.stem] = graph_picture(read)
    return found


def _refuse(file: Path, pictures: dict[str, Picture]) -> dict[str, Picture]:
    names = ", ".join(pictures)
    found = f"{file} holds {names}; say which with --name." if names else no_document(file)
    raise typer.BadParameter(found, param_hint="FILE")
