"""A case: a graph, its cast and what may happen, as every lint is given it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from turnline.core.graph import TransitionGraph
from turnline.core.study.cast import Cast
from turnline.core.study.exploration import Walk
from turnline.core.study.finding import Finding, Path
from turnline.core.study.possible import Possible
from turnline.core.study.wording import told
from turnline.core.transitions import AllOf, AnyOf, Condition, Not


@dataclass(frozen=True, slots=True)
class Case:
    """What a lint looks at."""

    possible: Possible
    walk: Walk
    """Everything that may happen, handoffs and failed turns included."""

    @property
    def graph(self) -> TransitionGraph:
        return self.possible.graph

    @property
    def cast(self) -> Cast:
        return self.possible.cast

    @property
    def whoever(self) -> str:
        """Of whose turns something is said that never happens; part of a message."""
        return "" if self.cast.is_closed else ", whoever of those it names speaks"

    def rule(self, index: int) -> str:
        """A transition, as a message names it."""
        return f"transitions[{index}] ({told(self.graph.transitions[index].when)})"


Lint = Callable[[Case], Iterator[Finding]]


def inside(condition: Condition, path: Path) -> Iterator[tuple[Path, Condition]]:
    """A condition and those inside it, each with its path in the graph's data."""
    yield path, condition
    match condition:
        case AllOf(conditions=parts) | AnyOf(conditions=parts):
            for place, part in enumerate(parts):
                yield from inside(part, (*path, "args", "conditions", place))
        case Not(condition=inner):
            yield from inside(inner, (*path, "args", "condition"))
