"""A turn on a channel: as an `on_turn` handler sees it, and as an agent takes it (T2-T5).

    an agent's turn: view -> round -> packet

The log is the round's journal: what an earlier attempt of the turn recorded is not done again. The agent's
variables live with the channel's conversation in this process; they are never on the log (V4).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from turnline.agent.agent import Agent, Conversation, Surroundings
from turnline.agent.failures import report_failure
from turnline.agent.files import File
from turnline.agent.journal import Entry
from turnline.agent.messages import Message as ModelMessage, ModelReply, Usage, UserMessage
from turnline.agent.performer import OnProgress, current_call, stream_words
from turnline.agent.round import Outcome, ToolAnswer, ToolAttempt
from turnline.agent.tool_result import ToolOutput, failure
from turnline.client.channel import Channel, update_context
from turnline.client.link import Seat
from turnline.client.plugin import NO_PLUGIN, NetworkPlugin
from turnline.core.adapters import WorkflowAdapter
from turnline.core.channel import ChannelSpec
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.event_types import JSON
from turnline.core.json import copied
from turnline.core.parts import FilePart
from turnline.core.routing import Handoff, packet
from turnline.core.state import State, WorkflowState
from turnline.core.views import Message, WindowedSummary, view_for
from turnline.errors import AgentError, TurnlineError
from turnline.turns.files import attach_files, load_files
from turnline.turns.journal import TurnJournal, entries
from turnline.turns.people import People
from turnline.turns.views import Windows, heard_after_replies, read_after, spoken
from turnline.turns.work import Done, Paused, Perform, Work


class TurnChannel(Channel):
    """The channel of a turn. What is sent through it is part of the turn."""

    def __init__(self, seat: Seat, work: Work, *, on_change: Callable[[State], None] | None = None) -> None:
        """`on_change` gets the channel's state after each send."""
        super().__init__(seat, work.channel_id, claim=work.claim.seq)
        self._work = work
        self._on_change = on_change

    def _call(self) -> str:
        return current_call.get()

    async def send(self, *args: Any, **kwargs: Any) -> Envelope:
        """See `Channel.send`."""
        envelope = await super().send(*args, **kwargs)
        self._work.signs.ring()
        await self.refresh()
        return envelope

    async def refresh(self) -> None:
        """Show the turn's tools the state as it is now."""
        if self._on_change is not None:
            self._on_change(await self.state())


class Turn:
    """A turn in progress."""

    def __init__(self, seat: Seat, work: Work) -> None:
        assert work.gave is not None  # Only a played participant's turn comes without it.
        self.envelope: Envelope = work.gave
        """The line that gave the floor."""
        self.number = work.turn
        self.claim = work.claim
        self.channel: Channel = TurnChannel(seat, work)
        """What is sent through this handle is part of the turn."""
        self.audience: list[str] | None = None
        """Who sees the turn's packet and hears its words, by id or name: None is everyone. Set it first."""
        self._seat = seat
        self._work = work

    async def once(self, key: str, fn: Callable[[], Any]) -> Any:
        """Run `fn` and record its JSON result. After a crash, return the recorded result instead (N4).

        Raises `OnceKeyReused` for a key that was used before in this performance of the turn.
        """
        return await self._work.journal.once(key, fn)

    @property
    def lines(self) -> list[Envelope]:
        """What the turn has on the log: its pauses, what ended them, what it recorded. In order."""
        return list(self._work.lines)

    async def tell(self, text: str) -> None:
        """Tell listeners a piece of what is about to be said. Only the packet's audience hears it."""
        to = self.audience
        if to is not None:
            to = [self._work.state.spec.resolve(name) for name in to]
        self._seat.tell_text(self.channel.channel_id, text, to)

    async def messages(self) -> list[Message]:
        """Return what the participant is shown of the conversation (W10)."""
        return await self._work.messages()

    async def read(self, since: int) -> list[Envelope]:
        """Return everything after line `since` that the participant may see."""
        return await read_after(self._seat.read, self.channel.channel_id, since)


TurnHandler = Callable[[Turn], Awaitable[str | JsonObject | Paused | None]]
"""Returns what was said, or a whole packet's data (`turnline.core.routing.packet`), or None. With `Paused` it
is called again when what it waits for is there."""


def perform_with(handler: TurnHandler, seat: Seat) -> Perform:
    """Return the performer that calls an `on_turn` handler."""

    async def perform(work: Work) -> Done | Paused:
        turn = Turn(seat, work)
        said = await handler(turn)
        if isinstance(said, Paused):
            return replace(said, key="")  # A key is for the steps of a flow; here nothing could name it.
        data = packet(said or "") if said is None or isinstance(said, str) else said
        return Done(data=data, audience=turn.audience)

    return perform


# An agent's turn.

