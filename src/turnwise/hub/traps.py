"""The traps of a graph, told once when a channel is opened with it.

A finding is a warning in the log of the process, never a reason not to open. A graph that
was looked at is not looked at again; the graph of a flow has been checked with the flow.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

from turnwise.core.channel import ChannelSpec
from turnwise.core.graph import TransitionGraph
from turnwise.core.state import State, WorkflowState
from turnwise.core.study.finding import Finding
from turnwise.core.study.lint import lint

logger = logging.getLogger(__name__)

_REMEMBERED: Final = 1024
"""How many graphs are remembered. One that was forgotten is told of again."""
_LOOKS: Final = 20_000
"""How much of a graph is looked at while somebody waits for the channel."""


class Traps:
    """Tells what the lint finds in the graphs that channels are opened with."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, None] = OrderedDict()

    def tell(self, state: State) -> None:
        """Log what is wrong with the channel's graph, if it has one that is new."""
        if not isinstance(state, WorkflowState) or "flow" in state.spec.knobs:
            return
        if state.graph_key in self._told:
            return
        self._told[state.graph_key] = None
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        findings = _findings(state.spec)
        if findings:
            text = "\n".join(map(str, findings))
            logger.warning("the graph of channel %r has traps (docs/lint.md):\n%s", state.channel_id, text)


def _findings(spec: ChannelSpec) -> tuple[Finding, ...]:
    members = [one for one in spec.participants if one.kind != "step"]
    try:
        graph = TransitionGraph.loads(spec.knobs["graph"])
        return lint(graph, participants=members, opener=spec.creator_id, bound=_LOOKS)
    except Exception:
        # A class of the user's own may do anything; the channel is open, and stays so.
        logger.debug("the graph of channel %r could not be linted", spec.channel_id, exc_info=True)
        return ()
