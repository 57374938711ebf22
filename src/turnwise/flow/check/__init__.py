"""What can be found in a flow before it runs (F15): `turnwise check`.

    for problem in check_flow(flow, known): ...

A lint is a pure function of a flow, or of a flow and the names its project knows; it finds
problems, each with a code, a place and what to do. Codes never change their meaning:

    TW101  no path leads to a step                      paths
    TW102  nothing leads out of a cycle                 paths
    TW103  a cycle without a limit (warning)            paths
    TW104  nothing takes a signal                       paths
    TW105  a route that is never taken (warning)        paths
    TW106  a person is asked for nothing (warning)      people
    TW107  a signal from a field the form lacks         people
    TW201  a key is read that no path produces (warning)  keys
    TW202  a reserved key is written                    reserved
    TW203  a reserved key is shown                      reserved
    TW204  no expression, or no template                texts
    TW205  a secret outside headers                     texts
    TW301  unknown node            TW302  unknown agent       names
    TW303  unknown tool            TW304  unknown data model  names
    TW305  unknown workflow        TW306  unknown MCP server  names
    TW307  a data model the flow does not declare       names
    TW308  a data model of another version              names
    TW309  data models that do not fit together         project
    TW401  a literal secret                             secrets
    TW501  two branches write one key                   branches
    G101 to G304  the graph of a channel step (docs/lint.md)  graphs

A route to a step of another list (out of `for_each`, or into a branch) is refused when the
document is read, as every route to nowhere is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from turnwise.core.study.finding import Path
from turnwise.flow.check import branches, graphs, keys, names, paths, people, reserved, texts
from turnwise.flow.check.names import Known
from turnwise.flow.check.problem import Problem
from turnwise.flow.check.secrets import literal_secrets
from turnwise.flow.definition.flow import Flow

__all__ = ["Known", "Path", "Problem", "check_flow", "literal_secrets"]

_OF_A_FLOW: Final[Sequence[Callable[[Flow], Iterable[Problem]]]] = (
    paths.unreachable_steps,
    paths.cycles,
    paths.unrouted_signals,
    paths.routes_never_taken,
    people.questions,
    reserved.reserved_keys,
    texts.bad_texts,
)
_OF_A_PROJECT: Final[Sequence[Callable[[Flow, Known], Iterable[Problem]]]] = (
    graphs.conversations,
    keys.keys_never_written,
    names.missing_names,
    names.models_used,
    branches.keys_written_twice,
)
_NOTHING_KNOWN: Final = Known()


def check_flow(flow: Flow, known: Known = _NOTHING_KNOWN) -> list[Problem]:
    """Return everything that is wrong with `flow`, but for secrets: those are looked for in its document."""
    of_flow = [problem for lint in _OF_A_FLOW for problem in lint(flow)]
    return of_flow + [problem for lint in _OF_A_PROJECT for problem in lint(flow, known)]
