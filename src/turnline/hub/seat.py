"""A seat: what one participant can do at a hub.

The sender of everything that goes through a seat is the seat's, and what it
reads is what that participant may see. A link hands out seats, over whatever
distance; this is the one in the hub's own process.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnline.core import event_types as ev
from turnline.core.channel import ChannelMetadata, ChannelRow, ChannelSpec, ChannelState
from turnline.core.claims import check_claim
from turnline.core.envelope import Draft, Envelope, JsonObject, shown_to, visible_to
from turnline.core.governance import Registration, may_address
from turnline.core.parts import FilePart
from turnline.core.state import Claim, State, metadata_of
from turnline.core.study.spent import Spent
from turnline.core.views import Floor, Message, plays, shared_state_for, state_for
from turnline.errors import BadDraft, ClientClosed, EnvelopeIdReused, NotParticipant, OutOfTurn, UnknownFile
from turnline.hub.channels import Entry
from turnline.hub.hub import Hub
from turnline.hub.request import OpenRequest
from turnline.hub.retry import retry
from turnline.hub.texts import Listening, TurnText, is_for
from turnline.hub.timers import NewId
from turnline.hub.tree import check_delegation
from turnline.hub.turns import UNITS, Lane
from turnline.log.joined import Transaction

TURN_LINES: Final = frozenset(
    {*UNITS, ev.EV_TURN_PAUSED, ev.EV_TURN_RELEASED, ev.EV_TURN_RENEWED, ev.EV_TURN_FAILED}
)
"""What the hub writes for the worker of a turn."""
SIGNS: Final = frozenset({ev.EV_TURN_RENEWED, ev.EV_TURN_RELEASED})
"""What says of a worker only that it is there, or leaves. It loses its sense with time."""
OWN_LINES: Final = frozenset({ev.EV_PACKET, ev.EV_HUMAN_REQUESTED})
"""What the worker of a turn writes as its speaker."""


class Reading(Struct, frozen=True):
    """What a participant may see of a stretch of a channel's log."""

    envelopes: list[Envelope]
    seq: int
    """How far the stretch goes: where to read on from."""
    is_end: bool = False
    """Whether the channel had no further line: `read_next` waits for one."""


class FileChunk(Struct, frozen=True):
    """Some bytes of a file that a participant may read."""

    file: FilePart
    data: bytes


