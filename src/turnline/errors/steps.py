"""What goes wrong while a step is performed; it becomes the step's signal (F5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnline.errors.base import TurnlineError, hint


class FlowError(TurnlineError):
    """A step of a flow could not do what it says."""


class ParseFailed(FlowError):
    """What a model or another system sent back is not what the step asked for."""

    def __init__(self, step: str, *, found: str, expected: str) -> None:
        self.step = step
        self.found = found
        self.expected = expected
        super().__init__(f"the answer for step {step!r} is {found}; expected {expected}.")


class MissingContextKey(FlowError, KeyError):
    """A node reads a key that the run's context does not have. Also a `KeyError`."""

    __str__ = Exception.__str__

    def __init__(self, key: str, known: Iterable[str]) -> None:
        self.key = key
        self.known = tuple(sorted(known))
        listed = ", ".join(self.known) or "nothing"
        super().__init__(
            f"ctx has no {key!r}; it has: {listed}.{hint(key, self.known)} Take it in with `trigger.input`, "
            f"write it in an earlier step, or read it with ctx.get({key!r})."
        )


class BadReturn(FlowError):
    """A node returned something that is no result of a step."""

    def __init__(self, node: str, *, found: str) -> None:
        self.node = node
        self.found = found
        expected = "ctx, another dict, a signal (text), (ctx, signal) or None"
        super().__init__(f"node {node!r} returned a {found}; expected {expected}.")


class BadStepValue(FlowError):
    """A value that a step was given, or came to, is not what it needs."""

    def __init__(self, what: str, *, found: str, expected: str) -> None:
        self.what = what
        self.found = found
        self.expected = expected
        super().__init__(f"{what} is {found}; expected {expected}.")


class InputRefused(FlowError):
    """A step starts another flow with input that the flow's trigger does not take."""

    def __init__(self, flow: str, *, problems: Sequence[str]) -> None:
        self.flow = flow
        self.problems = tuple(problems)
        super().__init__(f"The input of flow {flow!r} is refused: {'; '.join(problems)}.")


class BadAddress(BadStepValue):
    """A text that an `api_call` was given is not an address that it can call."""


class TemplateFailed(FlowError):
    """A template could not be filled in. What it was filled with is not in the message."""

    def __init__(self, at: str, *, because: str) -> None:
        self.at = at
        """Where in the step it stands: `api_call.json.customer`."""
        self.because = because
        super().__init__(f"{at} cannot be filled in: {because}.")


class SecretRefused(FlowError):
    """A step asked for a secret, and its definition is not the project's own."""

    def __init__(self, secret: str, *, flow: str, digest: str) -> None:
        self.secret = secret
        self.flow = flow
        self.digest = digest
        super().__init__(
            f"The secret {secret!r} is refused. No server of this project loaded this definition of flow "
            f"{flow!r} from its own files. If you imported it and trust it, import it again with --trust."
        )


class AddressRefused(FlowError):
    """A step may not reach this address."""

    def __init__(self, host: str, *, because: str) -> None:
        self.host = host
        self.because = because
        super().__init__(f"{host!r} may not be called: {because}. `allow_private: true` allows it.")


class CallFailed(FlowError):
    """Another system could not be reached, or did not answer as it should."""

    def __init__(self, called: str, *, because: str, status: int | None = None) -> None:
        self.called = called
        self.because = because
        self.status = status
        super().__init__(f"{called} failed: {because}.")


class ChildFailed(FlowError):
    """A run or a conversation below a step failed, and the step with it."""

    def __init__(self, child: str, *, error_type: str, message: str, step: str | None = None) -> None:
        self.child = child
        self.error_type = error_type
        self.message = message
        self.step = step
        """The child's own step that failed it, if one did."""
        at = f" at its step {step!r}" if step else ""
        super().__init__(f"{child} failed{at}: {error_type}: {message}")
