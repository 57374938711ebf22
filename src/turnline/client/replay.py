"""Replay: the same conversation again from any of its lines, with another model or another prompt.

    again = await replay(hub, channel_id, agents=[writer, editor], model={"writer": "openai:gpt-5"})
    print(await hub.history.diff(channel_id, again))

Rule 1: a replay is a fork. The agents' turns are taken anew, and so are steps, on channels of their own.
What people said is taken from the original: their turns in their order, for as long as it is their turn;
what they said or set in between, after as many turns as it came then. Where they said no more, it is left
open.

Rule 2: tools do not run. Recorded results answer the calls that match them, and other calls are refused
(`recorded_tools`), unless `tools="live"` says that every tool runs for real.

Rule 3: the agents work on the fork, and on what is opened below it, alone. While it goes on their seats
are taken, so that whoever is attached under one of their names cannot answer with the model that is to be
replaced.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Literal, get_args

from turnline.agent.agent import Agent, Config
from turnline.agent.prompt import Prompt
from turnline.agent.timeouts import within
from turnline.client.link import LocalLink
from turnline.client.participant import AgentClient, ParticipantClient
from turnline.client.recorded_tools import recorded_agent, recordings_of
from turnline.core.envelope import Envelope
from turnline.core.event_types import (
    EV_CONTEXT_SET,
    EV_HUMAN_ANSWERED,
    EV_HUMAN_REQUESTED,
    EV_TEXT,
    SUBSTANTIVE,
)
from turnline.core.governance import Registration
from turnline.core.state import State
from turnline.core.study.why import is_turn
from turnline.core.views import Floor, Notice, floor_for
from turnline.errors import BadSpec, UnknownParticipant
from turnline.hub.hub import Hub
from turnline.hub.seat import Seat as HubSeat
from turnline.hub.tree import has_begun
from turnline.turns.engine import Engine

Tools = Literal["recorded", "live"]
"""What answers the agents' tool calls: the record of the original, or the tools themselves."""


async def replay(
    hub: Hub,
    channel_id: str,
    *,
    agents: Iterable[Agent],
    from_seq: int | None = None,
    model: Config | Mapping[str, Config] = None,
    prompt: Prompt | Mapping[str, Prompt] | None = None,
    tools: Tools = "recorded",
    timeout: float | None = None,
) -> str:
    """Return the id of a channel on which the conversation has been held again from line `from_seq`.

    `agents` are those of the channel, by name; `model` and `prompt` replace theirs, all or some
    (`{"writer": ...}`). `tools="live"` runs the agents' tools for real: whatever they send, pay or delete
    happens again. Otherwise recorded results answer their calls. A turn that was in progress at `from_seq`
    starts again; without `from_seq`, the whole conversation does.

    Raises `UnknownParticipant` if an agent of the channel is not given, `NameTaken` if one is attached at
    this hub, `PastErased` if content of the channel was erased, `BadSpec` for a run of a flow (start the
    flow again, or `retry` the run) and for other `tools`, `TimeoutError`: the fork then stays as far as it
    came. A question that nobody was asked in the original, and a person whom a step asks, are waited for
    until then.
    """
    _check_tools(tools)
    at = await _beginning(hub, channel_id, from_seq)
    state = await hub.state(channel_id)
    state.check_complete()
    given = {one.name: one for one in agents}
    models: Mapping[str, Config] = model if isinstance(model, Mapping) else dict.fromkeys(given, model)
    prompts = prompt if isinstance(prompt, Mapping) else dict.fromkeys(given, prompt)
    _check(state, {*given}, {*models, *prompts})
    cast = {name: one.but(config=models.get(name), prompt=prompts.get(name)) for name, one in given.items()}
    if tools == "recorded":
        recordings = await recordings_of(hub, channel_id, after=at)
        seated = {one.name for one in state.spec.participants}
        cast = {name: recorded_agent(one, recordings, seated) for name, one in cast.items()}
    stage = _Stage(hub, state)
    try:
        await stage.seat(cast)
        fork_id = await hub.fork(channel_id, at=at)
        done = (await hub.state(fork_id)).turn_count
        script = await _script(hub.history.states(channel_id), at, done, stage.people)
        async with within(timeout, f"the replay {fork_id!r} has not ended", "; it stays as far as it came."):
            await stage.play(fork_id, script)
    finally:
        await stage.leave()
    return fork_id


