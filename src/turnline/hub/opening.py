"""Opening a channel: invite, wait for everybody, or say why not (L1).

The traps of a graph are logged once, when a channel is opened with it. A mistake is logged as a warning, and
never stops the channel from opening. A finding that is no mistake (severity "warning") is logged with INFO:
a program whose graphs are correct prints nothing, and `turnline check` reports such findings. The tools of an
agent are known if it is attached in this process. The graph of a flow is checked with the flow.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from turnline.core import event_types as ev
from turnline.core.adapter import AnyAdapter
from turnline.core.channel import ChannelSpec, ChannelState, ForkedFrom
from turnline.core.envelope import Draft, JsonObject
from turnline.core.graph import TransitionGraph
from turnline.core.state import LONG_AGO, State, WorkflowState
from turnline.core.study.finding import Finding, Severity
from turnline.core.study.lint import lint
from turnline.errors import InviteRejected, InviteTimeout, OpenFailed
from turnline.hub.channels import Channels, Entry
from turnline.hub.posting import Posting
from turnline.hub.timers import Clock, NewId, Timers
from turnline.log.base import Log


class Opening:
    """The way from a spec to an open channel."""

    def __init__(
        self,
        log: Log,
        channels: Channels,
        posting: Posting,
        *,
        timers: Timers,
        clock: Clock,
        new_id: NewId,
        tools_of: ToolsOf,
    ) -> None:
        self._log = log
        self._channels = channels
        self._posting = posting
        self._timers = timers
        self._clock = clock
        self.new_id = new_id
        self._traps = Traps(tools_of)
        self._begun: dict[str, asyncio.Event] = {}
        """The channels whose first line is on its way, and what is set when it is not any more."""

    async def invite(
        self,
        spec: ChannelSpec,
        answers: Mapping[str, str | None],
        *,
        is_own: bool = True,
        can_hold: bool = False,
    ) -> None:
        """Write the channel's first line, and the `answers` that are known: None accepts, a text rejects.

        If all have accepted, the channel is open now: all of it is one append (N6).

        Traps are looked for in graphs of the project's own: a user of a server would not see the warning,
        and looking costs far more than opening.
        Raises `LogConflict` if there is a channel of that id.
        """
        adapter = self._channels.adapter(spec.type)
        entry = Entry(adapter, adapter.initial(spec))
        answered = (self._answer(*one) for one in answers.items())
        await self._begin(entry, self._invitation(spec), *answered, can_hold=can_hold)
        if is_own:
            self._traps.tell(entry.tip)

    def check(self, spec: ChannelSpec) -> None:
        """Raise what would refuse the channel's first line. Nothing is written."""
        adapter = self._channels.adapter(spec.type)
        adapter.decide(adapter.initial(spec), self._invitation(spec), self._clock.now())

    def _invitation(self, spec: ChannelSpec) -> Draft:
        """Return the draft of the first line. It shares the knobs with the state: they may be large."""
        knobs = {"knobs": spec.knobs} if spec.knobs else {}
        return Draft(
            envelope_id=self.new_id(),
            sender_id=ev.HUB,
            event_type=ev.EV_CHANNEL_INVITE,
            event_data=msgspec.to_builtins(replace(spec, knobs={})) | knobs,
            audience=spec.invited,
        )

    def _answer(self, agent_id: str, reason: str | None) -> Draft:
        """Return the draft with which an invited participant accepts, or rejects for a reason."""
        data: JsonObject = {"agent_id": agent_id}
        draft = Draft(
            envelope_id=self.new_id(),
            sender_id=ev.HUB,
            event_type=ev.EV_CHANNEL_INVITE_ACK,
            event_data=data,
            audience=[],
        )
        if reason is None:
            return draft
        return replace(
            draft,
            event_type=ev.EV_CHANNEL_INVITE_REJECT,
            event_data=data | {"reason": reason},
            audience=None,
        )

    async def fork(
        self,
        adapter: AnyAdapter,
        past: State,
        origin: ForkedFrom,
        *,
        by: str,
        user: str = "",
        private: JsonObject | None = None,
    ) -> None:
        """Write the first line of a fork's own, after the `past` it has from its origin."""
        data: JsonObject = {"forked_from": msgspec.to_builtins(origin), "by": by}
        data |= {"for": user} if user else {}
        data |= {"private_updates": private} if private else {}
        draft = Draft(
            envelope_id=self.new_id(), sender_id=ev.HUB, event_type=ev.EV_CHANNEL_FORKED, event_data=data
        )
        await self._begin(Entry(adapter, past), draft)

    async def _begin(self, entry: Entry, *drafts: Draft, can_hold: bool = False) -> None:
        begun = self._begun[entry.channel_id] = asyncio.Event()
        try:
            await self._posting.post_together(entry, drafts, can_hold=can_hold)
        finally:
            self._begun.pop(entry.channel_id, None)
            begun.set()

    async def settled(self, channel_id: str) -> None:
        """Return when the channel's first line is not on its way: it has landed, or nobody knows."""
        begun = self._begun.get(channel_id)
        if begun is not None:
            await begun.wait()

    async def wait(self, channel_id: str, fire: Callable[[Entry], Coroutine[Any, Any, None]]) -> None:
        """Wait for the invited. Whoever opens keeps the ack timeout, also where no timers run."""
        entry = await self._channels.get_for_work(channel_id)
        with entry.pinned():
            while entry.tip.status is ChannelState.PENDING:
                seen = entry.bell.rung
                seconds = self._timers.seconds_left(entry)
                if seconds <= 0:
                    await fire(entry)
                else:
                    await first_of(entry.bell.wait(seen), self._clock.sleep(seconds))
        await self._check(entry)

    async def _check(self, entry: Entry) -> None:
        state = entry.tip
        if state.pending_close_reason == "invite_timeout":
            names, seconds = map(state.spec.name_of, state.awaiting), state.spec.ack_timeout_seconds
            raise InviteTimeout(state.channel_id, awaiting=state.awaiting, names=names, seconds=seconds)
        if state.pending_close_reason == "invite_rejected":
            async for envelope in self._log.read(state.channel_id):
                if envelope.event_type == ev.EV_CHANNEL_INVITE_REJECT:
                    agent_id, because = envelope.event_data["agent_id"], envelope.event_data.get("reason", "")
                    raise InviteRejected(
                        state.channel_id,
                        agent_id=agent_id,
                        name=state.spec.name_of(agent_id),
                        because=because,
                    )
        if state.is_over and state.opened_at == LONG_AGO:
            reason = state.pending_close_reason
            message = f"channel {state.channel_id!r} closed before everybody had accepted: {reason}."
            raise OpenFailed(state.channel_id, reason=reason, message=message)


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of them has; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


