"""The traps of a graph, logged once when a channel is opened with it.

A mistake is logged as a warning, and never stops the channel from opening. A finding that is not a
mistake (severity "warning") is logged with INFO: a program whose graphs are correct prints nothing, and
`turnline check` reports such findings. The tools of an agent are known if it is attached in this process.
Each graph is checked once; the graph of a flow is checked with the flow.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Final

from turnline.core.channel import ChannelSpec
from turnline.core.graph import TransitionGraph
from turnline.core.state import State, WorkflowState
from turnline.core.study.finding import Finding, Severity
from turnline.core.study.lint import lint

logger = logging.getLogger(__name__)

_REMEMBERED: Final = 1024
"""How many graphs are remembered. One that was forgotten is told of again."""
_LOOKS: Final = 20_000
"""How much of a graph is looked at while somebody waits for the channel."""
_LEVELS: Final[Mapping[Severity, int]] = {"error": logging.WARNING, "warning": logging.INFO}

ToolsOf = Callable[[str], Collection[str] | None]
"""The names of a participant's tools; None if they are not known."""


class Traps:
    """Tells what the lint finds in the graphs that channels are opened with."""

    def __init__(self, tools_of: ToolsOf) -> None:
        self._tools_of = tools_of
        self._told: OrderedDict[str, None] = OrderedDict()

    def tell(self, state: State) -> None:
        """Log what is wrong with the channel's graph, if it has one that is new."""
        if not isinstance(state, WorkflowState) or "flow" in state.spec.knobs:
            return
        if state.graph_key in self._told or not logger.isEnabledFor(logging.WARNING):
            return
        self._told[state.graph_key] = None
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        tools = {one.agent_id: self._tools_of(one.agent_id) for one in state.spec.participants}
        findings = _findings(state.spec, {name: each for name, each in tools.items() if each is not None})
        for severity, level in _LEVELS.items():
            text = "\n".join(str(one) for one in findings if one.severity == severity)
            if text:
                logger.log(
                    level, "the graph of channel %r has traps (docs/lint.md):\n%s", state.channel_id, text
                )


def _findings(spec: ChannelSpec, tools: Mapping[str, Collection[str]]) -> tuple[Finding, ...]:
    members = [one for one in spec.participants if one.kind != "step"]
    try:
        graph = TransitionGraph.loads(spec.knobs["graph"])
        return lint(graph, participants=members, opener=spec.creator_id, tools=tools, bound=_LOOKS)
    except Exception:
        # A class of the user's own may do anything; the channel is open, and stays so.
        logger.debug("the graph of channel %r could not be linted", spec.channel_id, exc_info=True)
        return ()
