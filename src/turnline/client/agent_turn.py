"""An agent's turn on a channel: view -> round -> packet (T2-T5).

The log is the round's journal: what an earlier attempt of the turn recorded is
not done again. The agent's variables live with the channel's conversation in
this process; they are never on the log (V4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import msgspec

from turnline.agent.agent import Agent, Conversation, Surroundings
from turnline.agent.failures import report_failure
from turnline.agent.journal import Entry
from turnline.agent.messages import Message, ModelReply, UserMessage
from turnline.agent.performer import OnProgress, Progress, TextDelta, current_call
from turnline.agent.round import Outcome, ToolAnswer, ToolAttempt
from turnline.agent.tool_result import ToolOutput, failure
from turnline.client.channel import Channel, update_context
from turnline.client.link import Seat
from turnline.client.plugin import NO_PLUGIN, NetworkPlugin
from turnline.client.summary import Summaries
from turnline.client.turn import Turn
from turnline.core import event_types as ev, questions, views
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.packet import JSON
from turnline.core.router import compile_graph
from turnline.core.routing import Handoff, packet
from turnline.core.state import State, WorkflowState
from turnline.errors import AgentError, NobodyToAsk, TurnlineError
from turnline.hub.ids import NewId, secret_id
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
        await self.refresh()
        return envelope

    async def refresh(self) -> None:
        """Show the turn's tools the state as it is now."""
        self._live.refresh(await self.state())


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
                ask_person=People(channel, turn, questions.people_of(state.spec)).ask,
                sleep=self._seat.sleep,
                review=_Review(state.spec),
                on_progress=self._spread(channel_id),
            ),
        )
        data = packet(
            outcome.text,
            outcome.outcomes,
            routing_tools=routing_tools(state),
            context_updates=self._updates(outcome.text, talk),
        )
        if talk.output is not None:
            data["format"] = JSON
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

    def _updates(self, text: str, talk: Conversation) -> JsonObject | None:
        """The answer as a context variable, where the agent names one."""
        if not self._agent.into:
            return None
        return {self._agent.into: text if talk.output is None else talk.output.data(text)}

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
        if isinstance(entry, ToolAttempt):
            await self._channel.refresh()  # What the failed attempt wrote into the context is undone.


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


class People:
    """Ask the people on a turn's channel, durably: question and answer are lines of the log (H1).

    A question is known by its turn, call and position, so a turn that resumes finds the one it has asked.
    """

    def __init__(
        self, channel: Channel, turn: Turn, people: Sequence[str], *, new_request_id: NewId = secret_id
    ) -> None:
        self._channel = channel
        self._turn = turn
        self._people = list(people)
        self._new_request_id = new_request_id
        self._asked: Counter[str] = Counter()
        """call -> how many questions this attempt of the turn has asked for it"""

    async def ask(self, call: str, prompt: str, timeout: float | None) -> str:
        """Return the answer of a person. Raises `NobodyToAsk`, and `TimeoutError` after so many seconds."""
        if not self._people:
            raise NobodyToAsk
        self._asked[call] += 1
        request_id, seq = await self._requested(call, self._asked[call], prompt)
        try:
            answer = await self._channel.wait_for(
                lambda one: _answers(one, request_id), timeout=timeout, since=seq
            )
        except TimeoutError:
            limit = "" if timeout is None else f" within {timeout:g} s"
            raise TimeoutError(f"no person has answered{limit}") from None  # A model reads it.
        return str(answer.event_data["answer"])

    async def _requested(self, call: str, position: int, prompt: str) -> tuple[str, int]:
        """Return the request id and the line of the question; ask it unless an earlier attempt has."""
        found = questions.find(await self._channel.state(), call=call, position=position)
        if found is not None:
            request_id, question = found
            return request_id, question.seq
        request_id = self._new_request_id()
        place = {"turn": self._turn.number, "call": call, "position": position}
        line = await self._channel.send(
            event_type=ev.EV_HUMAN_REQUESTED,
            event_data={"request_id": request_id, "question": prompt, **place},
            audience=self._people,
        )
        return request_id, line.seq


def _answers(envelope: Envelope, request_id: str) -> bool:
    is_answer = envelope.event_type == ev.EV_HUMAN_ANSWERED
    return is_answer and envelope.event_data.get("request_id") == request_id