class _Script:
    """What people said in the original behind the fork, and the replay has not heard."""

    def __init__(self) -> None:
        self.turns: defaultdict[str, deque[Envelope]] = defaultdict(deque)
        """Person -> the turns it took."""
        self.asides: deque[tuple[int, Envelope]] = deque()
        """What was said or set in between, and after how many turns."""
        self.answers: defaultdict[str, deque[str]] = defaultdict(deque)
        """Question -> what was answered."""
        self._questions: dict[str, str] = {}

    def add(self, line: Envelope, turn_count: int, people: Collection[str]) -> None:
        data = line.event_data
        if line.event_type == EV_HUMAN_REQUESTED:
            self._questions[str(data.get("request_id"))] = str(data.get("question"))
        elif line.event_type == EV_HUMAN_ANSWERED:
            question = self._questions.get(str(data.get("request_id")), "")
            self.answers[question].append(str(data.get("answer", "")))
        elif line.sender_id not in people:
            return
        elif line.event_type in SUBSTANTIVE and line.decision is not None:
            self.turns[line.sender_id].append(line)
        elif line.event_type in (EV_TEXT, EV_CONTEXT_SET):
            self.asides.append((turn_count, line))


class _Below:
    """The channels below the fork: what its turns and steps have opened."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.fork_id = ""

    async def has(self, channel_id: str) -> bool:
        parent = (await self._hub.state(channel_id)).spec.parent_id
        return parent is not None and (parent == self.fork_id or await self.has(parent))


class _Player(AgentClient):
    """An agent of a replay: it acts by itself below the fork; on the fork itself it is told to act."""

    _offers_places = False

    def __init__(self, registration: Registration, agent: Agent, below: _Below) -> None:
        super().__init__(registration, agent)
        self._below = below
        self._looking: set[asyncio.Task[None]] = set()

    def _take_notice(self, notice: Notice) -> None:
        task = asyncio.create_task(self._look(notice))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look(self, notice: Notice) -> None:
        if await self._below.has(notice.channel_id):
            super()._take_notice(notice)

    async def take_turn(self, channel_id: str, floor: Floor) -> None:
        """Take a turn of its own, also one that a program would have had to begin (W6), or of a step."""
        assert self._engine is not None  # It is attached.
        await self._engine.take(channel_id, floor)


class _Person(ParticipantClient):
    """A person of a replay. Its seat is shared: its holder may look on."""

    def __init__(self, hub: Hub, registration: Registration) -> None:
        super().__init__(registration, auto_ack_invites=False)
        seat = HubSeat(hub, registration)
        self._seat = seat
        self._engine = Engine(seat, seat.player, self._performer_of)

    async def take_turn(self, channel_id: str, floor: Floor) -> None:
        """Take the turn of a step that this person plays."""
        assert self._engine is not None
        await self._engine.take(channel_id, floor)

    async def say_again(self, channel_id: str, line: Envelope, *, interject: bool) -> None:
        await self.channel(channel_id).send(
            event_type=line.event_type,
            event_data=line.event_data,
            audience=line.audience,
            interject=interject,
        )


class _Stage:
    """The participants of one replay."""

    def __init__(self, hub: Hub, state: State) -> None:
        self._hub = hub
        self._spec = state.spec
        self._below = _Below(hub)
        self._players: dict[str, _Player] = {}
        self.people: dict[str, _Person] = {}

    async def seat(self, cast: Mapping[str, Agent]) -> None:
        """Take the agents' seats."""
        link = LocalLink(self._hub)
        for member in self._spec.participants:
            if member.played_by:
                continue
            registration = self._hub.participant(member.agent_id)
            if member.is_person:
                self.people[member.agent_id] = _Person(self._hub, registration)
                continue
            player = _Player(registration, cast[member.name], self._below)
            await player.attach(link)
            self._players[member.agent_id] = player

    async def leave(self) -> None:
        await asyncio.gather(*(one.close() for one in self._players.values()))

    async def play(self, fork_id: str, script: _Script) -> None:
        """Take turns until the fork has closed, or waits for a person who said no more."""
        self._below.fork_id = fork_id
        answering = asyncio.create_task(self._answer(fork_id, script))
        try:
            while await self._went_on(fork_id, script):
                pass
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _went_on(self, fork_id: str, script: _Script) -> bool:
        """Do what is due; whether there was anything to do."""
        state = await self._hub.state(fork_id)
        speaker = state.expected_next_speaker
        if state.is_over or speaker is None:
            return False
        if script.asides and script.asides[0][0] <= state.turn_count:
            _, line = script.asides.popleft()
            await self.people[line.sender_id].say_again(fork_id, line, interject=line.event_type == EV_TEXT)
        elif speaker not in self.people:
            await self._work(fork_id, state, speaker)
        elif script.turns[speaker]:
            line = script.turns[speaker].popleft()
            await self.people[speaker].say_again(fork_id, line, interject=False)
        else:
            return False
        return True

    async def _work(self, fork_id: str, state: State, speaker: str) -> None:
        """Let an agent take its turn, or the opener that of a step."""
        player = state.spec.player_of(speaker)
        floor = floor_for(player, state)
        if floor is not None:
            await (self._players.get(player) or self.people[player]).take_turn(fork_id, floor)
        if (await self._hub.state(fork_id)).seq == state.seq:  # It waits, or another worker has it.
            await self._hub.wait_beyond(fork_id, state.seq)

    async def _answer(self, fork_id: str, script: _Script) -> None:
        """Answer the agents' questions as people did; one they were never asked waits for `timeout`."""
        if not self.people:
            return
        channel = next(iter(self.people.values())).channel(fork_id)
        async for line in channel.stream(since=(await channel.info()).seq):
            known = script.answers.get(str(line.event_data.get("question")))
            if line.event_type == EV_HUMAN_REQUESTED and known:
                person = next(one for one in self.people if one in (line.audience or ()))
                data = {"request_id": line.event_data.get("request_id"), "answer": known.popleft()}
                answering = self.people[person].channel(fork_id)
                await answering.send(event_type=EV_HUMAN_ANSWERED, event_data=data)


