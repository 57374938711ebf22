"""Replay: the same conversation again from any of its lines, with another model or another prompt.

    again = await replay(hub, channel_id, agents=[writer, editor], model={"writer": "openai:gpt-5"})
    print(await hub.history.diff(channel_id, again))

Rule 1: a replay is a fork. The agents' turns are taken anew; what people said is taken from the
original, in its order, for as long as it is their turn. Where they said no more, it is left open.

Rule 2: the agents work on the fork alone. While it goes on their seats are taken, so that whoever is
attached under one of their names cannot answer with the model that is to be replaced.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping

from turnwise.agent.agent import Agent, Config
from turnwise.agent.prompt import Prompt
from turnwise.client.agent_turn import AgentTurns
from turnwise.client.channel import Channel
from turnwise.client.link import LocalLink, Seat
from turnwise.client.turn import TurnHandler, take_turn
from turnwise.core.envelope import Envelope
from turnwise.core.event_types import EV_HUMAN_ANSWERED, EV_HUMAN_REQUESTED, SUBSTANTIVE
from turnwise.core.state import State
from turnwise.core.study.why import is_turn
from turnwise.errors import BadSpec, UnknownParticipant
from turnwise.hub.hub import Hub
from turnwise.hub.seat import Seat as HubSeat


async def replay(
    hub: Hub,
    channel_id: str,
    *,
    agents: Iterable[Agent],
    from_seq: int | None = None,
    model: Config | Mapping[str, Config] = None,
    prompt: Prompt | Mapping[str, Prompt] | None = None,
    timeout: float | None = None,
) -> str:
    """Return the id of a channel on which the conversation has been held again from line `from_seq`.

    `agents` are those of the channel, by name; `model` and `prompt` replace theirs, all or some
    (`{"writer": ...}`). A turn that was in progress at `from_seq` is begun anew; without it, the whole
    conversation is. Raises `UnknownParticipant` if an agent of the channel is not given, `NameTaken` if
    one is attached at this hub, `BadSpec` for a channel with steps (start its flow again, or `retry` the
    run), `TimeoutError`: the fork then stays as far as it came.
    """
    at = await _beginning(hub, channel_id, from_seq)
    state = await hub.state(channel_id)
    given = {one.name: one for one in agents}
    models: Mapping[str, Config] = model if isinstance(model, Mapping) else dict.fromkeys(given, model)
    prompts = prompt if isinstance(prompt, Mapping) else dict.fromkeys(given, prompt)
    _check(state, {*given}, {*models, *prompts})
    cast = {name: one.but(config=models.get(name), prompt=prompts.get(name)) for name, one in given.items()}
    stage = _Stage(hub, state, cast)
    try:
        await stage.seat()
        fork_id = await hub.fork(channel_id, at=at)
        # A fork from before the opening words has said them itself.
        done = (await hub.state(fork_id)).turn_count
        past = hub.history.states(channel_id)
        stage.remember(
            [
                line
                async for line, then in past
                if line.seq > at and (then.turn_count > done or not is_turn(line))
            ]
        )
        async with asyncio.timeout(timeout):
            await stage.play(fork_id)
    finally:
        stage.leave()
    return fork_id


class _Deaf:
    """Sits on a seat and hears nothing: the replay itself says whose turn it is."""

    def wake(self, channel_id: str, seq: int) -> None:
        """See `Receiver.wake`."""


class _Stage:
    """The participants of one replay."""

    def __init__(self, hub: Hub, state: State, cast: Mapping[str, Agent]) -> None:
        self._hub = hub
        self._members = state.spec.participants
        self._cast = cast
        self._seats: dict[str, Seat] = {}
        self._turns: dict[str, TurnHandler] = {}
        self._said: defaultdict[str, deque[Envelope]] = defaultdict(deque)
        """Person -> the turns it took in the original, and the replay has not."""
        self._answered: defaultdict[str, deque[str]] = defaultdict(deque)
        """Question -> what a person answered in the original."""

    async def seat(self) -> None:
        """Take the agents' seats. A person's is shared: whoever sits there may look on."""
        link = LocalLink(self._hub)
        for member in self._members:
            registration = self._hub.participant(member.agent_id)
            if member.kind == "human":
                self._seats[member.agent_id] = HubSeat(self._hub, registration)
                continue
            self._seats[member.agent_id] = seat = await link.attach(registration, _Deaf())
            self._turns[member.agent_id] = AgentTurns(self._cast[member.name], seat)

    def leave(self) -> None:
        for agent_id in self._turns:
            self._seats[agent_id].leave()

    def remember(self, lines: Iterable[Envelope]) -> None:
        """Take from the original what people said behind the fork."""
        questions: dict[str, str] = {}
        for line in lines:
            data = line.event_data
            if line.event_type == EV_HUMAN_REQUESTED:
                questions[str(data.get("request_id"))] = str(data.get("question"))
            elif line.event_type == EV_HUMAN_ANSWERED:
                question = questions.get(str(data.get("request_id")), "")
                self._answered[question].append(str(data.get("answer", "")))
            elif line.event_type in SUBSTANTIVE and line.decision is not None:
                self._said[line.sender_id].append(line)

    async def play(self, fork_id: str) -> None:
        """Take turns until the fork has closed, or waits for a person who said no more."""
        answering = asyncio.create_task(self._answer(fork_id))
        try:
            while True:
                state = await self._hub.state(fork_id)
                speaker = state.expected_next_speaker
                if state.is_over or speaker is None:
                    return
                if speaker in self._turns:
                    floor = (await self._hub.read_recent(fork_id, state.floor_seq - 1))[0]
                    await take_turn(self._seats[speaker], floor, self._turns[speaker])
                elif not await self._say_again(fork_id, speaker):
                    return
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _say_again(self, fork_id: str, person: str) -> bool:
        """Say what the person said next in the original; whether there was anything."""
        if not self._said[person]:
            return False
        said = self._said[person].popleft()
        channel = Channel(self._seats[person], fork_id)
        await channel.send(event_type=said.event_type, event_data=said.event_data, audience=said.audience)
        return True

    async def _answer(self, fork_id: str) -> None:
        """Answer the agents' questions as people did; one they were never asked waits for `timeout`."""
        people = [one.agent_id for one in self._members if one.kind == "human"]
        if not people:
            return
        channel = Channel(self._seats[people[0]], fork_id)
        async for line in channel.stream(since=(await channel.info()).seq):
            known = self._answered.get(str(line.event_data.get("question")))
            if line.event_type == EV_HUMAN_REQUESTED and known:
                data = {"request_id": line.event_data.get("request_id"), "answer": known.popleft()}
                await channel.send(event_type=EV_HUMAN_ANSWERED, event_data=data)


async def _beginning(hub: Hub, channel_id: str, from_seq: int | None) -> int:
    """The line to fork at: `from_seq`, or where the turn in progress there was given to its speaker."""
    if from_seq is not None:
        state = await hub.state_at(channel_id, from_seq)
        return state.floor_seq if state.claims else from_seq
    async for line, state in hub.history.states(channel_id):
        if state.expected_next_speaker is not None:
            return line.seq
    return 1


def _check(state: State, given: Collection[str], replaced: Iterable[str]) -> None:
    members = state.spec.participants
    if any(one.kind == "step" for one in members):
        found = f"{state.channel_id!r}, a channel with steps"
        raise BadSpec("channel", found=found, expected="a conversation of agents and people")
    for one in members:
        if one.kind != "human" and one.name not in given:
            raise UnknownParticipant(one.name, given)
    for name in replaced:
        if name not in given:
            raise UnknownParticipant(name, given)
