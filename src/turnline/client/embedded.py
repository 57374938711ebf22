"""The hub as a program in the same process sees it: with the short way in."""

from __future__ import annotations

from typing import Self, Unpack

from turnline.client.hub_client import HubClient
from turnline.client.link import LocalLink
from turnline.client.participant import Accept, AgentClient
from turnline.core.governance import Passport, Resume, Rule
from turnline.hub.hub import Hub as BareHub
from turnline.hub.options import HubOptions
from turnline.log.address import open_log
from turnline.log.base import Log


class Hub(BareHub):
    """`await Hub.open(log)`; then `await hub.register(agent)`, or `HubClient(LocalLink(hub))` at length."""

    def __init__(self, log: Log, *, ttl_sweep_interval: float, **options: Unpack[HubOptions]) -> None:
        super().__init__(log, ttl_sweep_interval=ttl_sweep_interval, **options)
        self._client = HubClient(LocalLink(self), hub=self)

    @classmethod
    async def open(
        cls, store: Log | str, *, ttl_sweep_interval: float = 30.0, **options: Unpack[HubOptions]
    ) -> Self:
        """See `turnline.hub.hub.Hub.open`; a text is a log's address: `"sqlite:///log.db"`."""
        log = open_log(store) if isinstance(store, str) else store
        return await super().open(log, ttl_sweep_interval=ttl_sweep_interval, **options)

    async def register(
        self,
        agent: object = None,
        passport: Passport | None = None,
        resume: Resume | None = None,
        *,
        rule: Rule | None = None,
        attach_plugin: bool = True,
        turns_at_once: int | None = None,
        accept: Accept | None = None,
    ) -> AgentClient:
        """See `HubClient.register`."""
        return await self._client.register(
            agent,
            passport,
            resume,
            rule=rule,
            attach_plugin=attach_plugin,
            turns_at_once=turns_at_once,
            accept=accept,
        )

    async def drain(self, *, grace_seconds: float = 10.0) -> None:
        """Take no further turn; let those in progress end, for so long, and release the rest.

        What is open stays open, and another process takes it up at once. The hub can still be asked.
        """
        await self._client.close(grace_seconds=grace_seconds)

    async def close(self) -> None:
        await self._client.close()
        await super().close()
