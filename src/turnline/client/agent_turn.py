"""An agent's turn on a channel: view -> round -> packet (T2-T5).

The log is the round's journal: what an earlier attempt of the turn recorded is
not done again. The agent's variables live with the channel's conversation in
this process; they are never on the log (V4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec

from turnline.agent.agent import Agent, Conversation, Surroundings
from turnline.agent.failures import report_failure
from turnline.agent.journal import Entry
from turnline.agent.messages import Message, ModelReply, UserMessage
from turnline.agent.performer import OnProgress, Progress, TextDelta, current_call
from turnline.agent.round import Outcome, ToolAnswer
from turnline.agent.tool_result import ToolOutput, failure
from turnline.client.channel import Channel, update_context
from turnline.client.link import Seat
from turnline.client.plugin import NO_PLUGIN, NetworkPlugin
from turnline.client.summary import Summaries
from turnline.client.turn import Turn
from turnline.core import event_types as ev, views
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.router import compile_graph
from turnline.core.routing import Handoff, packet
from turnline.core.state import State, WorkflowState
from turnline.errors import AgentError, NobodyToAsk, TurnlineError
from turnline.hub.journal import LogJournal, entries

_YOUR_TURN: Final = UserMessage(text="(It is your turn.)")
_GRAPHS: Final = 256


class LiveState:
    """A channel's state as a tool sees it: what the tool writes through its channel is there at once (C3)."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def refresh(self, state: State) -> None:
        if state.seq > self._state.seq:  # Of two calls at once, the slower one may have read first.
            self._state = state


class TurnChannel(Channel):
    """The channel of a turn. What is sent through it is part of the turn, and in `live` at once."""

    def __init__(self, seat: Seat, channel_id: str, *, claim: int, live: LiveState) -> None:
        super().__init__(seat, channel_id, claim=claim)
        self._live = live

    def _call(self) -> str:
        return current_call.get()

    async def send(self, *args: Any, **kwargs: Any) -> Envelope:
        """See `Channel.send`."""
        envelope = await super().send(*args, **kwargs)
        self._live.refresh(await self.state())
        return envelope


class AgentTurns:
    """Takes an agent's turns, on every channel it is on."""

    def __init__(self, agent: Agent, seat: Seat, plugin: NetworkPlugin = NO_PLUGIN) -> None:
        self._agent = agent
        self._seat = seat
        self._plugin = plugin
        self._summaries = Summaries(agent, seat)
        self._conversations: dict[str, Conversation] = {}
        """Channel -> the variables its turns share."""

    def forget(self, channel_id: str) -> None:
        """The channel has closed."""
        self._conversations.pop(channel_id, None)
        self._summaries.forget(channel_id)

    async def __call__(self, turn: Turn) -> JsonObject:
        """Do the round and return the packet's data."""
        channel_id = turn.channel.channel_id
        state = await self._seat.state(channel_id)
        live = LiveState(state)
        channel = TurnChannel(self._seat, channel_id, claim=turn.claim.seq, live=live)
        shown, spent = await self._summaries.shown(turn, state.spec)
        talk = replace(
            self._conversation(channel_id),
            messages=spoken(shown),
            key=f"{channel_id}:{turn.number}",
            tools=self._plugin.tools_for(self._agent),
        )
        outcome = await self._performed(
            talk,
            Surroundings(
                journal=_TurnJournal(self._seat, channel, turn.claim.seq),
                recorded=entries(await self._seat.recorded(channel_id)),
                extras={"channel": channel, "state": live, "seat": self._seat},
                context_vars=state.context_vars,
                ask_person=_People(channel, turn, state.spec).ask,
                sleep=self._seat.sleep,
                review=_Review(state.spec),
                on_progress=self._spread(channel_id),
            ),
        )
        data = packet(outcome.text, outcome.outcomes, routing_tools=routing_tools(state))
        return data | {"usage": msgspec.to_builtins(outcome.usage + spent)}

    async def _performed(self, talk: Conversation, around: Surroundings) -> Outcome:
        try:
            return await self._agent.perform(talk, around)
        except TurnlineError:
            raise
        except Exception as error:  # A prompt's, a hook's or a model's of the user's own. It goes on the log.
            text = failure(error, talk.variables, talk.dependencies).text
            report_failure(f"agent {self._agent.name!r}", error, text)
            raise AgentError(text) from None

    def _spread(self, channel_id: str) -> OnProgress | None:
        """Tell the reply's words as they come, where somebody listens; streaming costs more than asking."""
        if not self._seat.is_heard(channel_id):
            return None

        def spread(progress: Progress) -> None:
            if isinstance(progress, TextDelta):
                self._seat.tell_text(channel_id, progress.text)

        return spread

    def _conversation(self, channel_id: str) -> Conversation:
        if channel_id not in self._conversations:
            self._conversations[channel_id] = self._agent.conversation()
        return self._conversations[channel_id]


