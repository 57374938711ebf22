"""Access: who sent a request, and may they do this (F13).

Rule 1: everything is denied that no scope allows; `public: true` is the one exception.

Rule 2: whoever may not read a run is told of it what they would be told if there were
none, whatever they asked of it. Whoever started it may read it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

from starlette.requests import Request

from turnline.errors import Forbidden, HubClosed, UnknownRun
from turnline.flow.definition.flow import Flow
from turnline.server.auth.api_keys import API_KEYS_VARIABLE, ApiKeys
from turnline.server.auth.assembly import open_development, open_production
from turnline.server.auth.authenticator import Authenticator, authenticate_public
from turnline.server.auth.credentials import Credentials, credentials_of
from turnline.server.auth.keys import RootKey
from turnline.server.auth.operations import authorise, covers
from turnline.server.auth.principal import Principal
from turnline.server.runtime import Runtime

_OF_ONES_OWN: Final = frozenset({"runs.read", "runs.stream"})
"""What whoever started a run may do with it, without a scope for other people's."""

OpenAuthenticator = Callable[[Runtime], AbstractAsyncContextManager[Authenticator]]
"""An authenticator that is opened once the runtime is, for one that reads the log."""


def production(folder: Path, environ: Mapping[str, str] | None = None) -> OpenAuthenticator:
    """What others rely on: tokens signed by the project's key, and API keys. `BadKey` without a key."""
    known = os.environ if environ is None else environ

    def opened(runtime: Runtime) -> AbstractAsyncContextManager[Authenticator]:
        hub = runtime.hub
        return open_production(known, folder, hub.log, hub.clock, hub.new_id)

    return opened


def development(key: RootKey) -> OpenAuthenticator:
    """What `serve --dev` lets in: tokens signed by a development key, from this machine itself."""

    def opened(runtime: Runtime) -> AbstractAsyncContextManager[Authenticator]:
        hub = runtime.hub
        return open_development(key, hub.log, hub.clock, hub.new_id)

    return opened


def only_api_keys(environ: Mapping[str, str]) -> OpenAuthenticator:
    """API keys alone, for a server that only this machine can reach and that has no key of its own."""

    @asynccontextmanager
    async def opened(runtime: Runtime) -> AsyncIterator[Authenticator]:
        yield ApiKeys.from_text(environ.get(API_KEYS_VARIABLE, ""))

    return opened


class Access:
    """The one way from a request to a principal."""

    def __init__(self, runtime: Runtime, authenticator: Authenticator | None = None) -> None:
        self._runtime = runtime
        self.authenticator = authenticator
        """None until it is opened; nobody is let in before."""

    async def start(self, request: Request, flow: Flow) -> Principal:
        """Return who may start a run of `flow`."""
        trigger = flow.spec.trigger
        if trigger is not None and trigger.public:
            return await self._note(await authenticate_public(self._known(), _credentials(request)))
        principal = await self.admit(request, "runs.start", flow.name)
        self._check_scopes(principal, flow, trigger.scopes if trigger else ())
        return principal

    async def admit(self, request: Request, operation: str, resource: str = "") -> Principal:
        """Return who is asking, who may do this. Raises `Unauthenticated` or `Forbidden` otherwise."""
        principal = await self._note(await self._known().authenticate(_credentials(request)))
        self.check(principal, operation, resource)
        return principal

    async def admit_to_run(self, request: Request, operation: str, run_id: str) -> Principal:
        """Return who may do this to the run; whoever may not even read it is told there is none."""
        principal = await self._note(await self._known().authenticate(_credentials(request)))
        try:
            self.check(principal, operation, run_id)
        except Forbidden as forbidden:
            is_own = await self._is_own(principal, run_id)
            if not is_own:
                await self._check_may_know(principal, run_id)
            if not is_own or operation not in _OF_ONES_OWN:
                raise forbidden from None
        return principal

    def check(self, principal: Principal, operation: str, resource: str = "") -> None:
        authorise(principal, operation, resource=resource, now=self._runtime.clock.now())

    async def _is_own(self, principal: Principal, run_id: str) -> bool:
        """Whether the principal started the run, and still may. A narrowed token says what it is for."""
        try:
            state = await self._runtime.runs.state(run_id)
            self.check(principal, "runs.start", state.spec.labels.get("flow", ""))
        except (Forbidden, UnknownRun):
            return False
        return not principal.bounds and state.private_vars.get("_user_id") == principal.user_id

    async def _check_may_know(self, principal: Principal, run_id: str) -> None:
        try:
            self.check(principal, "runs.read", run_id)
        except Forbidden:
            raise UnknownRun(run_id) from None
        await self._runtime.runs.state(run_id)

    def _check_scopes(self, principal: Principal, flow: Flow, needed: Sequence[str]) -> None:
        for scope in needed:
            if not any(covers(granted, scope) for granted in principal.scopes):
                because = f"it needs the scope {scope!r}"
                raise Forbidden(
                    principal.user_id, operation="runs.start", resource=flow.name, because=because
                )

    async def _note(self, principal: Principal) -> Principal:
        """Keep the user's id from being registered by another user over a link."""
        if not principal.is_anonymous:
            await self._runtime.hub.note_user(principal.user_id)
        return principal

    def _known(self) -> Authenticator:
        if self.authenticator is None:
            raise HubClosed
        return self.authenticator


def _credentials(request: Request) -> Credentials:
    peer = request.client.host if request.client else ""
    return credentials_of(request.headers.getlist("authorization"), peer=peer)
