"""Random drafts against a channel, and a second, plainer telling of its rules that has to agree.

A step is what somebody tries: who, what, and under which claim. The model says
whether it is accepted and what comes of it; so does the channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from turnline.core import codec, event_types as ev
from turnline.core.adapter import AnyAdapter
from turnline.core.adapters import ConsultingAdapter, ConversationAdapter, DiscussionAdapter, WorkflowAdapter
from turnline.core.channel import Participant
from turnline.core.envelope import Draft, JsonObject
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.transitions import (
    AgentTarget,
    ContextEquals,
    RoundRobinTarget,
    StayTarget,
    TerminateTarget,
    ToolCalled,
    TurnFailed,
)
from turnline.errors import Refused

from .scenes import Scene, claims, closes, draft, fails, hub, invited, packs, says, writes

MAX_TURNS, MAX_CLAIMS = 6, 5
GRAPH = TransitionGraph(
    "alice",
    [
        Transition(ContextEquals("done", True), TerminateTarget("done")),
        Transition(ToolCalled("again"), StayTarget()),
        Transition(TurnFailed("bob"), AgentTarget("alice")),
    ],
    RoundRobinTarget(["alice", "bob"]),
    MAX_TURNS,
)
NED = Participant("ned", "ned", "human")


class Step(NamedTuple):
    """What somebody tries. Only some kinds of step look at the last three."""

    what: str
    who: str
    """A participant, a stranger, or `speaker`: whoever has the floor."""
    under: str
    """`live`: the live claim is named. `stale`: a claim that never was. `none`: no claim."""
    routing: tuple[str, dict[str, Any]]
    update: JsonObject
    odd: Any


HOW_OFTEN = {
    "say": 2, "pack": 6, "write": 10, "claim": 12, "record": 4, "interject": 2, "fail": 1, "release": 2,
    "warn": 4, "retry": 4, "note": 1, "forge": 1, "nonsense": 1, "close": 1, "expire": 1,
}  # fmt: skip
STEP = st.builds(
    Step,
    what=st.sampled_from([what for what, times in HOW_OFTEN.items() for _ in range(times)]),
    who=st.sampled_from([*["speaker"] * 6, "alice", "bob", "ned", "zoe"]),
    under=st.sampled_from(["live", "live", "live", "none", "stale"]),
    routing=st.sampled_from(
        [
            ("text", {}),
            ("text", {"tool": "again"}),
            ("text", {"updates": {"n": 5, "done": False}}),
            ("text", {"updates": {"done": True}}),
            ("handoff", {"target": "bob"}),
            ("handoff", {"target": "zoe"}),
            ("signal", {"signal": "ok"}),
            ("finish", {"reason": "finished early"}),
        ]
    ),
    update=st.sampled_from(
        [
            {"set": {"n": 1}},
            {"set": {"name": "Jane"}},
            {"delete": ["n"]},
            {"delete": ["n", "name"], "set": {"n": 7}},
            {"increment": {"n": 2}},
            {"increment": {"name": 1}},
            {"append": {"tags": "x"}},
            {"append": {"n": 1}},
            {"expect": {"n": 1}, "set": {"n": 100}},
            {"set": {"done": False}},
        ]
    ),
    odd=st.sampled_from([None, 5, "finish", [], {}, {"kind": "teleport"}, {"kind": "handoff", "target": 5}]),
)
STEPS = st.lists(STEP, min_size=10, max_size=50)


SENT = {"say", "pack", "write", "interject", "note"}
"""What a participant sends; the hub posts the rest, whoever it is about."""


class Model:
    """The rules of the channel above once more, as plainly as possible."""

    def __init__(self) -> None:
        self.seq, self.turns, self.floor = 2, 0, "alice"
        self.floor_seq = 2
        self.status, self.reason = "active", ""
        self.now: JsonObject = {}
        self.before_the_turn: JsonObject = {}
        self.recorded: JsonObject = {}
        self.claimed = 0
        self.attempts = 0
        self.deaths = 0
        self.stuck = 0
        """The line that says so; 0 while the turn is not stuck."""
        self.warned = 0

    def accepts(self, step: Step) -> bool:
        """Whether the step is accepted; if so, it has been applied."""
        if self.status != "active" or (step.who == "zoe" and step.what in SENT):
            return False
        act: Callable[[Step], bool] = getattr(self, step.what)
        return act(step)

    def named(self, step: Step) -> int:
        """The claim a step names; 0 is none."""
        return {"live": self.claimed, "stale": 1, "none": 0}[step.under]

    def say(self, step: Step) -> bool:
        if step.who == "ned":
            return self.interject(step)
        return self.pack(step._replace(routing=("text", {}), under="none"))

    def interject(self, step: Step) -> bool:
        return self.lines(1) if not self.claimed else False

    def pack(self, step: Step) -> bool:
        kind, about = step.routing
        if step.who != self.floor or self.named(step) != self.claimed or about.get("target") == "zoe":
            return False
        if self.stuck:
            return False
        self.lines(1)
        self.now |= about.get("updates", {})
        after = {"alice": "bob", "bob": "alice"}[step.who]
        if kind == "finish":
            return self.turn("", about["reason"])
        if kind == "handoff":
            return self.turn(about["target"])
        if self.now.get("done") is True:
            return self.turn("", "done")
        return self.turn(step.who if about.get("tool") == "again" else after)

    def turn(self, following: str, reason: str = "") -> bool:
        self.turns += 1
        self.before_the_turn, self.recorded = dict(self.now), dict(self.now)
        self.claimed = self.attempts = self.deaths = 0
        self.floor, self.floor_seq = following, self.seq
        if following and self.turns >= MAX_TURNS:
            reason = "max_turns"
        return self.end(reason) if reason else True

    def write(self, step: Step) -> bool:
        update = step.update
        if step.under != "none" and self.named(step) and self.named(step) != self.claimed:
            return False
        if self.claimed and self.named(step) == self.claimed and step.who != self.floor:
            return False
        if not _fits(self.now, update):
            return False
        _apply(self.now, update)
        if not (self.claimed and self.named(step) == self.claimed):
            _apply(self.before_the_turn, update)
            _apply(self.recorded, update)
        return self.lines(1)

    def claim(self, step: Step) -> bool:
        if step.who != self.floor or (self.claimed and self.named(step) != self.claimed):
            return False
        if self.stuck:
            return False
        if self.deaths >= MAX_CLAIMS:
            return self.give_up() if self.floor == "bob" else self.stick()
        if self.attempts:
            self.now = dict(self.recorded)
        self.attempts += 1
        self.deaths += 1
        self.lines(1)
        self.claimed = self.seq
        return True

    def stick(self) -> bool:
        self.now = dict(self.recorded)
        self.claimed = self.attempts = self.deaths = 0
        self.lines(1)
        self.stuck = self.seq
        return True

    def retry(self, step: Step) -> bool:
        if not self.stuck or step.under == "stale":
            return False
        self.stuck = 0
        return self.lines(1)

    def record(self, step: Step) -> bool:
        if not self.claimed or self.named(step) != self.claimed:
            return False
        self.recorded = dict(self.now)
        self.deaths = 0
        return self.lines(1)

    def fail(self, step: Step) -> bool:
        is_ours = step.who == self.floor and self.named(step) == self.claimed and not self.stuck
        return self.give_up() if is_ours else False

    def give_up(self) -> bool:
        failed = self.floor
        self.now, self.recorded = dict(self.before_the_turn), dict(self.before_the_turn)
        self.lines(2)
        return self.turn("alice") if failed == "bob" else self.turn("", "turn_failed")

    def release(self, step: Step) -> bool:
        if self.named(step) != self.claimed:
            return False
        self.claimed = self.deaths = 0
        return self.lines(1)

    def warn(self, step: Step) -> bool:
        if step.under == "stale" or self.stuck or self.warned == self.floor_seq:
            return False
        self.warned = self.floor_seq
        return self.lines(1)

    def note(self, step: Step) -> bool:
        return self.lines(1)

    def forge(self, step: Step) -> bool:
        return False

    nonsense = forge

    def close(self, step: Step) -> bool:
        return self.end("enough")

    def expire(self, step: Step) -> bool:
        self.lines(1)
        return self.end("ttl_expired", "expired")

    def end(self, reason: str, status: str = "closed") -> bool:
        self.lines(2 if self.claimed or self.now != self.before_the_turn else 1)
        self.now = dict(self.before_the_turn)
        self.claimed, self.floor = 0, ""
        self.status, self.reason = status, reason
        return True

    def lines(self, count: int) -> bool:
        self.seq += count
        return True


def _fits(variables: JsonObject, update: JsonObject) -> bool:
    if any(variables.get(key) != value for key, value in update.get("expect", {}).items()):
        return False
    numbers = all(type(variables.get(key, 0)) is int for key in update.get("increment", {}))
    return numbers and all(type(variables.get(key, [])) is list for key in update.get("append", {}))


def _apply(variables: JsonObject, update: JsonObject) -> None:
    for key in update.get("delete", []):
        variables.pop(key, None)
    variables |= update.get("set", {})
    for key, amount in update.get("increment", {}).items():
        if type(variables.get(key, 0)) is int:
            variables[key] = variables.get(key, 0) + amount
    for key, item in update.get("append", {}).items():
        if type(variables.get(key, [])) is list:
            variables[key] = [*variables.get(key, []), item]


Lines = tuple[int, int]
"""The line that gave the floor, and the one that paused the turn (0: none)."""
DRAFTS: dict[str, Callable[[Step, int | None, Lines], Draft]] = {
    "say": lambda step, claim, since: says(step.who),
    "interject": lambda step, claim, since: says(step.who, interject=True),
    "pack": lambda step, claim, since: packs(step.who, step.routing[0], claim=claim, **step.routing[1]),
    "write": lambda step, claim, since: writes(step.who, claim=claim, **step.update),
    "claim": lambda step, claim, since: claims(step.who, replaces=claim, alone=True),
    "retry": lambda step, claim, since: hub(
        ev.EV_TURN_RESUMED, {"pause": 1 if step.under == "stale" else since[1]}
    ),
    "record": lambda step, claim, since: hub(ev.EV_TURN_TOOL, {"call": 1}, claim=claim),
    "renew": lambda step, claim, since: hub(ev.EV_TURN_RENEWED, claim=claim),
    "fail": lambda step, claim, since: fails(step.who, claim=claim),
    "release": lambda step, claim, since: hub(ev.EV_TURN_RELEASED, claim=claim),
    "warn": lambda step, claim, since: hub(
        ev.EV_EXPECTATION_VIOLATED,
        {"name": "turn_within", "expectation": 0, "since": 1 if step.under == "stale" else since[0]},
    ),
    "note": lambda step, claim, since: draft(step.who, "acme.note", {"n": 1}),
    "forge": lambda step, claim, since: draft(step.who, ev.EV_CHANNEL_CLOSED),
    "nonsense": lambda step, claim, since: draft(step.who, ev.EV_PACKET, {"routing": step.odd}),
    "close": lambda step, claim, since: closes("enough"),
    "expire": lambda step, claim, since: hub(ev.EV_CHANNEL_EXPIRED),
}
"""What a step posts, given the claim it names and the line that gave the floor."""


def resolved(steps: list[Step], scene: Scene[Any]) -> Iterator[Step]:
    for step in steps:
        speaker = scene.state.expected_next_speaker or "alice"
        yield step._replace(who=speaker) if step.who == "speaker" else step


def tries(scene: Scene[Any], step: Step) -> bool:
    """Whether the step is accepted. What it appends is gapless, and reads back to the same state."""
    before = scene.state
    live = None if before.claim is None else before.claim.seq
    claim = {"live": live, "stale": 1, "none": None}[step.under]
    try:
        paused = 0 if before.pause is None else before.pause.seq
        appended = scene.accept(DRAFTS[step.what](step, claim, (before.floor_seq, paused)))
    except Refused:
        assert scene.state is before
        return False
    assert [envelope.seq for envelope in appended] == list(range(before.seq + 1, scene.state.seq + 1))
    for envelope in appended:
        before = scene.adapter.fold(before, codec.decode(codec.encode(envelope)))
    assert before == scene.state
    return True


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_a_workflow_channel_does_what_its_rules_say(steps: list[Step]) -> None:
    scene = invited(WorkflowAdapter(), "alice", "bob", NED, knobs={"graph": GRAPH.to_dict()})
    model = Model()

    for step in resolved(steps, scene):
        assert tries(scene, step) == model.accepts(step), step
        state = scene.state
        assert (state.seq, state.turn_count, state.expected_next_speaker or "") == (
            model.seq,
            model.turns,
            model.floor,
        )
        assert (state.status, state.pending_close_reason) == (model.status, model.reason)
        assert (state.context_vars, state.claims) == (model.now, model.attempts)

    assert scene.replayed() == scene.state


@pytest.mark.parametrize("adapter", [ConversationAdapter(), ConsultingAdapter(), DiscussionAdapter()])
def test_every_channel_accepts_or_refuses_and_replays(adapter: AnyAdapter) -> None:
    @given(STEPS)
    @settings(max_examples=50, deadline=None)
    def check(steps: list[Step]) -> None:
        scene = invited(adapter, "alice", "bob")
        for step in resolved(steps, scene):
            tries(scene, step)

        assert scene.replayed() == scene.state

    check()
