"""Replays every `transcripts/*.txt` and compares what the channel answered.

A block is a command, `----`, and the expected answer. To accept new answers,
run with REWRITE=1 and read the diff; commit it only if you can explain it.

    open workflow alice bob ned(human) carol?   carol is asked and has to accept
    open workflow alice bob: text               the opening message
    carol accepts / carol rejects
    alice: text                                 a text; out of turn, a person's is an interjection
    alice interjects: text
    alice delivers: text                        a packet
    alice calls escalate: text                  a packet whose round called a tool some transition waits for
    alice hands off to bob: text                alice finishes done: text
    alice sets route=security                   alice deletes route / increments n by 2 / appends x to tasks
    alice claims as w1                          from then on `w1` is alice under that claim
    w2 takes over from w1 [alone]               w1 records look_up / w1 releases / w1 fails: because
    retry                                       an operator resumes a stuck turn
    clock +130s                                 time passes; what falls due is posted
    close: reason                               what bob sees

The graph is that of `patterns.py`, by the file's name. An answer lists the lines that were
appended (seq, type, sender), the context variables if they changed, who has the floor, and why.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from turnline.core import event_types as ev
from turnline.core.adapters import built_in
from turnline.core.channel import Participant
from turnline.core.envelope import Basis, Draft, Envelope
from turnline.core.views import view_for
from turnline.errors import Refused

from .core.scenes import NOON, Scene, acks, claims, draft, hub, packs, says, spec_of, writes
from .patterns import PATTERNS

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


class Stage:
    """The channel of one transcript, and the workers that hold claims on it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.claims: dict[str, tuple[str, int]] = {}

    def open(self, channel_type: str, names: str, message: str | None) -> str:
        adapter = built_in().get(channel_type)
        people = [_participant(name) for name in names.split()]
        asked = [name.rstrip("?") for name in names.split() if name.endswith("?")]
        pattern = PATTERNS.get(self.name)
        knobs = {"graph": pattern.graph.to_dict(), "context_vars": pattern.context_vars} if pattern else {}
        self.scene: Scene[Any] = Scene(
            adapter, spec_of(adapter, *people, knobs=knobs, invited=asked, message=message)
        )
        return self.post(hub(ev.EV_CHANNEL_INVITE))

    def post(self, posted: Draft) -> str:
        before = self.scene.state.context_vars
        try:
            appended = self.scene.accept(posted)
        except Refused as refused:
            return f"refused: {type(refused).__name__}: {refused}"
        return "\n".join([*map(_line, appended), *self._changes(before), self._floor(appended)])

    def clock(self, seconds: str) -> str:
        """Let time pass, and post what falls due on the way, as the hub does."""
        self.scene.wait(int(seconds))
        told = []
        while (due := self.scene.due()) and due[0].at <= self.scene.now:
            told.append(self.post(hub(due[0].event_type, due[0].event_data)))
        return "\n".join(told) or f"nothing falls due by {self.scene.now:%H:%M:%S}"

    def claim(self, agent_id: str, worker: str, replaces: int | None = None, alone: bool = False) -> str:
        answer = self.post(claims(agent_id, worker, replaces=replaces, alone=alone))
        if self.scene.state.claim is not None and self.scene.state.claim.worker == worker:
            self.claims[worker] = (agent_id, self.scene.state.claim.seq)
        return answer

    def take_over(self, worker: str, other: str, alone: str | None = None) -> str:
        agent_id, seq = self.claims[other]
        return self.claim(agent_id, worker, replaces=seq, alone=alone is not None)

    def retry(self) -> str:
        pause = self.scene.state.pause
        return self.post(hub(ev.EV_TURN_RESUMED, {"pause": 0 if pause is None else pause.seq}))

    def view(self, agent_id: str) -> str:
        shown = view_for(agent_id, self.scene.spec).project(self.scene.log, agent_id, self.scene.spec)
        return "\n".join(f"{one.role} {one.name}: {one.text}" if one.name else one.text for one in shown)

    def who(self, name: str) -> tuple[str, int | None]:
        """A participant, or the one a worker works for and the claim it has."""
        return self.claims.get(name, (name, None))

    def pack(self, who: str, kind: str, body: str, **routing: str) -> str:
        sender, claim = self.who(who)
        return self.post(packs(sender, kind, claim=claim, body=body, **routing))

    def write(self, who: str, **parts: Any) -> str:
        sender, claim = self.who(who)
        return self.post(writes(sender, claim=claim, **parts))

    def turn(self, who: str, event_type: str, **data: Any) -> str:
        agent_id, claim = self.who(who)
        return self.post(hub(event_type, {"agent_id": agent_id, **data}, claim=claim))

    def _changes(self, before: dict[str, Any]) -> list[str]:
        after = self.scene.state.context_vars
        return [f"context: {json.dumps(after)}"] if after != before else []

    def _floor(self, appended: tuple[Envelope, ...]) -> str:
        why = next((f", by {_why(e.decision.by)}" for e in reversed(appended) if e.decision), "")
        state = self.scene.state
        if state.is_over:
            return f"closed: {state.pending_close_reason}{why}"
        waits = f"waiting for: {', '.join(state.awaiting)}"
        return waits if state.awaiting else f"floor: {state.expected_next_speaker}{why}"


