"""A channel that does not open, cannot be read, or is not described rightly."""

from __future__ import annotations

from collections.abc import Iterable

from turnline.errors.base import TurnlineError, short


class OpenFailed(TurnlineError):
    """The channel was not opened."""

    def __init__(self, channel_id: str, *, reason: str, message: str) -> None:
        self.channel_id = channel_id
        self.reason = reason
        super().__init__(message)


class InviteRejected(OpenFailed):
    """A participant declined the invitation."""

    def __init__(self, channel_id: str, *, agent_id: str, name: str, because: str) -> None:
        self.agent_id = agent_id
        self.name = name
        self.because = because
        message = f"{name!r} rejected the invite to {channel_id!r}{f': {because}' if because else '.'}"
        super().__init__(channel_id, reason="invite_rejected", message=message)


class InviteTimeout(OpenFailed):
    """A participant did not answer the invitation in time."""

    def __init__(
        self, channel_id: str, *, awaiting: Iterable[str], names: Iterable[str], seconds: float
    ) -> None:
        self.awaiting = tuple(awaiting)
        self.names = tuple(names)
        self.seconds = seconds
        who = ", ".join(map(repr, self.names))
        silent = f"{who} did not accept the invite to {channel_id!r} in {seconds:g} s."
        message = f"{silent} Is it registered in a running process?"
        super().__init__(channel_id, reason="invite_timeout", message=message)


class BadSpec(TurnlineError):
    """What `open` was given does not describe a channel."""

    def __init__(
        self, field: str, *, found: str, expected: str, outcome: str = "The channel was not opened."
    ) -> None:
        self.field = field
        self.found = found
        self.expected = expected
        super().__init__(f"{field} is {found}; expected {expected}. {outcome}")


class BadQuery(TurnlineError):
    """What a list was asked for cannot be: a time, a label, or where the page begins."""

    def __init__(self, field: str, *, found: str, expected: str) -> None:
        self.field = field
        self.found = found
        self.expected = expected
        super().__init__(f"{field} is {found}; expected {expected}.")


class BadGraph(BadSpec):
    """A transition graph cannot be one."""


class BadExpression(TurnlineError):
    """An expression does not parse, or asks for something that is not allowed."""

    def __init__(self, text: str, *, because: str) -> None:
        self.text = text
        self.because = because
        super().__init__(f"the expression {short(text)} was refused: {because}.")


class ChannelQuarantined(TurnlineError):
    """One channel cannot be read; every other one works."""

    def __init__(self, channel_id: str, *, cause: BaseException) -> None:
        self.channel_id = channel_id
        self.cause = cause
        super().__init__(
            f"channel {channel_id!r} is quarantined: {type(cause).__name__}: {cause} "
            f"Other channels are not affected."
        )


class ClientClosed(TurnlineError):
    """A client was used after it had been closed."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"The client of {name!r} is closed. Register {name!r} again: if it was not unregistered, "
            f"it continues its channels."
        )


class HubClosed(TurnlineError):
    """The hub was used after it had been closed."""

    def __init__(self) -> None:
        super().__init__("this hub is closed; open a new one on the same log to go on.")


class EraseRefused(TurnlineError):
    """Content cannot be erased."""

    def __init__(self, channel_id: str, *, because: str) -> None:
        self.channel_id = channel_id
        self.because = because
        super().__init__(f"channel {channel_id!r} was not erased: {because}. Nothing was changed.")


class Erased(TurnlineError):
    """A message with this id was accepted, and its content was erased since."""

    def __init__(self, channel_id: str, *, envelope_id: str, seq: int) -> None:
        self.channel_id = channel_id
        self.envelope_id = envelope_id
        self.seq = seq
        super().__init__(
            f"{envelope_id!r} was accepted on channel {channel_id!r} as line {seq}, and its content was "
            "erased since. It cannot be compared with this one; do not send it again."
        )
