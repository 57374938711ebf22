"""Pipeline: each agent works on what the one before it said, and the last word ends it."""

from turnline import Agent, run_sync
from turnline.network import sequence
from turnline.testing import ScriptedModel

MODEL: str | None = None  # None follows the script; "anthropic:claude-sonnet-4-6" asks a real model.


def model(*script: str) -> str | ScriptedModel:
    return MODEL or ScriptedModel(*script)


researcher = Agent(
    "researcher",
    "List three facts about the topic, one line each.",
    config=model("Bees dance. A dance tells the way. It tells the distance, too."),
)
writer = Agent(
    "writer",
    "Make one paragraph of the facts.",
    config=model("Bees tell each other the way by dancing, and even how far it is to fly."),
)
editor = Agent(
    "editor",
    "Shorten the paragraph to one sentence. Answer with that sentence only.",
    config=model("Bees dance the way to a flower, distance included."),
)

graph = sequence(["user", "researcher", "writer", "editor"])

if __name__ == "__main__":
    print(
        run_sync(
            graph,
            agents=[researcher, writer, editor],
            message="How do bees find flowers?",
        )
    )
