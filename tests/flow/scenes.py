"""One step, made by hand: what it is given, and what it noted.

work = work_on({"id": "ask", "agent": {"prompt": "{{ name }}?"}}, public={"name": "Ann"})
done = await agent.perform(work)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from turnline.agent.journal import Entry
from turnline.core.envelope import JsonObject
from turnline.core.state import State
from turnline.flow.definition.flow import read
from turnline.flow.work import Services, StepWork
from turnline.turns.journal import TurnJournal

NOON: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)
RUN: Final = "run-1"
TURN: Final = 3


async def forget(event_type: str, data: JsonObject, *, within: object = None) -> None:
    """Record nothing."""


class Notes(TurnJournal):
    """A journal in memory, and the reserved keys that were dropped."""

    def __init__(self) -> None:
        super().__init__((), forget)
        self.entries: list[Entry] = []
        self.dropped: list[tuple[str, list[str]]] = []

    async def record(self, entry: Entry, files: object = ()) -> tuple[()]:
        self.entries.append(entry)
        return ()

    def drop(self, source: str, keys: Sequence[str]) -> None:
        self.dropped.append((source, list(keys)))


class NoChildren:
    """For steps that have none."""

    async def run_inner(self, place: str, inner: str, context: JsonObject) -> None:
        raise AssertionError(f"nothing runs at {place}")

    async def run_flow(self, place: str, flow: str, input: JsonObject | None) -> None:
        raise AssertionError(f"nothing runs at {place}")

    async def converse(
        self, place: str, agents: Sequence[str], graph: JsonObject, message: str, context: JsonObject
    ) -> None:
        raise AssertionError(f"nobody converses at {place}")

    def id_of(self, place: str) -> str:
        return place

    async def state(self, place: str) -> State | None:
        return None

    async def last_words(self, place: str) -> str:
        return ""


def work_on(
    step: JsonObject,
    *,
    public: JsonObject | None = None,
    private: JsonObject | None = None,
    services: Services | None = None,
    context: JsonObject | None = None,
    recorded: Sequence[Entry] = (),
    notes: Notes | None = None,
) -> StepWork[Any]:
    """Return the work on `step`, which is the first of a flow of two; `context` is the flow's."""
    noted = Notes() if notes is None else notes
    spec = {"context": context or {}, "steps": [{"id": "it", **step}, {"id": "late", "runner": "x"}]}
    flow = read({"metadata": {"name": "flow"}, "spec": spec}, name="flow")
    return StepWork(
        step=flow.steps[0],
        run_id=RUN,
        flow=flow,
        turn=TURN,
        attempt=1,
        public=public or {},
        private=private or {},
        history=(),
        now=NOON,
        elapsed_seconds=0.0,
        services=services or Services(),
        children=NoChildren(),
        journal=noted,
        recorded=recorded,
        sleep=no_sleep,
        dropped=noted.drop,
    )


async def no_sleep(seconds: float) -> None:
    """Time passes at once."""
