"""The agent that scores leads. It follows a script unless TURNLINE_MODEL names a model."""

from __future__ import annotations

import json
import os
from typing import Final

from turnline import Agent
from turnline.agent.messages import Message, UserMessage
from turnline.testing import ScriptedModel

LARGE: Final = ("acme", "globex", "initech")


def guess(messages: tuple[Message, ...]) -> str:
    """What the script says: large companies are worth a call."""
    asked = " ".join(one.text for one in messages if isinstance(one, UserMessage)).lower()
    is_large = any(name in asked for name in LARGE)
    return json.dumps({"potential": "high" if is_large else "low", "score": 91 if is_large else 40})


classifier = Agent(
    "classifier",
    "You judge how likely a lead becomes a customer. Say its potential (low, medium or high) and a score, "
    "from 0 to 100.",
    config=os.environ.get("TURNLINE_MODEL") or ScriptedModel(guess),
)
