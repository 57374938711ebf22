"""Opening a channel: invite, wait for everybody, or say why not (L1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from turnline.core import event_types as ev
from turnline.core.adapter import AnyAdapter
from turnline.core.channel import ChannelSpec, ChannelState, ForkedFrom
from turnline.core.envelope import Draft, JsonObject
from turnline.core.state import LONG_AGO, State
from turnline.errors import InviteRejected, InviteTimeout, OpenFailed
from turnline.hub.channels import Channels
from turnline.hub.clock import Clock
from turnline.hub.entry import Entry
from turnline.hub.ids import NewId
from turnline.hub.posting import Posting
from turnline.hub.timers import Timers
from turnline.hub.traps import ToolsOf, Traps
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

    async def invite(self, spec: ChannelSpec, *, worker: str = "", is_own: bool = True) -> None:
        """Write the channel's first line; with nobody to ask, it is open now.

        Traps are looked for in graphs of the project's own: a user of a server would not see the warning,
        and looking costs far more than opening.
        Raises `LogConflict` if there is a channel of that id.
        """
        adapter = self._channels.adapter(spec.type)
        entry = Entry(adapter, adapter.initial(spec))
        await self._begin(entry, self._invitation(spec, worker))
        if is_own:
            self._traps.tell(entry.state)

    def check(self, spec: ChannelSpec) -> None:
        """Raise what would refuse the channel's first line. Nothing is written."""
        adapter = self._channels.adapter(spec.type)
        adapter.decide(adapter.initial(spec), self._invitation(spec), self._clock.now())

    def _invitation(self, spec: ChannelSpec, worker: str = "") -> Draft:
        return Draft(
            envelope_id=self.new_id(),
            sender_id=ev.HUB,
            event_type=ev.EV_CHANNEL_INVITE,
            event_data=msgspec.to_builtins(spec),
            audience=spec.invited,
            goes_on=worker,
        )

    async def fork(self, adapter: AnyAdapter, past: State, origin: ForkedFrom, *, by: str) -> None:
        """Write the first line of a fork's own, after the `past` it has from its origin."""
        data: JsonObject = {"forked_from": msgspec.to_builtins(origin), "by": by}
        draft = Draft(
            envelope_id=self.new_id(), sender_id=ev.HUB, event_type=ev.EV_CHANNEL_FORKED, event_data=data
        )
        await self._begin(Entry(adapter, past), draft)

    async def _begin(self, entry: Entry, draft: Draft) -> None:
        begun = self._begun[entry.channel_id] = asyncio.Event()
        try:
            await self._posting.post(entry, draft)
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
        entry = await self._channels.get(channel_id)
        with entry.pinned():
            while entry.state.status is ChannelState.PENDING:
                seen = entry.bell.rung
                seconds = self._timers.seconds_left(entry)
                if seconds <= 0:
                    await fire(entry)
                else:
                    await first_of(entry.bell.wait(seen), self._clock.sleep(seconds))
        await self._check(entry)

    async def _check(self, entry: Entry) -> None:
        state = entry.state
        if state.pending_close_reason == "invite_timeout":
            seconds = state.spec.ack_timeout_seconds
            raise InviteTimeout(state.channel_id, awaiting=state.awaiting, seconds=seconds)
        if state.pending_close_reason == "invite_rejected":
            async for envelope in self._log.read(state.channel_id):
                if envelope.event_type == ev.EV_CHANNEL_INVITE_REJECT:
                    data = envelope.event_data
                    because = data.get("reason", "")
                    raise InviteRejected(state.channel_id, agent_id=data["agent_id"], because=because)
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
