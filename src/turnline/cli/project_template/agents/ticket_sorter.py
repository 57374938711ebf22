"""The agent that sorts tickets. It follows a script; `config="openai:gpt-5-mini"` asks a model instead."""

from __future__ import annotations

import json

from turnline import Agent
from turnline.agent.messages import Message, UserMessage
from turnline.testing import ScriptedModel


def sort(messages: tuple[Message, ...]) -> str:
    """What the script says; a model would think about it."""
    text = " ".join(one.text for one in messages if isinstance(one, UserMessage)).lower()
    topic = "billing" if "invoice" in text else "other"
    return json.dumps({"topic": topic, "urgent": "now" in text})


sorter = Agent("sorter", "Say what a ticket is about, and whether it is urgent.", config=ScriptedModel(sort))
