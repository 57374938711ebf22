"""Nesting: a target that runs another graph, on a channel of its own, and hands its result on."""

from turnline import Agent, run_sync
from turnline.network import (
    AgentTarget,
    FromSpeaker,
    NestedTarget,
    TerminateTarget,
    Transition,
    TransitionGraph,
    sequence,
)
from turnline.testing import ScriptedModel

MODEL: str | None = None  # None follows the script; "anthropic:claude-sonnet-4-6" asks a real model.


def model(*script: str) -> str | ScriptedModel:
    return MODEL or ScriptedModel(*script)


drafter = Agent(
    "drafter", "Draft the announcement.", config=model("We are pleased to announce that it works.")
)
editor = Agent("editor", "Shorten it.", config=model("It works."))
publisher = Agent("publisher", "Say where it is published.", config=model("Published on the front page."))

writing = sequence(["drafter", "editor"])

graph = TransitionGraph(
    initial_speaker="user",
    transitions=[
        Transition(FromSpeaker("user"), NestedTarget(writing, step="writing")),
        Transition(FromSpeaker("writing"), AgentTarget("publisher")),
    ],
    default_target=TerminateTarget("published"),
)

if __name__ == "__main__":
    print(run_sync(graph, agents=[drafter, editor, publisher], message="Announce the release."))