def _participant(name: str) -> Participant:
    plain, _, kind = name.rstrip("?)").partition("(")
    return Participant(plain, plain, kind or "agent")


def _line(envelope: Envelope) -> str:
    return f"{envelope.seq} {envelope.event_type} {envelope.sender_id}"


def _why(by: Basis) -> str:
    rule = by.kind if by.index is None else f"{by.kind} {by.index}"
    reason = " -> ".join(text for text in (by.condition, by.target) if text)
    return f"{rule}: {reason}" if reason else rule


def _value(text: str) -> Any:
    """`text` as JSON if it is JSON, else as it stands."""
    try:
        return json.loads(text)
    except ValueError:
        return text


COMMANDS: Final[list[tuple[str, Callable[..., str]]]] = [
    (r"open (\w+) ([^:]+)(?:: (.+))?", Stage.open),
    (r"clock \+(\d+)s", Stage.clock),
    (r"close: (.+)", lambda stage, reason: stage.post(hub(ev.EV_CHANNEL_CLOSED, {"reason": reason}))),
    (r"what (\w+) sees", Stage.view),
    (r"(\w+) accepts", lambda stage, who: stage.post(acks(who))),
    (r"(\w+) rejects", lambda stage, who: stage.turn(who, ev.EV_CHANNEL_INVITE_REJECT)),
    (r"(\w+) claims as (\w+)", Stage.claim),
    (r"(\w+) takes over from (\w+)( alone)?", Stage.take_over),
    (r"retry", Stage.retry),
    (r"(\w+) records (\w+)", lambda stage, who, tool: stage.turn(who, ev.EV_TURN_TOOL, tool=tool)),
    (r"(\w+) releases", lambda stage, who: stage.turn(who, ev.EV_TURN_RELEASED)),
    (
        r"(\w+) fails: (.+)",
        lambda stage, who, why: stage.turn(who, ev.EV_TURN_FAILED, error={"message": why}),
    ),
    (r"(\w+) sets (\w+)=(.+)", lambda stage, who, key, text: stage.write(who, set={key: _value(text)})),
    (r"(\w+) deletes (\w+)", lambda stage, who, key: stage.write(who, delete=[key])),
    (
        r"(\w+) increments (\w+) by (\d+)",
        lambda stage, who, key, n: stage.write(who, increment={key: int(n)}),
    ),
    (r"(\w+) appends (\w+) to (\w+)", lambda stage, who, item, key: stage.write(who, append={key: item})),
    (r"(\w+) delivers: (.*)", lambda stage, who, text: stage.pack(who, "text", text)),
    (r"(\w+) calls (\w+): (.*)", lambda stage, who, tool, text: stage.pack(who, "text", text, tool=tool)),
    (
        r"(\w+) hands off to (\w+): (.*)",
        lambda stage, who, to, text: stage.pack(who, "handoff", text, target=to),
    ),
    (
        r"(\w+) finishes (\w+): (.*)",
        lambda stage, who, why, text: stage.pack(who, "finish", text, reason=why),
    ),
    (r"(\w+) interjects: (.*)", lambda stage, who, text: stage.post(says(who, text, interject=True))),
    (r"(\w+) posts ([\w.]+)", lambda stage, who, event_type: stage.post(draft(who, event_type))),
    (r"(\w+): (.*)", lambda stage, who, text: stage.post(says(who, text))),
]


def answer(stage: Stage, command: str) -> str:
    for pattern, run in COMMANDS:
        if match := re.fullmatch(pattern, command):
            return run(stage, *match.groups())
    raise ValueError(f"no command reads like {command!r}; the docstring above lists them")


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    stage = Stage(path.stem)
    actual = []
    for block in path.read_text().strip().split("\n\n"):
        command, is_command, _ = block.partition("\n----")
        actual.append(f"{command}\n----\n{answer(stage, command)}" if is_command else block)
    text = "\n\n".join(actual) + "\n"
    if os.environ.get("REWRITE"):
        path.write_text(text)
    assert text == path.read_text()
    assert stage.scene.replayed() == stage.scene.state


def test_every_pattern_has_its_transcript() -> None:
    assert PATTERNS.keys() <= {path.stem for path in TRANSCRIPTS}


def test_a_transcript_begins_at_noon() -> None:
    """Times in the transcripts are times of day; the clock moves by `clock` alone."""
    stage = Stage("pipeline")
    answer(stage, "open workflow researcher writer editor")

    assert stage.scene.now == NOON
