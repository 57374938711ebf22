"""What goes wrong while a step is performed; it becomes the step's signal (F5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnline.errors.base import TurnlineError, hint, short


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


class OnceRefused(TurnlineError):
    """A call of `once` that cannot be done as it is written."""

    def __init__(self, key: str, *, found: str, do: str) -> None:
        self.key = key
        super().__init__(f"once({key!r}): {found}. {do}")


class NodeNotPure(TurnlineError):
    """A node that is marked pure asks for the database, or for `once`."""

    def __init__(self, node: str, *, key: str) -> None:
        self.node = node
        self.key = key
        found = f"node {node!r} is marked pure, and uses ctx[{key!r}]"
        super().__init__(f"{found}; expected one that only computes. Remove pure=True from it.")


class OnceKeyReused(OnceRefused):
    """One performance of a turn used a key of `once` twice."""

    def __init__(self, key: str) -> None:
        found = "the key is used a second time; expected one key for each result of the turn"
        super().__init__(key, found=found, do="Give each call a key of its own, such as 'charge-1'.")


class QuestionChanged(TurnlineError):
    """A tool that ran again asked another question where it had asked one before."""

    def __init__(self, tool: str, *, asked: str, asks: str) -> None:
        self.tool, self.asked, self.asks = tool, asked, asks
        super().__init__(
            f"Tool {tool!r} ran again and asks {short(asks)}; expected {short(asked)}, as before. "
            f"Record what the question depends on with context.once."
        )


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
    """A step asked for a secret, and its definition or its run is not the project's own."""

    def __init__(self, secret: str, *, flow: str, digest: str, run_id: str = "") -> None:
        self.secret = secret
        self.flow = flow
        self.digest = digest
        self.run_id = run_id
        """The run whose data came with an import; empty if the definition is not the project's own."""
        why = (
            f"No server of this project opened run {run_id!r} of flow {flow!r} on this log, or its data "
            f"is from such a run."
            if run_id
            else f"No server of this project loaded this definition of flow {flow!r} from its own files."
        )
        super().__init__(
            f"The secret {secret!r} is refused. {why} If you imported it and trust it, import it again "
            f"with --trust."
        )


class ForeignChild(FlowError):
    """A channel below a run came with an import; the run did not open it."""

    def __init__(self, channel_id: str, *, run_id: str) -> None:
        self.channel_id = channel_id
        self.run_id = run_id
        super().__init__(
            f"channel {channel_id!r} came with an import, and run {run_id!r} did not open it. Its result is "
            f"refused. Cancel the run and start it again."
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
