"""Who may do what, and the keys and tokens that say so. No message holds a token or a key."""

from __future__ import annotations

from turnline.errors.base import TurnlineError, short


class AccessError(TurnlineError):
    """Somebody may not do what they asked, or it cannot be told whether they may."""


class Unauthenticated(AccessError):
    """Nothing that was sent tells who is asking. `do` is for the door that the caller came to."""

    def __init__(self, because: str, *, do: str = "Send 'Authorization: Bearer TOKEN'.") -> None:
        self.because = because
        super().__init__(f"not authenticated: {because}. {do}")


class Forbidden(AccessError):
    """Whoever asks is known, and may not do this."""

    def __init__(self, user_id: str, *, operation: str, resource: str, because: str) -> None:
        self.user_id = user_id
        self.operation = operation
        self.resource = resource
        self.because = because
        target = f" on {short(resource)}" if resource else ""
        super().__init__(f"{short(user_id)} may not do {short(operation)}{target}: {because}.")


class AccessBusy(AccessError):
    """No token can be read just now, good or bad."""

    def __init__(self, because: str) -> None:
        self.because = because
        super().__init__(f"no token can be read: {because}. Send again later.")


class BadToken(AccessError):
    """What a token or an API key should say cannot be said in one."""

    def __init__(self, field: str, *, found: str, expected: str) -> None:
        self.field = field
        self.found = found
        self.expected = expected
        super().__init__(f"{field} is {found}; expected {expected}.")


class BadKey(AccessError):
    """The key that signs or verifies tokens is missing or cannot be used."""

    def __init__(self, where: str, *, because: str, do: str) -> None:
        self.where = where
        self.because = because
        super().__init__(f"{where}: {because}. {do}")


def install_line(extra: str) -> str:
    """Return how to install an extra. The package index does not have Turnline: a clone or a wheel does."""
    in_clone, with_wheel = f"pip install '.[{extra}]'", f"pip install 'PATH-OF-THE-WHEEL[{extra}]'"
    return f"{in_clone} in a clone of Turnline, or {with_wheel}"


class MissingExtra(TurnlineError):
    """Packages that are installed only on request are not there."""

    def __init__(self, what: str, *, extra: str) -> None:
        self.what = what
        self.extra = extra
        super().__init__(f"{what} need packages that are not installed: {install_line(extra)}.")
