"""What has to be true in the end, read off the log alone, without the code that wrote it.

Rule: nothing here asks `decide` or `fold` what is right,
but for the comparison with what the hubs have in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise

import msgspec

from tests.faults.simulation.plot import Plot
from tests.faults.simulation.program import Told
from tests.faults.simulation.store import Store
from turnline.core.adapters import built_in
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Close, Envelope, Speak
from turnline.core.state import State

EARLY_SECONDS = 1.0
"""Clocks that differ by less are alike, so a deadline may be as much too early."""


def faults(store: Store, told: Told, channel_id: str, plot: Plot) -> Iterator[str]:
    """What is wrong with one conversation; it has ended."""
    lines = store.read(channel_id)  # And the chain of its records holds, or this raises.
    if [one.seq for one in lines] != list(range(1, len(lines) + 1)):
        yield f"{channel_id}: the seqs have gaps"
    if len({one.envelope_id for one in lines}) != len(lines):
        yield f"{channel_id}: an id is there twice"
    if any(later.created_at < one.created_at for one, later in pairwise(lines)):
        yield f"{channel_id}: the time runs backwards"
    yield from _ending(store, told, channel_id, plot, lines)
    yield from _Turns(lines).faults()
    yield from _marks(told, channel_id, lines)


def _ending(store: Store, told: Told, channel_id: str, plot: Plot, lines: list[Envelope]) -> Iterator[str]:
    endings = [one for one in lines if one.event_type == "channel.closed"]
    if endings != lines[-1:]:
        yield f"{channel_id}: closed {len(endings)} times, and the last line is a {lines[-1].event_type}"
        return
    reason = lines[-1].event_data["reason"]
    if channel_id in told.reasons and told.reasons[channel_id] != reason:
        yield f"{channel_id}: said to have closed with {told.reasons[channel_id]!r}, and it is {reason!r}"
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
        and one.decision.by.kind != "initial"
        and one.event_type != "channel.opened"
    ]


class _Turns:
    """Who had the floor, and who had claimed it, line by line."""

    def __init__(self, lines: list[Envelope]) -> None:
        self._lines = lines
        self._floor: str | None = None
        self._claim: Envelope | None = None

    def faults(self) -> Iterator[str]:
        for line in self._lines:
            where = f"{line.channel_id} {line.seq}"
            if line.event_type == "turn.claimed":
                yield from (f"{where}: {one}" for one in self._claimed(line))
            elif line.event_type in ("turn.released", "turn.abandoned"):
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
        process, _, claim = line.event_data["body"].partition(" ")
        worker = self._claim.event_data["worker"].partition("/")[0]
        if process != worker or (claim and int(claim) != self._claim.seq):
            yield f"a packet of {line.event_data['body']!r} under claim {self._claim.seq} of {worker}"


def _marks(told: Told, channel_id: str, lines: list[Envelope]) -> Iterator[str]:
    """T3: whoever claims a turn runs no tool that was recorded before."""
    for mark in told.marks:
        if mark.channel_id != channel_id:
            continue
        mine = [one for one in lines[: mark.seq] if _is_claim_of(one, mark.process)]
        if not mine:
            yield f"{channel_id}: {mark} without a claim"
            continue
        turn = mine[-1].event_data["turn"]
        claims = [
            one.seq for one in lines if one.event_type == "turn.claimed" and one.event_data["turn"] == turn
        ]
        recorded = [
            one.seq for one in lines if one.event_type == "turn.tool" and claims[0] < one.seq < mine[-1].seq
        ]
        if recorded:
            yield f"{channel_id}: {mark} was recorded at {recorded} before claim {mine[-1].seq}"
        runs = sum(other.key == mark.key for other in told.marks)
        if runs > len(claims):
            yield f"{channel_id}: {mark} ran {runs} times under {len(claims)} claims"


def _is_claim_of(line: Envelope, process: str) -> bool:
    return line.event_type == "turn.claimed" and line.event_data["worker"].startswith(f"{process}/")


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
    adapter = built_in().get("workflow")
    state: State = reduce(
        adapter.fold, lines, adapter.initial(msgspec.convert(lines[0].event_data, ChannelSpec))
    )
    return state
