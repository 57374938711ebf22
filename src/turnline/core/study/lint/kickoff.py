"""A kick-off that skips the first thinker (G304)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turnline.core.study.finding import Finding
from turnline.core.study.lint.case import Case

SKIPPED: Final = "G304"


def skipped_thinker(case: Case) -> Iterator[Finding]:
    """An agent that opens the channel and speaks first: its opening words are its turn (W6)."""
    cast, first = case.cast, case.possible.initial
    if cast.opener != first or cast.is_person(first) or cast.spec.is_played(first):
        return
    name = cast.spec.name_of(first)
    yield Finding(
        code=SKIPPED,
        path=("initial_speaker",),
        message=f"{name!r} opens the channel and speaks first: what it sends is its first turn, unthought",
        found=f"initial_speaker={name!r}, opened by {name!r}",
        expected="somebody else who opens, or a person",
        fix=f"let a person open it (HumanClient) with message=..., and {name!r} is asked at once",
        severity="warning",
    )