logger = logging.getLogger(__name__)

_REMEMBERED: Final = 1024
"""How many graphs are remembered. One that was forgotten is told of again."""
_LOOKS: Final = 20_000
"""How much of a graph is looked at while somebody waits for the channel."""
_LEVELS: Final[Mapping[Severity, int]] = {"error": logging.WARNING, "warning": logging.INFO}

ToolsOf = Callable[[str], Collection[str] | None]
"""The names of a participant's tools; None if they are not known."""


class Traps:
    """Tells what the lint finds in the graphs that channels are opened with."""

    def __init__(self, tools_of: ToolsOf) -> None:
        self._tools_of = tools_of
        self._told: OrderedDict[str, None] = OrderedDict()

    def tell(self, state: State) -> None:
        """Log what is wrong with the channel's graph, if it has one that is new."""
        if not isinstance(state, WorkflowState) or "flow" in state.spec.knobs:
            return
        if state.graph_key in self._told or not logger.isEnabledFor(logging.WARNING):
            return
        self._told[state.graph_key] = None
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        tools = {one.agent_id: self._tools_of(one.agent_id) for one in state.spec.participants}
        findings = _findings(state.spec, {name: each for name, each in tools.items() if each is not None})
        for severity, level in _LEVELS.items():
            text = "\n".join(str(one) for one in findings if one.severity == severity)
            if text:
                logger.log(
                    level, "the graph of channel %r has traps (docs/lint.md):\n%s", state.channel_id, text
                )


def _findings(spec: ChannelSpec, tools: Mapping[str, Collection[str]]) -> tuple[Finding, ...]:
    try:
        graph = TransitionGraph.loads(spec.knobs["graph"])
        return lint(graph, participants=spec.participants, opener=spec.creator_id, tools=tools, bound=_LOOKS)
    except Exception:
        # A class of the user's own may do anything; the channel is open, and stays so.
        logger.debug("the graph of channel %r could not be linted", spec.channel_id, exc_info=True)
        return ()
