"""The agent's process: it takes its turns over WebSocket. Kill it and start it again: it goes on."""

import asyncio
import sys

from turnline import Agent, tool
from turnline.agent.messages import Message, ToolMessage
from turnline.agent.scripted import ScriptedModel, call
from turnline.network import HubClient, WsLink

MODEL: str | None = None  # None follows the script; "anthropic:claude-sonnet-4-6" asks a real model.
TOPICS = ("bees", "dances", "flowers")


def script(messages: tuple[Message, ...]) -> object:
    """Look up one topic after another, then answer."""
    known = sum(isinstance(one, ToolMessage) for one in messages)
    return call("look_up", topic=TOPICS[known]) if known < len(TOPICS) else "Bees dance the way to a flower."


@tool
async def look_up(topic: str) -> str:
    """Look something up in the library."""
    print(f"looking up {topic}", flush=True)
    await asyncio.sleep(0.3)
    return f"{topic}: a page of it"


writer = Agent(
    "writer",
    "Look up what you need, then answer in one sentence.",
    config=MODEL or ScriptedModel(script),  # type: ignore[arg-type]
    tools=[look_up],
)


async def main(url: str = "ws://127.0.0.1:8765") -> None:
    async with WsLink(url) as link:
        await HubClient(link).register(writer, attach_plugin=False)
        print("here", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        print("gone")
