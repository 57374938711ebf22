"""Escalation: each tier resolves the case or hands it to the next one, with a reason."""

from turnline import Agent, Handoff, run_sync, tool
from turnline.agent.messages import ToolCall
from turnline.network import TerminateTarget, ToolCalled, Transition, TransitionGraph
from turnline.testing import ScriptedModel, call

MODEL: str | None = None  # None follows the script; "anthropic:claude-sonnet-4-6" asks a real model.


def model(*script: str | ToolCall) -> str | ScriptedModel:
    return MODEL or ScriptedModel(*script)


@tool
def resolve(solution: str) -> str:
    """Record the solution; the case is closed."""
    return f"recorded: {solution}"


@tool
def escalate(to: str, reason: str) -> Handoff:
    """Hand the case to the next tier: `tier2`, and from there `engineer`."""
    return Handoff(to, reason)


first = Agent(
    "tier1",
    "Resolve passwords and invoices; escalate the rest to tier2.",
    tools=[resolve, escalate],
    config=model(call("escalate", to="tier2", reason="not a password"), "I pass this on."),
)
second = Agent(
    "tier2",
    "Resolve settings; escalate data loss to engineer.",
    tools=[resolve, escalate],
    config=model(call("escalate", to="engineer", reason="data loss"), "This needs an engineer."),
)
engineer = Agent(
    "engineer",
    "Resolve it.",
    tools=[resolve],
    config=model(call("resolve", solution="restored from last night"), "Your files are back."),
)
done = Transition(ToolCalled("resolve"), TerminateTarget("resolved"))
graph = TransitionGraph("tier1", [done], default_target=TerminateTarget("unresolved"), max_turns=8)

if __name__ == "__main__":
    print(run_sync(graph, agents=[first, second, engineer], message="All my files are gone."))
