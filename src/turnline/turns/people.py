"""Ask a person in a turn, durably: question and answer are lines of the log (H1, N1b, N2).

    require(call, prompt, timeout)   the answer; until it is there, `CallPaused` ends the performance
    ask(call, prompt, timeout)       the answer; waits for it in this process, under the claim

Rule 1: a question is known by its turn, call and position. A turn that resumes finds the one it has asked
and does not ask again. A tool that asks something else there gets `QuestionChanged`: what a person answered
holds for the question that they read. An approval is asked for the recorded call, so its wording may change.

Rule 2: `timeout` runs from the line that asks, also while the turn is paused (N1a). The hub's timers measure
it, and the log says when it is over: so an answer counts if it is on the log before that.

Rule 3: an agent on a channel asks the people of the channel; without any, its question goes up to the turn
that waits for it: to the people of that channel, or to the group of a flow's step. A step asks its group: the
question is a task, and the hub writes the answer of a member of the group (N7).

Rule 4: a tool that waits in this process is not called again because the log was away: it reads again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from turnline.agent.performer import CallSite
from turnline.agent.tool_result import CallPaused
from turnline.core import event_types as ev, questions
from turnline.core.claims import Paused
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.json import MAX_SECONDS
from turnline.errors import ChannelClosed, NobodyToAsk, QuestionChanged
from turnline.hub.retry import retry
from turnline.hub.timers import secret_id
from turnline.turns.views import Read
from turnline.turns.work import Work, own_log


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedGroup:
    """The group of people that a step asks."""

    name: str
    agent: str
    """The agent that asks, for those who read the task."""
    expires: float | None = None
    """How many seconds a question waits for an answer; None: for ever."""


@dataclass(frozen=True, slots=True)
class People:
    """The questions of one performance of a turn: to people of its channel, or to a group."""

    work: Work
    people: Sequence[str]
    read_next: Read
    """See `Seat.read_next`."""
    group: AskedGroup | None = None
    asks_above: bool = False
    """Whether questions go up (`core.questions`, rule 1b)."""
    nobody: str = ""
    """What to do where there are neither people nor a group."""
    while_waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    """`ask` waits inside of this."""
    asked: Counter[str] = field(default_factory=Counter)
    """call -> how many questions this performance has asked for it"""

    async def require(self, site: CallSite, prompt: str, timeout: float | None) -> str:
        """Return the answer of a person. Raises `CallPaused` until there is one, and `TimeoutError`."""
        request_id = await self._request(site, prompt, self._limit(timeout))
        if (end := _find_end(self.work.lines, request_id)) is None:
            raise CallPaused(Paused(reason="person", questions=[request_id]))
        return _answer_in(end, self._limit(timeout))

    async def ask(self, site: CallSite, prompt: str, timeout: float | None) -> str:
        """Return the answer of a person; wait for it here. Raises `TimeoutError` after so many seconds."""
        request_id = await self._request(site, prompt, self._limit(timeout))
        with self.while_waiting():
            end = await self._wait_for_end(request_id)
        return _answer_in(end, self._limit(timeout))

    def _limit(self, timeout: float | None) -> float | None:
        """Return how many seconds a question may wait: what the tool says, and what the group allows."""
        limits = (timeout, None if self.group is None else self.group.expires)
        return min((one for one in limits if one is not None), default=None)

    async def _request(self, site: CallSite, prompt: str, timeout: float | None) -> str:
        """Return the request id of the question. Ask it, unless the turn has."""
        if not self.people and self.group is None and not self.asks_above:
            raise NobodyToAsk(do=self.nobody)
        call = site.place
        self.asked[call] += 1
        position, work = self.asked[call], self.work
        found = questions.find(work.state, call=call, position=position)
        if found is not None:
            request_id, question = found
            line = next((one for one in work.lines if one.seq == question.seq), None)
            asked_before = prompt if line is None else str(line.event_data.get("question"))
            if prompt != asked_before and not site.is_approval:
                raise QuestionChanged(site.call.tool, asked=asked_before, asks=prompt)
            return request_id
        request_id = secret_id()
        asked: JsonObject = {"request_id": request_id, "question": prompt}
        if timeout is not None:
            asked["expires"] = min(max(timeout, 0.0), MAX_SECONDS)
        place = {"turn": work.turn, "call": call, "position": position}
        to: JsonObject = {}
        if self.group is not None:
            to = {"group": self.group.name, "about": {"agent": self.group.agent, **_describe(site)}}
        elif not self.people:
            to = {"about": _describe(site)}
        audience = list(self.people) if self.group is None else []
        await work.write(ev.EV_HUMAN_REQUESTED, {**asked, **place, **to}, audience=audience)
        return request_id

    async def _wait_for_end(self, request_id: str) -> Envelope:
        """Return the line that answers the question, or says that no answer came in time."""
        channel_id, after = self.work.channel_id, self.work.state.floor_seq
        end = _find_end(self.work.lines, request_id)
        while end is None:
            read = partial(self.read_next, channel_id, after)
            with own_log():
                what = f"the answer to a question on {channel_id} is not read"
                reading = await retry(self.work.port, read, what)
            if not reading.envelopes:
                raise ChannelClosed(channel_id, reason="")
            end, after = _find_end(reading.envelopes, request_id), reading.seq
        return end


def _describe(site: CallSite) -> JsonObject:
    """Return what the members of a group are told beside the question."""
    about: JsonObject = {"tool": site.call.tool, "approval": site.is_approval}
    return about | ({"arguments": site.call.arguments} if site.is_approval else {})


def _find_end(lines: Sequence[Envelope], request_id: str) -> Envelope | None:
    """Return the line that ended a question, if one of `lines` did."""
    named = {ev.EV_HUMAN_ANSWERED: "request_id", ev.EV_TIMER_FIRED: "question"}
    ends = (one for one in lines if one.event_type in named)
    return next((one for one in ends if one.event_data.get(named[one.event_type]) == request_id), None)


def _answer_in(end: Envelope, timeout: float | None) -> str:
    """Return the answer that ended a question. Raises `TimeoutError` if none came in time."""
    if end.event_type == ev.EV_HUMAN_ANSWERED:
        return str(end.event_data["answer"])
    limit = "" if timeout is None else f" within {timeout:g} s"
    raise TimeoutError(f"no person has answered{limit}")  # A model reads it.