_YOUR_TURN: Final = UserMessage(text="(It is your turn.)")
_WORKFLOWS: Final = WorkflowAdapter()
"""Keeps the graphs that were compiled last."""
NO_PERSON_BELOW: Final = (
    "a turn of another channel opened this one, and no channel above has a person. Open a channel that has "
    "this agent, or the one that delegates, and a person; in a flow, name a group: channel.ask: {group: ops}."
)
"""What an agent is told that was asked by another one, and whose tool asks a person."""


class LiveState:
    """A channel's state as a tool sees it: what the tool writes through its channel is there at once (C3)."""

    def __init__(self, state: State) -> None:
        """`state` has the channel's own context variables, as a claim gives them."""
        self._state = state
        self._is_shared = True

    @property
    def context_vars(self) -> JsonObject:
        """The tools' own copy. Most turns have no tool that asks for it."""
        if self._is_shared:
            self._show(msgspec.structs.replace(self._state, context_vars=copied(self._state.context_vars)))
        return self._state.context_vars

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def refresh(self, state: State) -> None:
        """Show a newer state, whose context variables are a copy."""
        if state.seq > self._state.seq:  # Of two calls at once, the slower one may have read first.
            self._show(state)

    def _show(self, state: State) -> None:
        self._state, self._is_shared = state, False


class AgentTurns:
    """Takes an agent's turns, on every channel it is on."""

    def __init__(self, agent: Agent, seat: Seat, plugin: NetworkPlugin = NO_PLUGIN) -> None:
        self._agent = agent
        self._seat = seat
        self._plugin = plugin
        self._windows = Windows(lambda work: seat.summary(work.channel_id))
        self._conversations: dict[str, Conversation] = {}
        """Channel -> the variables its turns share."""

    def forget(self, channel_id: str) -> None:
        """The channel has closed."""
        self._conversations.pop(channel_id, None)
        self._windows.forget(channel_id)

    async def __call__(self, work: Work) -> Done:
        """Do the round, and return the packet. Raises `CallPaused` for what the round waits for."""
        state, live = work.state, LiveState(work.state)
        channel = TurnChannel(self._seat, work, on_change=live.refresh)
        journal = _LiveJournal(work, channel)
        spec = state.spec
        nobody = NO_PERSON_BELOW if spec.parent_id is not None else ""
        above = spec.can_ask_above
        people = People(work, spec.people, self._seat.read_next, asks_above=above, nobody=nobody)
        messages, spent = await self._show(work)
        talk = replace(
            self._conversations.get(work.channel_id) or self._begin(work.channel_id),
            messages=messages,
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
        data = attach_files(data, outcome.files)
        return Done(data=data | {"usage": msgspec.to_builtins(outcome.usage + spent)})

    async def _show(self, work: Work) -> tuple[tuple[ModelMessage, ...], Usage]:
        """Return what the model is shown of the conversation, and what summing up cost."""
        view = view_for(work.speaker, work.state.spec) if self._agent.summarise else None
        if isinstance(view, WindowedSummary):
            shown, spent = await self._windows.show(work, self._agent, view)
        else:
            shown, spent = await work.messages(), Usage()
        messages = spoken(shown, await load_files(self._seat, work.channel_id, shown))
        if not messages or isinstance(messages[-1], ModelReply):
            messages.append(_YOUR_TURN)  # A model answers somebody; it does not continue by itself.
        return tuple(messages), spent

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


def routing_tools(state: State) -> frozenset[str]:
    """The tools some transition of the channel's graph waits for (T4)."""
    return _WORKFLOWS.router(state).routing_tools if isinstance(state, WorkflowState) else frozenset()


class _LiveJournal(TurnJournal):
    """Keeps the state that tools see up to date with what the round records."""

    def __init__(self, work: Work, channel: TurnChannel) -> None:
        super().__init__(work.lines, work.record, work.add_file)
        self._channel = channel

    async def record(self, entry: Entry, files: Sequence[File] = ()) -> Sequence[FilePart]:
        """See `Journal.record`. Context variables that come with a tool's result land before it."""
        if isinstance(entry, ToolAnswer) and entry.context:
            await update_context(self._channel, set=entry.context)
        kept = await super().record(entry, files)
        if isinstance(entry, ToolAttempt):
            await self._channel.refresh()  # What the failed attempt wrote into the context is undone.
        return kept


def _review(spec: ChannelSpec, output: ToolOutput) -> ToolOutput:
    """Give a handoff to a participant that is not there back to the model, which can choose again (W8)."""
    match output.returned:
        case Handoff(target=target) if target not in spec.names():
            known = ", ".join(one.name for one in spec.participants)
            text = f"nobody here is called {target!r}; the participants are {known}. Choose one of them."
            return ToolOutput(text=text, failed=True)
    return output
