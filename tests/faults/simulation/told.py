"""What the processes of one world have noted. The verdict compares it with the log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.faults.simulation.cast import Mark


@dataclass
class Told:
    """Notes of all processes: what people were told, and what was done. It survives every kill."""

    sent: dict[tuple[str, str], int] = field(default_factory=dict)
    """Channel and id of what was sent -> the seq it was said to have."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Channel -> why it was said to have closed."""
    marks: list[Mark] = field(default_factory=list)
    repaired: set[str] = field(default_factory=set)
    """Channels on which kim kills no more."""
    failures: Counter[str] = field(default_factory=Counter)
    """Run -> how often its shaky step has failed."""
