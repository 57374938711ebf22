"""`Context`: what one tool call is given, beside what the model sent (V2).

    variables, dependencies    the conversation's own dicts, live (V4)
    idempotency_key            the same when a crash makes the call run again
    input(prompt)              asks a person (H1)
    once(key, fn)              runs a function, and after a crash returns its recorded result instead (N4)
    extras                     what a layer above provides by name; `agent/` does not look into it

A tool takes it as a parameter annotated `Context`, under any name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from turnline.agent.variables import Values, shown
from turnline.errors import NobodyToAsk
from turnline.threads import call_user, is_on_loop, wait_in_thread

AskPerson = Callable[[str, float | None], Awaitable[str]]
"""Asks a person: the prompt, and how many seconds to wait (None: as long as it takes)."""

RunOnce = Callable[[str, Callable[[], Any]], Coroutine[Any, Any, Any]]
"""Runs a function under a key, or returns the result that is recorded for the key."""

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


async def run_unrecorded(key: str, fn: Callable[[], Any]) -> Any:
    """Run a function where no log records its result: outside of channels and flows."""
    return await call_user(fn)


class Once:
    """`once` as the user's code calls it: code on the loop awaits it, code in a thread gets the result."""

    def __init__(self, run: RunOnce) -> None:
        self._run = run
        self._loop = asyncio.get_running_loop()

    def __call__(self, key: str, fn: Callable[[], Any]) -> Any:
        if is_on_loop():
            return self._run(key, fn)
        return wait_in_thread(self._loop, partial(self._run, key), fn)


class Context:
    """What one tool call is given. Shown, it names its variables and dependencies and masks their values."""

    __slots__ = ("_ask_person", "_once", "dependencies", "extras", "idempotency_key", "variables")

    def __init__(
        self,
        *,
        variables: dict[str, Any] | None = None,
        dependencies: dict[str, Any] | None = None,
        idempotency_key: str = "",
        extras: Mapping[str, object] = _NOTHING,
        ask_person: AskPerson | None = None,
        once: Once | None = None,
    ) -> None:
        self.variables: dict[str, Any] = Values() if variables is None else variables
        """The conversation's. What a tool writes here, the next tool and `reply.ask` find (V4)."""
        self.dependencies: dict[str, Any] = Values() if dependencies is None else dependencies
        self.idempotency_key = idempotency_key
        self.extras = extras
        self._ask_person = ask_person
        self._once = once

    def input(self, prompt: str, timeout: float | None = None) -> Coroutine[Any, Any, str]:
        """Ask a person and return the answer; await it (H1).

        Raises `NobodyToAsk` where there is no one, and what the asking raises
        (`TimeoutError`, as a rule) when no answer comes. A sync tool gets a `TypeError`: it would hold one of
        the process's few threads for as long as the person takes.
        """
        if not is_on_loop():
            raise TypeError(
                "a sync tool called context.input; expected an async one. "
                "Write `async def` and `await context.input(...)`."
            )
        return self._input(prompt, timeout)

    def once(self, key: str, fn: Callable[[], Any]) -> Any:
        """Run `fn`, record its JSON result and return it; after a crash return the recorded one (N4).

        Await it; a sync tool, which runs in a thread, gets the result itself. The key belongs to this call.
        Outside of channels and flows `fn` runs and nothing is recorded.
        Raises `OnceKeyReused` for a key that the call has used, and `OnceRefused` for what is not JSON.
        """
        if self._once is not None:
            return self._once(key, fn)
        running = run_unrecorded(key, fn)
        return running if is_on_loop() else asyncio.run(running)

    def for_call(
        self, idempotency_key: str, ask_person: AskPerson | None = None, once: Once | None = None
    ) -> Context:
        """Return the context of a call in the same conversation; how to ask and `once` are its own."""
        return Context(
            variables=self.variables,
            dependencies=self.dependencies,
            idempotency_key=idempotency_key,
            extras=self.extras,
            ask_person=ask_person or self._ask_person,
            once=once or self._once,
        )

    async def _input(self, prompt: str, timeout: float | None) -> str:
        if self._ask_person is None:
            raise NobodyToAsk
        return await self._ask_person(prompt, timeout)

    def __repr__(self) -> str:
        return (
            f"Context(variables={shown(self.variables)}, dependencies={shown(self.dependencies)}, "
            f"idempotency_key={self.idempotency_key!r}, extras={sorted(self.extras)})"
        )
