"""Fan-out: several agents are asked at once; their answers come back together, in the graph's order."""

from turnline import Agent, run_sync
from turnline.network import (
    AgentTarget,
    FanOutTarget,
    FromSpeaker,
    TerminateTarget,
    Transition,
    TransitionGraph,
)
from turnline.testing import ScriptedModel

MODEL: str | None = None  # None follows the script; "anthropic:claude-sonnet-4-6" asks a real model.


def model(*script: str) -> str | ScriptedModel:
    return MODEL or ScriptedModel(*script)


lawyer = Agent(
    "lawyer", "Judge it as a lawyer, in one sentence.", config=model("The name is taken in two countries.")
)
seller = Agent("seller", "Judge it as a seller, in one sentence.", config=model("People will remember it."))
coder = Agent("coder", "Judge it as a developer, in one sentence.", config=model("The package name is free."))
chair = Agent(
    "chair", "Decide, given the opinions.", config=model("Good name; we ask the lawyer about those two.")
)

graph = TransitionGraph(
    initial_speaker="user",
    transitions=[
        Transition(
            FromSpeaker("user"), FanOutTarget(["lawyer", "seller", "coder"], step="opinions", into="opinions")
        ),
        Transition(FromSpeaker("opinions"), AgentTarget("chair")),
    ],
    default_target=TerminateTarget("decided"),
)

if __name__ == "__main__":
    result = run_sync(graph, agents=[lawyer, seller, coder, chair], message="Shall we call it Turnline?")
    print(result)
    print("asked at once:", ", ".join(one["agent"] for one in result.context_vars["opinions"]))