def spoken(messages: Sequence[views.Message]) -> tuple[Message, ...]:
    """A view as a model's messages: what the agent said itself as its own, the others with their names."""
    told = [_spoken(message) for message in messages]
    if not told or isinstance(told[-1], ModelReply):
        told.append(_YOUR_TURN)  # A model answers somebody; it does not go on by itself.
    return tuple(told)


def routing_tools(state: State) -> frozenset[str]:
    """The tools some transition of the channel's graph waits for (T4)."""
    if not isinstance(state, WorkflowState):
        return frozenset()
    return _routing_tools(
        state.graph_key, msgspec.json.encode(state.graph_data), msgspec.json.encode(state.spec)
    )


@lru_cache(maxsize=_GRAPHS)
def _routing_tools(key: str, graph: bytes, spec: bytes) -> frozenset[str]:
    decoded = msgspec.json.decode(spec, type=ChannelSpec)
    return compile_graph(msgspec.json.decode(graph), decoded).routing_tools


def _spoken(message: views.Message) -> Message:
    if message.role == "own":
        return ModelReply(text=message.text)
    return UserMessage(text=message.text, name=message.name)


class _TurnJournal(LogJournal):
    """Writes a round's entries on the channel's log."""

    def __init__(self, seat: Seat, channel: TurnChannel, claim: int) -> None:
        super().__init__(seat, channel.channel_id, claim)
        self._channel = channel

    async def record(self, entry: Entry) -> None:
        """See `Journal.record`. Context variables that come with a tool's result land before it."""
        if isinstance(entry, ToolAnswer) and entry.context:
            await update_context(self._channel, set=entry.context)
        await super().record(entry)


class _Review:
    """A handoff to somebody who is not there goes back to the model, which can choose again (W8)."""

    def __init__(self, spec: ChannelSpec) -> None:
        self._spec = spec

    def __call__(self, output: ToolOutput) -> ToolOutput:
        match output.returned:
            case Handoff(target=target) if target not in self._spec.names():
                known = ", ".join(one.name for one in self._spec.participants)
                text = f"nobody here is called {target!r}; the participants are {known}. Choose one of them."
                return ToolOutput(text=text, failed=True)
        return output


class _People:
    """Asks the people on the channel, durably: the question is on the log, and so is the answer (H1)."""

    def __init__(self, channel: TurnChannel, turn: Turn, spec: ChannelSpec) -> None:
        self._channel = channel
        self._turn = turn
        self._people = [one.agent_id for one in spec.participants if one.kind == "human"]
        self._asked: Counter[str] = Counter()

    async def ask(self, key: str, prompt: str, timeout: float | None) -> str:
        if not self._people:
            raise NobodyToAsk
        # A yes to one call is no yes to the next one like it, nor to the same question asked once more. A
        # call that a later attempt of this turn makes again asks the same again, and is perhaps answered.
        question = f"{key}\n{prompt}"
        self._asked[question] += 1
        digest = blake2b(f"{self._asked[question]} {question}".encode(), digest_size=8)
        request_id = f"ask-{self._turn.envelope.seq}-{digest.hexdigest()}"
        await self._channel.send(
            event_type=ev.EV_HUMAN_REQUESTED,
            event_data={"request_id": request_id, "question": prompt},
            audience=self._people,
            envelope_id=request_id,
        )
        try:
            answer = await self._channel.wait_for(
                lambda one: _answers(one, request_id), timeout=timeout, since=self._turn.envelope.seq
            )
        except TimeoutError:
            limit = "" if timeout is None else f" within {timeout:g} s"
            raise TimeoutError(f"no person has answered{limit}") from None  # A model reads it.
        return str(answer.event_data.get("answer", ""))


def _answers(envelope: Envelope, request_id: str) -> bool:
    data: Mapping[str, Any] = envelope.event_data
    return envelope.event_type == ev.EV_HUMAN_ANSWERED and data.get("request_id") == request_id
