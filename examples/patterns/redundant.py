"""Redundant: several agents propose, each in its own manner; an evaluator chooses."""

from turnline import Agent, run_sync
from turnline.network import sequence
from turnline.testing import ScriptedModel

MODEL: str | None = None  # None follows the script; "anthropic:claude-sonnet-4-6" asks a real model.


def model(*script: str) -> str | ScriptedModel:
    return MODEL or ScriptedModel(*script)


MANNERS = {
    "bold": "Close the street to cars at once.",
    "cautious": "Try it on one Sunday, and count who comes.",
    "odd": "Paint the cars out of the street: a mural on the asphalt.",
}
proposers = [
    Agent(name, f"Be {name}. Propose one thing of your own, in one sentence.", config=model(proposal))
    for name, proposal in MANNERS.items()
]
evaluator = Agent(
    "evaluator",
    "Compare the proposals. Name the best one and why, in one sentence.",
    config=model("The cautious one: it costs a Sunday and answers the question."),
)

graph = sequence(["user", *MANNERS, "evaluator"])

if __name__ == "__main__":
    print(
        run_sync(
            graph,
            agents=[*proposers, evaluator],
            message="How do we get people to walk on Main Street?",
        )
    )
