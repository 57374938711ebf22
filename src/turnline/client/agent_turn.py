"""An agent's turn on a channel: view -> round -> packet (T2-T5).

The log is the round's journal: what an earlier attempt of the turn recorded is
not done again. The agent's variables live with the channel's conversation in
this process; they are never on the log (V4).
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from turnline.agent.agent import Agent, Conversation, Surroundings
from turnline.agent.failures import report_failure
from turnline.agent.files import File
from turnline.agent.journal import Entry
from turnline.agent.messages import Message, MessageFile, ModelReply, UserMessage
from turnline.agent.performer import OnProgress, stream_words
from turnline.agent.round import Outcome, ToolAnswer, ToolAttempt
from turnline.agent.tool_result import ToolOutput, failure
from turnline.client.channel import update_context
from turnline.client.link import Seat
from turnline.client.plugin import NO_PLUGIN, NetworkPlugin
from turnline.client.summary import Summaries
from turnline.client.turn import TurnChannel
from turnline.core import event_types as ev, views
from turnline.core.adapters import WorkflowAdapter
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import JsonObject
from turnline.core.event_types import JSON, body_of
from turnline.core.parts import files_of
from turnline.core.routing import Handoff, packet
from turnline.core.state import State, WorkflowState
from turnline.errors import AgentError, TurnlineError
from turnline.turns.files import load_files, name_files
from turnline.turns.journal import TurnJournal, entries
from turnline.turns.people import People
from turnline.turns.work import Done, Work

_YOUR_TURN: Final = UserMessage(text="(It is your turn.)")
_WORKFLOWS: Final = WorkflowAdapter()
"""Keeps the graphs that were compiled last."""
NO_PERSON_BELOW: Final = (
    "a turn of another channel opened this one, and no channel above has a person. Open a channel that has "
    "this agent, or the one that delegates, and a person."
)
"""What an agent is told that was asked by another one, and whose tool asks a person."""


class LiveState:
    """A channel's state as a tool sees it: what the tool writes through its channel is there at once (C3)."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def refresh(self, state: State) -> None:
        if state.seq > self._state.seq:  # Of two calls at once, the slower one may have read first.
            self._state = state


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

    async def __call__(self, work: Work) -> Done:
        """Do the round, and return the packet. Raises `CallPaused` for what the round waits for."""
        state, live = work.state, LiveState(work.state)
        channel = TurnChannel(self._seat, work, on_change=live.refresh)
        journal = _LiveJournal(work, channel)
        spec = state.spec
        nobody = NO_PERSON_BELOW if spec.parent_id is not None else ""
        above = spec.can_ask_above
        people = People(work, spec.people, self._seat.read_next, asks_above=above, nobody=nobody)
        shown, spent = await self._summaries.shown(work)
        talk = replace(
            self._conversations.get(work.channel_id) or self._begin(work.channel_id),
            messages=spoken(shown, await load_files(self._seat, work.channel_id, shown)),
            key=work.key,
            tools=self._plugin.tools_for(self._agent),
        )
        outcome = await self._performed(
            talk,
            Surroundings(
                journal=journal,
                once=journal.once_for,
                recorded=entries(work.units),
                heard=heard_after_replies(work),
                extras={"channel": channel, "state": live, "seat": self._seat, "children": work.children},
                context_vars=state.context_vars,
                ask_person=people.ask,
                require_answer=people.require,
                sleep=self._seat.sleep,
                review=partial(_review, state.spec),
                on_progress=self._spread(work.channel_id),
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
        return Done(data=data | {"usage": msgspec.to_builtins(outcome.usage + spent)})

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
        is_heard = self._seat.is_heard(channel_id)
        return stream_words(partial(self._seat.tell_text, channel_id)) if is_heard else None

    def _begin(self, channel_id: str) -> Conversation:
        return self._conversations.setdefault(channel_id, self._agent.conversation())


def spoken(messages: Sequence[views.Message], files: Sequence[list[MessageFile]]) -> tuple[Message, ...]:
    """Return a view as a model's messages: the agent's own as its replies, the others with their names.

    `files` are those of each message that the model is shown; the text names all of them.
    """
    told = list[Message]()
    for one, shown in zip(messages, files, strict=True):
        text = name_files(one.text, one.files)
        own = one.role == "own"
        told.append(ModelReply(text=text) if own else UserMessage(text=text, name=one.name, files=shown))
    if not told or isinstance(told[-1], ModelReply):
        told.append(_YOUR_TURN)  # A model answers somebody; it does not go on by itself.
    return tuple(told)


def heard_after_replies(work: Work) -> dict[int, list[Message]]:
    """Return what others said while the turn was paused: number of replies -> what came after them (N7a)."""
    spec, found = work.state.spec, dict[int, list[Message]]()
    replies = [
        one.seq for one in work.units if one.event_type == ev.EV_TURN_MODEL and "entry" in one.event_data
    ]
    for line in work.heard_since():
        files = files_of(line.event_type, line.event_data)
        text = name_files(body_of(line.event_type, line.event_data), files)
        message = UserMessage(text=text, name=spec.name_of(line.sender_id))
        found.setdefault(bisect(replies, line.seq), []).append(message)
    return found


def routing_tools(state: State) -> frozenset[str]:
    """The tools some transition of the channel's graph waits for (T4)."""
    return _WORKFLOWS.router(state).routing_tools if isinstance(state, WorkflowState) else frozenset()


class _LiveJournal(TurnJournal):
    """Keeps the state that tools see up to date with what the round records."""

    def __init__(self, work: Work, channel: TurnChannel) -> None:
        super().__init__(work.lines, work.record, work.add_file)
        self._channel = channel

    async def record(self, entry: Entry, files: Sequence[File] = ()) -> None:
        """See `Journal.record`. Context variables that come with a tool's result land before it."""
        if isinstance(entry, ToolAnswer) and entry.context:
            await update_context(self._channel, set=entry.context)
        await super().record(entry, files)
        if isinstance(entry, ToolAttempt):
            await self._channel.refresh()  # What the failed attempt wrote into the context is undone.


def _review(spec: ChannelSpec, output: ToolOutput) -> ToolOutput:
    """Give a handoff to a participant that is not there back to the model, which can choose again (W8)."""
    match output.returned:
        case Handoff(target=target) if target not in spec.names():
            known = ", ".join(one.name for one in spec.participants)
            text = f"nobody here is called {target!r}; the participants are {known}. Choose one of them."
            return ToolOutput(text=text, failed=True)
    return output