async def _script(
    past: AsyncIterator[tuple[Envelope, State]], at: int, done: int, people: Collection[str]
) -> _Script:
    """What people said behind line `at`. A fork from before the opening words has said them itself."""
    script = _Script()
    async for line, then in past:
        if line.seq > at and (then.turn_count > done or not is_turn(line)):
            script.add(line, then.turn_count, people)
    return script


async def _beginning(hub: Hub, channel_id: str, from_seq: int | None) -> int:
    """The line to fork at: `from_seq`, or where the turn in progress there was given to its speaker."""
    if from_seq is not None:
        state = await hub.state_at(channel_id, from_seq)
        return state.floor_seq if has_begun(state) else from_seq
    async for line, state in hub.history.states(channel_id):
        if state.expected_next_speaker is not None:
            return line.seq
    return 1


def _check_tools(tools: object) -> None:
    if tools not in get_args(Tools):
        raise BadSpec("tools", found=repr(tools), expected=" or ".join(map(repr, get_args(Tools))))


def _check(state: State, given: Collection[str], replaced: Iterable[str]) -> None:
    if "flow" in state.spec.knobs:
        found = f"{state.channel_id!r}, a run of a flow"
        raise BadSpec("channel", found=found, expected="a conversation of agents and people")
    for one in state.spec.participants:
        if not one.is_person and not one.played_by and one.name not in given:
            raise UnknownParticipant(one.name, given)
    for name in replaced:
        if name not in given:
            raise UnknownParticipant(name, given)
