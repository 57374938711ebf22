"""Star: one agent in the middle asks the others, one by one, and puts together what they know."""

from turnline import Agent, run_sync
from turnline.agent.messages import ToolCall
from turnline.network import AgentTarget, TerminateTarget, ToolCalled, Transition, TransitionGraph
from turnline.testing import ScriptedModel, call

MODEL: str | None = None  # None follows the script; "anthropic:claude-sonnet-4-6" asks a real model.


def model(*script: str | ToolCall) -> str | ScriptedModel:
    return MODEL or ScriptedModel(*script)


planner = Agent(
    "planner",
    "Ask for the weather, then for events; then synthesise a plan for the day.",
    config=model(
        call("ask_weather"),
        "What will the weather be?",
        call("ask_events"),
        "And what is on in town?",
        call("synthesise"),
        "Museum in the rain of the morning, market in the sun of the afternoon.",
    ),
)
weather = Agent(
    "weather", "You know the weather: rain, then sun.", config=model("Rain until noon, then sun.")
)
events = Agent("events", "You know what is on: a market at three.", config=model("A market at three."))


@planner.tool
def ask_weather() -> str:
    """Ask about the weather; say in your answer what you want to know."""
    return "weather is asked"


@planner.tool
def ask_events() -> str:
    """Ask about events; say in your answer what you want to know."""
    return "events is asked"


@planner.tool
def synthesise() -> str:
    """Call it when everybody has been asked; then answer with the plan."""
    return "go ahead"


spokes = [Transition(ToolCalled(f"ask_{name}"), AgentTarget(name)) for name in ("weather", "events")]
done = Transition(ToolCalled("synthesise"), TerminateTarget("synthesised"))
graph = TransitionGraph("planner", [done, *spokes], default_target=AgentTarget("planner"), max_turns=12)

if __name__ == "__main__":
    print(run_sync(graph, agents=[planner, weather, events], message="What shall we do on Sunday?"))
