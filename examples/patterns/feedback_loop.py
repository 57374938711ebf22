"""Feedback loop: a drafter and a reviewer, until the reviewer approves or the turns are used up."""

from turnline import Agent, run_sync
from turnline.agent.messages import ToolCall
from turnline.network import (
    AgentTarget,
    ChannelInject,
    ContextEquals,
    FromSpeaker,
    TerminateTarget,
    Transition,
    TransitionGraph,
)
from turnline.network.workflow_helpers import set_context
from turnline.testing import ScriptedModel, call

MODEL: str | None = None  # None follows the script; "anthropic:claude-sonnet-4-6" asks a real model.


def model(*script: str | ToolCall) -> str | ScriptedModel:
    return MODEL or ScriptedModel(*script)


drafter = Agent(
    "drafter",
    "Write a slogan of at most six words; mend it as the reviewer says.",
    config=model(
        "The bread that everybody in this town has been waiting for.", "Bread worth getting up for."
    ),
)
reviewer = Agent(
    "reviewer",
    "Approve a slogan of at most six words; else say in one sentence what is wrong.",
    config=model("Too long: eleven words.", call("approve"), "That is the one."),
)


@reviewer.tool
async def approve(channel: ChannelInject) -> str:
    """Approve the slogan; it ends the work on it."""
    if channel is not None:
        await set_context(channel, "approved", True)
    return "approved"


graph = TransitionGraph(
    initial_speaker="user",
    transitions=[
        Transition(ContextEquals("approved", True), TerminateTarget("approved")),
        Transition(FromSpeaker("drafter"), AgentTarget("reviewer")),
    ],
    default_target=AgentTarget("drafter"),
    max_turns=9,
)

if __name__ == "__main__":
    print(run_sync(graph, agents=[drafter, reviewer], message="A slogan for a bakery, please."))
