"""Access: who sent a request, and may they do this (F13).

Rule 1: everything is denied that no scope allows; `public: true` is the one exception.

Rule 2: whoever may not read a run is told of it what they would be told if there were
none, whatever they asked of it. Whoever started it may read it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

from starlette.requests import Request

from turnline.errors import AccessError, Forbidden, HubClosed, UnknownRun
from turnline.flow.definition.flow import Flow, nested_steps
from turnline.flow.definition.steps import HumanStep
from turnline.flow.run import run_knob
from turnline.server.auth.assembly import api_keys_alone, open_development, open_production
from turnline.server.auth.authenticator import Authenticator, authenticate_public
from turnline.server.auth.credentials import Credentials, credentials_of
from turnline.server.auth.operations import authorise, check_bounds, covers
from turnline.server.auth.principal import Principal
from turnline.server.limits import note_token
from turnline.server.runtime import Runtime

_OF_ONES_OWN: Final = frozenset({"runs.read", "runs.stream"})
"""What whoever started a run may do with it, without a scope for other people's."""

MAX_RETRIES_FOLLOWED: Final = 100
"""Retries and forks that are followed back to the first run. The end of a longer chain is nobody's own."""

OpenAuthenticator = Callable[[Runtime], AbstractAsyncContextManager[Authenticator]]
"""An authenticator that is opened once the runtime is, for one that reads the log."""


def production(folder: Path, environ: Mapping[str, str] | None = None) -> OpenAuthenticator:
    """Accept tokens signed by the project's key, and API keys. Opening it raises `BadKey` without a key."""
    known = os.environ if environ is None else environ

    def opened(runtime: Runtime) -> AbstractAsyncContextManager[Authenticator]:
        hub = runtime.hub
        return open_production(known, folder, hub.log, hub.clock, hub.new_id)

    return opened


def development(key: str, folder: Path, environ: Mapping[str, str] | None = None) -> OpenAuthenticator:
    """Accept `key`, which may do everything, and the project's tokens and API keys. From this machine only.

    The holder of the key is in every group that a step of the project asks.
    """
    known = os.environ if environ is None else environ

    def opened(runtime: Runtime) -> AbstractAsyncContextManager[Authenticator]:
        hub = runtime.hub
        groups = sorted(_groups_of(runtime.flows.values()))
        return open_development(known, folder, hub.log, hub.clock, hub.new_id, key=key, groups=groups)

    return opened


def only_api_keys(environ: Mapping[str, str]) -> OpenAuthenticator:
    """Accept API keys alone, on a server that has no signing key."""

    @asynccontextmanager
    async def opened(runtime: Runtime) -> AsyncIterator[Authenticator]:
        yield api_keys_alone(environ)

    return opened


class Access:
    """The one way from a request to a principal."""

    def __init__(self, runtime: Runtime, authenticator: Authenticator | None = None) -> None:
        self._runtime = runtime
        self.authenticator = authenticator
        """None until it is opened; nobody is let in before."""

    async def start(self, request: Request, flow: Flow) -> Principal:
        """Return who may start a run of `flow`."""
        known, credentials = self._known(), _credentials(request)
        if _is_public(flow):
            principal = await authenticate_public(known, credentials)
        else:
            principal = await known.authenticate(credentials)
        await self._note(principal, request)
        self.check_start(principal, flow)
        return principal

    def check_start(self, principal: Principal, flow: Flow) -> None:
        """Refuse a principal that may not start runs of `flow`.

        Everybody may start a public flow. A token that was narrowed to something else may not, for the run
        would be its user's.
        """
        if _is_public(flow):
            check_bounds(principal, "runs.start", resource=flow.name, now=self._runtime.clock.now())
            return
        self.check(principal, "runs.start", flow.name)
        trigger = flow.spec.trigger
        self._check_scopes(principal, flow, trigger.scopes if trigger else ())

    async def check_start_again(self, principal: Principal, run_id: str) -> Flow:
        """Refuse a principal that may not start the run's flow, as it was and as it is now. Return it."""
        flow = await self._runtime.runs.definition(run_id)
        self.check_start(principal, flow)
        self.check_start(principal, self._runtime.flows.get(flow.name, flow))
        return flow

    async def check_retry(self, principal: Principal, run_id: str) -> Flow:
        """Refuse a principal that may not start the run's flow again. Return the flow.

        The refusal names the flow, so a principal that may not read the run is told that there is none.
        """
        try:
            return await self.check_start_again(principal, run_id)
        except Forbidden:
            if await self.may_read_run(principal, run_id):
                raise
            raise UnknownRun(run_id) from None

    async def may_read_run(self, principal: Principal, run_id: str) -> bool:
        """Return whether the principal may read the run: by a scope, or because it is their own."""
        try:
            self.check(principal, "runs.read", run_id)
        except AccessError:
            return not principal.is_anonymous and await self._is_own(principal, run_id)
        return True

    async def admit(self, request: Request, operation: str, resource: str = "") -> Principal:
        """Return who is asking, who may do this. Raises `Unauthenticated` or `Forbidden` otherwise."""
        principal = await self._note(await self._known().authenticate(_credentials(request)), request)
        self.check(principal, operation, resource)
        return principal

    async def admit_to_run(self, request: Request, operation: str, run_id: str) -> Principal:
        """Return who may do this to the run; whoever may not even read it is told there is none."""
        principal = await self._note(await self._known().authenticate(_credentials(request)), request)
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
        """Return whether the principal started the run, and still may. A narrowed token says what it is for.

        A retry or a fork knows all that the run before it knew. It is the principal's own only if each run
        that it continues is, too.
        """
        if principal.bounds:
            return False
        try:
            for _ in range(MAX_RETRIES_FOLLOWED):
                state = await self._runtime.runs.state(run_id)
                knob = run_knob(state)
                if knob is None or state.private_vars.get("_user_id") != principal.user_id:
                    return False
                self.check(principal, "runs.start", knob.name)
                origin = state.spec.forked_from
                run_id = knob.retry_of if origin is None else origin.channel
                if not run_id:
                    return True
        except (AccessError, UnknownRun):
            pass
        return False

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

    async def _note(self, principal: Principal, request: Request) -> Principal:
        """Keep the user's id from being registered by another user over a link, and note the token."""
        if not principal.is_anonymous:
            note_token(request.scope, principal.user_id)
            await self._runtime.hub.note_user(principal.user_id)
        return principal

    def _known(self) -> Authenticator:
        if self.authenticator is None:
            raise HubClosed
        return self.authenticator


def peer_of(request: Request) -> str:
    """Return the address that the request came from; empty if it is not known."""
    return request.client.host if request.client else ""


def _credentials(request: Request) -> Credentials:
    return credentials_of(request.headers.getlist("authorization"), peer=peer_of(request))


def _is_public(flow: Flow) -> bool:
    return flow.spec.trigger is not None and flow.spec.trigger.public


def _groups_of(flows: Iterable[Flow]) -> set[str]:
    every = [step for flow in flows for steps in nested_steps(flow.steps) for step in steps]
    people = {step.human.group for step in every if isinstance(step, HumanStep) and step.human.group}
    asked = {step.asks.group for step in every if step.asks is not None}
    return people | asked