class Claimed(Struct, frozen=True, kw_only=True):
    """The answer to a claim: what its worker needs to take the turn (N5)."""

    claim: Claim
    state: State
    """With the channel's own context variables: before a worker gives them to user code, it copies them."""
    lines: list[Envelope]
    """What the turn has on the log so far."""
    ages: list[float] = []
    """How many seconds ago each of `lines` was written. Setting the clock changes nothing."""
    gave: Envelope | None = None
    """The line that gave the floor, as far as the participant may see it; None for a played one's turn."""
    view: list[Message] | None = None
    """What the speaker is shown of the conversation; None: its worker reads it (see `turns.work`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """The worker that an engine takes turns as."""

    agent_id: str
    worker: str
    lane: Lane
    new_id: NewId
    has_heartbeat: bool
    """Whether other processes work on this log, so that a silent worker has to say that it is alive."""


class Peer(Struct, frozen=True, kw_only=True):
    """What a participant may know of another."""

    agent_id: str
    name: str
    kind: str
    capabilities: list[str]
    summary: str


class SeatChannel(Struct, frozen=True, kw_only=True):
    """A channel in the list of a participant who is on it."""

    channel_id: str
    type: str
    participants: dict[str, str]
    """Id -> name. The id again for a step, and for a participant who is not registered any more."""
    speaker_id: str | None
    labels: dict[str, str]


class Seat:
    """One participant's place at a hub of this process."""

    def __init__(self, hub: Hub, registration: Registration, worker: str = "", *, log_name: str = "") -> None:
        """`log_name` marks what is opened from here as this log's own (see `log.origin`)."""
        self._at = hub
        self._log_name = log_name
        self._has_left = False
        self.registration = registration
        self.agent_id = registration.agent_id
        self.worker = worker or hub.turns.process.join(hub.new_id()[-8:])

    @property
    def _hub(self) -> Hub:
        """The hub, for as long as the seat is held. Raises `ClientClosed` after `leave`."""
        if self._has_left:
            raise ClientClosed(self.registration.name)
        return self._at

    def new_id(self) -> str:
        return self._hub.new_id()

    def leave(self) -> None:
        """Give the seat up; what was claimed from it can be taken over at once. It is of no use then."""
        self._has_left = True
        self._at.detach(self.agent_id)
        self._at.turns.process.leave(self.worker)

    async def peers(self) -> list[Peer]:
        """Return everybody whom the participant may address, in the order of registration."""
        me = await self._hub.lookup(self.agent_id)
        others = (one for one in self._hub.participants() if one.agent_id != me.agent_id)
        return [_peer(one) for one in others if may_address(me, one)]

    async def channels(self) -> list[SeatChannel]:
        """Return the open channels the participant is on. The index answers: no channel is read."""
        rows = await self._hub.list_channels(agent_id=self.agent_id, state=ChannelState.ACTIVE)
        await self._hub.learn(dict.fromkeys(one for row in rows for one in row.participants))
        return [self._listed(row) for row in rows]

    async def open(self, request: OpenRequest) -> str:
        """Open a channel; below another one (`parent_id`) only as a member of that, and in no circle (T7)."""
        if request.parent_id is not None:
            parent = (await self._member(request.parent_id)).state
            me = await self._hub.lookup(self.agent_id)
            asked = [await self._hub.lookup(name, asked_by=me) for name in request.target]
            await check_delegation(self._hub.tree.parent, parent, me, asked)
        return await self._hub.open_channel(request, self.agent_id, log_name=self._log_name)

    async def post(self, channel_id: str, draft: Draft) -> Envelope:
        """Return the envelope `draft` became, or raise what refused it."""
        envelopes = await self._hub.post(channel_id, replace(draft, sender_id=self.agent_id))
        return envelopes[0]

    # What has no id of its own takes one: doing it again under the same `envelope_id` never doubles (E1).

    async def answer_invite(
        self, channel_id: str, *, rejected_because: str | None = None, envelope_id: str = ""
    ) -> None:
        """Accept an invitation, or reject it."""
        once = {"envelope_id": envelope_id}
        if rejected_because is None:
            data: JsonObject = {"agent_id": self.agent_id}
            await self._hub.write(channel_id, ev.EV_CHANNEL_INVITE_ACK, data, audience=[], **once)
        else:
            data = {"agent_id": self.agent_id, "reason": rejected_because}
            await self._hub.write(channel_id, ev.EV_CHANNEL_INVITE_REJECT, data, **once)

    async def close_channel(self, channel_id: str, reason: str, *, envelope_id: str = "") -> None:
        await self._member(channel_id)
        data = {"reason": reason, "by": self.agent_id}
        await self._hub.write(channel_id, ev.EV_CHANNEL_CLOSED, data, envelope_id=envelope_id)

    async def read(self, channel_id: str, after: int) -> Reading:
        """Return what the participant may see behind `after`."""
        return await self._read(await self._member(channel_id), after)

    async def read_next(self, channel_id: str, after: int) -> Reading:
        """Return what the participant may see after line `after`; wait until there is something.

        A reading without envelopes says that nothing more will come: the channel is over.
        """
        entry = await self._member(channel_id)
        with entry.pinned():
            while True:
                reading = await self._read(entry, after)
                if reading.envelopes or not await self._hub.wait_entry(entry, reading.seq):
                    return reading
                after = reading.seq

    async def _read(self, entry: Entry, after: int) -> Reading:
        envelopes = await self._hub.read_entry(entry, after)
        seq, spec = envelopes[-1].seq if envelopes else after, entry.state.spec
        shown = (shown_to(one, self.agent_id) or self._played(one, spec) for one in envelopes)
        found = [one for one in shown if one is not None]
        return Reading(found, seq, is_end=seq >= entry.state.seq)

    async def add_file(self, channel_id: str, pieces: AsyncIterable[bytes]) -> tuple[str, int]:
        """Keep a file, to be sent by this participant just after; return its digest and size (Y6)."""
        await self._member(channel_id)
        blob = await self._hub.files.add(channel_id, self.agent_id, pieces, self.registration.user)
        return blob.digest, blob.size

    async def read_chunk(self, channel_id: str, seq: int, index: int, number: int) -> FileChunk:
        """Return a chunk of the file `index` of a line that the participant may see. Raises `UnknownFile`."""
        entry = await self._member(channel_id)
        lines = [one for one in await self._hub.read_entry(entry, max(seq - 1, 0), 1) if one.seq == seq]
        if not lines or not (visible_to(lines[0], self.agent_id) or self._wrote(lines[0], entry.state)):
            raise UnknownFile(channel_id, seq=seq, index=index)
        file, blob = await self._hub.files.find(lines[0], index)
        return FileChunk(file, await self._hub.files.log.read_chunk(blob, number) or b"")

    def _wrote(self, line: Envelope, state: State) -> bool:
        """Return whether it opened the channel with the line, or works on the turn that has the line."""
        if line.event_type == ev.EV_CHANNEL_INVITE and state.creator_id == self.agent_id:
            return True
        is_worker = state.claim is not None and state.spec.player_of(state.claim.agent_id) == self.agent_id
        return is_worker and line.sender_id == ev.HUB and line.seq > state.floor_seq

    def listen(self, channel_id: str) -> Listening:
        """Listen to the words of the turns in flight; a context manager. Members only, as `read` checks."""
        return Listening(self._hub.texts, channel_id, partial(is_for, self.agent_id))

    def is_heard(self, channel_id: str) -> bool:
        """Whether anybody listens to the words of a turn in flight."""
        return self._hub.texts.is_heard(channel_id)

    def tell_text(self, channel_id: str, text: str, audience: list[str] | None = None) -> None:
        """Tell listeners a piece of what is about to be said; `audience` is that of the packet, by id."""
        words = TurnText(channel_id=channel_id, agent_id=self.agent_id, text=text, audience=audience)
        self._hub.texts.tell(words)

    async def state(self, channel_id: str) -> State:
        """Return what the channel's log adds up to now, as the participant may see it.

        Its context variables are the caller's own copy.
        """
        return state_for(self.agent_id, (await self._member(channel_id)).state)

    async def metadata(self, channel_id: str) -> ChannelMetadata:
        return metadata_of(await self.state(channel_id))

    @property
    def player(self) -> Player:
        """The worker that takes turns from here."""
        return Player(
            agent_id=self.agent_id,
            worker=self.worker,
            lane=self._hub.turns.lane,
            new_id=self._hub.new_id,
            has_heartbeat=self._hub.follows,
        )

    async def claim_turn(self, floor: Floor, channel_id: str, *, claim_id: str, alone: bool) -> Claimed:
        """Claim a turn of the participant, or of one that it plays (N5).

        A claim that came with the floor is taken as it is. Raises `OutOfTurn` for another one's turn.
        """
        entry = await self._hub.entry_for_work(channel_id)
        state = entry.tip
        speaker = state.spec.participant(floor.speaker)
        if speaker is None or self.agent_id != (speaker.played_by or speaker.agent_id):
            self._check_member(entry)
            raise OutOfTurn(channel_id, sender=self.agent_id, speaker=str(state.expected_next_speaker))
        if speaker.played_by:
            self._check_member(entry)
        claim = state.claim
        with entry.pinned():
            if claim is None or claim.worker != self.worker or state.turn_count + 1 != floor.turn:
                claim = await self._hub.turns.claim(
                    channel_id,
                    floor.speaker,
                    worker=self.worker,
                    turn=floor.turn,
                    envelope_id=claim_id,
                    alone=alone,
                )
            live = entry.tip.claim
            if live is None or live.seq != claim.seq:  # It has landed before, and is over.
                raise EnvelopeIdReused(channel_id, envelope_id=claim.envelope_id, seq=claim.seq)
            return await self._answer_claim(claim, entry, is_played=bool(speaker.played_by))

    async def _answer_claim(self, claim: Claim, entry: Entry, *, is_played: bool) -> Claimed:
        state = entry.tip
        is_fresh = claim.seq == state.floor_seq + 1 == state.seq
        if is_fresh and is_played:  # A step needs no line.
            return Claimed(claim=claim, state=shared_state_for(self.agent_id, state), lines=[])
        after = state.floor_seq - 1
        recent = entry.recent(after)
        gave, *later = await self._hub.read_wal(entry.channel_id, after) if recent is None else recent
        lines = [one for one in later if one.seq <= state.seq and self._is_for(claim.agent_id, one)]
        return Claimed(
            claim=claim,
            state=shared_state_for(self.agent_id, state),
            lines=lines,
            ages=[self._hub.seconds_since(one) for one in lines],
            gave=shown_to(gave, self.agent_id),
        )

    def _is_for(self, speaker: str, line: Envelope) -> bool:
        """Return whether the worker of a turn gets a line: the hub's, and what it or the speaker may see."""
        return line.sender_id == ev.HUB or visible_to(line, speaker) or visible_to(line, self.agent_id)

    async def write(
        self, channel_id: str, draft: Draft, *, within: Transaction | None = None, can_hold: bool = False
    ) -> None:
        """Write a line of a turn that this participant takes, for itself or for one that it plays.

        A sign of life is not written where no other process looks for one. What the turn has come to is
        written until the log takes it, or it would be done twice; with a transaction it is rolled back.
        With `can_hold` it may be recorded later (`hub.posting`, rule 6).
        """
        event_type = draft.event_type
        is_hubs = event_type in TURN_LINES
        if not is_hubs and event_type not in OWN_LINES:
            expected = f"a line of a turn: {', '.join(sorted(TURN_LINES | OWN_LINES))}"
            raise BadDraft("event_type", found=repr(event_type)[:80], expected=expected)
        draft = replace(draft, envelope_id=draft.envelope_id or self._hub.new_id(), claimant=self.agent_id)
        if event_type == ev.EV_TURN_FAILED:
            draft = replace(draft, sender_id=ev.HUB, event_data=_failure(draft))
        elif is_hubs:
            draft = replace(draft, sender_id=ev.HUB, audience=[])
        if event_type == ev.EV_TURN_RENEWED and not self._hub.follows:
            check_claim(await self._hub.state(channel_id), draft)
            return
        write = partial(self._hub.post, channel_id, draft, within=within, can_hold=can_hold)
        if within is not None or event_type in SIGNS:
            await write()
        else:
            await retry(self._hub.clock, write, f"a line of a turn on {channel_id} is not written yet")

    async def wait_unclaimed(self, channel_id: str) -> None:
        await self._hub.turns.wait_unclaimed(channel_id)

    async def sleep(self, seconds: float) -> None:
        await self._hub.clock.sleep(seconds)

    async def usage(self, channel_id: str) -> Spent:
        """Return what the channel and those below it used."""
        entry = await self._member(channel_id)
        own, below = await self._hub.tree.spent(entry.state)
        return own + below.spent

    async def summary(self, channel_id: str) -> JsonObject | None:
        await self._member(channel_id)
        return await self._hub.turns.summary(channel_id, self.agent_id)

    def _listed(self, row: ChannelRow) -> SeatChannel:
        known = {one: self._hub.find_participant(one) for one in row.participants}
        return SeatChannel(
            channel_id=row.channel_id,
            type=row.type,
            participants={one: one if found is None else found.name for one, found in known.items()},
            speaker_id=row.speaker_id or None,
            labels=row.labels,
        )

    def _played(self, envelope: Envelope, spec: ChannelSpec) -> Envelope | None:
        """Return a line that gives the floor to a participant that this one plays, without its data."""
        return replace(envelope, event_data={}) if plays(self.agent_id, spec, envelope) else None

    async def _member(self, channel_id: str) -> Entry:
        """Return a channel that the participant is on. Raises `NotParticipant` for any other."""
        entry = await self._hub.entry(channel_id)
        self._check_member(entry)
        return entry

    def _check_member(self, entry: Entry) -> None:
        spec = entry.state.spec
        if spec.participant(self.agent_id) is None:
            names = [one.name for one in spec.participants]
            raise NotParticipant(entry.channel_id, sender=self.agent_id, participants=names)


def _failure(draft: Draft) -> JsonObject:
    """Return why a turn failed. Only the hub says that participants are absent."""
    return {"agent_id": draft.sender_id, "error": draft.event_data.get("error", {})}


def _peer(one: Registration) -> Peer:
    return Peer(
        agent_id=one.agent_id,
        name=one.name,
        kind=one.passport.kind,
        capabilities=list(one.resume.capabilities),
        summary=one.resume.summary,
    )
