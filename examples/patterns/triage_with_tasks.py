"""Triage with tasks: triage writes a plan into the context; the agents behind it work it off."""

from turnline import Agent, ToolResult, run_sync, tool
from turnline.agent.messages import ToolCall
from turnline.network import ChannelInject, sequence
from turnline.network.workflow_helpers import update_context
from turnline.testing import ScriptedModel, call

MODEL: str | None = None  # None follows the script; "anthropic:claude-sonnet-4-6" asks a real model.


def model(*script: str | ToolCall) -> str | ScriptedModel:
    return MODEL or ScriptedModel(*script)


@tool
def plan(research: list[str], writing: list[str]) -> ToolResult:
    """Write the tasks down, those of research and those of writing."""
    return ToolResult("planned", context={"research": research, "writing": writing})


@tool
async def finish(task: str, channel: ChannelInject) -> str:
    """Note that a task is done."""
    if channel is not None:
        await update_context(channel, append={"finished": task})
    return f"done: {task}"


triage = Agent(
    "triage",
    "Split the request into tasks and plan them.",
    tools=[plan],
    config=model(call("plan", research=["find prices"], writing=["compare them"]), "Two tasks."),
)
researcher = Agent(
    "researcher",
    "Your tasks: {{ research }}. Do each and finish it; then say what you found.",
    tools=[finish],
    config=model(call("finish", task="find prices"), "Trains cost 40, buses 15."),
)
writer = Agent(
    "writer",
    "Your tasks: {{ writing }}. Do each and finish it; then answer the user.",
    tools=[finish],
    config=model(call("finish", task="compare them"), "Take the bus: it saves 25."),
)

graph = sequence(["user", "triage", "researcher", "writer"])

if __name__ == "__main__":
    result = run_sync(
        graph,
        agents=[triage, researcher, writer],
        message="Train or bus?",
        context_vars={"finished": []},
    )
    print(result, f"finished: {', '.join(result.context_vars['finished'])}", sep="\n")
