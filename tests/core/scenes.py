"""A channel driven by hand, and the drafts people post on it. No hub, no clock, no event loop.

scene = workflow(sequence(["alice", "bob"]), "alice", "bob")
scene.accept(says("alice"))
assert scene.state.expected_next_speaker == "bob"
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import count
from typing import Any, Final, Generic, TypeVar

import pytest

from turnline.core import codec, event_types as ev
from turnline.core.adapter import Adapter, AnyAdapter
from turnline.core.adapters import WorkflowAdapter
from turnline.core.channel import ChannelSpec, Participant
from turnline.core.envelope import SCHEMA_VERSION, Basis, Decision, Draft, Envelope, JsonObject
from turnline.core.expectations import Deadline
from turnline.core.graph import TransitionGraph
from turnline.core.state import State, WorkflowState

NOON: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)

S = TypeVar("S", bound=State)
E = TypeVar("E", bound=Exception)

_numbers = count(1)


class Scene(Generic[S]):
    """One channel: its rules, its log, its state, and a clock that only `wait` moves."""

    def __init__(self, adapter: Adapter[S], spec: ChannelSpec) -> None:
        self.adapter = adapter
        self.spec = spec
        self.state = adapter.initial(spec)
        self.log: list[Envelope] = []
        self.now = NOON

    def decide(self, draft: Draft) -> tuple[Envelope, ...]:
        """Return what `draft` would bring about; nothing is accepted. Its state is what a restart folds."""
        appended, state = self.adapter.decide(self.state, draft, self.now)
        assert state == reduce(self.adapter.fold, appended, self.state)
        return appended

    def accept(self, *drafts: Draft) -> tuple[Envelope, ...]:
        """Accept `drafts`, in order; return what the last one brought about."""
        appended: tuple[Envelope, ...] = ()
        for draft in drafts:
            appended = self.decide(draft)
            self.log.extend(appended)
            self.state = reduce(self.adapter.fold, appended, self.state)
        return appended

    def refusal(self, draft: Draft, kind: type[E]) -> E:
        """The error with which `draft` is refused."""
        with pytest.raises(kind) as refused:
            self.decide(draft)
        return refused.value

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def due(self, awake_since: datetime = NOON) -> Sequence[Deadline]:
        return self.adapter.due(self.state, awake_since)

    def fire(self, deadline: Deadline) -> tuple[Envelope, ...]:
        """Post what the hub posts when `deadline` passes."""
        return self.accept(hub(deadline.event_type, deadline.event_data))

    def replayed(self) -> S:
        """The state that the log's bytes add up to."""
        lines = (codec.decode(codec.encode(envelope)) for envelope in self.log)
        return reduce(self.adapter.fold, lines, self.adapter.initial(self.spec))


def spec_of(adapter: AnyAdapter, *names: str | Participant, **given: Any) -> ChannelSpec:
    """What `open` makes of `names`, the opener first. A plain name is its own id."""
    participants = [Participant(name, name) if isinstance(name, str) else name for name in names]
    known: dict[str, Any] = {"channel_id": "c1", "type": adapter.manifest.type, "participants": participants}
    return ChannelSpec(**(known | {"creator_id": participants[0].agent_id} | given))


def invited(adapter: Adapter[S], *names: str | Participant, **given: Any) -> Scene[S]:
    """A channel whose invitation is out."""
    scene = Scene(adapter, spec_of(adapter, *names, **given))
    scene.accept(hub(ev.EV_CHANNEL_INVITE))
    return scene


def workflow(
    graph: TransitionGraph, *names: str | Participant, knobs: JsonObject | None = None, **given: Any
) -> Scene[WorkflowState]:
    """An open workflow channel (or one that waits for those in `invited`)."""
    return invited(WorkflowAdapter(), *names, knobs={"graph": graph.to_dict(), **(knobs or {})}, **given)


def draft(sender: str, event_type: str, data: Any = None, **more: Any) -> Draft:
    more.setdefault("envelope_id", f"d{next(_numbers)}")
    return Draft(sender_id=sender, event_type=event_type, event_data={} if data is None else data, **more)


def says(sender: str, text: str = "hello", **more: Any) -> Draft:
    return draft(sender, ev.EV_TEXT, {"text": text}, **more)


def packs(
    sender: str, kind: str = "text", *, claim: int | None = None, body: str = "done", **more: Any
) -> Draft:
    """A packet; `updates` are its context updates, everything else is its routing."""
    updates = more.pop("updates", {})
    data = {"body": body, "routing": {"kind": kind, **more}, "context_updates": updates}
    return draft(sender, ev.EV_PACKET, data, claim=claim)


def writes(sender: str, *, claim: int | None = None, **parts: Any) -> Draft:
    """A `context.set`: `writes("alice", set={"route": "security"})`."""
    return draft(sender, ev.EV_CONTEXT_SET, parts, audience=[], claim=claim)


def hub(event_type: str, data: JsonObject | None = None, **more: Any) -> Draft:
    return draft(ev.HUB, event_type, data, **more)


def acks(agent_id: str) -> Draft:
    return hub(ev.EV_CHANNEL_INVITE_ACK, {"agent_id": agent_id})


def claims(agent_id: str, worker: str = "w1", **more: Any) -> Draft:
    return hub(ev.EV_TURN_CLAIMED, {"agent_id": agent_id, "worker": worker, "lease_seconds": 30, **more})


def fails(agent_id: str, *, claim: int | None = None) -> Draft:
    error = {"type": "ModelError", "message": "overloaded"}
    return hub(ev.EV_TURN_FAILED, {"agent_id": agent_id, "error": error}, claim=claim)


def closes(reason: str = "enough") -> Draft:
    return hub(ev.EV_CHANNEL_CLOSED, {"reason": reason, "by": "alice"})


def line(
    sender: str, event_type: str = ev.EV_TEXT, data: JsonObject | None = None, *, seq: int = 1, **more: Any
) -> Envelope:
    """An envelope as it stands on a log, for what is tested below `decide`."""
    known: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "envelope_id": f"e{seq}", "created_at": NOON}
    return Envelope(
        channel_id="c1",
        seq=seq,
        sender_id=sender,
        event_type=event_type,
        event_data=data or {},
        **(known | more),
    )


def types(envelopes: Iterable[Envelope]) -> list[str]:
    return [envelope.event_type for envelope in envelopes]


def decided(envelopes: Sequence[Envelope]) -> Decision:
    """The decision that the first of `envelopes` carries."""
    decision = envelopes[0].decision
    assert decision is not None
    return decision


def basis(envelopes: Sequence[Envelope]) -> Basis:
    return decided(envelopes).by


def live(scene: Scene[Any]) -> int:
    """The seq of the live claim."""
    assert scene.state.claim is not None
    return int(scene.state.claim.seq)
