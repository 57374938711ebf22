"""What can be found in a flow before it runs (F15): `turnline check`.

    for problem in check_flow(flow, known): ...

A lint is a pure function of a flow, or of a flow and the names its project knows; it finds
problems, each with a code, a place and what to do. Codes never change their meaning:

    TL101  no path leads to a step                      paths
    TL102  nothing leads out of a cycle                 paths
    TL103  a cycle without a limit (warning)            paths
    TL104  nothing takes a signal                       paths
    TL105  a route that is never taken (warning)        paths
    TL106  a person is asked for nothing (warning)      people
    TL107  a signal from a field the form lacks         people
    TL108  retry.statuses where no request is made (warning)  paths
    TL109  a tool asks a person, and nobody is named    people
    TL201  a key is read that no path produces (warning)  keys
    TL202  a reserved key is written                    reserved
    TL203  a reserved key is shown                      reserved
    TL204  no expression, or no template                texts
    TL205  a secret outside headers                     texts
    TL206  input that a started flow does not take      inputs
    TL301  unknown node            TL302  unknown agent       names
    TL303  unknown tool            TL304  unknown data model  names
    TL305  unknown workflow        TL306  unknown MCP server  names
    TL307  a data model the flow does not declare       names
    TL308  a data model of another version              names
    TL309  data models that do not fit together         project
    TL310  data models, and no database for them        project
    TL401  a literal secret                             secrets
    TL501  two branches write one key                   branches
    TL601  a flow calls itself each time it runs        calls
    TL602  a flow can call itself (warning)             calls
    TL603  calls beyond limits.max_depth or max_runs    calls
    G101 to G304  the graph of a channel step (docs/lint.md)  graphs

A route to a step of another list (out of `for_each`, or into a branch) is refused when the
document is read, as every route to nowhere is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from turnline.core.study.finding import Path
from turnline.flow.check import branches, graphs, inputs, keys, names, paths, people, reserved, texts
from turnline.flow.check.names import Known
from turnline.flow.check.problem import Problem
from turnline.flow.check.secrets import literal_secrets
from turnline.flow.definition.flow import Flow

__all__ = ["Known", "Path", "Problem", "check_flow", "literal_secrets"]

_OF_A_FLOW: Final[Sequence[Callable[[Flow], Iterable[Problem]]]] = (
    paths.unreachable_steps,
    paths.cycles,
    paths.unrouted_signals,
    paths.routes_never_taken,
    paths.statuses_never_given,
    people.questions,
    reserved.reserved_keys,
    texts.bad_texts,
)
_OF_A_PROJECT: Final[Sequence[Callable[[Flow, Known], Iterable[Problem]]]] = (
    graphs.conversations,
    keys.keys_never_written,
    inputs.inputs_of_flows,
    names.missing_names,
    names.models_used,
    people.unasked_people,
    branches.keys_written_twice,
)
_NOTHING_KNOWN: Final = Known()


def check_flow(flow: Flow, known: Known = _NOTHING_KNOWN) -> list[Problem]:
    """Return everything that is wrong with `flow`, but for secrets: those are looked for in its document."""
    of_flow = [problem for lint in _OF_A_FLOW for problem in lint(flow)]
    return of_flow + [problem for lint in _OF_A_PROJECT for problem in lint(flow, known)]
