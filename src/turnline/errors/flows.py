"""Documents and nodes that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnline.errors.base import TurnlineError


class BadDocuments(TurnlineError):
    """Some documents have mistakes; nothing was started. The message is the whole report."""

    def __init__(self, report: str, *, findings: Sequence[Mapping[str, object]]) -> None:
        self.findings = tuple(findings)
        super().__init__(report)


class BadNode(TurnlineError):
    """A function that cannot be a node."""

    def __init__(self, node: str, *, because: str) -> None:
        self.node = node
        self.because = because
        super().__init__(f"{node!r} cannot be a node: {because}.")
