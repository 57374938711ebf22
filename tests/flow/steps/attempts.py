"""An attempt at a step, driven by hand: the engine's part is the lines it writes between two calls.

attempt = Attempt(wait.perform, step(wait={"for": "1h"}), kind=WaitStep)
await attempt.goes_on()
attempt.fired()
assert isinstance(await attempt.goes_on(), StepResult)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from turnline.core import event_types as ev
from turnline.core.claims import Paused
from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.flow.definition.flow import Flow, read
from turnline.flow.work import Services, StepResult, StepWork

from ..scenes import Notes
from .children import FakeChildren

NOON: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)
RUN: Final = "run-1"


class Attempt:
    """One step of a flow of one step, its children and its history."""

    def __init__(
        self,
        perform: Callable[[Any], Awaitable[StepResult | Paused]],
        step: JsonObject,
        *,
        public: JsonObject | None = None,
        private: JsonObject | None = None,
        turn: int = 3,
    ) -> None:
        self.children = FakeChildren()
        self.history: list[Envelope] = []
        self.now = NOON
        self.drops: list[tuple[str, list[str]]] = []
        self._perform = perform
        self._flow: Flow = read({"steps": [{"id": "it", **step}, {"id": "late", "runner": "x"}]}, name="flow")
        self._public = public or {}
        self._private = private or {}
        self._turn = turn

    async def call(self) -> StepResult | Paused:
        """PerformStep the step; what it returns is lost, as in a crash right behind it."""
        return await self._perform(self._work())

    async def goes_on(self) -> StepResult | Paused:
        """PerformStep the step; a pause is written down."""
        done = await self.call()
        if isinstance(done, Paused):
            until: JsonObject = {} if done.until is None else {"until": done.until.isoformat()}
            until |= {} if done.seconds is None else {"seconds": done.seconds}
            until |= {"times_out": True} if done.times_out else {}
            noted = {"reason": done.reason, "key": done.key, "data": done.data}
            self._write(ev.EV_TURN_PAUSED, {"agent_id": "it", "turn": self._turn, **noted, **until})
        return done

    async def paused(self) -> Paused:
        done = await self.goes_on()
        assert isinstance(done, Paused)
        return done

    async def done(self) -> StepResult:
        done = await self.goes_on()
        assert isinstance(done, StepResult)
        return done

    @property
    def is_paused(self) -> bool:
        return bool(self.history) and self.history[-1].event_type == ev.EV_TURN_PAUSED

    def passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def fired(self) -> None:
        self._end(ev.EV_TIMER_FIRED, {})

    def answered(self, answer: JsonObject, *, by: str = "ann") -> None:
        self._end(ev.EV_HUMAN_ANSWERED, {"request_id": "task", "answer": answer, "by": by})

    def told(self, event: str, data: JsonObject) -> None:
        self._end(ev.EV_TURN_RESUMED, {"event": event, "data": data})

    def woken(self) -> None:
        self._end(ev.EV_TURN_RESUMED, {})

    def _end(self, event_type: str, data: JsonObject) -> None:
        pause = next(one for one in reversed(self.history) if one.event_type == ev.EV_TURN_PAUSED)
        self._write(event_type, {"pause": pause.seq, **data})

    def _write(self, event_type: str, data: JsonObject) -> None:
        seq = 10 + len(self.history)
        line = Envelope(
            schema_version=SCHEMA_VERSION,
            envelope_id=f"line-{seq}",
            channel_id=RUN,
            seq=seq,
            sender_id=ev.HUB,
            event_type=event_type,
            event_data=data,
            created_at=self.now,
        )
        self.history.append(line)

    def _work(self) -> StepWork[Any]:
        return StepWork(
            step=self._flow.steps[0],
            run_id=RUN,
            flow=self._flow,
            turn=self._turn,
            attempt=1,
            public=dict(self._public),
            private=dict(self._private),
            history=tuple(self.history),
            now=self.now,
            elapsed_seconds=(self.now - self.history[0].created_at).total_seconds() if self.history else 0.0,
            services=Services(),
            children=self.children,
            journal=Notes(),
            recorded=(),
            sleep=_never,
            dropped=self._dropped,
        )

    def _dropped(self, source: str, keys: Sequence[str]) -> None:
        self.drops.append((source, list(keys)))


async def _never(seconds: float) -> None:
    raise AssertionError("a step that pauses does not sleep")
