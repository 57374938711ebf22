"""Hierarchical: a coordinator gives out the work; whoever did a part of it gives the floor back."""

from turnline import Agent, Handoff, run_sync
from turnline.agent.messages import ToolCall
from turnline.network import (
    AgentTarget,
    FromSpeaker,
    TerminateTarget,
    ToolCalled,
    Transition,
    TransitionGraph,
)
from turnline.testing import ScriptedModel, call

MODEL: str | None = None  # None follows the script; "anthropic:claude-sonnet-4-6" asks a real model.


def model(*script: str | ToolCall) -> str | ScriptedModel:
    return MODEL or ScriptedModel(*script)


coordinator = Agent(
    "coordinator",
    "Let `coder` write the function and `tester` try it, one after the other; then conclude.",
    config=model(
        call("assign", to="coder", reason="write it"),
        "Coder, please write `mean`.",
        call("assign", to="tester", reason="try it"),
        "Tester, please try it.",
        call("conclude"),
        "It is written and it works.",
    ),
)
coder = Agent(
    "coder", "Write the Python you are asked for.", config=model("mean = lambda n: sum(n) / len(n)")
)
tester = Agent("tester", "Try the code you are shown, in your head.", config=model("mean([1, 3]) is 2."))


@coordinator.tool
def assign(to: str, reason: str) -> Handoff:
    """Give the next piece of work to an agent, `coder` or `tester`."""
    return Handoff(to, reason)


@coordinator.tool
def conclude() -> str:
    """Say that everything is done."""
    return "concluded"


done = Transition(ToolCalled("conclude"), TerminateTarget("complete"))
back = Transition(FromSpeaker("coder") | FromSpeaker("tester"), AgentTarget("coordinator"))
graph = TransitionGraph("coordinator", [done, back], TerminateTarget("nobody_assigned"), max_turns=12)

if __name__ == "__main__":
    print(run_sync(graph, agents=[coordinator, coder, tester], message="I need a function for the mean."))
