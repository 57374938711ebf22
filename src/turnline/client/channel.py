"""A participant's handle on a channel.

Every client gives its own, `client.channel(channel_id)`: it speaks as that
participant and reads what that participant may see. Handles read the log at
their own pace, so waiters never take anything from each other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnline.agent.files import File
from turnline.agent.messages import Usage
from turnline.agent.output import Output
from turnline.agent.timeouts import within
from turnline.client.link import Seat
from turnline.core.channel import ChannelMetadata
from turnline.core.envelope import Basis, Close, Draft, Envelope, JsonObject, Rest
from turnline.core.event_types import (
    EV_CHANNEL_CLOSED,
    EV_CONTEXT_SET,
    EV_TEXT,
    EV_TURN_FAILED,
    EV_TURN_PAUSED,
    JSON,
    SUBSTANTIVE,
    body_of,
)
from turnline.core.parts import message_data
from turnline.core.state import RESTING, STUCK, State
from turnline.errors import BadOutput, ChannelClosed, TurnStuck
from turnline.hub.opening import first_of
from turnline.hub.texts import TurnText
from turnline.turns.files import add_part, read_file

Predicate = Callable[[Envelope], bool]

_LOOK: Final = (
    "; it is on the log as it stands. `await channel.state()` says who is to speak; wait again, or longer."
)


class Line(Struct, frozen=True, kw_only=True):
    """Something that was said."""

    speaker: str
    text: str
    why: Basis | None
    """What decided who was next; None for what was not a turn."""


class RunResult(Struct, frozen=True, kw_only=True):
    """How a conversation ended, and what was said."""

    channel_id: str
    reason: str
    text: str
    """The last thing said."""
    output: Any = None
    """The same as an object of the last speaker's `response_schema`; None where it has none. Where another
    program has that agent it is JSON data, or an object of the `output_type` that was given."""
    transcript: list[Line]
    """What was said, as far as the reader may see it."""
    context_vars: dict[str, Any]
    turns: int
    usage: Usage
    """What the model calls used and cost, those of child channels included."""
    error: str = ""
    """Why the turn failed that closed the channel or let it rest; empty if none did."""

    @property
    def cost(self) -> float:
        """The dollars of `usage`, as far as the price is known."""
        return self.usage.cost

    def __str__(self) -> str:
        said = "\n".join(f"{line.speaker}: {line.text}" for line in self.transcript)
        end = RESTING if self.reason == RESTING else f"closed: {self.reason}"
        return f"{said}\n({end}{self.error and f'; {self.error}'})"


Outputs = Mapping[str, Output[Any]]
"""Participant id -> the type of its answers."""
_NO_OUTPUTS: Final[Outputs] = MappingProxyType({})


class Channel:
    """One participant's handle on one channel."""

    def __init__(
        self, seat: Seat, channel_id: str, *, claim: int | None = None, outputs: Outputs = _NO_OUTPUTS
    ) -> None:
        self.channel_id = channel_id
        self._seat = seat
        self._outputs = outputs
        self._claim = claim
        """What is said through a turn's own handle is part of that turn (C3, T1)."""

    def __repr__(self) -> str:
        return f"Channel({self.channel_id!r}, as {self._seat.agent_id!r})"

    async def send(
        self,
        text: str = "",
        event_type: str = EV_TEXT,
        event_data: JsonObject | None = None,
        audience: list[str] | None = None,
        causation_id: str | None = None,
        *,
        interject: bool = False,
        envelope_id: str | None = None,
        priority: int = 0,
        parts: Sequence[str | File] = (),
    ) -> Envelope:
        """Say something; return the envelope it became once that is on the log.

        `parts` are texts and files that follow `text`; the files are there before the line is.
        Raises `OutOfTurn` without the floor. With `envelope_id`, sending again
        is answered with the first result.
        """
        data = dict(event_data or {})
        if parts:
            data |= await self._add_parts([text, *parts] if text else parts)
        elif event_type == EV_TEXT and "parts" not in data:
            data.setdefault("text", text)
        draft = Draft(
            call=self._call(),
            envelope_id=envelope_id or self._seat.new_id(),
            sender_id=self._seat.agent_id,
            event_type=event_type,
            event_data=data,
            audience=audience,
            causation_id=causation_id,
            priority=priority,
            interject=interject,
            claim=None if interject else self._claim,
        )
        return await self._seat.post(self.channel_id, draft)

    async def _add_parts(self, parts: Sequence[str | File]) -> JsonObject:
        return message_data([await add_part(self._seat, self.channel_id, one) for one in parts])

    async def read_file(self, line: Envelope | int, index: int = 0) -> File:
        """Return a file of a line, the first or the one at `index`. Raises `UnknownFile`.

        Raises `CorruptRecord` if its bytes are not those that were sent.
        """
        seq = line if isinstance(line, int) else line.seq
        return await read_file(self._seat, self.channel_id, seq, index)

    def _call(self) -> str:
        """The tool call in which this is sent; a turn's own handle knows."""
        return ""

    async def interject(self, text: str, *, audience: list[str] | None = None) -> Envelope:
        """Say something without having the floor; it waits for the packet in flight, if there is one (W9)."""
        return await self.send(text, audience=audience, interject=True)

    async def close(self, reason: str = "closed") -> None:
        """End the channel. One that is closed already stays as it is."""
        try:
            await self._seat.close_channel(self.channel_id, reason)
        except ChannelClosed:
            return

    async def info(self) -> ChannelMetadata:
        return await self._seat.metadata(self.channel_id)

    async def state(self) -> State:
        """Return a copy of what the channel's log adds up to now."""
        return await self._seat.state(self.channel_id)

    async def stream(self, *, since: int = 0) -> AsyncIterator[Envelope]:
        """Yield the envelopes behind `since`, and go on as they land, until the channel has closed."""
        reading = await self._seat.read(self.channel_id, since)
        while True:
            for envelope in reading.envelopes:
                yield envelope
                if envelope.event_type == EV_CHANNEL_CLOSED:
                    return
            seq, was_end = reading.seq, reading.is_end
            del reading  # It would stay in memory until something comes.
            read = self._seat.read_next if was_end else self._seat.read
            reading = await read(self.channel_id, seq)
            if was_end and not reading.envelopes:
                return

    async def stream_with_text(self, *, since: int = 0) -> AsyncIterator[Envelope | TurnText]:
        """`stream`, and in between the words of the turn in flight as they come (L5).

        The words are not on the log: what a listener misses is in the packet.
        """
        with self._seat.listen(self.channel_id) as listening:
            while True:
                rung = listening.bell.rung
                for text in listening.take():
                    yield text
                reading = await self._seat.read(self.channel_id, since)
                for envelope in reading.envelopes:
                    yield envelope
                    if envelope.event_type == EV_CHANNEL_CLOSED:
                        return
                since = reading.seq
                if reading.is_end:
                    more = self._seat.read_next(self.channel_id, since)
                    await first_of(more, listening.bell.wait(rung))

    async def wait_for(
        self, predicate: Predicate, *, timeout: float | None = None, since: int = 0
    ) -> Envelope:
        """Return the first envelope behind `since`, past or to come, for which `predicate` holds.

        Raises `TimeoutError`, and `ChannelClosed` if the channel closes without one.
        """
        what = f"what was waited for has not come on channel {self.channel_id!r}"
        async with within(timeout, what, _LOOK):
            async for envelope in self.stream(since=since):
                if predicate(envelope):
                    return envelope
        raise ChannelClosed(self.channel_id, reason=(await self.state()).pending_close_reason)

    async def result(self, timeout: float | None = None, *, output_type: Any = None) -> RunResult:
        """Wait until the channel has closed, or rests, and return how it ended.

        A channel that rests has the reason `resting`: it is open, and the next message resumes it.
        `output_type` is the type of the last answer, where another program has the agent that gave it.
        Raises `TimeoutError`, `TurnStuck` if a turn waits for an operator's retry, and `BadOutput` for an
        answer that is not of its type.
        """
        said, error = list[Envelope](), ""
        async with within(timeout, f"channel {self.channel_id!r} has not closed", _LOOK):
            async for envelope in self.stream():
                if envelope.event_type in SUBSTANTIVE:
                    said.append(envelope)
                    error = ""
                elif envelope.event_type == EV_TURN_FAILED and isinstance(envelope.decision, Close | Rest):
                    error = await self._told(envelope)
                elif envelope.event_data.get("reason") == STUCK and envelope.event_type == EV_TURN_PAUSED:
                    await self._refuse_stuck()
                if isinstance(envelope.decision, Rest) and (await self.state()).is_resting:
                    break
        state = await self.state()
        names = {one.agent_id: one.name for one in state.spec.participants}
        return RunResult(
            channel_id=self.channel_id,
            reason=RESTING if state.is_resting else state.pending_close_reason,
            text=_text(said[-1]) if said else "",
            output=self._output(said[-1], names, output_type) if said else None,
            transcript=[_line(one, names) for one in said],
            context_vars=state.context_vars,
            turns=state.turn_count,
            usage=Usage(**msgspec.to_builtins(await self._seat.usage(self.channel_id))),
            error=error,
        )

    def _output(self, last: Envelope, names: Mapping[str, str], output_type: Any) -> Any:
        """The last answer as an object: of `output_type`, of its agent's type, or of JSON's own types."""
        if output_type is None and last.event_data.get("format") != JSON:
            return None
        known = self._outputs.get(last.sender_id) if output_type is None else Output(output_type)
        output: Output[Any] = Output(Any) if known is None else known
        wrong = output.wrong(_text(last))
        if not wrong:
            return output.read(_text(last))
        if known is None:
            return None  # Another program calls it JSON. No reader's result depends on that.
        raise BadOutput(names.get(last.sender_id, last.sender_id), because=wrong)

    async def _refuse_stuck(self) -> None:
        state = await self.state()
        if state.is_stuck:
            raise TurnStuck(self.channel_id, speaker=state.spec.name_of(state.expected_next_speaker or ""))

    async def _told(self, failed: Envelope) -> str:
        who, error = failed.event_data["agent_id"], failed.event_data["error"]
        name = next((one.name for one in (await self.info()).participants if one.agent_id == who), who)
        return f"{name} could not take its turn: {error['type']}: {error['message']}"


def _text(envelope: Envelope) -> str:
    return body_of(envelope.event_type, envelope.event_data)


def _line(envelope: Envelope, names: Mapping[str, str]) -> Line:
    return Line(
        speaker=names.get(envelope.sender_id, envelope.sender_id),
        text=_text(envelope),
        why=None if envelope.decision is None else envelope.decision.by,
    )


async def set_context(channel: Channel, key: str, value: Any) -> Envelope:
    """Set one context variable of the channel; nobody is told, and conditions see it."""
    return await update_context(channel, set={key: value})


async def delete_context(channel: Channel, *keys: str) -> Envelope:
    """Remove context variables of the channel."""
    return await update_context(channel, delete=list(keys))


async def update_context(channel: Channel, **parts: Any) -> Envelope:
    """Apply `set`, `delete`, `increment`, `append` and `expect` in one step, or nothing of it (C1)."""
    return await channel.send(event_type=EV_CONTEXT_SET, event_data=parts, audience=[])
