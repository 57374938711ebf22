"""Files in which a verb found nothing to work on: what they are, and what to do instead.

support.py makes a graph inside a function (line 4, in main), where it cannot be found. Make the graph ...
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

PYTHON: Final = ".py"
_WORKFLOW: Final = "YAML with `steps:`"
_MAKERS: Final = frozenset({"TransitionGraph", "sequence", "round_robin"})
"""What makes a graph, as a program calls it."""


def no_graph(path: Path) -> str:
    """Say why a Python file has no graph that can be found, and what to do."""
    place = _graph_in_function(path)
    if place:
        return (
            f"{path} makes a graph inside a function ({place}), where it cannot be found. "
            "Give the graph a name at the top level of the file: graph = TransitionGraph(...)."
        )
    if not path.read_bytes().strip():
        return f"{path} is empty; expected a graph with a name: graph = TransitionGraph(...)."
    return f"{path} has no graph at its top level; expected one with a name: graph = TransitionGraph(...)."


def no_document(path: Path) -> str:
    """Say what a path without any document is, and what to do."""
    if path.suffix == PYTHON and path.is_file():
        return no_graph(path)
    if path.is_dir():
        return (
            f"{path} has no document. Name a file or a project's folder; `turnline new DIR` makes a project."
        )
    return f"{path} has no document; expected a workflow (`steps:`), a data model, a test or a graph."


def no_flow(path: Path) -> str:
    """Say what a path without any flow is, and what to do."""
    if path.suffix == PYTHON:
        return f"{path} is a Python program; expected a workflow: {_WORKFLOW}. Run it with: python {path}"
    if path.is_dir():
        return f"{path} has no flow; expected a workflow such as {path / 'workflows' / 'it.yaml'}."
    return f"{path} has no flow; expected a workflow: {_WORKFLOW}. `turnline new DIR` makes an example."


def _graph_in_function(path: Path) -> str:
    """The first call within a function that makes a graph: `line 4, in main`; empty if there is none."""
    tree = ast.parse(path.read_bytes())
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and _name(call.func) in _MAKERS:
                return f"line {call.lineno}, in {function.name}"
    return ""


def _name(called: ast.expr) -> str:
    """The name that is called: of `TransitionGraph.loads(...)` that is `TransitionGraph`."""
    while isinstance(called, ast.Attribute):
        if called.attr in _MAKERS:
            return called.attr
        called = called.value
    return called.id if isinstance(called, ast.Name) else ""
