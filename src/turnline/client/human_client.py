"""The client of a person: push with `on_envelope`, or pull with `next_envelope`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from turnline.agent.timeouts import within
from turnline.client.participant import OnEnvelope, ParticipantClient
from turnline.client.unread import Unread
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_HUMAN_ANSWERED
from turnline.core.governance import Registration
from turnline.errors import ClientClosed, HubClosed, TurnlineError


class HumanClient(ParticipantClient):
    """An attached person. A send without the floor is an interjection (W9)."""

    def __init__(self, registration: Registration, *, auto_ack_invites: bool = True) -> None:
        super().__init__(registration, auto_ack_invites=auto_ack_invites)
        self._unread = Unread(lambda: self.seat)
        self._pushing: asyncio.Task[None] | None = None

    def on_envelope(self, callback: OnEnvelope) -> OnEnvelope:
        """See `ParticipantClient.on_envelope`. What nobody has pulled yet is pushed first."""
        super().on_envelope(callback)
        if self._pushing is None:
            self._pushing = asyncio.create_task(self._push_unread())
        return callback

    async def close(self, *, grace_seconds: float = 0.0) -> None:
        if self._pushing is not None:
            self._pushing.cancel()
            await asyncio.gather(self._pushing, return_exceptions=True)
        await self._unread.stop()
        self._unread.end(ClientClosed(self.name))
        await super().close(grace_seconds=grace_seconds)

    async def answer(self, request: Envelope, answer: str) -> Envelope:
        """Answer a `human.requested` envelope: what a tool asked with `context.input` (H1).

        Raises `NotAsked` if it addresses other people, `AlreadyAnswered`, and `UnknownQuestion` if its turn
        is over.
        """
        data = {"request_id": request.event_data["request_id"], "answer": answer}
        return await self.channel(request.channel_id).send(event_type=EV_HUMAN_ANSWERED, event_data=data)

    async def next_envelope(self, timeout: float | None = None) -> Envelope:
        """Return the next envelope that concerns this person, of any channel.

        Raises `TimeoutError`; `ClientClosed` or `HubClosed` once either is closed, also for one who waits.
        """
        self._check_open()
        async with within(timeout, f"no envelope has come for {self.name!r}", "; wait again, or longer."):
            return await self._unread.get()

    async def envelopes(self) -> AsyncIterator[Envelope]:
        """Yield every envelope that concerns this person, as they come, until the client or hub closes."""
        self._check_open()
        while True:
            try:
                envelope = await self._unread.get()
            except (ClientClosed, HubClosed):
                return
            yield envelope

    @property
    def _reads(self) -> bool:
        return True

    def _end(self, error: TurnlineError) -> None:
        self._unread.end(error)

    async def _handle(self, envelope: Envelope) -> None:
        if self._pushing is None:
            self._unread.put(envelope)
            return
        await asyncio.wait((self._pushing,))
        await super()._handle(envelope)

    async def _push_unread(self) -> None:
        while self._unread:
            await super()._handle(await self._unread.get())
