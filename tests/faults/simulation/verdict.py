"""What has to be true in the end, read off the log alone, without the code that wrote it.

Rule: nothing here asks `decide` or `fold` what is right,
but for the comparison with what the hubs have in memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from typing import Final

import msgspec

from tests.faults.simulation.cast import SUSPECT, Mark
from tests.faults.simulation.flows import Story
from tests.faults.simulation.plot import Plot
from tests.faults.simulation.store import Store
from tests.faults.simulation.told import Told
from turnline.core.adapters import built_in
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Close, Envelope, Speak
from turnline.core.state import State, WorkflowState
from turnline.flow.verdict import verdict

EARLY_SECONDS: Final = 1.0
"""Clocks that differ by less are alike, so a deadline may be as much too early."""
REMOTE: Final = "remote:"
"""What the name of a linked process starts with."""
SIGNED: Final = re.compile(r"((?:north|south|remote):\S+)(?: (\d+))?")
"""A body that names its process, and its claim."""
WORK: Final = frozenset({"turn.claimed", "turn.renewed", "turn.model", "turn.tool", "turn.once", "packet"})
"""Lines that a worker writes."""
RIGHT_ENDS: Final = frozenset({"consulting_complete", "sequence_complete", "completed", "too_slow"})
"""How channels below others end."""


def faults(store: Store, told: Told, channel_id: str, plot: Plot | Story | None) -> Iterator[str]:
    """Yield what is wrong with one channel; it has ended. Those below others have no plot."""
    lines = store.read(channel_id)  # And the chain of its records holds, or this raises.
    if [one.seq for one in lines] != list(range(1, len(lines) + 1)):
        yield f"{channel_id}: the seqs have gaps"
    if len({one.envelope_id for one in lines}) != len(lines):
        yield f"{channel_id}: an id is there twice"
    if any(later.created_at < one.created_at for one, later in pairwise(lines)):
        yield f"{channel_id}: the time runs backwards"
    endings = [one for one in lines if one.event_type == "channel.closed"]
    if endings != lines[-1:]:
        yield f"{channel_id}: closed {len(endings)} times, and the last line is a {lines[-1].event_type}"
        return
    reason = lines[-1].event_data["reason"]
    if channel_id in told.reasons and told.reasons[channel_id] != reason:
        yield f"{channel_id}: said to have closed with {told.reasons[channel_id]!r}, and it is {reason!r}"
    if isinstance(plot, Plot):
        yield from _ending(store, channel_id, plot, lines)
    elif isinstance(plot, Story):
        yield from _result(store, channel_id, plot)
    elif reason not in RIGHT_ENDS:
        yield f"{channel_id}: closed with {reason!r}"
    yield from _Turns(lines).faults()
    yield from _waiting(lines)
    yield from _questions(store, lines)
    if not isinstance(plot, Plot) or SUSPECT not in plot.agents:
        yield from _given_up(lines)
    yield from _marks(told, channel_id, lines)


def _result(store: Store, run_id: str, story: Story) -> Iterator[str]:
    state = folded(store, run_id)
    assert isinstance(state, WorkflowState)
    found = verdict(state)
    data = {key: value for key, value in found.data.items() if key != "words"}
    if found.status != "succeeded" or data != story.result | {"run": run_id}:
        yield f"{run_id}: {found.status} with {data} ({found.error}), not {story.result}"


def _ending(store: Store, channel_id: str, plot: Plot, lines: list[Envelope]) -> Iterator[str]:
    reason = lines[-1].event_data["reason"]
    if reason != plot.reason:
        yield f"{channel_id}: closed with {reason!r}, not {plot.reason!r}"
    names = {one["agent_id"]: one["name"] for one in lines[0].event_data["participants"]}
    spoken = "".join(names[one.event_data.get("agent_id", one.sender_id)][0] for one in turns_of(lines))
    if spoken != plot.speakers:
        yield f"{channel_id}: the turns were {spoken!r}, not {plot.speakers!r}"
    lasted = store.landed_at[channel_id][-1] - store.landed_at[channel_id][0]
    if lasted < plot.lasts_seconds - EARLY_SECONDS:
        yield f"{channel_id}: closed with {reason!r} after {lasted:.1f} s"


def turns_of(lines: list[Envelope]) -> list[Envelope]:
    """The lines with which a turn was taken, or given up."""
    return [
        one
        for one in lines
        if one.decision is not None
        and one.decision.by.kind not in ("initial", "resume", "retry")
        and one.event_type != "channel.opened"
    ]


class _Turns:
    """Who had the floor, and who had claimed it, line by line."""

    def __init__(self, lines: list[Envelope]) -> None:
        self._lines = lines
        self._floor: str | None = None
        self._claim: Envelope | None = None
        self._steps = {one["agent_id"] for one in lines[0].event_data["participants"] if one.get("played_by")}

    def faults(self) -> Iterator[str]:
        for line in self._lines:
            where = f"{line.channel_id} {line.seq}"
            if line.event_type == "turn.claimed":
                yield from (f"{where}: {one}" for one in self._claimed(line))
            elif line.event_type in ("turn.released", "turn.abandoned", "turn.paused"):
                self._claim = None
            elif line.event_type == "packet":
                yield from (f"{where}: {one}" for one in self._packet(line))
            if isinstance(line.decision, Speak):
                self._floor, self._claim = line.decision.agent_id, None
            elif isinstance(line.decision, Close):
                self._floor = None

    def _claimed(self, line: Envelope) -> Iterator[str]:
        if line.event_data["agent_id"] != self._floor:
            yield f"claimed for {line.event_data['agent_id']}, but {self._floor} has the floor"
        if self._claim is not None and line.event_data.get("replaces") != self._claim.seq:
            yield f"claimed, but {self._claim.seq} is live"
        self._claim = line

    def _packet(self, line: Envelope) -> Iterator[str]:
        if line.sender_id != self._floor:
            yield f"{line.sender_id} spoke, but {self._floor} had the floor"
        if self._claim is None:
            yield "a packet without a claim"
            return
        signed = SIGNED.fullmatch(line.event_data.get("body", ""))
        if signed is None or line.sender_id in self._steps:  # A step says what others have said.
            return
        process, claim = signed.groups()
        worker = self._claim.event_data["worker"].partition("/")[0]
        is_worker = process == worker or process.startswith(REMOTE)
        if not is_worker or (claim and int(claim) != self._claim.seq):
            yield f"a packet of {line.event_data['body']!r} under claim {self._claim.seq} of {worker}"


def _waiting(lines: list[Envelope]) -> Iterator[str]:
    """N1: while a turn waits, none of its lines is written."""
    pause: Envelope | None = None
    for line in lines:
        if line.event_type == "turn.paused":
            pause = line
        elif pause is not None and line.event_data.get("pause") == pause.seq:
            pause = None
        elif pause is not None and line.event_type in WORK:
            yield f"{line.channel_id} {line.seq}: a {line.event_type} in the pause of {pause.seq}"


def _questions(store: Store, lines: list[Envelope]) -> Iterator[str]:
    """N1b: a question is asked once and answered once. The copy below is of one above."""
    asked = [one for one in lines if one.event_type == "human.requested"]
    answers = [one for one in lines if one.event_type == "human.answered"]
    places = Counter(tuple(one.event_data[key] for key in ("turn", "call", "position")) for one in asked)
    said = Counter(one.event_data["request_id"] for one in answers)
    yield from (f"{asked[0].channel_id}: {one} was asked {n} times" for one, n in places.items() if n > 1)
    yield from (f"{asked[0].channel_id}: {one} was answered {n} times" for one, n in said.items() if n > 1)
    for one in answers:
        if (above := one.event_data.get("above")) is None:
            continue
        line = next(each for each in asked if each.event_data["request_id"] == one.event_data["request_id"])
        found = [
            each
            for each in store.read(above)
            if each.event_type == "human.requested" and each.event_data["position"] == line.seq
        ]
        if [each.event_data["call"] for each in found] != [one.channel_id]:
            yield f"{one.channel_id} {one.seq}: {len(found)} questions above have this answer"


def _given_up(lines: list[Envelope]) -> Iterator[str]:
    """N3: a turn that only died beside a suspect is not given up."""
    for line in lines:
        if line.event_type == "turn.paused" and line.event_data.get("reason") == "stuck":
            yield f"{line.channel_id} {line.seq}: an innocent turn is stuck"


def _marks(told: Told, channel_id: str, lines: list[Envelope]) -> Iterator[str]:
    """T3: what was recorded before a claim is not done under it, and nothing is done twice under one."""
    done = Counter[tuple[str, str, int]]()
    for mark in told.marks:
        if mark.channel_id != channel_id:
            continue
        mine = [one for one in lines[: mark.seq] if _is_claim_of(one, mark.process)]
        if not mine:
            yield f"{mark} without a claim"
            continue
        claim = mine[-1]
        recorded = _record_of(mark, claim, lines)
        done[mark.kind, mark.key, claim.seq] += 1
        if recorded is not None and recorded.seq < claim.seq:
            yield f"{mark} was recorded at {recorded.seq} before claim {claim.seq}"
    for (kind, key, seq), times in done.items():
        if times > 1:
            yield f"{channel_id}: {kind} {key} was done {times} times under claim {seq}"


def _record_of(mark: Mark, claim: Envelope, lines: list[Envelope]) -> Envelope | None:
    """Return the line that records what was done in this turn. Only `once` survives a step's retry."""
    turn = claim.event_data["turn"]
    first = next(
        one.seq for one in lines if one.event_type == "turn.claimed" and one.event_data["turn"] == turn
    )
    retries = [
        one.seq
        for one in lines[first : claim.seq]
        if one.event_type == "turn.paused" and one.event_data.get("reason") == "retry"
    ]
    since = first if mark.kind == "once" or not retries else retries[-1]
    units = [one for one in lines[since:] if one.event_type == f"turn.{mark.kind}"]
    later = [one.seq for one in lines if one.seq > claim.seq and one.event_type == "packet"]
    units = [one for one in units if not later or one.seq < later[0]]
    if mark.kind == "model":
        return units[int(mark.key)] if int(mark.key) < len(units) else None
    if mark.kind == "tool":
        return next((one for one in units if one.event_data["entry"]["call_id"] == mark.key), None)
    return next((one for one in units if one.event_data["key"] == mark.key), None)


def _is_claim_of(line: Envelope, process: str) -> bool:
    if line.event_type != "turn.claimed":
        return False
    is_linked = process.startswith(REMOTE)  # Its worker is the seat at its server.
    return is_linked or line.event_data["worker"].startswith(f"{process}/")


def lost(store: Store, told: Told) -> Iterator[str]:
    """What somebody was told is on the log, and is not."""
    there = {
        (channel_id, one.envelope_id): one.seq
        for channel_id, records in store.log.records.items()
        for one in records
    }
    for channel_id, envelope_id in store.acknowledged:
        if (channel_id, envelope_id) not in there:
            yield f"{channel_id}: {envelope_id} was acknowledged, and is not there"
    for (channel_id, envelope_id), seq in told.sent.items():
        if there.get((channel_id, envelope_id)) != seq:
            yield f"{channel_id}: a person was told that {envelope_id} is at {seq}, and it is not"


def folded(store: Store, channel_id: str) -> State:
    """What the log of a conversation adds up to."""
    lines = store.read(channel_id)
    spec = msgspec.convert(lines[0].event_data, ChannelSpec)
    adapter = built_in().get(spec.type)
    state: State = reduce(adapter.fold, lines, adapter.initial(spec))
    return state
