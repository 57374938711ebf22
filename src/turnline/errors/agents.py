"""An agent that could not do its round."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from turnline.errors.base import TurnlineError


class AgentError(TurnlineError):
    """An agent could not do its round."""


class NoModel(AgentError):
    """Nobody said which model to use."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        super().__init__(
            f"agent {agent!r} has no model. Give it one, Agent(..., config='anthropic:claude-sonnet-4-6') "
            f"or a config from turnline.config, or set TURNLINE_MODEL; for tests, "
            f"config=ScriptedModel('a reply')."
        )


class ModelError(AgentError):
    """The model did not answer, or not in a way that can be understood.

    A transient one (overloaded, cut off, not reachable) may go better the next time.
    """

    def __init__(
        self,
        model: str,
        *,
        because: str,
        transient: bool,
        status: int | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        self.model = model
        self.because = because
        self.transient = transient
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"model {model!r} failed: {because}{'' if because.endswith(('.', '?')) else '.'}")


class ScriptExhausted(AgentError):
    """A scripted model was asked once more than it has replies."""

    def __init__(self, agent: str, *, turn: int) -> None:
        self.agent = agent
        self.turn = turn
        super().__init__(
            f"the script of agent {agent!r} has ended, and its model was asked once more (request {turn}); "
            f"add a reply to the script."
        )


class ToolRoundsExceeded(AgentError):
    """The model went on calling tools."""

    def __init__(self, agent: str, *, rounds: int) -> None:
        self.agent = agent
        self.rounds = rounds
        super().__init__(
            f"agent {agent!r} called tools {rounds} times in a row without an answer; "
            f"raise max_tool_rounds, or look at why it does."
        )


class BadTool(AgentError):
    """A function that cannot be a tool."""

    def __init__(self, tool: str, *, because: str) -> None:
        self.tool = tool
        self.because = because
        super().__init__(f"{tool!r} cannot be a tool: {because}.")


class MissingVariable(AgentError):
    """A tool asks for a variable or a dependency that nobody gave."""

    def __init__(self, tool: str, *, kind: str, key: str) -> None:
        self.tool = tool
        self.kind = kind
        self.key = key
        given = "variables" if kind == "variable" else "dependencies"
        super().__init__(
            f"tool {tool!r} asks for the {kind} {key!r}, which nobody gave; pass {given}={{{key!r}: ...}} "
            f"to the agent or to ask(), or give it a default."
        )


class BadOutput(AgentError):
    """The reply is not what the response schema asks for."""

    def __init__(self, agent: str, *, because: str) -> None:
        self.agent = agent
        self.because = because
        super().__init__(f"agent {agent!r} did not answer in the form asked for: {because.rstrip('.')}.")


_NAME_A_PERSON: Final = "give Agent(..., hitl_hook=...), or let a HumanClient take part in the channel."


class NobodyToAsk(AgentError):
    """A tool asks for a person's input, and nobody is there to be asked."""

    def __init__(self, *, do: str = "") -> None:
        """`do` says how to name somebody, where it is not an agent on a channel that asks."""
        do = do or _NAME_A_PERSON
        super().__init__(f"a tool asks for a person's input or approval, and there is nobody to ask; {do}")


class DelegationCycle(AgentError):
    """An agent asked somebody who waits for it."""

    def __init__(self, cycle: Iterable[str]) -> None:
        self.cycle = tuple(cycle)
        """Who waits for whom, by name; the last is the first again."""
        super().__init__(
            f"{self.cycle[-2]!r} cannot ask {self.cycle[-1]!r}, who waits for it already: "
            f"{' -> '.join(self.cycle)}. Answer with what you have, or ask somebody else."
        )


class NoAnswer(AgentError):
    """Whoever was asked gave no answer."""

    def __init__(self, asked: str, *, channel_id: str, reason: str, error: str = "") -> None:
        self.asked = asked
        self.channel_id = channel_id
        self.reason = reason
        self.error = error
        """The type of the error with which the turn failed, if that is known."""
        peer = "A peer cannot ask a person: do the part that needs one yourself, or go on without."
        do = peer if error == "NobodyToAsk" else "Ask again, ask somebody else, or go on without."
        why = f"{reason!r} ({error})" if error else repr(reason)
        super().__init__(f"{asked!r} gave no answer: channel {channel_id!r} closed with {why}. {do}")


class StepFailed(AgentError):
    """Somebody a step asked did not answer, and the step's policy is to fail then."""

    def __init__(self, step: str, *, agents: Iterable[str]) -> None:
        self.step = step
        self.agents = tuple(agents)
        super().__init__(f"the step {step!r} got no answer from {', '.join(self.agents)}.")
