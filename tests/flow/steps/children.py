"""Children that a test closes by hand: places -> states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from turnline.core.channel import ChannelState
from turnline.core.envelope import JsonObject
from turnline.core.state import WorkflowState


class Crash(BaseException):
    """The process ended."""


@dataclass(frozen=True)
class Opened:
    """What a step asked for at a place."""

    place: str
    what: str
    """The inner steps' name, the flow's name, or whom the conversation is between."""
    context: JsonObject
    graph: JsonObject | None = None
    message: str = ""
    is_whole_context: bool = False
    """Whether a flow gets the run's context, because the step has no input."""


class FakeChildren:
    """See `work.Children`. Every child is open until `close`."""

    def __init__(self) -> None:
        self.opened: list[Opened] = []
        self.most_open = 0
        self.crash_at: int | None = None
        """The process ends when so many have been opened."""
        self.looked_at: list[str] = []
        self._states: dict[str, WorkflowState] = {}
        self._words: dict[str, str] = {}

    @property
    def places(self) -> list[str]:
        return [one.place for one in self.opened]

    @property
    def still_open(self) -> list[str]:
        return [place for place, state in self._states.items() if not state.is_over]

    def close(
        self,
        place: str,
        wrote: JsonObject | None = None,
        *,
        reason: str = "completed",
        response: JsonObject | None = None,
        words: str = "",
    ) -> None:
        """Let the child end: its steps wrote these keys."""
        state = self._states[place]
        self._states[place] = replace(
            state,
            status=ChannelState.CLOSED,
            pending_close_reason=reason,
            context_vars=state.context_vars | (wrote or {}),
            private_vars={} if response is None else {"_response": response},
        )
        self._words[place] = words

    def fail(self, place: str, error: str = "no luck") -> None:
        """Let the child's step `score` fail it."""
        self._states[place] = replace(
            self._states[place],
            status=ChannelState.CLOSED,
            pending_close_reason="step_failed",
            last_speaker_id="score",
            private_vars={"_last_error": error, "_last_error_type": "error"},
        )

    async def run_inner(self, place: str, inner: str, context: JsonObject) -> None:
        self._open(Opened(place, inner, context))

    async def run_flow(self, place: str, flow: str, input: JsonObject | None) -> None:
        self._open(Opened(place, flow, input or {}, is_whole_context=input is None))

    async def converse(
        self, place: str, agents: Sequence[str], graph: JsonObject, message: str, context: JsonObject
    ) -> None:
        self._open(Opened(place, ",".join(agents), context, graph, message))

    def id_of(self, place: str) -> str:
        return f"child-{place}"

    async def state(self, place: str) -> WorkflowState | None:
        self.looked_at.append(place)
        return self._states.get(place)

    async def last_words(self, place: str) -> str:
        return self._words[place]

    def _open(self, one: Opened) -> None:
        if one.place in self._states:
            return
        self.opened.append(one)
        self._states[one.place] = WorkflowState(status=ChannelState.ACTIVE, context_vars=one.context)
        self.most_open = max(self.most_open, len(self.still_open))
        if len(self.opened) == self.crash_at:
            raise Crash
