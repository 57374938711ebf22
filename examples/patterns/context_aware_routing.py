"""Context-aware routing: triage writes down what the case is about; the graph reads it and chooses."""

from turnline import Agent, ToolResult, run_sync
from turnline.agent.messages import ToolCall
from turnline.network import (
    AgentTarget,
    ContextEquals,
    FromSpeaker,
    StayTarget,
    TerminateTarget,
    Transition,
    TransitionGraph,
)
from turnline.testing import ScriptedModel, call

MODEL: str | None = None  # None follows the script; "anthropic:claude-sonnet-4-6" asks a real model.


def model(*script: str | ToolCall) -> str | ScriptedModel:
    return MODEL or ScriptedModel(*script)


triage = Agent(
    "triage",
    "Classify the case as billing or security, and say so in one sentence.",
    config=model(call("classify", category="security"), "This is about security."),
)
billing = Agent("billing", "Answer as the billing desk.", config=model("Here is your invoice."))
security = Agent(
    "security",
    "Answer as the security desk. The case was filed under {{ category }}.",
    config=model("I have locked the account; please choose a new password."),
)


@triage.tool
def classify(category: str) -> ToolResult:
    """File the case under `billing` or `security`."""
    return ToolResult(f"filed under {category}", context={"category": category})


desks = ("billing", "security")
graph = TransitionGraph(
    initial_speaker="triage",
    transitions=[
        # What is set stays set, so the desks' own rule stands before those that look at the category.
        *(Transition(FromSpeaker(desk), TerminateTarget("answered")) for desk in desks),
        *(Transition(ContextEquals("category", desk), AgentTarget(desk)) for desk in desks),
    ],
    default_target=StayTarget(),
    max_turns=6,
)

if __name__ == "__main__":
    print(run_sync(graph, agents=[triage, billing, security], message="Somebody logged in as me!"))
