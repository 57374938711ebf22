"""`turnline new`: a project that runs at once, with one of everything: copied from `project_template`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Final

import typer

from turnline.errors import NameTaken

TEMPLATE: Final = "project_template"
_RENAMED: Final = {"gitignore": ".gitignore"}
"""A file that would hide others from whoever builds the package has another name in it."""
_LEFT_OUT: Final = frozenset({"__pycache__"})


def run(folder: Path) -> None:
    """Write the project into a folder that is empty or not there yet. Raises `NameTaken`."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise NameTaken("folder", str(folder), do="Choose one that is empty, or not there yet.")
    for path, content in template():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    for line in _next(folder):
        typer.echo(line)


def template() -> Iterator[tuple[PurePosixPath, bytes]]:
    """The files of a new project: their paths in it, and what is in them."""
    yield from _below(files("turnline.cli") / TEMPLATE, PurePosixPath())


def _below(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[PurePosixPath, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.name in _LEFT_OUT:
            continue
        place = path / _RENAMED.get(entry.name, entry.name)
        if entry.is_dir():
            yield from _below(entry, place)
        else:
            yield place, entry.read_bytes()


def _next(folder: Path) -> Iterator[str]:
    there = shlex.quote(str(folder))
    flow = shlex.quote(str(folder / "workflows" / "ticket.yaml"))
    yield f"{folder} is a project now. Try:"
    yield f"    turnline test {there}"
    yield f"    turnline run {flow} -i email=ann@example.com -i text='My invoice, now!'"
    yield f"    turnline serve {there} --dev"
