"""`Context`: what one tool call is given, beside what the model sent (V2).

    variables, dependencies    the conversation's own dicts, live (V4)
    idempotency_key            the same when a crash makes the call run again
    input(prompt)              asks a person (H1)
    extras                     what a layer above provides by name; `agent/` does not look into it

A tool takes it as a parameter annotated `Context`, under any name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from turnline.agent.variables import Values, shown
from turnline.errors import NobodyToAsk

AskPerson = Callable[[str, float | None], Awaitable[str]]
"""Asks a person: the prompt, and how many seconds to wait (None: as long as it takes)."""

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class Context:
    """What one tool call is given. Shown, it names its variables and dependencies and masks their values."""

    __slots__ = ("_ask_person", "dependencies", "extras", "idempotency_key", "variables")

    def __init__(
        self,
        *,
        variables: dict[str, Any] | None = None,
        dependencies: dict[str, Any] | None = None,
        idempotency_key: str = "",
        extras: Mapping[str, object] = _NOTHING,
        ask_person: AskPerson | None = None,
    ) -> None:
        self.variables: dict[str, Any] = Values() if variables is None else variables
        """The conversation's. What a tool writes here, the next tool and `reply.ask` find (V4)."""
        self.dependencies: dict[str, Any] = Values() if dependencies is None else dependencies
        self.idempotency_key = idempotency_key
        self.extras = extras
        self._ask_person = ask_person

    async def input(self, prompt: str, timeout: float | None = None) -> str:
        """Ask a person and return the answer (H1).

        Raises `NobodyToAsk` where there is no one, and what the asking raises
        (`TimeoutError`, as a rule) when no answer comes.
        """
        if self._ask_person is None:
            raise NobodyToAsk
        return await self._ask_person(prompt, timeout)

    def for_call(self, idempotency_key: str) -> Context:
        """Return the context of another call in the same conversation."""
        return Context(
            variables=self.variables,
            dependencies=self.dependencies,
            idempotency_key=idempotency_key,
            extras=self.extras,
            ask_person=self._ask_person,
        )

    def asking(self, ask_person: AskPerson) -> Context:
        """Return the context of the same call, with another way to ask a person."""
        return Context(
            variables=self.variables,
            dependencies=self.dependencies,
            idempotency_key=self.idempotency_key,
            extras=self.extras,
            ask_person=ask_person,
        )

    def __repr__(self) -> str:
        return (
            f"Context(variables={shown(self.variables)}, dependencies={shown(self.dependencies)}, "
            f"idempotency_key={self.idempotency_key!r}, extras={sorted(self.extras)})"
        )
