"""Summaries: what fell out of an agent's window, in a few sentences, for agents that ask for it (W10).

Rule 1: a summary is a model call like any other. It is on the log, with the line it
reaches to, before the round begins, so it is paid once (T2, T3).

Rule 2: it is made anew only when as much again as the window has gathered behind
the last one. Until then those lines are shown as they are, so nothing is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from turnline.agent.agent import Agent
from turnline.agent.messages import Usage
from turnline.client.link import Seat
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_TURN_MODEL, SUBSTANTIVE
from turnline.core.views import FullTranscript, Message, WindowedSummary, view_for
from turnline.turns.work import Work, last_shown, read_after


class Summary(Struct, frozen=True, kw_only=True):
    """What was said up to a line, in short."""

    agent_id: str = ""
    text: str = ""
    upto: int = 0


class Summaries:
    """One agent's summaries of its channels."""

    def __init__(self, agent: Agent, seat: Seat) -> None:
        self._agent = agent
        self._seat = seat
        self._known: dict[str, Summary] = {}

    def forget(self, channel_id: str) -> None:
        self._known.pop(channel_id, None)

    async def shown(self, work: Work) -> tuple[list[Message], Usage]:
        """Return what the agent is shown, and what summing up cost."""
        spec = work.state.spec
        view = view_for(self._seat.agent_id, spec)
        if not self._agent.summarise or not isinstance(view, WindowedSummary):
            return await work.messages(), Usage()
        known, window = await self._last(work.channel_id), view.window(spec)
        last = last_shown(work.state, work.units)
        found = await read_after(work.port.read, work.channel_id, known.upto, last)
        lines = [one for one in found if one.event_type in SUBSTANTIVE]
        usage = Usage()
        if len(lines) > 2 * window and not work.units:  # The round has begun with what it was shown (N7a).
            known, usage = await self._summed_up(known, lines[:-window], work)
            lines = lines[-window:]
        return _with_summary(known, FullTranscript().project(lines, self._seat.agent_id, spec)), usage

    async def _summed_up(
        self, known: Summary, lines: Sequence[Envelope], work: Work
    ) -> tuple[Summary, Usage]:
        said = FullTranscript().project(lines, self._seat.agent_id, work.state.spec)
        told = [*([known.text] if known.text else []), *(f"{one.name}: {one.text}" for one in said)]
        reply = await self._agent.sum_up("\n\n".join(told), sleep=self._seat.sleep)
        summary = Summary(agent_id=self._seat.agent_id, text=reply.text, upto=lines[-1].seq)
        data = {"summary": msgspec.to_builtins(summary), "usage": msgspec.to_builtins(reply.usage)}
        await work.record(EV_TURN_MODEL, data)
        self._known[work.channel_id] = summary
        return summary, reply.usage

    async def _last(self, channel_id: str) -> Summary:
        """The last summary: as remembered, or as the log has it after a restart."""
        if channel_id not in self._known:
            found = await self._seat.summary(channel_id)
            self._known[channel_id] = Summary() if found is None else msgspec.convert(found, Summary)
        return self._known[channel_id]


def _with_summary(summary: Summary, messages: list[Message]) -> list[Message]:
    if not summary.text:
        return messages
    return [Message("note", "", f"What was said before, in short: {summary.text}"), *messages]
